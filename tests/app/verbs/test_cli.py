"""The command line as a script uses it: words, streams, exit codes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import speclaunch
from speclaunch.app.verbs.completing import options_of
from speclaunch.app.verbs.verbs import GROUPS, SHOWN, VERBS
from speclaunch.core.files import replace_file
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.serving.launch.inputs import engine_argv, new_run_dir, secrets_file_of
from tests.support import program
from tests.support.loops import rows


def run(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return program.run(*words, cwd=cwd, env={**os.environ, **env})


@pytest.mark.thorough
def test_a_dry_run_prints_a_command_on_standard_output_and_nothing_else(tmp_path: Path) -> None:
    done = run("recipe=eagle2_llama2_7b", "--dry-run", "--engine", "0.5.23", cwd=tmp_path)
    assert done.returncode == 0
    # what the recovery ladder would try is said on the way
    assert all(line.startswith("#") for line in done.stderr.splitlines())
    assert "python3 -m sglang.launch_server" in done.stdout
    assert "--speculative-algorithm EAGLE" in done.stdout
    syntax = subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False)
    assert syntax.returncode == 0


@pytest.mark.thorough
def test_launch_is_the_verb_that_may_be_left_out() -> None:
    words = ["recipe=ngram_qwen7b", "--dry-run", "--engine", "0.5.23", "args.port=31000"]
    short = run(*words)
    assert short.stdout == run("launch", *words).stdout
    assert short.stdout == run("--dry-run", *(word for word in words if word != "--dry-run")).stdout
    assert "--port 31000" in short.stdout


def test_a_dry_run_as_json() -> None:
    done = run("recipe=eagle3_llama8b", "--dry-run", "--engine=0.5.11", "--output-format", "json")
    document = json.loads(done.stdout)
    assert document["version"] == 1
    assert document["engine"] == "0.5.11"
    assert "--cuda-graph-max-bs" in document["argv"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipe=eagle3_lama8b"], "did you mean `eagle3_llama8b`"),
        (["recipe=ngram_qwen7b", "model=nope", "--dry-run"], "'model' has no option 'nope'"),
        (["recipe=ngram_qwen7b", "nope.x=1", "--dry-run"], "unknown key 'nope.x'"),
        (["recipe=ngram_qwen7b", "args.tpp=1", "--dry-run"], "no server argument `tpp`"),
        (["recipe=ngram_qwen7b", "args.port=x", "--dry-run"], "invalid int value: 'x'"),
        (["recipe=ngram_qwen7b", "args.port=0", "--dry-run"], "0 is not a port"),
        (["recipe=ngram_qwen7b", "args.dtype=foo", "--dry-run"], "invalid choice: 'foo'"),
        (["recipe=ngram_qwen7b", "--engine", "nonsense", "--dry-run"], "is not a version"),
        (["recipe=ngram_qwen7b", "--engine", "0.5.99x", "--dry-run"], "0.5.99x"),
        (["recipe=ngram_qwen7b", "--engine", "0.4.6", "--dry-run"], "cannot be served by"),
        (["recipe=cpu_ngram", "--engine", "0.5.11", "--dry-run"], "the CPU engine is SGLang"),
        (["recipe=cpu_ngram", "engine.version=0.5.15", "--dry-run"], "cannot verify a draft"),
        (["recipe=ngram_qwen7b", "arg.tp_size=2", "--dry-run"], "under `args`: args.tp_size=2"),
        (["args.port=3"], "no recipe specified"),
        (["recipe="], "choose a file, or one of: adaptive_eagle_llama2_7b, "),
        (["luanch", "recipe=cpu_ngram"], "did you mean `speclaunch launch recipe=cpu_ngram`?"),
        (
            ["plna", "recipe=cpu_ngram", "a=1"],
            "did you mean `speclaunch plan recipe=cpu_ngram a=1`",
        ),
        (["recipe=cpu_ngram.yml"], "did you mean `cpu_ngram`?"),
        (["recipe=Qwen/Qwen3-8B"], "Qwen/Qwen3-8B is a model, not a recipe"),
        (["plan", "Qwen/Qwen3-8B"], "speclaunch init Qwen/Qwen3-8B --hardware NAME"),
        (["recipes=ngram_qwen7b", "--dry-run"], "did you mean `recipe=ngram_qwen7b`?"),
        (["recipe=ngram_qwen7b", "recipes=x", "--dry-run"], "did you mean `recipe`"),
        (["recipe=ngram_qwen7b", "args.port=1", "args.port=2", "--dry-run"], "is set twice"),
        (["launch"], "Missing argument"),
        (["no-such-verb"], "No such command"),
        (["recipe=ngram_qwen7b", "--dryrun"], "No such option"),
        (["recipe=none.yaml"], "no such file"),
        (["recipe=ngram_qwen7b", "--config-dir", "/nonexistent"], "no such directory"),
        (["explain", "SPL30"], "did you mean `SPL301` or `SPL302`?"),
        (["engine", "install", "gpu"], "unknown engine 'gpu'"),
        (["recipes", "cp", "nope", "x.yaml"], "unknown recipe 'nope'"),
    ],
)
def test_a_wrong_command_line_is_one_clear_error_and_exit_2(words: list[str], said: str) -> None:
    done = run(*words, COLUMNS="200")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_file_in_place_of_a_verb_is_checked_by_one(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.touch()
    for verbs in ([], ["advisories"]):
        done = run(*verbs, str(script), COLUMNS="200")
        command = shlex.join(["speclaunch", *verbs, "check" if verbs else "lint", str(script)])
        assert done.returncode == 2
        assert f"{script} is a file, not a command" in done.stderr
        assert f"help: check it: {command}\n" in done.stderr


def test_a_typo_in_a_file_is_shown_with_its_line(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("defaults:\n  - ngram_qwen7b\n  - _self_\nargs:\n  mem_fracton_static: 0.8\n")
    done = run(f"recipe={recipe}", "--dry-run", "--engine", "0.5.23")
    assert done.returncode == 2
    assert f"--> {recipe}:5:3" in done.stderr
    assert "5 |   mem_fracton_static: 0.8" in done.stderr
    assert "^^^^^^^^^^^^^^^^^^" in done.stderr
    assert "did you mean `mem_fraction_static`" in done.stderr


@pytest.mark.thorough
def test_a_release_of_the_cpu_engine(tmp_path: Path) -> None:
    home = str(tmp_path / "empty")
    words = ["recipe=cpu_ngram", "engine.version=0.5.18", "engine.requires=0.5.18"]
    shown = run(*words, "--dry-run", SPECLAUNCH_HOME=home)
    assert f"{home}/cpu-engine-0.5.18/venv/bin/python" in shown.stdout
    missing = run(*words, "args.port=31999", SPECLAUNCH_HOME=home)
    assert missing.returncode == 1
    assert "speclaunch engine install cpu --release 0.5.18" in missing.stderr
    assert f"{home}/cpu-engine/" not in run("engine", "ls", SPECLAUNCH_HOME=home).stdout
    refused = run("engine", "install", "cpu", "--release", "0.5.14", SPECLAUNCH_HOME=home)
    assert refused.returncode == 1
    assert "choose one of 0.5.23, 0.5.22" in refused.stderr


@pytest.mark.thorough
def test_an_engine_that_is_not_there_is_exit_1(tmp_path: Path) -> None:
    missing = run("recipe=ngram_qwen7b", "engine.python=/nonexistent/python")
    assert missing.returncode == 1
    assert "/nonexistent/python is not a program" in missing.stderr
    without = run("recipe=ngram_qwen7b", f"engine.python={sys.executable}")
    assert without.returncode == 1
    assert "has no sglang" in without.stderr and "pip install sglang" in without.stderr
    cpu = run("recipe=cpu_ngram", "args.port=31999", SPECLAUNCH_HOME=str(tmp_path / "empty"))
    assert cpu.returncode == 1
    assert "speclaunch engine install cpu" in cpu.stderr
    assert not (tmp_path / "empty" / "runs").exists()


@pytest.mark.thorough
def test_version_and_help() -> None:
    assert run("--version").stdout == f"speclaunch {speclaunch.__version__}\n"
    for words in ([], ["--help"], ["-h"], ["launch", "--help"], ["recipes", "--help"]):
        assert "Usage" in run(*words, COLUMNS="100").stdout


def test_the_help_groups_every_verb_once() -> None:
    grouped = [name for _, names in GROUPS for name in names]
    assert sorted(grouped) == sorted(verb.name for verb in VERBS)
    lines = run("--help", COLUMNS="100").stdout.splitlines()
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "]
    assert titles == ["Options", *(title for title, _ in GROUPS)]
    rows = [line.split()[0] for line in lines if line[:2] == "  " and line[2:3] not in (" ", "")]
    expected = [SHOWN.get(name, name) for name in grouped]
    assert [name for name in rows if name in expected] == expected


@rows("verb", ["lint", "bench run", "tune", "init", "render"])
def test_a_file_is_named_alike_for_every_verb(verb: str) -> None:
    assert {"-o", "--output"} <= options_of(verb).keys()


@pytest.mark.thorough
def test_recipes_are_listed_and_copied(tmp_path: Path) -> None:
    listing = run("recipes", "ls")
    assert listing.returncode == 0
    assert "eagle3_llama8b" in listing.stdout
    assert run("recipes").stdout == listing.stdout
    copied = run("recipes", "cp", "ngram_qwen7b", "mine.yaml", cwd=tmp_path)
    assert copied.returncode == 0 and copied.stdout == "mine.yaml\n"
    assert "recipe=mine.yaml" in (tmp_path / "mine.yaml").read_text()
    again = run("recipes", "cp", "ngram_qwen7b", "mine.yaml", cwd=tmp_path)
    assert again.returncode == 2 and "exists" in again.stderr
    ours = run("recipe=ngram_qwen7b", "--dry-run", "--engine", "0.5.23").stdout
    theirs = run("recipe=mine.yaml", "--dry-run", "--engine", "0.5.23", cwd=tmp_path).stdout
    assert ours.replace("ngram_qwen7b", "mine") == theirs


@pytest.mark.thorough
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at each line"])
@pytest.mark.parametrize("words", [("recipes", "ls"), ("--help",), ("rules",)], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(words: tuple[str, ...], unbuffered: str) -> None:
    """`speclaunch … | head`, where head has ended before the first line is written."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*program.COMMAND, *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        text=True,
    )
    os.close(writer)
    assert "roken" not in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == 0


