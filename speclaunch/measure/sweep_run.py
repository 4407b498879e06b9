"""Run a sweep: Hydra's launcher in a separate process, and the jobs that it starts.

Rows are reported as they arrive. The launcher runs in its own session, so Ctrl-C reaches only this
process, which creates the file `stop` in the folder. The jobs then stop their engines and
return, and the launcher ends. If this process is killed, its lock is released, which jobs on this
machine notice within a second.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from speclaunch.core import ExitCode, LaunchError, children, mapping, read_json
from speclaunch.measure.sweep_jobs import Folder, Job, JobVerdict, Planned, Row
from speclaunch.serving import FILE as JOURNAL
from speclaunch.serving import free_port

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
    return children.own_command(folder.path, indices, *words, module="speclaunch.measure.hydra_app")


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


def _why(log: Path, code: int | None, left: int) -> str:
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    jobs = "1 job" if left == 1 else f"{left} jobs"
    return f"the launcher ended (exit code {code}) with {jobs} left: {last[:300]}"


_JOB_END_S = 60.0
"""Time limit for an engine to stop, longer than any of speclaunch's grace periods."""
_LONGEST_REASON = 300


def task(config: Any) -> None:
    """Run a job for Hydra's launchers. The function must not be in `__main__`."""
    run_job(str(config.folder), int(config.job))


def run_job(path: str, number: int) -> None:
    """Run a job and write its row, unless the row exists. Write no row if the sweep stops."""
    folder = Folder(Path(path))
    planned = folder.planned()
    job = planned.jobs[number]
    stopped = partial(folder.is_stopped, local=planned.is_local)
    if stopped():
        return
    with folder.claimed(job.key, stopped) as ours:
        if not ours or folder.row(job.key) is not None:
            return
        row = (_plan if planned.options.plan else _smoke)(job, planned, folder, stopped)
        if row is not None:
            folder.write(row)


def _smoke(job: Job, planned: Planned, folder: Folder, stopped: Callable[[], bool]) -> Row | None:
    """Launch a job without retries and return its row; None if the sweep stops meanwhile."""
    overridden = {override.lstrip("+~").partition("=")[0] for override in job.overrides}
    port = () if "args.port" in overridden else (f"args.port={free_port()}",)
    words = ["launch", *port, "--smoke", "--fresh", "--max-attempts=1"]
    done = _run(words, job, planned, folder, stopped)
    if done is None:
        return None
    code, documents = done
    result: dict[str, Any] = {}
    for document in documents:
        result |= document
    row = partial(_row, job, folder, engine=_text(result.get("engine")))
    verification = mapping(result.get("verification"))
    if not documents:
        return row(JobVerdict.REFUSED, reason=_last_error(folder.log(job.key)))
    seen: dict[str, Any] = {
        "acceptance_length": verification.get("acceptance_length"),
        "ready_seconds": result.get("ready_seconds"),
        "kv_tokens": _kv_tokens(result),
    }
    if code == ExitCode.CLEAN:
        return row(JobVerdict.SERVED, **seen)
    title = mapping(result.get("cause")).get("title")
    problems = verification.get("problems") or ()
    why = "; ".join(map(str, problems)) or _text(title) or _text(result.get("error"))
    return row(JobVerdict.FAILED, reason=why or _last_error(folder.log(job.key)), **seen)


def _plan(job: Job, planned: Planned, folder: Folder, stopped: Callable[[], bool]) -> Row | None:
    done = _run(["plan"], job, planned, folder, stopped)
    if done is None:
        return None
    _, documents = done
    if not documents:
        return _row(job, folder, JobVerdict.REFUSED, reason=_last_error(folder.log(job.key)))
    result = documents[-1]
    budget = mapping(result.get("budget"))
    known = {verdict.value for verdict in (JobVerdict.FITS, JobVerdict.TIGHT, JobVerdict.FAILS)}
    fit = budget.get("fit")
    return _row(
        job,
        folder,
        JobVerdict(fit) if fit in known else JobVerdict.UNKNOWN,
        reason=_text(budget.get("why")),
        kv_tokens=budget.get("tokens"),
        engine=_text(result.get("engine")),
    )


def _run(
    words: list[str], job: Job, planned: Planned, folder: Folder, stopped: Callable[[], bool]
) -> tuple[int, list[dict[str, Any]]] | None:
    """Return the exit code and the documents of a command; None if the sweep stopped meanwhile."""
    verb, *rest = words
    command = children.own_command(verb, f"recipe={job.recipe}", *job.overrides)
    command += [*rest, *planned.options.words(), "--output-format=json"]
    with folder.log(job.key).open("wb") as log:
        process = children.start(
            command,
            cwd=planned.directory,
            env=children.without_safe_path(os.environ),
            stdout=subprocess.PIPE,
            stderr=log,
        )
        interrupted = False
        while True:
            try:
                output, _ = process.communicate(timeout=_POLL_S)
                break
            except subprocess.TimeoutExpired:
                if stopped():
                    interrupted = True
                    output = _ended(process)
                    break
    if interrupted or process.returncode == ExitCode.INTERRUPTED:
        return None
    return process.returncode, _documents(output)


def _ended(process: subprocess.Popen[bytes]) -> bytes:
    """Interrupt a launch, or kill it if it hangs, so its engine stops; return its output."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=_JOB_END_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def _documents(output: bytes) -> list[dict[str, Any]]:
    text, decoder = output.decode(errors="replace").strip(), json.JSONDecoder()
    found: list[dict[str, Any]] = []
    while text:
        try:
            document, end = decoder.raw_decode(text)
        except ValueError:
            break
        found += [document] if isinstance(document, dict) else []
        text = text[end:].lstrip()
    return found


def _row(
    job: Job, folder: Folder, verdict: JobVerdict, reason: str | None = None, **seen: Any
) -> Row:
    ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    short = reason[:_LONGEST_REASON] if reason else None
    return Row(job.key, verdict, short, log=str(folder.log(job.key)), ended=ended, **seen)


def _kv_tokens(reported: Mapping[str, Any]) -> int | None:
    log = _text(reported.get("log"))
    journal = read_json(Path(log).parent / JOURNAL) if log else None
    attempts = (journal or {}).get("attempts") or [{}]
    tokens = mapping(attempts[-1]).get("tokens")
    return tokens if isinstance(tokens, int) else None


def _last_error(log: Path) -> str:
    """Return the last error in a log, else its last line, else `no output`."""
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        errors = [line for line in lines if line.startswith("error")] or [
            text for text in lines if text
        ]
        if errors:
            return errors[-1].removeprefix("error:").strip()
    return "no output"


def _text(value: object) -> str | None:
    return str(value) if value else None
