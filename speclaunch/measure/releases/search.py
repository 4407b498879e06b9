"""Search for the first bad release by checks whose results may be wrong.

The hypotheses are the positions of the first bad release. Each probe reweights them by the
probability of its result, and the next probe halves the remaining weight. With reliable probes this
is plain bisection. With unreliable probes it is Horstein's probabilistic bisection (1963). The
search ends when the last good and the first bad release were probed, so `--good` and `--bad` are
probed only when they matter.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from functools import partial
from itertools import accumulate
from pathlib import Path

from msgspec import Struct

from speclaunch.core import COMMAND_LINE, InputError, LaunchError, Place, children
from speclaunch.engine import suggest
from speclaunch.measure.prove.contract_servers import FieldRow, changed_fields
from speclaunch.measure.releases.launched import ObservedServer, ReleaseAnswers

FLAKY = 0.2
"""Assumed share of wrong results among repeated evaluations of one server."""
CONFIDENCE = 0.99
"""Required probability that a verdict, or the first bad release, is correct."""
MOST_EVALUATIONS = 40
"""Maximum evaluations of one server, after which the server counts as undecided."""
_ENDPOINT = 1e-3
"""Prior weight of the hypothesis that `--good` is bad; every other hypothesis has weight 1."""


class ProbeVerdict(StrEnum):
    """Result of a probe."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"
    """The release cannot be tested."""


class ReleaseProbe(Struct, frozen=True):
    """A finished probe: one start of a release, and the evaluations of the running server."""

    release: str
    verdict: ProbeVerdict
    reason: str = ""
    good: int = 0
    bad: int = 0
    seconds: float = 0.0

    @property
    def is_flaky(self) -> bool:
        return self.good > 0 and self.bad > 0


def net_evaluations(rate: float) -> int:
    """Return a verdict's required lead in evaluations if a share `rate` of them is wrong.

    Based on Wald's sequential test of two simple hypotheses with equal errors.
    """
    if rate <= 0:
        return 1
    return math.ceil(math.log(CONFIDENCE / (1 - CONFIDENCE)) / math.log((1 - rate) / rate))


def most_starts(releases: int) -> int:
    """Return the maximum starts of a search over `releases` releases with reliable probes."""
    return math.ceil(math.log2(releases)) + 1


class SearchOutcome(StrEnum):
    """Outcome of a search."""

    FOUND = "found"
    GOOD_IS_BAD = "good is bad"
    """The release of `--good` also fails the check."""
    BAD_IS_GOOD = "bad is good"
    """The release of `--bad` also passes the check."""
    SKIPPED = "skipped"
    """Untestable releases between the last good and the first bad release hide the result."""
    UNDECIDED = "undecided"
    """The probes contradict each other too often."""


class SearchStep(Struct, frozen=True):
    """The release to probe next, or the outcome, derived from the probes so far.

    `pair`: the last good and the first bad release, if known.
    """

    probe: str | None = None
    outcome: SearchOutcome | None = None
    pair: tuple[str, str] | None = None
    following: tuple[str, ...] = ()
    """Releases that may be probed after `probe`, so their environments can be built in advance."""


def step(
    releases: Sequence[str],
    probes: Sequence[ReleaseProbe],
    *,
    rate: float = 0.0,
    installed: Collection[str] = (),
    most: int = 100,
) -> SearchStep:
    """Return the next step of the search over `releases`, ordered from good to bad.

    `rate`: share of probes with a wrong verdict. `installed`: releases preferred if several split
    the hypotheses equally. `most`: number of probes after which the search gives up.
    """
    found = _step(releases, probes, rate, installed)
    if found.probe is None:
        return found
    if len(probes) >= most:
        return SearchStep(outcome=SearchOutcome.UNDECIDED)
    coming = [
        ReleaseProbe(found.probe, verdict) for verdict in (ProbeVerdict.GOOD, ProbeVerdict.BAD)
    ]
    after = (_step(releases, [*probes, probe], rate, installed).probe for probe in coming)
    following = tuple(dict.fromkeys(name for name in after if name and name != found.probe))
    return SearchStep(found.probe, following=following)


