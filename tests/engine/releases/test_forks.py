"""An engine that is no release is judged by its own arguments, wherever it is declared."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.rules.examine import Lookup, check_rules
from speclaunch.checks.rules.registry import by_code
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.load import load as load_recipe
from speclaunch.deployments.sources.requests import from_words
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.engines import declared, installed_catalogue, named
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.runtime import Runtime
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases import forks
from speclaunch.engine.releases.catalogue import (
    ResolvedVersion,
    add_fork,
    held_versions,
    load,
    resolve_version,
)
from speclaunch.serving.launch.inputs import engine_argv
from tests.app.verbs.test_cli import run
from tests.support import program
from tests.support.lint_report import collect, lint

SOURCE = """import argparse

BACKENDS = ["triton", "b12x"]


class ServerArgs:
    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        parser.add_argument("--model-path", type=str, required=True)
        parser.add_argument("--host", type=str, default="127.0.0.1")
        parser.add_argument("--port", type=int, default=30000)
        parser.add_argument("--attention-backend", type=str, choices=BACKENDS)
        parser.add_argument("--ours", type=int, default=3)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("SPECLAUNCH_HOME", str(place))
    return place


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """A checkout of a fork."""
    package = tmp_path / "checkout" / "python" / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "version.py").write_text('__version__ = "0.5.21+ours"\n')
    (package / "srt" / "server_args.py").write_text(SOURCE)
    return tmp_path / "checkout"


def recipe(tmp_path: Path, engine: str, args: str = "attention_backend: b12x, ours: 4") -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(f"name: r\nengine: {{{engine}}}\nargs: {{model_path: m, {args}}}\n")
    return path


def codes(path: Path, *versions: str) -> list[str]:
    rules = tuple(rule for code in ("SPL001", "SPL003", "SPL008") if (rule := by_code(code)))
    report = lint(collect([str(path)]), Options(Lookup(), rules, versions))
    return [finding.code for file in report.files for finding in file.findings]


def test_a_path_is_an_engine_of_its_own(fork: Path) -> None:
    found = resolve_version(str(fork))
    assert found.exact and found.held.startswith("0.5.21+fork.")
    assert load(found.held).by_name("ours") is not None
    assert load(found.held).by_name("speculative_algorithm") is None
    assert found.held not in held_versions()  # nobody else takes it for a release
    assert load(found.held).variables.keys() == load("0.5.21").variables.keys()


def test_the_name_of_its_judge_is_its_name(fork: Path, home: Path, tmp_path: Path) -> None:
    """As `engine judge add my-fork --from ./checkout` leaves it."""
    release = add_fork(fork)
    check_rules = home / "judges" / "my-fork"
    check_rules.mkdir(parents=True)
    (check_rules / "judge.json").write_text(json.dumps({"name": "my-fork", "release": release}))
    assert resolve_version("my-fork") == ResolvedVersion("my-fork", release, exact=True)
    path = recipe(tmp_path, "")
    assert codes(path, "0.5.21") != [] == codes(path, named("my-fork").held)
    done = run("lint", str(path), "--engine", "my-fork", "--ask", "never")
    assert (done.returncode, done.stdout.count("error")) == (0, 0), done.stdout
    for name in ("my-frok", "..", ".", "judges", ""):
        with pytest.raises(InputError):
            resolve_version(name)
    for text in ("{", "[]", '{"release": 5}', '{"release": "my-fork"}', '{"release": "no"}'):
        (check_rules / "judge.json").write_text(text)
        with pytest.raises(InputError):
            resolve_version("my-fork")


def test_it_is_read_anew_when_it_has_changed(fork: Path) -> None:
    first = resolve_version(str(fork)).held
    assert resolve_version(str(fork)).held == first
    file = fork / "python" / "sglang" / "srt" / "server_args.py"
    file.write_text(SOURCE.replace("--ours", "--theirs"))
    os.utime(file, ns=(1, 1))
    second = resolve_version(str(fork)).held
    assert second != first and load(second).by_name("theirs") is not None


@pytest.mark.parametrize("relative", [True, False])
def test_a_recipe_declares_it(relative: bool, fork: Path, tmp_path: Path) -> None:
    where = "checkout" if relative else str(fork)
    path = recipe(tmp_path, f"catalogue: {where}")
    assert codes(path) == []
    assert codes(path, "0.5.21") == ["SPL003", "SPL001"]  # asked for a release, judged for it
    prepared = prepare(load_recipe(str(path)), dry_run=True)
    assert prepared.version.startswith("0.5.21+fork.")
    assert engine_argv(prepared, None)[3:] == [
        *("--model-path", "m", "--attention-backend", "b12x", "--ours", "4")
    ]


def test_a_pin_goes_with_it(fork: Path, tmp_path: Path) -> None:
    assert codes(recipe(tmp_path, "version: '0.5.21', catalogue: checkout")) == []
    (fork / "python" / "sglang" / "version.py").unlink()  # a checkout need not say its version
    assert codes(recipe(tmp_path, "version: '0.5.21', catalogue: checkout")) == []
    assert codes(recipe(tmp_path, "catalogue: checkout")) == ["SPL000"]


