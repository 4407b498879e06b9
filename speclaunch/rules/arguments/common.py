"""What the parser of a version said, by kind, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from speclaunch.engine.catalogue import history, name_of
from speclaunch.engine.renames import REMOVALS, conversion, other_names
from speclaunch.errors import Problem
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Verdict

_FLAG = re.compile(r"--[A-Za-z0-9][\w-]*")


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
        fix=_instead(problem, plan),
        place=problem.place,
    )


def _instead(problem: Problem, plan: Plan) -> Fix | None:
    if refusal(problem) is Refusal.MISSING:
        return Fix("name the model: --model-path, or args.model_path in a recipe")
    flag = _FLAG.search(problem.message)
    name = name_of(flag[0]) if flag else ""
    known = plan.catalogue.by_name(name) is not None  # then it is the value: the parser's advice
    advice = now(name, plan) if name and not known else None
    if advice or problem.help:
        return Fix(advice or problem.help or "")
    return None


def now(name: str, plan: Plan) -> str | None:
    """What has become of an argument that this version does not know by this name."""
    catalogue = plan.catalogue
    for other in other_names(name):
        argument = catalogue.by_name(other)
        if argument is not None and not argument.deprecated:
            return f"write {argument.flag}: it is the same argument"
    past = history(name)
    if past is None:
        return None
    when = f"it exists from SGLang {past.first} to {past.last}"
    became = conversion(name)
    if became is not None and catalogue.by_name(became.new) is not None:
        return f"{when}; write --{became.new.replace('_', '-')} {became.value}"
    reason = REMOVALS.get(name)
    return f"{when}; {reason}" if reason else when
