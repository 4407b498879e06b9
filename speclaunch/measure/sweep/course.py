"""Run of a sweep: Hydra's launcher in a separate process, rows reported as they arrive.

The launcher runs in its own session, so Ctrl-C reaches only this process. To stop, we create the
file `stop` in the folder: the jobs stop their engines and return, then the launcher ends. If this
process is killed, its lock is released, which jobs on this machine notice within a second.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from speclaunch.core import LaunchError, children
from speclaunch.measure.sweep.jobs import Folder, Job, JobVerdict, Planned, Row

_POLL_S = 0.3
_END_S = 90.0
"""Time limit for all jobs to stop their engines."""
_PLUGINS = {
    "joblib": ("hydra_plugins.hydra_joblib_launcher", "sweep"),
    "submitit_local": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
    "submitit_slurm": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
    "ray": ("hydra_plugins.hydra_ray_launcher", "ray"),
}
"""Package of each launcher, and the speclaunch extra that installs it."""

OnRow = Callable[[Job, Row], None]


def require_launcher(name: str) -> None:
    """Raise LaunchError unless the launcher's package is installed."""
    if name not in _PLUGINS:
        return  # Hydra's own, or a name that Hydra itself accepts or rejects
    module, extra = _PLUGINS[name]
    try:
        there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        raise LaunchError(
            f"hydra/launcher={name} is not installed",
            help=f"pip install 'speclaunch[{extra}]'",
        )


def refused_row(job: Job) -> Row:
    """Return the row of a job that is never started."""
    return Row(job.key, JobVerdict.REFUSED, job.refused)


def run_sweep(folder: Folder, planned: Planned, on_row: OnRow) -> bool:
    """Run the unfinished jobs; return False if interrupted, else True.

    Raises LaunchError if the launcher fails. The caller must hold the lock of `folder`.
    """
    waiting: dict[str, Job] = {}
    numbers: list[int] = []
    for number, job in enumerate(planned.jobs):
        if job.refused is None and job.key not in waiting and folder.row(job.key) is None:
            waiting[job.key] = job
            numbers.append(number)
    if not numbers:
        return True
    log = folder.path / "launcher.log"
    with log.open("ab") as output, _interrupts() as interrupted:
        process = children.start(
            _command(folder, numbers, planned.hydra),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=planned.directory,
            env=children.safe_path(os.environ),  # for the processes of the launcher
            start_new_session=True,
        )
        deadline = None
        while process.poll() is None:
            _tell(folder, waiting, on_row)
            if interrupted() and deadline is None:
                folder.stop()
                _cancel(folder, planned)
                deadline = time.monotonic() + _END_S
            if deadline is not None and (time.monotonic() > deadline or interrupted() > 1):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        _tell(folder, waiting, on_row)
        if interrupted():
            return False
    if waiting:
        raise LaunchError(_why(log, process.returncode, len(waiting)), log=log)
    return True


def _command(folder: Folder, numbers: Sequence[int], words: Sequence[str]) -> list[str]:
    indices = ",".join(map(str, numbers))
    return children.own_command(
        folder.path, indices, *words, module="speclaunch.measure.sweep.hydra_app"
    )


def _tell(folder: Folder, waiting: dict[str, Job], on_row: OnRow) -> None:
    for key, job in list(waiting.items()):
        row = folder.row(key)
        if row is not None:
            del waiting[key]
            on_row(job, row)


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], int]]:
    """Yield a function that counts the stop signals: Ctrl-C, SIGTERM, or a closed terminal."""
    count = 0

    def note(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield lambda: count
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel(folder: Folder, planned: Planned) -> None:
    """Cancel pending Slurm jobs; running jobs see the stop file."""
    scancel = children.find_program("scancel")
    if planned.launcher != "submitit_slurm" or scancel is None:
        return
    jobs = {path.name.partition("_")[0] for path in (folder.hydra / ".submitit").glob("[0-9]*")}
    if jobs:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            children.run([scancel, "--state=PENDING", *sorted(jobs)], timeout=30)


def _why(log: object, code: int | None, left: int) -> str:
    """Return the launcher's last message."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").splitlines()  # type: ignore[attr-defined]
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    jobs = "1 job" if left == 1 else f"{left} jobs"
    return f"the launcher ended ({code}) before {jobs}: {last[:300]}"
