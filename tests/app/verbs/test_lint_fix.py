"""`speclaunch lint --fix`, `--unsafe-fixes` and `--diff`: files, streams and exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from speclaunch.app.verbs.fixing import Fixes, code_of
from speclaunch.checks.edit.fix_files import FixedFile, LeftFix
from speclaunch.checks.rules.interface import Severity
from tests.support import program
from tests.support.app.output.formats.made import finding

VARIABLE = "export SGLANG_ENABLE_SPEC_V2=1\n"
SERVER = """python3 -m sglang.launch_server --model-path m --port 31000 \\
  --speculative-algorithm EAGLE3 --speculative-draft-model-path d \\
  --speculative-num-steps 3 --speculative-num-draft-tokens 4{more}
"""
UNSAFE = SERVER.format(more="")
CLEAN = SERVER.format(more=" \\\n  --speculative-eagle-topk 1")
HEAD = "#!/bin/bash\n# to start\n"
SCRIPT = HEAD + VARIABLE + UNSAFE
SAFE = HEAD + UNSAFE
ALL = HEAD + CLEAN


def lint(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return program.run("lint", "--engine", "0.5.23", *words, cwd=folder, given=given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.sh").write_text(SCRIPT)
    return tmp_path


@pytest.mark.thorough
def test_safe_fixes(folder: Path) -> None:
    done = lint(folder, "--fix")
    assert (folder / "run.sh").read_text() == SAFE
    assert done.returncode == 1  # SPL103 is an error, and its fix is unsafe
    assert "fixed SPL203 run.sh:3:30: removed SGLANG_ENABLE_SPEC_V2\n" in done.stdout
    assert "1 fixed, 1 left (1 fix is unsafe: --unsafe-fixes)\n" in done.stdout
    assert "SPL203]" not in done.stdout
    again = lint(folder, "--fix")
    assert (folder / "run.sh").read_text() == SAFE
    assert "0 fixed, 1 left (1 fix is unsafe: --unsafe-fixes)\n" in again.stdout


@pytest.mark.thorough
def test_all_fixes(folder: Path) -> None:
    done = lint(folder, "--unsafe-fixes")
    assert (folder / "run.sh").read_text() == ALL
    assert done.returncode == 0
    assert "2 fixed, 0 left\n" in done.stdout


@pytest.mark.thorough
def test_a_difference(folder: Path) -> None:
    done = lint(folder, "--diff", "--unsafe-fixes")
    assert (folder / "run.sh").read_text() == SCRIPT
    assert done.returncode == 1
    assert "would fix SPL203" in done.stderr
    assert "2 would be fixed, 0 left" in done.stderr
    subprocess.run(["git", "apply", "-"], input=done.stdout, text=True, check=True, cwd=folder)
    assert (folder / "run.sh").read_text() == ALL
    clean = lint(folder, "--diff")
    assert (clean.returncode, clean.stdout) == (0, "")


@pytest.mark.thorough
@pytest.mark.parametrize("more", [["--output-format", "json"], ["--output-file", "sarif=x.sarif"]])
def test_a_difference_is_no_report(folder: Path, more: list[str]) -> None:
    done = lint(folder, "--diff", *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--diff cannot be combined with --output-format or --output-file" in done.stderr
    assert [one.name for one in folder.iterdir()] == ["run.sh"]
    assert lint(folder, "--diff", "--output-format", "text").returncode == 1


def test_nothing_to_fix_leaves_the_difference_empty_whatever_is_found(folder: Path) -> None:
    (folder / "run.sh").write_text(SAFE)
    done = lint(folder, "--diff")
    assert (done.returncode, done.stdout) == (0, "")
    assert "1 fix is unsafe" in done.stderr


@pytest.mark.thorough
def test_standard_input(folder: Path) -> None:
    done = lint(folder, "--fix", "-", given=SCRIPT)
    assert done.stdout == SAFE
    assert "fixed SPL203 <stdin>:3:30" in done.stderr
    assert "SPL103]" in done.stderr
    assert done.returncode == 1
    plain = lint(folder, "--fix", "--output-format", "json", "-", given=SCRIPT)
    assert plain.stdout == SAFE
    assert lint(folder, "--diff", "-", given=SCRIPT).stdout.startswith("--- a/<stdin>\n")
    nothing = lint(folder, "--fix", "-", given="echo hello\n")
    assert (nothing.returncode, nothing.stdout) == (3, "echo hello\n")


@pytest.mark.thorough
def test_findings_say_what_applies_their_fix(folder: Path) -> None:
    for _ in range(2):  # checked, then remembered
        text = lint(folder, "--info").stdout
        assert "help: remove it [--fix]\n" in text
        advice = "help: set speculative_eagle_topk to 1, which drafts a chain [--unsafe-fixes]\n"
        assert advice in text
        document = json.loads(lint(folder, "--output-format", "json").stdout)
        (file,) = document["files"]
        kinds = {one["code"]: one["applicability"] for one in file["findings"]}
        assert kinds["SPL203"] == "safe"
        assert kinds["SPL103"] == "unsafe"
        assert None in kinds.values()


def test_json_is_the_report_after_the_fixes(folder: Path) -> None:
    done = lint(folder, "--fix", "--output-format", "json")
    codes = [one["code"] for one in json.loads(done.stdout)["files"][0]["findings"]]
    assert "SPL203" not in codes
    assert "SPL103" in codes
    assert "fixed SPL203" in done.stderr


@pytest.mark.thorough
def test_what_is_remembered_is_fixed_as_well(folder: Path) -> None:
    lint(folder)
    lint(folder, "--unsafe-fixes")
    assert (folder / "run.sh").read_text() == ALL


def test_a_link_a_mode_and_a_mark_stay(folder: Path) -> None:
    (folder / "real").mkdir()
    file = folder / "real" / "server.md"
    file.write_bytes(
        b"\xef\xbb\xbf" + f"```sh\n{VARIABLE}{CLEAN}```".replace("\n", "\r\n").encode()
    )
    file.chmod(0o640)
    link = folder / "page.md"
    link.symlink_to("real/server.md")
    lint(folder, "--fix", "page.md")
    assert link.is_symlink()
    assert (
        file.read_bytes() == b"\xef\xbb\xbf" + f"```sh\n{CLEAN}```".replace("\n", "\r\n").encode()
    )
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in (folder / "real").iterdir()) == ["server.md"]


def test_a_file_that_cannot_be_written(folder: Path) -> None:
    folder.chmod(0o555)
    try:
        done = lint(folder, "--fix", "run.sh")
    finally:
        folder.chmod(0o755)
    if (folder / "run.sh").read_text() == SAFE:
        pytest.skip("permissions do not hold this user back")
    assert done.returncode == 2
    assert "cannot write" in done.stderr


def test_a_file_that_nobody_can_write_is_not_told_fixed(folder: Path) -> None:
    """Its name leaves no room for that of the file beside it, whoever writes."""
    name = f"{'r' * 252}.sh"
    (folder / name).write_text(SCRIPT)
    done = lint(folder, "--fix", ".")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"cannot write {folder.resolve() / name}" in done.stderr
    assert (folder / name).read_text() == SCRIPT and (folder / "run.sh").read_text() == SAFE
    told = [line for line in done.stdout.splitlines() if line.startswith("fixed ")]
    assert told == ["fixed SPL203 run.sh:3:30: removed SGLANG_ENABLE_SPEC_V2"]
    assert sorted(one.name for one in folder.iterdir()) == sorted([name, "run.sh"])


def test_a_value_of_a_config_file_is_left_in_its_script(folder: Path) -> None:
    config = "speculative-algorithm: EAGLE3\nspeculative-draft-model-path: d\n"
    config += "speculative-num-steps: 3\nspeculative-eagle-topk: 1\n"
    config += "speculative-num-draft-tokens: 9\n"
    text = HEAD + "python3 -m sglang.launch_server --model-path m --config server.yaml\n"
    (folder / "server.yaml").write_text(config)
    (folder / "run.sh").write_text(text)
    done = lint(folder, "--unsafe-fixes", "run.sh")
    assert done.returncode == 1
    said = "left SPL105 server.yaml:5:1: --speculative-num-draft-tokens is set in server.yaml\n"
    assert said in done.stdout
    assert (folder / "run.sh").read_text() == text
    assert (folder / "server.yaml").read_text() == config


@pytest.mark.parametrize(
    ("severity", "code"),
    [(Severity.INFO, 0), (Severity.WARNING, 1), (Severity.ERROR, 1)],
)
def test_a_remark_whose_fix_is_left_fails_nothing(severity: Severity, code: int) -> None:
    left = LeftFix(finding("run.sh", 1, severity=severity), "no edit of its text applies the fix")
    done = Fixes([FixedFile("run.sh", SCRIPT, SCRIPT, left=[left])])
    assert code_of(done, only_shown=False) == code


def test_a_fix_that_is_left_is_named(folder: Path) -> None:
    shared = "A=(--speculative-num-draft-tokens 4 --speculative-eagle-topk 1)\n"
    server = UNSAFE.replace("--speculative-num-draft-tokens 4", '"${A[@]}"')
    text = shared + server + server.replace("31000", "31001").replace("steps 3", "steps 5")
    (folder / "run.sh").write_text(text)
    done = lint(folder, "--unsafe-fixes")
    assert (folder / "run.sh").read_text() == text
    assert done.returncode == 1
    said = "left SPL105 run.sh:1:4: the command of line 2 would change, too: speculative_num_draft"
    assert said in done.stdout


@pytest.mark.thorough
def test_secrets_are_not_shown(folder: Path) -> None:
    text = SCRIPT.replace("31000", "31000 --api-key sk-verysecret9f8e7d6c5b")
    (folder / "run.sh").write_text(text)
    done = lint(folder, "--diff", "--unsafe-fixes")
    assert "verysecret" not in done.stdout + done.stderr
    assert lint(folder, "--unsafe-fixes").returncode == 0
    assert "verysecret" in (folder / "run.sh").read_text()


@pytest.mark.thorough
def test_a_recipe_and_its_group(folder: Path) -> None:
    groups = folder / "conf" / "speculation"
    groups.mkdir(parents=True)
    group = "# @package args\nspeculative_algorithm: EAGLE3\nspeculative_draft_model_path: d\n"
    group += "speculative_num_steps: 3\nspeculative_num_draft_tokens: 9\n"
    (groups / "mine.yaml").write_text(group)
    text = (
        'name: r\ndefaults: [base, speculation: mine, _self_]\nengine: {version: "0.5.23"}\nargs:\n'
    )
    (folder / "r.yaml").write_text(text + "  model_path: m\n")
    done = lint(folder, "--unsafe-fixes", "--config-dir", "conf", "r.yaml")
    assert done.returncode == 0, done.stdout
    assert (groups / "mine.yaml").read_text() == group
    added = "  model_path: m\n  speculative_eagle_topk: 1\n  speculative_num_draft_tokens: 4\n"
    assert (folder / "r.yaml").read_text() == text + added


@pytest.mark.thorough
def test_several_processes_do_the_same(folder: Path) -> None:
    (folder / "run.sh").unlink()
    said = {}
    for jobs in ("1", "3"):
        own = folder / jobs
        own.mkdir()
        for number in range(7):
            secret = " --api-key sk-verysecret9f8e7d6c5b" if number == 3 else ""
            text = SCRIPT.replace("31000", f"3100{number}").replace("tokens 4", f"tokens 4{secret}")
            (own / f"{number}.sh").write_text(text)
        config = "speculative-algorithm: EAGLE3\nspeculative-draft-model-path: d\n"
        config += "speculative-num-steps: 3\nspeculative-eagle-topk: 1\n"
        config += "speculative-num-draft-tokens: 9\n"
        (own / "a.yaml").write_text(config)
        server = "python3 -m sglang.launch_server --model-path m --config a.yaml\n"
        (own / "follows.sh").write_text(server)
        shown = lint(own, "--jobs", jobs, "--unsafe-fixes", "--diff", ".")
        assert "verysecret" not in shown.stdout and "secret value is hidden" in shown.stderr
        done = lint(own, "--jobs", jobs, "--unsafe-fixes", ".")
        texts = {one.name: one.read_text() for one in sorted(own.iterdir())}
        said[jobs] = shown.stdout, shown.stderr, done.returncode, done.stdout, texts
    assert said["1"] == said["3"]
    assert "verysecret" in said["3"][4]["3.sh"]
    assert said["3"][3].count("fixed SPL203") == 7


def test_a_fix_is_for_all_versions_that_are_asked(folder: Path) -> None:
    """Before 0.5.11 the variable turns SpecV2 on."""
    (folder / "run.sh").write_text(HEAD + VARIABLE + CLEAN)
    done = program.run("lint", "--engine", "0.5.9,0.5.23", "--fix", cwd=folder)
    assert (folder / "run.sh").read_text() in (HEAD + VARIABLE + CLEAN, HEAD + CLEAN)
    assert "Traceback" not in done.stderr
