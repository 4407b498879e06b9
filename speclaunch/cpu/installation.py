"""The steps of an installation. Each returns None when an earlier run has done it."""

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclaunch.cpu.artifacts import engine_environment, ensure_corpus, pip_environment
from speclaunch.cpu.environment import SGLANG_VERSION, CpuEngine, site_packages
from speclaunch.cpu.manifest import REQUIREMENTS, TORCH, write_manifest
from speclaunch.cpu.process import Completed, ignore, run_logged, write_atomically
from speclaunch.cpu.steps import AGAIN, InstallError, Report, Step, StepState

VERIFY_ENGINE = Path(__file__).with_name("verify_engine.py")

DISK_BYTES = 4 * 2**30
OLDEST_PYTHON = (3, 11)

_PROBE = "import sys, venv, ensurepip; print('%d.%d.%d' % sys.version_info[:3])"


@dataclass(frozen=True)
class Installation:
    """One run through the steps, with the lock held."""

    engine: CpuEngine
    report: Report
    torch_index: str | None
    source: Path
    """The interpreter to build the environment from."""
    lock: int

    def run(self, force: bool) -> None:
        """Go through all steps, then write the manifest."""
        self.engine.manifest.unlink(missing_ok=True)
        if force:
            shutil.rmtree(self.engine.venv, ignore_errors=True)
            shutil.rmtree(self.engine.cache, ignore_errors=True)
        found: dict[str, Any] = {}
        for index, (title, act) in enumerate(STEPS, start=1):
            outcome = self._do(index, title, act)
            if isinstance(outcome, dict):
                found = outcome
        write_manifest(
            self.engine,
            python=found["python"],
            packages=found["packages"],
            built_from=self.source,
            torch_index=self.torch_index,
        )

    def _do(self, index: int, title: str, act: "Act") -> object:
        """Do one step and report how it went."""

        def tell(state: StepState, detail: str = "") -> None:
            self.report(Step(index, len(STEPS), title, detail, state))

        def say(detail: str) -> None:
            tell(StepState.RUNNING, detail)

        tell(StepState.RUNNING)
        try:
            outcome = act(self, say)
        except InstallError as error:
            tell(StepState.FAILED, error.message)
            raise
        tell(StepState.SKIPPED if outcome is None else StepState.DONE)
        return outcome

    def check_machine(self, say: Callable[[str], None]) -> bool:
        """Refuse early what would fail late."""
        ended = self._run(self.source, "-c", _PROBE)
        if ended.status != 0:
            raise InstallError(
                f"{self.source} cannot make virtual environments: {ended.last_error()}",
                "install the venv module of this Python (on Debian and Ubuntu: python3-venv)",
                self.engine.log,
            )
        version = ended.lines[-1]
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PYTHON:
            raise InstallError(
                f"{self.source} is Python {version}; SGLang {SGLANG_VERSION} needs 3.11 or newer",
                "run speclaunch with a newer Python",
            )
        compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
        if shutil.which(compiler[0]) is None:
            raise InstallError(
                f"there is no C++ compiler ({compiler[0]}): NGRAM speculation compiles its corpus",
                "install g++ (on Debian and Ubuntu: build-essential), or name a compiler in CXX",
            )
        free = shutil.disk_usage(self.engine.root).free
        if free < DISK_BYTES and not self._is_marked("torch", TORCH):
            raise InstallError(
                f"{free / 2**30:.1f} GiB are free at {self.engine.root}, and"
                f" {DISK_BYTES // 2**30} GiB are needed",
                "free some space there, or name another folder in SPECLAUNCH_HOME",
            )
        say(f"Python {version}, {compiler[0]}, {free / 2**30:.0f} GiB free")
        return True

    def make_venv(self, say: Callable[[str], None]) -> bool | None:
        """Create the virtual environment; one without a mark, or whose Python is gone, anew."""
        venv = self.engine.venv
        if self._is_marked("venv", "1") and self._python_starts():
            return None
        if venv.exists():
            shutil.rmtree(venv)
        self._require(self._run(self.source, "-m", "venv", venv, say=say), "python -m venv failed")
        self._mark("venv", "1")
        return True

    def install_torch(self, say: Callable[[str], None]) -> bool | None:
        """Install torch: without its dependencies when an index of its own is given."""
        if self.torch_index is None:
            options: list[str | Path] = ["--constraint", REQUIREMENTS, TORCH]
        else:  # the next step brings what a CPU build depends on
            options = ["--no-deps", "--index-url", self.torch_index, TORCH]
        return self._pip("torch", TORCH, options, say)

    def install_packages(self, say: Callable[[str], None]) -> bool | None:
        """Install all the rest as it is pinned."""
        pins = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
        return self._pip("packages", pins, ["--no-deps", "--requirement", REQUIREMENTS], say)

    def verify(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Import the engine through the shim; returns what is installed."""
        ended = run_logged(
            [self.engine.python, "-P", VERIFY_ENGINE],
            log=self.engine.log,
            environment=engine_environment(self.engine),
            keep_open=(self.lock,),
        )
        if ended.status != 0:
            raise InstallError(
                f"the engine does not import: {ended.last_error()}",
                "see the log; install again with --force to build the environment anew",
                self.engine.log,
            )
        found: dict[str, Any] = json.loads(ended.lines[-1])
        say(f"SGLang {found['packages']['sglang']}, torch {found['packages']['torch']}")
        return found

    def compile_corpus(self, say: Callable[[str], None]) -> bool:
        """Compile what NGRAM needs."""
        say("ngram_corpus")
        ensure_corpus(self.engine, keep_open=(self.lock,))
        return True

    def _python_starts(self) -> bool:
        """Whether the interpreter of the environment works: the system's may have been removed."""
        try:
            return self._run(self.engine.python, "-c", "").status == 0
        except OSError:
            return False

    def _pip(
        self, step: str, content: str, options: list[str | Path], say: Callable[[str], None]
    ) -> bool | None:
        """Run ``pip install`` unless the step is marked as done with this content."""
        if self._is_marked(step, content):
            return None
        _drop_half_installed(self.engine.venv)
        quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
        command: list[str | Path] = ["-m", "pip", "install", *quiet, *options]
        ended = self._run(self.engine.python, *command, say=lambda line: _say_progress(line, say))
        self._require(ended, "pip failed")
        self._mark(step, content)
        return True

    def _run(
        self, program: Path, *arguments: str | Path, say: Callable[[str], None] = ignore
    ) -> Completed:
        return run_logged(
            [program, *arguments],
            log=self.engine.log,
            environment=pip_environment(),
            on_line=say,
            keep_open=(self.lock,),
        )

    def _require(self, ended: Completed, what: str) -> None:
        if ended.status != 0:
            raise InstallError(
                f"{what}: {ended.last_error()}",
                f"see the log; check the network and pip's configuration, then {AGAIN}",
                self.engine.log,
            )

    def _marker(self, step: str) -> Path:
        return self.engine.venv / ".speclaunch" / step

    def _is_marked(self, step: str, content: str) -> bool:
        marker = self._marker(step)
        return marker.is_file() and marker.read_text(encoding="utf-8") == content

    def _mark(self, step: str, content: str) -> None:
        write_atomically(self._marker(step), content)


Act = Callable[[Installation, Callable[[str], None]], object]

STEPS: tuple[tuple[str, Act], ...] = (
    ("Check this machine", Installation.check_machine),
    ("Create the environment", Installation.make_venv),
    ("Install torch", Installation.install_torch),
    ("Install SGLang and what it needs", Installation.install_packages),
    ("Verify the engine", Installation.verify),
    ("Compile the NGRAM corpus", Installation.compile_corpus),
)


def _say_progress(line: str, say: Callable[[str], None]) -> None:
    """Pass on the lines of pip that tell what it is doing."""
    doing = ("Collecting", "Downloading", "Using cached", "Processing", "Building", "Installing")
    if line.strip().startswith(doing):
        say(line.strip())


def _drop_half_installed(venv: Path) -> None:
    """Remove what pip leaves when it is killed: it would take such a package for installed."""
    for folder in site_packages(venv):
        for found in folder.iterdir():
            half = found.suffix == ".dist-info" and not (found / "RECORD").is_file()
            if half or found.name.startswith("~"):
                shutil.rmtree(found, ignore_errors=True)