def _step(
    releases: Sequence[str], probes: Sequence[ReleaseProbe], rate: float, installed: Collection[str]
) -> SearchStep:
    decided = [probe for probe in probes if probe.verdict is not ProbeVerdict.SKIP]
    tested = {probe.release for probe in decided}
    skipped = {probe.release for probe in probes} - tested
    testable = [release for release in releases if release not in skipped]
    if releases[0] in skipped or releases[-1] in skipped:
        return SearchStep(outcome=SearchOutcome.SKIPPED, pair=(releases[0], releases[-1]))
    masses = _posterior(testable, decided, rate)
    best = max(range(len(masses)), key=masses.__getitem__)
    if masses[best] >= CONFIDENCE or (rate <= 0 and sum(mass > 0 for mass in masses[1:]) <= 1):
        due = [at for at in (best - 1, best) if 0 <= at < len(testable)]
        for at in due:
            if testable[at] not in tested:
                return SearchStep(testable[at])
        if best == 0:
            return SearchStep(outcome=SearchOutcome.GOOD_IS_BAD)
        if best == len(testable):
            return SearchStep(outcome=SearchOutcome.BAD_IS_GOOD)
        pair = (testable[best - 1], testable[best])
        between = releases.index(pair[1]) - releases.index(pair[0]) > 1
        return SearchStep(
            outcome=SearchOutcome.SKIPPED if between else SearchOutcome.FOUND, pair=pair
        )
    below = list(accumulate(masses))  # below[i]: probability that release i is bad
    halves = [
        (round(abs(below[at] - 0.5), 2), release not in installed, at)
        for at, release in enumerate(testable)
    ]
    return SearchStep(testable[min(halves)[2]])


def _posterior(releases: Sequence[str], probes: Sequence[ReleaseProbe], rate: float) -> list[float]:
    """Return each release's probability of being the first bad one, then that of no bad release."""
    masses = [_ENDPOINT, *[1.0] * len(releases)]
    for probe in probes:
        at, is_bad = releases.index(probe.release), probe.verdict is ProbeVerdict.BAD
        # release `at` is bad exactly if the first bad one is not after it
        masses = [
            mass * ((1 - rate) if (first <= at) is is_bad else rate)
            for first, mass in enumerate(masses)
        ]
        total = sum(masses)
        if total <= 0:  # reliable probes contradict each other
            return _posterior(releases, probes, FLAKY)
        masses = [mass / total for mass in masses]
    total = sum(masses)
    return [mass / total for mass in masses]


# ruff: noqa: ARG001  checks have one signature


URL_VARIABLE, RELEASE_VARIABLE = "SPECLAUNCH_URL", "SPECLAUNCH_ENGINE"
"""Environment variables that pass the server's URL and release to a check command."""
_SKIP, _NOT_RUN = 125, 126
"""Exit codes of a check command: 125 if the release is untestable, 126 or more if it cannot run."""
_ACCEPTANCE = re.compile(r"acceptance\s*>=\s*(\d+(?:\.\d+)?)")


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
    """Folder for the output of check commands."""
    fields: Callable[[], tuple[FieldRow, ...]] = tuple
    """Function that compares this server with one without speculation; returns () if unchecked."""


class Check(Struct, frozen=True):
    """Check of a running server. `evaluate` runs one evaluation and may raise LaunchError."""

    text: str
    evaluate: Callable[[CheckedServer, ReleaseAnswers | None], Evaluation]
    reference: Callable[[CheckedServer], ReleaseAnswers] | None = None
    """Function that returns the good release's answers; None if answers are not compared."""
    is_start: bool = False
    """True if a release that does not serve is bad, False if the search skips the release."""
    is_contract: bool = False
    """True if the check also needs a server without speculation."""
    is_single: bool = False
    """True if a single evaluation determines the result."""


def _accepts(least: float, server: CheckedServer, reference: ReleaseAnswers | None) -> Evaluation:
    found = server.observed.observe().acceptance
    if found is None:
        return Evaluation(ProbeVerdict.BAD, "no answer has a verify step")
    verdict = ProbeVerdict.GOOD if found >= least else ProbeVerdict.BAD
    return Evaluation(verdict, f"acceptance length {found:.2f}")


def _gives_same_answers(server: CheckedServer, reference: ReleaseAnswers | None) -> Evaluation:
    found = server.observed.observe()
    difference = server.observed.difference(reference or found, found)
    if difference is None:
        return Evaluation(ProbeVerdict.GOOD, "the same answers")
    return Evaluation(ProbeVerdict.BAD, difference)


def _keeps_contract(server: CheckedServer, reference: ReleaseAnswers | None) -> Evaluation:
    """Check that speculation changes no request field that it preserves in the good release."""
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
    """Run a command without a shell; interpret its exit code like `git bisect run`.

    Raises LaunchError if the command cannot run or a signal ends it.
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
            help=f"exit with 0 (good), 1 to 124 (bad) or 125 (skip); see {log.name}",
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
        raise InputError(message, place, "add a bound, quoted for the shell: 'acceptance>=3'")
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"cannot read the command: {error}", place) from error
    if not argv:
        raise InputError("the check is empty", place, f"use one of {', '.join(FORMS)}")
    program = children.find_program(argv[0])
    if program is None:
        near = suggest(text, list(_NAMED)) if len(argv) == 1 else None
        help_ = near or f"use one of {', '.join(FORMS)}"
        raise InputError(f"there is no program {argv[0]!r}", place, help_)
    absolute = (str(Path(program).absolute()), *argv[1:])
    return Check(text, partial(_exits, absolute, seconds))
