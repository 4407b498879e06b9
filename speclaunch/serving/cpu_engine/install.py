"""Install the CPU engine, and choose the source of torch.

Each completed step leaves a mark in the virtual environment, so an interrupted run resumes after
the last completed step. The manifest is written after the last step: if it exists, the engine is
complete. Child processes inherit the lock: if speclaunch is killed and pip survives, a second
installation waits for pip.

PyPI's torch for Linux includes gigabytes of CUDA libraries that a CPU engine never loads. The CPU
build has a separate version, ``2.13.0+cpu``. pip's own configuration may offer it (a folder of
wheels, a mirror), and PyTorch's CPU index does. Each source is queried for its versions, with a
deadline, before anything is downloaded from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from speclaunch.core import Growth, announced_bytes, duration, locked, make_private, replace_file
from speclaunch.engine import (
    RELEASES,
    REQUIREMENTS,
    SGLANG_VERSION,
    TORCH,
    CpuEngine,
    installation_key,
    is_installed,
    pip_environment,
    requirements,
    site_packages,
    why_not_on_cpu,
)
from speclaunch.serving.cpu_engine.programs import (
    AGAIN,
    Completed,
    InstallError,
    InstallInterruptedError,
    InstallStep,
    Report,
    ReportDetail,
    StepState,
    engine_environment,
    ensure_corpus,
    ignore,
    run_logged,
)

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's public index of CPU builds (https://pytorch.org/get-started/locally/)."""

READ_S = 5
"""Timeout in seconds for reading from an index; a query is retried once."""

PROBE_S = 40.0
"""Seconds after which an index without a complete answer counts as unavailable."""

GPU_BUILD_BYTES = 10 * 2**30
"""Free disk space required by the GPU build: 2.7 GB downloaded, 5.3 GB unpacked (torch 2.13.0,
measured)."""

_VERSION = TORCH.partition("==")[2]
_CPU_VERSION = f"{_VERSION}+cpu"
_AVAILABLE = re.compile(r"^\s*Available versions: (.+)$", re.MULTILINE)


class Offer(Struct, frozen=True):
    """Torch versions that a package index offers for this interpreter, or why it has none."""

    versions: frozenset[str]
    why_not: str = ""


class TorchSource(Struct, frozen=True):
    """pip's requirement for torch, and the index that offers it."""

    requirement: str
    options: tuple[str, ...]
    where: str
    notice: str = ""
    disk_bytes: int = 0
    """Disk space that this build needs in addition to the rest of the installation."""


Probe = Callable[[Sequence[str]], Offer]
"""Function that queries the index in pip's options; without options, pip's configured indexes."""


def probe_options(options: Sequence[str]) -> list[str]:
    """Return pip's arguments for querying an index for torch, with a short timeout."""
    query = ["index", "versions", "torch", "--timeout", str(READ_S), "--retries", "1"]
    return [*query, "--no-input", "--disable-pip-version-check", *options]


def offered(lines: Sequence[str], ended: bool) -> Offer:
    """Return the torch versions in the output of ``pip index versions``, or why there are none.
    ``ended`` is False if the deadline cut the output off."""
    found = _AVAILABLE.search("\n".join(lines))
    if found:
        return Offer(frozenset(version.strip() for version in found[1].split(",")))
    if not ended:
        return Offer(frozenset(), f"no answer within {PROBE_S:.0f} seconds")
    for line in lines:
        if "Could not fetch URL" in line or "Connection" in line or "timed out" in line:
            return Offer(frozenset(), "it cannot be reached")
    return Offer(frozenset(), "it has no torch for this Python and machine")


def choose(probe: Probe, torch_index: str | None) -> TorchSource:
    """Return a source of torch's CPU build or, without one, of its GPU build (with a size notice).

    With ``torch_index``, only that index is queried; otherwise pip's indexes, then PyTorch's CPU
    index. Raises InstallError if none offers this torch version.
    """
    if torch_index is not None:
        named = ("--index-url", torch_index)
        offer = probe(named)
        version = next((v for v in (_CPU_VERSION, _VERSION) if v in offer.versions), None)
        if version is None:
            why = offer.why_not or f"it has {_newest(offer)}, not {_VERSION}"
            raise InstallError(
                f"{torch_index} does not offer torch {_VERSION}: {why}",
                "set --torch-index to another index, or omit the option",
            )
        return TorchSource(f"torch=={version}", ("--no-deps", *named), torch_index)
    own = probe(())
    if _CPU_VERSION in own.versions:
        where = "pip's own configuration"
        return TorchSource(f"torch=={_CPU_VERSION}", ("--no-deps",), where)
    public = ("--index-url", CPU_INDEX)
    theirs = probe(public)
    if _CPU_VERSION in theirs.versions:
        return TorchSource(f"torch=={_CPU_VERSION}", ("--no-deps", *public), CPU_INDEX)
    why = theirs.why_not or f"it has no {_CPU_VERSION} for this Python and machine"
    if _VERSION not in own.versions:
        raise InstallError(
            f"no package index offers torch {_VERSION}"
            f" (pip's configuration: {own.why_not or f'it has {_newest(own)}'};"
            f" {CPU_INDEX}: {why})",
            "check the network and pip's configuration, or set --torch-index URL",
        )
    return TorchSource(
        TORCH,
        (),
        "pip's own configuration",
        f"downloading the GPU build of torch (2.7 GB, 5.3 GB on disk), because no CPU build is "
        f"available ({CPU_INDEX}: {why}); to avoid this, press Ctrl-C and set --torch-index to an "
        "index of CPU builds",
        GPU_BUILD_BYTES,
    )