@pytest.mark.thorough
def test_findings_that_nobody_reads_are_no_success(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("sglang serve --model-path m --no-such-flag\n")
    for stderr in (None, subprocess.STDOUT):  # `| head`, `2>&1 | head`
        reader, writer = os.pipe()
        os.close(reader)
        words = [*program.COMMAND, "lint", str(script), str(tmp_path / "nothing.sh")]
        done = subprocess.run(words, stdout=writer, stderr=stderr, check=False)
        os.close(writer)
        assert done.returncode == 2


@pytest.mark.thorough
def test_secrets_go_into_a_private_file_and_not_into_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    recipe = load("ngram_qwen7b", ["args.api_key=sk-secret", "engine.env.HF_TOKEN=hf_secret"])
    prepared = prepare(recipe, "0.5.23", dry_run=True)
    assert set(prepared.secrets) == {"sk-secret", "hf_secret"}
    directory = new_run_dir(recipe)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert new_run_dir(recipe) != directory
    secrets = secrets_file_of(prepared, directory)
    assert secrets is not None
    replace_file(*secrets)
    file = secrets[0]
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == "api-key: sk-secret\n"
    command = engine_argv(prepared, file)
    assert command[3:5] == ["--config", str(file)]
    assert not any("secret" in word for word in command if word != str(file))
    old = prepare(recipe, "0.5.3", dry_run=True)
    assert secrets_file_of(old, new_run_dir(recipe)) is not None
    for words in (["--dry-run"], ["--dry-run", "--output-format", "json"]):
        done = run("recipe=ngram_qwen7b", "args.api_key=sk-secret", "--engine=0.5.23", *words)
        assert "sk-secret" not in done.stdout


@pytest.mark.thorough
def test_render() -> None:
    done = run("render", "recipe=slime_mtp_glm46", "--to", "slime", "--engine", "0.5.23")
    assert done.returncode == 0 and done.stderr == ""
    assert "SGLANG_ARGS=(" in done.stdout
    assert "--sglang-speculative-num-steps 3" in done.stdout
    wrong = run("render", "recipe=slime_mtp_glm46", "--to", "slimes")
    assert wrong.returncode == 2
    assert "did you mean `slime`" in wrong.stderr and "shell" in wrong.stderr


@pytest.mark.thorough
def test_a_catalogue_is_shown_and_added_from_a_package(tmp_path: Path) -> None:
    shown = run("engine", "catalogue", "show", "cuda_graph_max_bs")
    assert shown.returncode == 0
    assert "0.5.14" in shown.stdout and "deprecated" in shown.stdout and "absent" in shown.stdout
    unknown = run("engine", "catalogue", "show", "cuda_graph_maxbs")
    assert unknown.returncode == 2 and "`--cuda-graph-max-bs`" in unknown.stderr
    assert "0.5.23" in run("engine", "catalogue", "ls").stdout

    package = tmp_path / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "version.py").write_text('__version__ = "0.5.99"\n')
    (package / "srt" / "server_args.py").write_text(
        "import argparse\n\n\nclass ServerArgs:\n"
        "    @staticmethod\n    def add_cli_args(parser: argparse.ArgumentParser):\n"
        '        parser.add_argument("--model-path", type=str, required=True)\n'
        '        parser.add_argument("--brand-new", type=int, default=3)\n'
    )
    home = {"SPECLAUNCH_HOME": str(tmp_path / "home")}
    added = run("engine", "catalogue", "add", str(package), **home)
    assert added.returncode == 0, added.stderr
    assert added.stdout == "SGLang 0.5.99: 2 server arguments\n"
    recipe = tmp_path / "new.yaml"
    recipe.write_text("args: {model_path: x, brand_new: 4}\n")
    done = run(f"recipe={recipe}", "--dry-run", "--engine", "0.5.99", **home)
    assert "--brand-new 4" in done.stdout, done.stderr
    old = run(f"recipe={recipe}", "--dry-run", "--engine", "0.5.23", **home)
    assert old.returncode == 2 and "brand_new" in old.stderr


