"""Every command of the README and of the documentation's first page, in order, as a newcomer types them.

The engine is the scripted one (no GPU here), `/models` an empty folder; a script and a log stand
where these pages take the reader's own. `make test` is the run that this test is part of.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from speclaunch.checks.rules.table import RULES
from speclaunch.core.resources import models_dir
from speclaunch.engine.releases.catalogue import held_versions
from tests.support.serving.launch import fake_engine, fake_sglang

REPOSITORY = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

SCRIPT = """\
#!/bin/bash
python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct \\
  --speculative-algorithm EAGLE3 --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B \\
  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \\
  --cuda-graph-max-bs 8
"""
LOG = "\n".join(
    (
        *fake_engine.START[:5],
        f"{fake_engine.STAMP} Capture cuda graph begin. This can take up to minutes.",
        f"{fake_engine.STAMP} Scheduler hit an exception: Traceback (most recent call last):",
        fake_engine.MEMORY_ERRORS["lower"],
    )
)

FINDS = {
    "speclaunch lint run.sh": 1,  # the script has a flag that 0.5.23 removed
    "speclaunch lint .": 1,
    "speclaunch doctor": 1,  # this machine has no GPU
    "speclaunch diagnose": 1,  # the log ends in a failure
    "speclaunch plan recipe=mine.yaml --hardware rtx4090 --fit": 1,  # it does not fit yet
}
"""Commands that are expected to report something."""

MEASURE = ("speclaunch bench", "speclaunch prove", "speclaunch tune", "speclaunch -m")
"""What takes engines that generate: tests/e2e/test_bench.py and test_sweep.py ask the real one."""

PAGES = ("README.md", "docs/index.md")


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str


def commands() -> list[Command]:
    """Return the lines of the pages' shell blocks, without their comments."""
    found: list[Command] = []
    for page in PAGES:
        inside = False
        for number, line in enumerate((REPOSITORY / page).read_text().splitlines(), 1):
            if line.startswith("```"):
                inside = line == "```bash"
            elif inside and (words := shlex.split(line, comments=True)):
                found.append(Command(page, number, shlex.join(words)))
    return found


SPECLAUNCH = [command for command in commands() if command.text.startswith("speclaunch ")]


class Shell:
    """A newcomer's terminal: an empty home, a folder of work, an SGLang on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        (folder / "models").mkdir()
        (folder / "home").mkdir()
        self.work.mkdir()
        (self.work / "run.sh").write_text(SCRIPT)
        (self.work / "engine.log").write_text(LOG)
        bin_ = folder / "bin"
        bin_.mkdir()
        (bin_ / "python3").symlink_to(fake_sglang.install(folder / "engine"))
        self._models = folder / "models"
        self._env = {
            "HOME": str(folder / "home"),
            "PATH": os.pathsep.join([str(bin_), str(BIN), "/usr/bin", "/bin"]),
            "PYTHONUNBUFFERED": "1",
            **({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}),
        }

    def start(self, text: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", "exec " + text.replace("/models", str(self._models))],
            cwd=self.work,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, text: str) -> tuple[int, str]:
        process = self.start(text)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def serve(self, text: str) -> tuple[int, str]:
        """Start a server, and press Ctrl-C when it serves."""
        process = self.start(text)
        said = ""
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if "Press Ctrl-C" in line:
                process.send_signal(signal.SIGINT)
        return process.wait(60), said


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.run("speclaunch stop --all")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
        return number


def serves(text: str) -> bool:
    options = ("--dry-run", "--smoke", "--detach")
    return text.startswith("speclaunch recipe=") and not any(o in text for o in options)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_of_the_first_pages_work_in_order(shell: Shell, port: int) -> None:
    assert len(SPECLAUNCH) > 20
    for command in SPECLAUNCH:
        text = command.text
        if text.startswith("speclaunch recipe=") and "--dry-run" not in text:
            text += f" args.port={port}"  # other tests may be serving at 30000
        if text.startswith(MEASURE):
            text += " --dry-run"
        if text == "speclaunch watch":
            text += " --once"
        code, said = (shell.serve if serves(text) else shell.run)(text)
        expected = next((c for start, c in FINDS.items() if command.text.startswith(start)), 0)
        if serves(command.text):
            expected = 130
        assert code == expected, f"{command.page}:{command.line}: {command.text}\n{said}"
        assert "Traceback" not in said, said
        assert said.strip(), f"{command.page}:{command.line}: {command.text} says nothing"
    assert (shell.work / "mine.yaml").is_file()
    assert "<html" in (shell.work / "plan.html").read_text()


def test_each_other_command_is_one_that_this_file_knows() -> None:
    others = [command.text for command in commands() if command not in SPECLAUNCH]
    assert others == [
        "make run",
        "make test",
        "pip install .",
        "pip install .",
        "make dist",
        "pip install 'dist/speclaunch-*.whl'",
    ]
    for target in ("run", "test", "dist"):
        subprocess.run(["make", "-n", target], cwd=REPOSITORY, check=True, capture_output=True)


def test_the_numbers_of_the_readme_are_those_of_their_sources() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    recall, agreement = (
        (REPOSITORY / "docs" / "reference" / f"{name}.md").read_text()
        for name in ("recall", "agreement")
    )
    (refused, found, accepted, alarms) = re.findall(
        r"^\| all \| (\d+) \| ([\d.]+)% \| [\d.]+% \| (\d+) \| (\d+) \|", recall, re.M
    )[0]
    assert f"an error for {found}% of {int(refused):,} random command lines" in readme
    assert f"no false alarm for {int(accepted):,} that it accepts" in readme
    assert alarms == "0"
    (compared,) = re.findall(r"(\d+) configurations \(", agreement)
    (releases,) = re.findall(r"^Releases: (.*)\.$", agreement, re.M)
    assert f"{int(compared):,} configurations in {len(releases.split(', '))} releases" in readme
    assert f"{len(RULES)} active rules" in readme
    assert f"{len(held_versions())} SGLang versions" in readme
    assert sum(1 for _ in models_dir().rglob("*.json")) > 400  # "over 400 public checkpoints"


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_make_dist_builds_installs_and_works_elsewhere(tmp_path: Path) -> None:
    """An empty environment, another folder, no clone in sight."""
    clone = tmp_path / "clone"
    names = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in names:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, clone / name)
    (clone / ".venv").symlink_to(BIN.parent)
    subprocess.run(
        ["make", "--assume-old=.venv/bin/.ready", "dist"],
        cwd=clone,
        check=True,
        capture_output=True,
    )
    assert len(list((clone / "dist").glob("*.tar.gz"))) == 1
    (wheel,) = (clone / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, env=_bare())
    shutil.rmtree(clone)
    program = tmp_path / "env" / "bin" / "speclaunch"
    for words, expected in ((["recipes"], 0), (["explain", "SPL201"], 0), (["lint", "."], 3)):
        done = subprocess.run([program, *words], cwd=tmp_path / "env", env=_bare())
        assert done.returncode == expected, words
    done = subprocess.run(
        [program, "recipe=eagle3_llama8b", "--dry-run"],
        cwd=tmp_path,
        env=_bare(),
        text=True,
        capture_output=True,
    )
    assert "--speculative-algorithm EAGLE3" in done.stdout


def _bare() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_make_run_launches_the_real_engine() -> None:
    done = subprocess.run(
        ["make", "run", f"VENV={BIN.parent}"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"acceptance length [2-9]\.\d\d", done.stdout + done.stderr)
