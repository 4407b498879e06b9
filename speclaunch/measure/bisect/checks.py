"""Checks of a search, which decide whether a release is good or bad."""

# ruff: noqa: ARG001  checks have one signature
from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct

from speclaunch.core import COMMAND_LINE, InputError, LaunchError, Place, Problem, children
from speclaunch.engine import suggest
from speclaunch.measure.bisect.search import ProbeVerdict
from speclaunch.measure.contract.records import FieldRow, changed_fields
from speclaunch.measure.upgrade.observation import ObservedServer, ReleaseAnswers

URL_VARIABLE, RELEASE_VARIABLE = "SPECLAUNCH_URL", "SPECLAUNCH_ENGINE"
"""Variables that pass the server's URL and release to a check command."""
_SKIP, _NOT_RUN = 125, 126
"""Exit codes of a check command: release not testable, and the first code that shells use."""
_ACCEPTANCE = re.compile(r"acceptance\s*>=\s*(\d+(?:\.\d+)?)")
_SHOWN = 200


class Evaluation(Struct, frozen=True):
    """One evaluation of a check on a running server."""

    verdict: ProbeVerdict
    reason: str


class CheckedServer(Struct, frozen=True):
    """A running server of a release."""

    release: str
    url: str
    observed: ObservedServer
    folder: Path
    """Folder for command output."""
    fields: Callable[[], tuple[FieldRow, ...]] = tuple
    """Returns the contract rows of the server and the plain server; empty without one."""


class Check(Struct, frozen=True):
    """A check. `evaluate` runs one evaluation, and may raise LaunchError."""

    text: str
    evaluate: Callable[[CheckedServer, ReleaseAnswers | None], Evaluation]
    reference: Callable[[CheckedServer], ReleaseAnswers] | None = None
    """Returns the good release's answers; None if the check does not compare answers."""
    is_start: bool = False
    """True if a release that does not serve is bad, False if the search skips the release."""
    is_contract: bool = False
    """True if the check also needs a server without speculation."""
    is_single: bool = False
    """True if a single evaluation determines the result."""


def _accepts(least: float, server: CheckedServer, reference: ReleaseAnswers | None) -> Evaluation:
    """Check that the acceptance length on the fixed prompts is at least `least`."""
    found = server.observed.observe().acceptance
    if found is None:
        return Evaluation(ProbeVerdict.BAD, "no answer has a verify step")
    verdict = ProbeVerdict.GOOD if found >= least else ProbeVerdict.BAD
    return Evaluation(verdict, f"acceptance length {found:.2f}")


def _gives_same_answers(server: CheckedServer, reference: ReleaseAnswers | None) -> Evaluation:
    """Check that answers to the fixed prompts match the reference's, except for numerical ties."""
    found = server.observed.observe()
    difference = server.observed.difference(reference or found, found)
    if difference is None:
        return Evaluation(ProbeVerdict.GOOD, "the same answers")
    return Evaluation(ProbeVerdict.BAD, difference)


def _keeps_contract(server: CheckedServer, reference: ReleaseAnswers | None) -> Evaluation:
    """Check that speculation changes no more request fields than in the good release."""
    rows = server.fields()
    changed = changed_fields(rows if reference is None else reference.fields, rows)
    if changed.broken:
        return Evaluation(ProbeVerdict.BAD, f"speculation changes {', '.join(changed.broken)}")
    unknown = (
        f" (not tested in the good release: {', '.join(changed.unknown)})"
        if changed.unknown
        else ""
    )
    text = f"speculation changes no additional request field compared to the good release{unknown}"
    return Evaluation(ProbeVerdict.GOOD, text)


def _exits(
    argv: tuple[str, ...],
    seconds: float,
    server: CheckedServer,
    reference: ReleaseAnswers | None,
) -> Evaluation:
    """Run a command like `git bisect run`, in its own process group and without a shell.

    Raises LaunchError if the command does not exist or a signal ends it.
    """
    env = {**os.environ, URL_VARIABLE: server.url, RELEASE_VARIABLE: server.release}
    with (server.folder / f"command-{server.release}.log").open("ab") as log:
        try:
            process = children.start(
                children.bound(argv),
                cwd=Path.cwd(),
                env=children.without_safe_path(env),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"cannot run {argv[0]}: {error.strerror}") from error
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return Evaluation(ProbeVerdict.BAD, f"not finished within {seconds:.0f} s")
        finally:  # also on Ctrl-C: the command and what it started
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code < 0 or code >= _NOT_RUN:
        how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        raise LaunchError(
            f"{shlex.join(argv)} could not test SGLang {server.release}: {how}",
            help=f"0: good, 1 to 124: bad, 125: skip; its output: {log.name}",
        )
    if code == _SKIP:
        return Evaluation(ProbeVerdict.SKIP, f"exit code {_SKIP}")
    return Evaluation(ProbeVerdict.BAD if code else ProbeVerdict.GOOD, f"exit code {code}")


_NAMED = {
    check.text: check
    for check in (
        Check(
            "start",
            lambda *_: Evaluation(ProbeVerdict.GOOD, "it serves"),  # the launch verified it
            is_start=True,
            is_single=True,
        ),
        Check("same-output", _gives_same_answers, lambda server: server.observed.observe()),
        Check(
            "contract",
            _keeps_contract,
            lambda server: ReleaseAnswers(fields=server.fields()),
            is_contract=True,
            is_single=True,
        ),
    )
}
FORMS = ("start", "acceptance>=X", "same-output", "contract", '"COMMAND"')


def check_of(text: str, seconds: float) -> Check:
    """Return the check for a `--check` value. `seconds`: command time limit. Raises InputError."""
    text = text.strip()
    if text in _NAMED:
        return _NAMED[text]
    place = Place(COMMAND_LINE, text=f"--check {text}")
    if (found := _ACCEPTANCE.fullmatch(text)) is not None:
        return Check(text, partial(_accepts, float(found[1])))
    if text.startswith("acceptance"):
        message = f"{text!r} has no bound"
        raise InputError(Problem(message, place, "quote it for the shell: 'acceptance>=3'"))
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(Problem(f"cannot read the command: {error}", place)) from error
    if not argv:
        raise InputError(Problem("the check is empty", place, f"use one of {', '.join(FORMS)}"))
    program = children.find_program(argv[0])
    if program is None:
        near = suggest(text, list(_NAMED)) if len(argv) == 1 else None
        help_ = near or f"use one of {', '.join(FORMS)}"
        raise InputError(Problem(f"there is no program {argv[0]!r}", place, help_))
    absolute = (str(Path(program).absolute()), *argv[1:])
    return Check(text, partial(_exits, absolute, seconds))