@pytest.mark.thorough
def test_ctrl_c_before_the_engine_is_started_is_exit_130(tmp_path: Path) -> None:
    import signal
    import time

    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nsleep 60\n")
    slow.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "speclaunch", "recipe=ngram_qwen7b", f"engine.python={slow}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "asked").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err and out == ""


@pytest.mark.thorough
def test_import_of_a_command_a_file_and_standard_input(tmp_path: Path) -> None:
    words = ["python", "-m", "sglang.launch_server", "--model-path", "x", "--tp", "2"]
    done = run("import", "--", *words)
    assert done.returncode == 0, done.stderr
    assert "tp_size: 2" in done.stdout
    script = tmp_path / "run.sh"
    script.write_text(" ".join(words) + " --speculative-algorithm NGRAM\n")
    imported = run("import", "run.sh", cwd=tmp_path)
    assert "speculative_algorithm: NGRAM" in imported.stdout
    (tmp_path / "mine.yaml").write_text(imported.stdout)
    launched = run("recipe=mine.yaml", "--dry-run", "--engine", "0.5.23", cwd=tmp_path)
    assert "--speculative-algorithm NGRAM" in launched.stdout
    piped = subprocess.run(
        [sys.executable, "-m", "speclaunch", "import", "-"],
        input=script.read_text(),
        capture_output=True,
        text=True,
    )
    assert "tp_size: 2" in piped.stdout

    script.write_text(f"{' '.join(words)}\n{' '.join(words)} --disaggregation-mode decode\n")
    several = run("import", "run.sh", cwd=tmp_path)
    assert several.returncode == 2 and "--command N" in several.stderr
    second = run("import", "run.sh", "--command", "2", cwd=tmp_path)
    assert "disaggregation_mode: decode" in second.stdout
    (tmp_path / "out").mkdir()
    both = run("import", "run.sh", "--to-dir", "out", cwd=tmp_path)
    assert both.returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "run_1.yaml",
        "run_2.yaml",
    ]