def _newest(offer: Offer) -> str:
    return next(iter(sorted(offer.versions, reverse=True)), "none")


_DOING = ("Collecting", "Downloading", "Using cached", "Processing", "Building", "Installing")
_AFTER_NAME = re.compile(r"[^\w.-].*|-\d.*")
"""Everything after a package's name: its version, or the other fields of a file name."""


def _package(line: str) -> str:
    """Return the activity in a line of pip's output: verb and package (``Downloading torch``)."""
    verb, _, rest = line.strip().partition(" ")
    if verb == "Installing":
        return "Installing packages"
    if rest.startswith("cached "):
        verb, rest = "Using cached", rest.removeprefix("cached ")
    name = rest.split(" ", 1)[0].rpartition("/")[2]
    return f"{verb} {_AFTER_NAME.sub('', name)}".strip()


class PipProgress:
    """Progress of pip: its activity, and the size and rate of the downloads in ``scratch``.

    ``scratch`` is pip's TMPDIR: downloads stay there until all are installed. With
    ``single``, only one package is downloaded, so the size that pip announces is the total.
    """

    def __init__(self, scratch: Path, report: ReportDetail, *, single: bool) -> None:
        self._growth = Growth(scratch, suffix=".whl")  # pip's cache has copies there meanwhile
        self._report = report
        self._single = single
        self._doing = "starting pip"
        self._began = time.monotonic()

    def line(self, line: str) -> None:
        if not line.strip().startswith(_DOING):
            return
        if self._single and (announced := announced_bytes(line)) is not None:
            self._growth.expected = announced
        self._doing = _package(line)
        self._report(self._doing)

    def tick(self) -> None:
        downloading = "" if self._doing.startswith("Installing") else f"{self._growth.text()}; "
        self._report(f"{downloading}{duration(time.monotonic() - self._began)}; {self._doing}")


VERIFY_ENGINE = Path(__file__).with_name("verify_engine.py")

DISK_BYTES = 4 * 2**30
OLDEST_PYTHON = (3, 11)

_PROBE = (
    "import sys, platform, venv, ensurepip; print('%d.%d.%d' % sys.version_info[:3],"
    " platform.system(), platform.machine(), platform.libc_ver()[1] or '-')"
)
OLDEST_GLIBC = (2, 34)
"""Oldest supported glibc: SGLang 0.5.23 has wheels for manylinux_2_34_x86_64 only."""


