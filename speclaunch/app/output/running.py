"""User interface of foreground and background launches."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclaunch.app.output.console import PlainPrinter, err, err_lines, out
from speclaunch.app.output.launching import OnReady, PlainObserver, WeightSizes
from speclaunch.app.output.problems import show_problems
from speclaunch.core import (
    ExitCode,
    LaunchError,
    SpeclaunchError,
    from_here,
)
from speclaunch.serving import (
    OUTPUT,
    Announcer,
    Conclusion,
    Ending,
    LaunchRun,
    PlannedLaunch,
    Planner,
    Verification,
    detach,
    exit_code,
)


def failure(name: str, conclusion: Conclusion) -> LaunchError:
    """Return the error of a failed launch, with phase, cause and remedy."""
    from speclaunch.serving import meaning  # noqa: PLC0415 - few launches fail

    outcome = conclusion.outcome
    if outcome.served and outcome.ending in (Ending.DIED, Ending.HUNG, Ending.DEGRADED):
        what = f"{name} stopped while serving"
    else:
        where = outcome.steps[-1].phase.value if outcome.steps else "start"
        what = f"{name} failed at '{where}'"
    parts = [f"{what}: {outcome.reason}"]
    diagnosis = conclusion.diagnosis
    if diagnosis is not None and diagnosis.cause is not None:
        parts.append(f"  cause: {diagnosis.cause.title}. {meaning(diagnosis)}")
        if diagnosis.line and not _repeats(outcome.reason, diagnosis.line):
            parts.append(f"  evidence: {diagnosis.line.strip()}")
    elif diagnosis is not None and diagnosis.unclear:
        causes = "; or ".join(candidate.cause.title for candidate in diagnosis.candidates)
        parts.append(f"  cause: the log is unclear; possible: {causes}")
    if any(attempt.changes != conclusion.attempts[0].changes for attempt in conclusion.attempts):
        tried = [
            f"    {attempt.number}: {_words(attempt.changes) or 'the recipe unchanged'}"
            for attempt in conclusion.attempts
        ]
        parts.append("\n".join([f"  attempts: {len(tried)}", *tried]))
    if conclusion.explanation:
        parts.append(f"  no further attempt: {conclusion.explanation}")
    return LaunchError("\n".join(parts), help=_remedy(conclusion), log=conclusion.log)


def _remedy(conclusion: Conclusion) -> str | None:
    """Return recovery's advice or, without any, the cause's remedies, one per line; else None."""
    from speclaunch.serving import remedy_steps  # noqa: PLC0415 - few launches fail

    diagnosis = conclusion.diagnosis
    cause = diagnosis.cause if diagnosis is not None else None
    if conclusion.help and (cause is None or conclusion.help != cause.remedy):
        return conclusion.help
    found = remedy_steps(diagnosis) if diagnosis is not None else ()
    return "\n        ".join(found) or None


def _repeats(reason: str | None, line: str) -> bool:
    return bool(reason) and (str(reason) in line or line.strip() in str(reason))


def _words(changes: object) -> str:
    return " ".join(f"{k}={v}" for k, v in changes.items()) if isinstance(changes, dict) else ""


_WHAT_NEXT = (("follow", "logs -f"), ("stop", "stop"), ("story", "runs show"))


def run_here(start: PlannedLaunch, planner: Planner, *, verbose: bool, as_json: bool) -> ExitCode:
    """Run a launch and return its exit code. Raises LaunchError if the launch fails."""
    gc.enable()
    observer: PlainObserver | None = None
    has_snippets = False

    def on_ready(verification: Verification | None, seconds: float) -> None:
        nonlocal has_snippets
        log = observer.log if observer is not None and observer.log else start.directory
        if as_json:
            document = _ready_json(start, verification, seconds, log)
            out().print_json(json.dumps({**document, "run": start.directory.name}))
            return
        _show_ready(start, verification, seconds, log)
        quiet = start.smoke or start.worker
        if not has_snippets and not quiet and (verification is None or verification.ok):
            has_snippets = True  # unchanged after a restart
            from speclaunch.app.output.live_start import show_snippets  # noqa: PLC0415 - rich, once it serves

            show_snippets(out(), start.address, start.model)
            err().print("\nPress Ctrl-C to stop.", style="dim")

    observer = _observer(start, on_ready, verbose=verbose, plain=as_json)
    try:
        conclusion = LaunchRun(start, planner).run(observer)
    finally:
        observer.close()
    outcome = conclusion.outcome
    if as_json and outcome.reason and not (outcome.verification and not outcome.verification.ok):
        failure = {
            **start.command_json,
            "error": outcome.reason,
            "log": str(conclusion.log),
            "run": start.directory.name,
            "cause": _cause_json(conclusion),
        }
        out().print_json(json.dumps(failure))
    code = _conclude(conclusion, start.name)
    if start.smoke and code is ExitCode.CLEAN and not as_json:
        from speclaunch.app.output.live_start import show_passed  # noqa: PLC0415 - rich, once it serves

        show_passed(out(), tiny=start.tiny)
    if start.writes_lock and code is ExitCode.CLEAN:
        err_lines().print("writing the lock")
        generation = outcome.verification and outcome.verification.generation
        length = generation.acceptance_length if generation else None
        path = planner.write_lock(conclusion.attempts[-1].changes, length)
        err_lines().print(f"locked: {from_here(path)}")
    return code


def run_detached(start: PlannedLaunch, planner: Planner, *, as_json: bool) -> ExitCode:
    """Launch in the background; return once the engine serves, or fail like a foreground launch."""
    gc.enable()
    background = detach(
        start.directory, lambda announcer: _in_background(start, planner, announcer)
    )
    name, run = start.name, start.directory.name
    for message in background.messages():
        if "said" in message:
            err().print(message["said"])
        elif "ready" in message:
            if as_json:
                out().print_json(json.dumps({**message["ready"], "pid": background.pid}))
            else:
                out().print(
                    f"✓ {name} is serving at {start.address.url} (process {background.pid})",
                    style="bold green",
                )
                for label, words in _WHAT_NEXT:
                    out().print(f"  {label:<7}speclaunch {words} {run}")
            return ExitCode.CLEAN
        elif "failed" in message:
            log = message.get("log")
            background.wait()
            if log is None:  # it never started
                shutil.rmtree(start.directory, ignore_errors=True)
            if as_json:
                failure = {**start.command_json, "error": message["failed"]}
                out().print_json(json.dumps({**failure, "log": log, "run": run}))
            raise LaunchError(
                message["failed"], help=message.get("help"), log=Path(log) if log else None
            )
    code = background.wait()
    if code in (ExitCode.CLEAN, ExitCode.INTERRUPTED):
        err().print(f"{name} was stopped.", style="dim")
        return ExitCode.INTERRUPTED
    raise LaunchError(
        f"{name}: the background speclaunch process ended with code {code}",
        log=start.directory / OUTPUT,
    )


def _in_background(start: PlannedLaunch, planner: Planner, announcer: Announcer) -> int:
    """Run the launch in the child process of `--detach`; return its exit code."""
    observer: PlainObserver | None = None

    def on_ready(verification: Verification | None, seconds: float) -> None:
        log = observer.log if observer is not None and observer.log else start.directory
        _show_ready(start, verification, seconds, log)
        if verification is None or verification.ok:
            document = _ready_json(start, verification, seconds, log)
            announcer.send({"ready": {**document, "run": start.directory.name}})
            announcer.close()

    observer = _Announcing(announcer, on_ready, start)
    try:
        conclusion = LaunchRun(start, planner).run(observer)
        return _conclude(conclusion, start.name)
    except SpeclaunchError as error:
        show_problems(err(), error.problems)
        helps = [problem.help for problem in error.problems if problem.help]
        log = getattr(error, "log", None)
        announcer.send(
            {
                "failed": str(error),
                "help": "; ".join(helps) or None,
                "log": str(log) if log else None,
            }
        )
        return error.exit_code


class _Announcing(PlainObserver):
    """Observer that logs a background launch and notifies the waiting parent."""

    def __init__(self, announcer: Announcer, on_ready: OnReady, start: PlannedLaunch) -> None:
        super().__init__(err_lines(), on_ready, weights=WeightSizes(*start.weight_bytes))
        self._announcer = announcer

    def say(self, text: str, style: str | None = None) -> None:
        super().say(text, style)
        self._announcer.send({"said": text})


def _conclude(conclusion: Conclusion, name: str) -> ExitCode:
    """Return the exit code of a launch. Raises LaunchError with the reason for a failure."""
    code = exit_code(conclusion.outcome)
    if code is ExitCode.FAILED:
        raise failure(name, conclusion)
    if code is ExitCode.INTERRUPTED:
        err().print(f"{name} was stopped.", style="dim")
    elif conclusion.outcome.ending is Ending.DIED:
        err().print(f"{name} has ended.", style="dim")
    return code


def _show_ready(
    start: PlannedLaunch, verification: Verification | None, seconds: float, log: Path
) -> None:
    from speclaunch.app.output.live_start import show_ready  # noqa: PLC0415 - rich, once it serves

    show_ready(
        out(),
        name=start.name,
        version=start.version,
        address=start.address,
        seconds=seconds,
        verification=verification,
        log=log,
        worker=start.worker,
        tiny=start.tiny,
    )


def _ready_json(
    start: PlannedLaunch, verification: Verification | None, seconds: float, log: Path
) -> dict[str, object]:
    from speclaunch.app.output.live_start import verification_json  # noqa: PLC0415 - rich, once it serves

    return {
        **start.command_json,
        "address": start.address.url,
        "ready_seconds": round(seconds, 3),
        "verification": verification_json(verification),
        "log": str(log),
    }


def _cause_json(conclusion: Conclusion) -> Mapping[str, Any] | None:
    diagnosis = conclusion.diagnosis
    if diagnosis is None or diagnosis.cause is None:
        return None
    return {
        "name": diagnosis.cause.name,
        "title": diagnosis.cause.title,
        "memory": diagnosis.cause.memory,
        "line": diagnosis.line,
    }


def _observer(
    start: PlannedLaunch, on_ready: OnReady, *, verbose: bool, plain: bool
) -> PlainObserver:
    printer, sizes = err_lines(), WeightSizes(*start.weight_bytes)
    for note in start.notes:
        printer.print(f"note: {note}")
    console = None if isinstance(printer, PlainPrinter) else err()
    if console is not None and console.is_terminal and not plain and not console.is_dumb_terminal:
        from speclaunch.app.output.live_start import LiveObserver  # noqa: PLC0415 - draws

        title = f"{start.name} on SGLang {start.version}"
        return LiveObserver(console, on_ready, title, verbose=verbose, weights=sizes)
    return PlainObserver(printer, on_ready, verbose=verbose, weights=sizes)