@pytest.mark.thorough
def test_import_says_what_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "empty.sh").write_text("echo hello\n")
    assert run("import", "empty.sh", cwd=tmp_path).returncode == 3
    assert run("import", "none.sh", cwd=tmp_path).returncode == 2
    (tmp_path / "bad.sh").write_text("python -m sglang.launch_server --model-path 'x\n")
    bad = run("import", "bad.sh", cwd=tmp_path)
    assert bad.returncode == 2 and "bad.sh:1:" in bad.stderr
    unknown = run("import", "--", "sglang", "serve", "--model-path", "x", "--nope", "3")
    assert unknown.returncode == 1 and "--nope" in unknown.stderr
    assert "model_path: x" in unknown.stdout
    owned = tmp_path / "owned"
    (tmp_path / "evil.sh").write_text(
        f"X=$(touch {owned})\nsglang serve --model-path $X `touch {owned}`\n"
    )
    run("import", "evil.sh", cwd=tmp_path)
    assert not owned.exists()


@pytest.mark.thorough
def test_migrate_in_place_and_as_a_patch(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    text = "sglang serve --model-path x --cuda-graph-max-bs 8\n"
    script.write_text(text)
    shown = run("migrate", "run.sh", "--to", "0.5.23", "--diff", cwd=tmp_path)
    assert shown.returncode == 0
    assert "+sglang serve --model-path x --cuda-graph-max-bs-decode 8" in shown.stdout
    assert script.read_text() == text
    done = run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path)
    assert done.returncode == 0 and "is now --cuda-graph-max-bs-decode" in done.stderr
    assert script.read_text() == text.replace("max-bs", "max-bs-decode")
    again = run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path)
    assert "needs no change" in again.stderr
    again = run("migrate", "run.sh", "--to", "0.5.23", "--diff", cwd=tmp_path)
    assert "needs no change" in again.stderr and not again.stdout
    assert run("migrate", "run.sh", "--to", "x.7", cwd=tmp_path).returncode == 2
    assert run("migrate", "none.sh", "--to", "0.5.23", cwd=tmp_path).returncode == 2


