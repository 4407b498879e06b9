"""What the parser of a version said, by kind, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from speclaunch.engine.catalogue import held_versions, history, name_of, released_names
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.forks import MARK
from speclaunch.engine.nearest import nearest
from speclaunch.engine.renames import REMOVALS, conversion, other_names
from speclaunch.errors import Problem
from speclaunch.patterns import lazy
from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Verdict

if TYPE_CHECKING:
    from speclaunch.engine.catalogue import Catalogue
    from speclaunch.engine.known_forks import KnownFork

_FLAG = lazy(r"--[A-Za-z0-9][\w-]*")
_QUOTED = lazy(r"`[\w-]+`")
_MEANT = lazy(r"did you mean `?(?:--)?([\w-]+)`?\?")
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
        fix=_with_edits(_or_declare(_instead(problem, plan), problem, plan), problem, plan),
        place=problem.place,
    )


def fork_of(problem: Problem, plan: Plan) -> KnownFork | None:
    """The known fork that an argument is of; None where it is of a release, or a slip for one."""
    found = written(problem)
    if MARK in plan.request.version or found is None:
        return None
    from speclaunch.engine.known_forks import fork_with  # noqa: PLC0415  nearly no command needs it

    name, fork = name_of(found), fork_with(name_of(found))
    is_exact = fork is not None and name in fork.begins
    return fork if is_exact or not nearest(name, released_names()) else None


def how_to_declare(plan: Plan) -> str:
    """How to have an engine that is no release judged by its own arguments."""
    recipe = plan.request.origin is Origin.RECIPE
    how = "engine.catalogue: installed" if recipe else "--engine installed"
    return f"{how}, or the path of its package"


def written(problem: Problem) -> str | None:
    """The argument that was not recognised, or could be several."""
    if refusal(problem) not in (Refusal.UNKNOWN, Refusal.AMBIGUOUS):
        return None
    found = _FLAG.search(problem.message) or _QUOTED.search(problem.message)
    return found[0].strip("`") if found is not None else None


def _or_declare(fix: Fix | None, problem: Problem, plan: Plan) -> Fix | None:
    """What no release has ever had may be a fork's: how to have it judged by its own arguments."""
    if MARK in plan.request.version or not _in_no_release(problem, plan):
        return fix
    said = f"{fix.text}; " if fix is not None else "no release has it; "
    return Fix(f"{said}if the engine is a fork, declare it: {how_to_declare(plan)}")


def _with_edits(fix: Fix | None, problem: Problem, plan: Plan) -> Fix | None:
    """With what is meant in place of what is written, where there is one such name or value."""
    if fix is None:
        return None
    name = written(problem)
    meant = _MEANT.match(fix.text)
    if name is not None:
        same = same_argument(name_of(name), plan.catalogue)
        if same is not None:
            return replace(fix, rename=(name.lstrip("-"), same.lstrip("-")), safe=True)
        return replace(fix, rename=(name.lstrip("-"), meant[1])) if meant is not None else fix
    flag = _FLAG.search(problem.message)
    argument = plan.catalogue.by_name(flag[0]) if flag is not None else None
    if meant is None or argument is None:  # same either way: what is refused is named by its flag
        return fix
    return replace(fix, set={argument.name: meant[1]})


def _in_no_release(problem: Problem, plan: Plan) -> bool:
    if refusal(problem) is Refusal.UNKNOWN:
        name = written(problem)
        return name is not None and history(name_of(name)) is None
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


def same_argument(name: str, catalogue: Catalogue) -> str | None:
    """The flag that a version has for an argument that it does not know by this name."""
    if catalogue.by_name(name) is not None:
        return None
    found = (catalogue.by_name(other) for other in other_names(name))
    return next((argument.flag for argument in found if argument is not None), None)


def now(name: str, plan: Plan) -> str | None:
    """What has become of an argument that this version does not know by this name."""
    catalogue = plan.catalogue
    same = same_argument(name, catalogue)
    if same is not None:
        return f"write {same}, which is the same argument"
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
