"""Text about a failed launch: event, cause, remedy."""

from __future__ import annotations

from speclaunch.core import LaunchError
from speclaunch.serving import Conclusion, Ending, meaning, remedy_steps


def failure(name: str, conclusion: Conclusion) -> LaunchError:
    """Return the error of a launch: place, cause and remedy."""
    outcome = conclusion.outcome
    if outcome.served and outcome.ending in (Ending.DIED, Ending.HUNG, Ending.DEGRADED):
        what = f"{name} was serving and stopped"
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
    """Return the advice of the recovery ladder, else the steps against the cause, one per line."""
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