@pytest.mark.thorough
def test_migrate_writes_nothing_that_the_target_refuses(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    text = "sglang serve --model-path x --attention-backend nope --cuda-graph-max-bs 8\n"
    script.write_text(text)
    done = run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path)
    assert done.returncode == 1 and "run.sh is unchanged" in done.stderr
    assert "invalid choice: 'nope'" in done.stderr and "is now --cuda-graph" not in done.stderr
    assert script.read_text() == text
    shown = run("migrate", "run.sh", "--to", "0.5.23", "--diff", cwd=tmp_path)
    assert shown.returncode == 1 and not shown.stdout


@pytest.mark.thorough
def test_migrate_follows_a_config_file_and_says_what_it_was_read_for(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "python -m sglang.launch_server --config c.yaml --speculative-draft d\n"
    )
    (tmp_path / "c.yaml").write_text("model-path: x\ncollect-tokens-histogram: true\n")
    done = run("migrate", "run.sh", "--to", "0.5.23", "--from", "0.5.9", cwd=tmp_path)
    assert done.returncode == 1 and "ambiguous option: --speculative-draft" in done.stderr
    (tmp_path / "run.sh").write_text("python -m sglang.launch_server --config c.yaml\n")
    done = run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path)
    assert done.returncode == 0 and "read as a file for SGLang" in done.stderr
    migrated = (tmp_path / "c.yaml").read_text()
    assert "\ncollect-tokens-histogram" not in migrated and "model-path: x\n" in migrated
    assert run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path).returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(unbuffered: str) -> None:
    full = subprocess.run(
        f"{sys.executable} -m speclaunch recipes ls >/dev/full",
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert full.returncode == 1
    assert full.stderr == "error: cannot write the output: No space left on device\n"
    closed = subprocess.run(
        f"{sys.executable} -m speclaunch recipes ls >&-", shell=True, capture_output=True, text=True
    )
    assert closed.returncode == 0 and "bug" not in closed.stderr


@pytest.mark.thorough
def test_a_secret_among_the_overrides_is_not_in_the_process_list(tmp_path: Path) -> None:
    import time

    import psutil

    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    words = ["recipe=ngram_qwen7b", f"engine.python={slow}", "args.api_key=sk-secret"]
    process = subprocess.Popen([sys.executable, "-m", "speclaunch", *words])
    try:
        deadline = time.monotonic() + 60
        shown = ""
        while "***" not in shown and time.monotonic() < deadline:
            time.sleep(0.1)
            shown = " ".join(psutil.Process(process.pid).cmdline())
        assert "args.api_key=***" in shown and "sk-secret" not in shown
    finally:
        process.terminate()
        process.wait()


@pytest.mark.thorough
def test_a_python_that_is_none(tmp_path: Path) -> None:
    liar = tmp_path / "python"
    liar.write_text("#!/bin/sh\necho hello\n")
    liar.chmod(0o755)
    done = run("recipe=ngram_qwen7b", "engine.python=./python", cwd=tmp_path)
    assert done.returncode == 1
    assert "is not a working Python interpreter" in done.stderr
