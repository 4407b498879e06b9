"""Servers that work together: prefill with decode, and the ranks of one server.

Where a file says what belongs together (`Request.surroundings`), that counts. Else prefill and
decode servers belong together that serve one model and are written in one directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from speclaunch.errors import Place
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.record import record
from speclaunch.rules.interface import Fix, Severity, Verdict
from speclaunch.surroundings import Group

PREFILL, DECODE = "prefill", "decode"


@record
class Conflict:
    """What two servers say differently. `at`: the arguments that decide it, the first written one
    of each server is its place."""

    message: str
    at: tuple[str, ...]
    why: str
    fix: Fix
    severity: Severity | None = None


@record
class Pair:
    """A decode server and the prefill servers that may hand a request to it."""

    decode: Plan
    prefills: tuple[Plan, ...]
    is_told: bool
    """Whether a file says that they belong together; else all of them have to differ for a
    verdict, for one of them may be its partner."""


def mode(plan: Plan) -> str | None:
    """`prefill` or `decode`; None for any other server, and where nobody can tell."""
    try:
        found = plan.value("disaggregation_mode")
    except UnknownValueError:
        return None
    return found if found in (PREFILL, DECODE) else None


def is_side(plan: Plan) -> bool:
    """Whether a server is one side of a disaggregated deployment."""
    return mode(plan) is not None


def model_of(plan: Plan) -> str | None:
    """The name of a server's model without the directories before it: one side may have it from a
    hub and the other from a disk. None where nobody can tell."""
    try:
        found = plan.value("model_path")
    except UnknownValueError:
        return None
    return None if found is None else PurePath(str(found).rstrip("/")).name.lower()


def groups(plans: Sequence[Plan]) -> list[list[Plan]]:
    """The plans of each deployment that a file tells of: those with equal groups."""
    found: list[tuple[Group, list[Plan]]] = []
    for plan in plans:
        around = plan.request.surroundings
        if around is None:
            continue
        known = next((some for group, some in found if group == around.group), None)
        if known is None:
            found.append((around.group, [plan]))
        else:
            known.append(plan)
    return [some for _, some in found]


def pairs(plans: Sequence[Plan]) -> Iterator[Pair]:
    """Each decode server with its prefill servers: those of its model, where there are any."""
    for group in groups(plans):
        for decode in group:
            prefills = [one for one in group if mode(one) == PREFILL]
            if mode(decode) == DECODE and prefills:
                same = [one for one in prefills if model_of(one) == model_of(decode)]
                yield Pair(decode, tuple(same or prefills), is_told=True)
    alone = [one for one in plans if one.request.surroundings is None]
    for decode in alone:
        home = _home(decode)
        same = [one for one in alone if mode(one) == PREFILL and _home(one) == home]
        if mode(decode) == DECODE and home is not None and same:  # same either way: it fits itself
            yield Pair(decode, tuple(same), is_told=False)


def conflicts(
    plans: Sequence[Plan],
    judge: Callable[[Plan, Plan], Conflict | None],
    *,
    of_any_model: bool = False,
) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict for each decode server that does not fit its prefill servers, with both places.

    `judge` gets prefill and decode; what it cannot tell is no conflict. Servers of different models
    are SPL822's alone (`of_any_model`): nothing else of them is the same.
    """
    for pair in pairs(plans):
        model, *_ = map(model_of, pair.prefills)
        if model != model_of(pair.decode) and not of_any_model:
            continue
        found = [(one, _judged(judge, one, pair.decode)) for one in pair.prefills]
        differing = [(one, conflict) for one, conflict in found if conflict is not None]
        if differing and (pair.is_told or len(differing) == len(found)):
            yield pair.decode, verdict(differing[0][1], pair.decode, differing[0][0])


def verdict(conflict: Conflict, plan: Plan, other: Plan) -> Verdict:
    """A conflict of a server with another, at one place of each."""
    return Verdict(
        conflict.message,
        place=place_of(plan, conflict.at),
        why=conflict.why,
        fix=conflict.fix,
        severity=conflict.severity,
        others=(place_of(other, conflict.at),),
    )


def said_differently(one: Plan, other: Plan, names: Sequence[str]) -> tuple[str, ...]:
    """Those of some arguments that one of two servers says and the other does not, or otherwise."""

    def said(plan: Plan, name: str) -> Any:
        given = plan.request.given.get(name)
        return None if given is None else given.value

    return tuple(name for name in names if said(one, name) != said(other, name))


def place_of(plan: Plan, names: Sequence[str]) -> Place:
    """Where the first of some arguments was written, else where the server is."""
    request = plan.request
    written = (name for name in names if name in request.given)
    name = next(written, None)
    return request.place if name is None else plan.place(name)


def _judged(
    judge: Callable[[Plan, Plan], Conflict | None], prefill: Plan, decode: Plan
) -> Conflict | None:
    try:
        return judge(prefill, decode)
    except UnknownValueError:
        return None


def _home(plan: Plan) -> Any:
    """What servers have in common that are taken for one deployment; None: it cannot be told."""
    try:
        model = plan.value("model_path")
    except UnknownValueError:
        return None
    directory = str(PurePath(plan.request.place.path).parent)
    return None if model is None else (directory, str(model), plan.request.version)