def test_one_that_is_not_there_is_no_release(tmp_path: Path) -> None:
    path = recipe(tmp_path, "catalogue: ./nothing")
    report = lint(collect([str(path)]), Options(Lookup(), ()))
    (finding,) = report.files[0].findings
    assert finding.code == "SPL000" and "no such file" in finding.message
    assert (finding.place.line, report.unreadable) == (2, True)
    with pytest.raises(InputError, match="no such file"):
        prepare(load_recipe(str(path)), dry_run=True)


def test_a_catalogue_that_was_added(fork: Path, tmp_path: Path) -> None:
    kept = forks.file_of(resolve_version(str(fork)).held, tmp_path / "home" / "catalogue")
    copy = tmp_path / "ours.json"
    copy.write_bytes(kept.read_bytes())
    assert load(declared(str(copy))).by_name("ours") is not None
    copy.write_text("{}")
    with pytest.raises(InputError, match="not a catalogue"):
        declared(str(copy))


def test_the_engine_at_hand_is_read_where_it_is_no_release(fork: Path) -> None:
    place = fork / "python" / "sglang"
    found = installed_catalogue(Runtime(Path("python3"), "3.12", {"sglang": "0.5.21+ours"}, place))
    assert found is not None and load(found).by_name("ours") is not None
    assert (
        installed_catalogue(Runtime(Path("python3"), "3.12", {"sglang": "0.5.21"}, place))
        == "0.5.21"
    )
    assert (
        installed_catalogue(Runtime(Path("python3"), "3.12", {"sglang": "0.5.21+x"}, None))
        == "0.5.21"
    )
    assert installed_catalogue(Runtime(Path("python3"), "3.12", {})) is None


def test_where_none_is_installed_that_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "s.sh"
    script.write_text("sglang serve --model-path m\n")
    monkeypatch.setenv("PATH", "/nowhere")
    for words in (["lint", "s.sh"], ["import", "s.sh"], ["plan", "ngram_qwen7b"]):
        done = program.run(*words, "--engine", "installed", cwd=tmp_path)
        assert done.returncode == 2, words
        assert "no engine is installed: no Python with sglang was found" in done.stderr
        assert "help: name a release, such as 0.5." in done.stderr
    (tmp_path / "speclaunch.toml").write_text('engine = "installed"\n')
    done = program.run("lint", "s.sh", cwd=tmp_path)
    assert done.returncode == 2 and "--> speclaunch.toml:1" in done.stderr


@pytest.mark.thorough
def test_every_verb_takes_it(fork: Path, tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text("sglang serve --model-path m --attention-backend b12x --ours 4\n")
    engine = ("--engine", str(fork))
    home = {"SPECLAUNCH_HOME": str(tmp_path / "home")}
    refused = run("lint", "s.sh", "--engine", "0.5.21", cwd=tmp_path, **home)
    assert refused.returncode == 1
    assert (
        refused.stdout.count("for a fork, add --engine installed, or --engine with the path") == 2
    )
    assert run("lint", "s.sh", *engine, cwd=tmp_path, **home).returncode == 0
    imported = run("import", "s.sh", *engine, cwd=tmp_path, **home)
    assert imported.returncode == 0 and "ours: 4" in imported.stdout, imported.stderr
    migrated = run("migrate", "s.sh", "--to", str(fork), "--diff", cwd=tmp_path, **home)
    assert migrated.returncode == 0 and not migrated.stdout, migrated.stdout + migrated.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--attention-backend b12x", True),
        ("--ours 4", True),
        ("--attention-backend hpc_ops", False),  # a later release has it
        ("--speculative-num-steps two", False),
        ("--speculative-dflash-draft-window-size 4", False),  # an older one had it
    ],
)
def test_the_finding_says_how_to_declare_a_fork(words: str, told: bool) -> None:
    version = "0.5.11" if "hpc_ops" in words else "0.5.23"
    request = from_words(["--model-path", "m", *words.split()], {}, load(version))
    rules = [rule for code in ("SPL001", "SPL003") if (rule := by_code(code))]
    (finding,) = check_rules(resolve(request, Facts()), rules).findings
    assert finding.fix is not None or not told
    assert ("for a fork, add --engine" in (finding.fix.text if finding.fix else "")) is told


def test_a_declared_engine_is_no_other_fork(fork: Path, tmp_path: Path) -> None:
    path = recipe(tmp_path, "catalogue: checkout", "kt_numa_nodes: 1")
    rules = tuple(rule for code in ("SPL001",) if (rule := by_code(code)))
    (file,) = lint(collect([str(path)]), Options(Lookup(), rules, ())).files
    (finding,) = file.findings
    assert finding.severity == "error" and "KTransformers" not in finding.message
