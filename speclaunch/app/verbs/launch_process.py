"""The processes of `speclaunch launch`: titles without secrets, and supervision."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from speclaunch.core import ExitCode, holds_secret, is_secret_flag, printable


def hide_secrets(verb: str, words: Sequence[str]) -> str | None:
    """Redact secrets in the process title (`ps`). Return the new title; None without secrets."""
    from speclaunch.deployments import shown_overrides

    shown = shown_overrides(words)
    if shown == list(words):
        return None
    import setproctitle

    title = printable(shlex.join(["speclaunch", *([verb] if verb else []), *shown]))
    setproctitle.setproctitle(title)
    return title


def launched(words: Sequence[str]) -> ExitCode | int | None:
    """Supervise a launch; return its exit code, or None in the planner. Raises as `launch` does."""
    from speclaunch.serving import PlannerResult, ReopenedPlanner, fork_planner

    planner = fork_planner()
    if planner is None:
        return None
    try:
        from speclaunch.serving import drop_guard, prepare_guard

        prepare_guard()
        _hide_secrets(words)
        from speclaunch.app.output.running import run_detached, run_here

        handed = planner.wait()
    except KeyboardInterrupt:
        planner.stop()
        return ExitCode.INTERRUPTED
    if not isinstance(handed, PlannerResult):
        return handed
    if handed.title is not None:
        import setproctitle

        setproctitle.setproctitle(handed.title)
    later = ReopenedPlanner(handed.session)
    if handed.detach:
        drop_guard()  # it would be orphaned
        return run_detached(handed.start, later, as_json=handed.as_json)
    return run_here(handed.start, later, verbose=handed.verbose, as_json=handed.as_json)


def _hide_secrets(words: Sequence[str]) -> None:
    """Hide secrets from `ps` before planning, which may wait for the hub."""
    pairs = [(key, value) for key, _, value in (word.partition("=") for word in words)]
    if any(is_secret_flag(key.rpartition(".")[2]) or holds_secret(value) for key, value in pairs):
        hide_secrets("", words)
