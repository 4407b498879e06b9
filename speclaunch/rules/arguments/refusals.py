"""What the parser of a version said, by kind, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from speclaunch.engine.catalogue import held_versions, history, name_of
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.forks import MARK
from speclaunch.engine.renames import REMOVALS, conversion, other_names
from speclaunch.errors import Problem
from speclaunch.patterns import lazy
from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Verdict

_FLAG = lazy(r"--[A-Za-z0-9][\w-]*")
_QUOTED = lazy(r"`[\w-]+`")
_CHOICE = lazy(r"invalid choice: '([^']*)'")


class Refusal(StrEnum):
    """The kinds of refusal, by the words that argparse has for each."""

    UNKNOWN = "unrecognized arguments"
    AMBIGUOUS = "ambiguous option"
    MISSING = "arguments are required"
    VALUE = "argument "


def refusal(problem: Problem) -> Refusal:
    """Which kind a problem of the parser is."""
    if "has no server argument" in problem.message:  # a recipe's, told before the parser
        return Refusal.UNKNOWN
    kinds = (Refusal.UNKNOWN, Refusal.AMBIGUOUS, Refusal.MISSING)
    return next((kind for kind in kinds if kind in problem.message), Refusal.VALUE)


def refused(plan: Plan, kind: Refusal) -> Iterator[Problem]:
    """The problems of a kind, in the order of the words."""
    return (problem for problem in plan.request.problems if refusal(problem) is kind)


def verdict(problem: Problem, plan: Plan) -> Verdict:
    """A problem as a verdict: what to write in this version, if that is known."""
    version = plan.request.version
    said = problem.message.removeprefix(f"SGLang {version} refuses ")
    own = said.startswith(f"SGLang {version} ")  # a whole sentence already
    return Verdict(
        said if own else f"SGLang {version} refuses this: {said}",
        why="the engine's parser ends with exit code 2 before anything is loaded",
        fix=_or_declare(_instead(problem, plan), problem, plan),
        place=problem.place,
    )


def _or_declare(fix: Fix | None, problem: Problem, plan: Plan) -> Fix | None:
    """What no release has ever had may be a fork's: how to have it judged by its own arguments."""
    if MARK in plan.request.version or not _in_no_release(problem, plan):
        return fix
    recipe = plan.request.origin is Origin.RECIPE
    how = "engine.catalogue: installed" if recipe else "--engine installed"
    said = f"{fix.text}; " if fix is not None else "no release has it; "
    return Fix(f"{said}if the engine is a fork, declare it: {how}, or the path of its package")


def _in_no_release(problem: Problem, plan: Plan) -> bool:
    if refusal(problem) is Refusal.UNKNOWN:
        written = _FLAG.search(problem.message) or _QUOTED.search(problem.message)
        return written is not None and history(name_of(written[0].strip("`"))) is None
    choice = _CHOICE.search(problem.message)
    if choice is None:
        return False
    flag = _FLAG.search(problem.message)
    argument = plan.catalogue.by_name(flag[0]) if flag is not None else None
    if argument is None:
        return False
    return not any(
        choice[1] in map(str, found.choices or ())
        for version in held_versions()
        if (found := load_catalogue(version).by_name(argument.name)) is not None
    )


def _instead(problem: Problem, plan: Plan) -> Fix | None:
    if refusal(problem) is Refusal.MISSING:
        return Fix("name the model: --model-path, or args.model_path in a recipe")
    flag = _FLAG.search(problem.message)
    name = name_of(flag[0]) if flag else ""
    known = plan.catalogue.by_name(name) is not None  # then it is the value: the parser's advice
    advice = None if known else now(name, plan)
    text = advice or problem.help
    return Fix(text) if text else None


def now(name: str, plan: Plan) -> str | None:
    """What has become of an argument that this version does not know by this name."""
    catalogue = plan.catalogue
    for other in other_names(name):
        argument = catalogue.by_name(other)
        if argument is not None:
            return f"write {argument.flag}, which is the same argument"
    past = history(name)
    if past is None:
        return None
    when = f"it exists from SGLang {past.first} to {past.last}"
    became = conversion(name)
    if became is not None and catalogue.by_name(became.new) is not None:
        value = "" if became.value is True else f" {became.value}"
        return f"{when}; write --{became.new.replace('_', '-')}{value}"
    reason = REMOVALS.get(name)
    return f"{when}; {reason}" if reason else when
