"""`--lock`, `--locked` and `--verify` from the command line, and lint of locks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from speclaunch.serving.launch.runs import free_port
from tests.support import program
from tests.support.serving.launch import fake_sglang

Run = Callable[..., "CompletedProcess[str]"]
LOCK = "lock: {recipe: mine.yaml, engine: {version: 0.5.23}}\n"
ARGS = "args: {model_path: m, speculative_algorithm: NGRAM, tp_size: 2}\n"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def call(*words: str | Path) -> CompletedProcess[str]:
        env = {**os.environ, "SPECLAUNCH_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
        return program.run(*words, cwd=tmp_path, env=env)

    return call


@pytest.mark.thorough
def test_a_lock_is_written_and_starts_only_what_it_records(run: Run, tmp_path: Path) -> None:
    recipe = fake_sglang.recipe(tmp_path, "mine")
    name, port = f"recipe={recipe.name}", f"args.port={free_port()}"
    written = run("launch", name, port, "args.api_key=sk-9f2c1e7ab04d", "--smoke", "--lock")
    assert written.returncode == 0, written.stderr
    assert "locked: mine.lock.yaml" in written.stderr
    path = tmp_path / "mine.lock.yaml"
    text = path.read_text()
    assert "sk-9f" not in text
    assert f"overrides: [{port}, 'args.api_key=" + r"\${oc.env:API_KEY}']" in text
    path.write_text(text.replace(": ${oc.env:API_KEY}", ": sk-9f2c1e7ab04d"))

    dry = [
        run("launch", *words, "--dry-run").stdout for words in ((name, port), ("./mine.lock.yaml",))
    ]
    options = [[line.strip(" \\") for line in text.splitlines() if "  --" in line] for text in dry]
    assert [line for line in options[1] if "api-key" not in line] == options[0]
    again = run("launch", name, "args.api_key=sk-9f2c1e7ab04d", "--locked", "--smoke")
    assert again.returncode == 0, again.stderr
    (last,) = json.loads(run("runs", "ls", "--output-format", "json").stdout)["runs"][-1:]
    shown = json.loads(run("runs", "show", last["name"], "--output-format", "json").stdout)
    assert shown["recipe"]["overrides"] == [f"recipe={path}"]

    metadata = next((tmp_path / "engine" / "site").glob("*.dist-info"))
    shutil.copytree(metadata, metadata.with_name("extra-1.0.dist-info"))
    extra = metadata.with_name("extra-1.0.dist-info") / "METADATA"
    extra.write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    refused = run("launch", name, "args.tp_size=2", "--locked", "--smoke")
    assert refused.returncode == 1
    assert "error: argument tp_size is 2, and the lock has none" in refused.stderr
    assert "error: package extra is 1.0, and the lock has none" in refused.stderr
    assert "mine was not started: 2 differences from mine.lock.yaml" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lock"], "--lock needs --smoke"),
        (["--lock", "--smoke", "--locked"], "--lock cannot be combined with --locked"),
        (["--locked", "--force"], "--locked cannot be combined with --force"),
        (["--verify"], "--verify needs --lock or --locked"),
        (["--locked"], "there is no lock cpu_ngram.lock.yaml"),
    ],
)
def test_contradictions_and_a_missing_lock_are_usage_errors(
    run: Run, words: list[str], message: str
) -> None:
    done = run("launch", "recipe=cpu_ngram", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("verb", ["bench", "prove"])
def test_a_dry_run_measures_nothing_to_lock(run: Run, verb: str) -> None:
    done = run(verb, "recipe=cpu_ngram", "--dry-run", "--lock")
    assert done.returncode == 2
    assert "nothing to lock" in done.stderr


def findings(done: CompletedProcess[str]) -> list[tuple[str, str, int]]:
    return [
        (finding["code"], Path(finding["path"]).name, finding["line"])
        for file in json.loads(done.stdout)["files"]
        for finding in file["findings"]
        if finding["severity"] != "info"
    ]


@pytest.mark.thorough
def test_a_lock_is_checked_with_its_recipe(run: Run, tmp_path: Path) -> None:
    recipe, lock = tmp_path / "mine.yaml", tmp_path / "mine.lock.yaml"
    recipe.write_text(ARGS)
    alone = findings(run("lint", ".", "--output-format", "json"))
    lock.write_text(ARGS + LOCK)
    assert findings(run("lint", ".", "--output-format", "json")) == alone
    assert findings(run("lint", recipe, lock, "--output-format", "json")) == alone
    recipe.write_text("args:\n  model_path: m\n  speculative_algorithm: NGRAM\n  tp_size: 4\n")
    for words in ([tmp_path], [recipe], [recipe, lock]):
        found = findings(run("lint", *words, "--output-format", "json"))
        assert ("SPL018", "mine.yaml", 4) in found
        assert "mine.lock.yaml" not in {name for _, name, _ in found}
    assert ("SPL018", "mine.lock.yaml", 1) in findings(run("lint", lock, "--output-format", "json"))
    lock.write_text("args: [\nlock:\n")
    found = findings(run("lint", recipe, "--output-format", "json"))
    assert ("SPL018", "mine.yaml", 1) in found
    recipe.unlink()
    assert {name for _, name, _ in findings(run("lint", ".", "--output-format", "json"))} == {
        "mine.lock.yaml"
    }


@pytest.mark.thorough
def test_a_changed_lock_is_noticed_by_a_cached_lint(run: Run, tmp_path: Path) -> None:
    recipe, lock = tmp_path / "mine.yaml", tmp_path / "mine.lock.yaml"
    recipe.write_text(ARGS)
    codes = []
    for text in (None, ARGS + LOCK, ARGS.replace("2", "8") + LOCK):
        if text is not None:
            lock.write_text(text)
        codes.append("SPL018" in run("lint", recipe).stdout)
    assert codes == [False, False, True]
