"""One job of a sweep, in its own launcher-started process: a command and its row."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from speclaunch.core import ExitCode, children, read_json
from speclaunch.measure.sweep.jobs import Folder, Job, JobVerdict, Planned, Row
from speclaunch.serving import FILE as JOURNAL
from speclaunch.serving import free_port

_POLL_S = 0.3
_END_S = 60.0
"""Time limit for an engine to stop, longer than any of speclaunch's grace periods."""
_LONGEST_REASON = 300


def task(config: Any) -> None:
    """Run a job for Hydra's launchers. Must not be in their main module, named `__main__`."""
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
    """Start, verify and stop with unchanged settings, so that the row describes them."""
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
    verification = _mapping(result.get("verification"))
    if not documents:
        return row(JobVerdict.REFUSED, reason=_last_error(folder.log(job.key)))
    seen: dict[str, Any] = {
        "acceptance_length": verification.get("acceptance_length"),
        "ready_seconds": result.get("ready_seconds"),
        "kv_tokens": _kv_tokens(result),
    }
    if code == ExitCode.CLEAN:
        return row(JobVerdict.SERVED, **seen)
    title = _mapping(result.get("cause")).get("title")
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
    budget = _mapping(result.get("budget"))
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
    """End a launch like Ctrl-C, which stops its engine; a killed launch's guard stops it, too."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=_END_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def _documents(output: bytes) -> list[dict[str, Any]]:
    """Return the JSON documents on standard output in order."""
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
    """Return the KV cache tokens from the journal next to the engine's log."""
    log = _text(reported.get("log"))
    journal = read_json(Path(log).parent / JOURNAL) if log else None
    attempts = (journal or {}).get("attempts") or [{}]
    tokens = _mapping(attempts[-1]).get("tokens")
    return tokens if isinstance(tokens, int) else None


def _last_error(log: Path) -> str:
    """Return the last error in the log of a command without other output."""
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        errors = [line for line in lines if line.startswith("error")] or [
            text for text in lines if text
        ]
        if errors:
            return errors[-1].removeprefix("error:").strip()
    return "no output"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return str(value) if value else None