class Installation(Struct, frozen=True):
    """Engine installation. The caller must hold the lock."""

    engine: CpuEngine
    report: Report
    torch_index: str | None
    source: Path
    """Interpreter that creates the environment."""
    lock: int

    def run(self, force: bool) -> None:
        self.engine.manifest.unlink(missing_ok=True)
        if force:
            shutil.rmtree(self.engine.venv, ignore_errors=True)
            shutil.rmtree(self.engine.cache, ignore_errors=True)
        found: dict[str, Any] = {}
        for index, (title, act) in enumerate(STEPS, start=1):
            outcome = self._do(index, title, act)
            if isinstance(outcome, dict):
                found = outcome
        manifest = {
            "key": installation_key(found["python"], self.engine.release),
            "sglang": self.engine.release,
            "python": found["python"],
            "built_from": str(self.source),
            "torch_index": self.torch_index,
            "installed_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "packages": found["packages"],
        }
        replace_file(self.engine.manifest, json.dumps(manifest, indent=2) + "\n", 0o666)

    def _do(self, index: int, title: str, act: Act) -> object:
        def report(detail: str, state: StepState = StepState.RUNNING, /) -> None:
            self.report(InstallStep(index, len(STEPS), title, detail, state))

        report("")
        try:
            outcome = act(self, report)
        except InstallError as error:
            report(error.message, StepState.FAILED)
            raise
        report("", StepState.SKIPPED if outcome is None else StepState.DONE)
        return outcome

    def check_machine(self, report: ReportDetail) -> bool:
        """Raise InstallError if a later step would fail on this machine; else return True."""
        sglang = f"SGLang {self.engine.release}"
        ended = self._run(self.source, "-I", "-c", _PROBE)
        if ended.status != 0:
            raise InstallError(
                f"{self.source} cannot create virtual environments: {ended.last_error()}",
                "install the venv module of this Python (on Debian and Ubuntu: python3-venv)",
                self.engine.log,
            )
        version, system, machine, libc = ended.lines[-1].split()
        if _numbers(version) < OLDEST_PYTHON:
            raise InstallError(
                f"{self.source} is Python {version}; {sglang} needs 3.11 or newer",
                "run speclaunch with a newer Python",
            )
        if (system, machine) != ("Linux", "x86_64"):
            raise InstallError(
                f"{sglang} is published for Linux on x86-64 only; this is {system} on {machine}",
                "run the CPU engine on a Linux x86-64 machine or container; lint, plan and"
                " render need no engine",
            )
        if _numbers(libc) < OLDEST_GLIBC:
            raise InstallError(
                f"{sglang} needs glibc 2.34 or newer; this machine has"
                f" {'a different C library' if libc == '-' else libc}",
                "use a newer distribution (Debian 12, Ubuntu 22.04) or a container with one",
            )
        compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
        if shutil.which(compiler[0]) is None:
            raise InstallError(
                f"no C++ compiler found ({compiler[0]}): NGRAM has to compile its C++ corpus code",
                "install g++ (on Debian and Ubuntu: build-essential), or set CXX to a C++ compiler",
            )
        if not self._is_marked("torch", TORCH):
            self._require_disk(DISK_BYTES)
        free = shutil.disk_usage(self.engine.root).free
        report(f"Python {version}, {compiler[0]}, {free / 2**30:.0f} GiB free")
        return True

    def _require_disk(self, needed: int) -> None:
        free = shutil.disk_usage(self.engine.root).free
        if free < needed:
            raise InstallError(
                f"only {free / 2**30:.1f} GiB are free at {self.engine.root};"
                f" {needed // 2**30} GiB are needed",
                "free some space there, or set SPECLAUNCH_HOME to another directory",
            )

    def make_venv(self, report: ReportDetail) -> bool | None:
        """Create the virtual environment, or replace an incomplete or broken one. Return None if it
        was already usable."""
        venv = self.engine.venv
        if self._is_marked("venv", "1") and self._python_starts():
            return None
        if venv.exists():
            shutil.rmtree(venv)
        ended = self._run(self.source, "-I", "-m", "venv", venv, on_line=report)
        self._require(ended, "python -m venv failed")
        self._mark("venv", "1")
        return True

    def install_torch(self, report: ReportDetail) -> bool | None:
        """Install torch, preferably its CPU build; the next step installs its dependencies. Return
        None if torch was already installed."""
        if self._is_marked("torch", TORCH):
            return None
        report("searching for a CPU build")
        source = choose(self._offer, self.torch_index)
        if source.notice:
            report(source.notice, StepState.NOTE)
        self._require_disk(source.disk_bytes)
        options: list[str | Path] = [*source.options]
        if "--no-deps" not in options:  # the GPU build: its CUDA libraries are separate packages
            options += ["--constraint", REQUIREMENTS]
        report(f"{source.requirement} from {source.where}")
        return self._pip("torch", TORCH, [*options, source.requirement], report)

    def _offer(self, options: Sequence[str]) -> Offer:
        pip = (self.engine.python, "-I", "-m", "pip")
        ended = self._run(*pip, *probe_options(options), deadline_s=PROBE_S)
        return offered(ended.lines, ended.in_time)

    def install_packages(self, report: ReportDetail) -> bool | None:
        """Install all other packages, pinned; return None if they were already installed."""
        text = requirements(self.engine.release)
        file = self.engine.root / "requirements.txt"
        replace_file(file, text, 0o666)
        pins = hashlib.sha256(text.encode()).hexdigest()
        return self._pip("packages", pins, ["--no-deps", "--requirement", file], report)

    def verify(self, report: ReportDetail) -> dict[str, Any]:
        """Import the engine through the shim; return the Python and package versions."""
        ended = run_logged(
            [self.engine.python, "-P", VERIFY_ENGINE],
            log=self.engine.log,
            environment=engine_environment(self.engine),
            keep_open=(self.lock,),
        )
        if ended.status != 0:
            raise InstallError(
                f"the engine cannot be imported: {ended.last_error()}",
                "see the log; rebuild the environment with --force",
                self.engine.log,
            )
        found: dict[str, Any] = json.loads(ended.lines[-1])
        report(f"SGLang {found['packages']['sglang']}, torch {found['packages']['torch']}")
        return found

    def compile_corpus(self, report: ReportDetail) -> bool:
        report("ngram_corpus")
        ensure_corpus(self.engine, keep_open=(self.lock,))
        return True

    def _python_starts(self) -> bool:
        """True if the environment's interpreter runs. Its base Python may have been removed."""
        try:
            return self._run(self.engine.python, "-I", "-c", "").status == 0
        except OSError:
            return False

    def _pip(
        self, step: str, content: str, options: list[str | Path], report: ReportDetail
    ) -> bool | None:
        """Run ``pip install``; return None if the mark of ``step`` already has ``content``."""
        if self._is_marked(step, content):
            return None
        _drop_half_installed(self.engine.venv)
        quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
        command: list[str | Path] = ["-I", "-m", "pip", "install", *quiet, *options]
        scratch = self.engine.root / "downloads"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        progress = PipProgress(scratch, report, single="--no-deps" in options and step == "torch")
        try:
            ended = self._run(
                self.engine.python,
                *command,
                on_line=progress.line,
                on_tick=progress.tick,
                variables={"TMPDIR": str(scratch)},
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._require(ended, "pip failed")
        self._mark(step, content)
        return True

    def _run(
        self,
        program: Path,
        *arguments: str | Path,
        on_line: Callable[[str], None] = ignore,
        on_tick: Callable[[], None] = ignore,
        variables: Mapping[str, str] = MappingProxyType({}),
        deadline_s: float | None = None,
    ) -> Completed:
        return run_logged(
            [program, *arguments],
            log=self.engine.log,
            environment=pip_environment() | dict(variables),
            on_line=on_line,
            on_tick=on_tick,
            keep_open=(self.lock,),
            deadline_s=deadline_s,
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
        marker = self._marker(step)
        make_private(marker.parent)
        replace_file(marker, content, 0o666)


Act = Callable[[Installation, ReportDetail], object]

STEPS: tuple[tuple[str, Act], ...] = (
    ("Check this machine", Installation.check_machine),
    ("Create the environment", Installation.make_venv),
    ("Install torch", Installation.install_torch),
    ("Install SGLang and its requirements", Installation.install_packages),
    ("Verify the engine", Installation.verify),
    ("Compile the NGRAM corpus code", Installation.compile_corpus),
)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; empty if there are none (as on musl)."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _drop_half_installed(venv: Path) -> None:
    """Remove the leftovers of a killed pip, which would pass for installed packages."""
    for folder in site_packages(venv):
        for found in folder.iterdir():
            half = found.suffix == ".dist-info" and not (found / "RECORD").is_file()
            if half or found.name.startswith("~"):
                shutil.rmtree(found, ignore_errors=True)


def install(
    home: Path,
    release: str = SGLANG_VERSION,
    *,
    report: Report = ignore,
    torch_index: str | None = None,
    force: bool = False,
    python: Path | None = None,
) -> CpuEngine:
    """Install the CPU engine of a release below ``home`` unless it is installed, and return it.

    ``report`` receives every step. With a CPU build of torch, the installation takes about 2
    minutes and 1.6 GiB. ``torch_index`` is the package index for torch alone. ``force`` builds the
    environment again (models remain). ``python`` is the interpreter to build it from, by default
    the current one. Raises ``InstallError``, also for a release that cannot serve on a CPU, and
    ``InstallInterruptedError`` on Ctrl-C.
    """
    if (why_not := why_not_on_cpu(release)) is not None:
        raise InstallError(why_not, f"choose one of {', '.join(RELEASES)}")
    engine = CpuEngine(home.absolute(), release)
    if not force and is_installed(engine):
        return engine
    current = InstallStep(
        1, len(STEPS), "Waiting", "waiting for another installation", StepState.WAITING
    )
    try:
        with locked(engine.lock, lambda: report(current)) as lock:
            if force or not is_installed(engine):
                source = python or Path(sys.executable)
                Installation(engine, report, torch_index, source, lock).run(force)
    except KeyboardInterrupt:
        raise InstallInterruptedError("interrupted", AGAIN, engine.log) from None
    except OSError as error:
        raise InstallError(
            f"cannot install below {engine.root}: {error}",
            "free some space there, or set SPECLAUNCH_HOME to another directory",
        ) from error
    return engine
