"""Rules about arguments and variables that an engine version rejects, ignores or changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.values import KEYS_OF_A_COMMAND, written_secrets
from speclaunch.core import Problem, lazy
from speclaunch.engine import (
    ENGINE_VARIABLES,
    MARK,
    REMOVALS,
    Argument,
    ChangeKind,
    Plan,
    RequestOrigin,
    UnknownValueError,
    conversion,
    dead_variable,
    forwarded_variable,
    held_versions,
    history,
    name_of,
    nearest,
    other_names,
    precedes,
    refusals,
    released_names,
    spec_v2,
)
from speclaunch.engine import load as load_catalogue

if TYPE_CHECKING:
    from speclaunch.engine import Catalogue, KnownFork


_FLAG = lazy(r"--[A-Za-z0-9][\w-]*")
_QUOTED = lazy(r"`[\w-]+`")
_MEANT = lazy(r"did you mean `?(?:--)?([\w-]+)`?\?")
_CHOICE = lazy(r"invalid choice: '([^']*)'")


class ArgumentRefusal(StrEnum):
    """Kind of refusal by the engine's parser, identified by argparse's message."""

    UNKNOWN = "unrecognized arguments"
    AMBIGUOUS = "ambiguous option"
    MISSING = "arguments are required"
    VALUE = "argument "


def refusal(problem: Problem) -> ArgumentRefusal:
    """Return the kind of a parser problem."""
    if "has no server argument" in problem.message:  # a recipe's, reported before parsing
        return ArgumentRefusal.UNKNOWN
    kinds = (ArgumentRefusal.UNKNOWN, ArgumentRefusal.AMBIGUOUS, ArgumentRefusal.MISSING)
    return next((kind for kind in kinds if kind in problem.message), ArgumentRefusal.VALUE)


def refused(plan: Plan, kind: ArgumentRefusal) -> Iterator[Problem]:
    """Yield the parser problems of a kind, in the order of the tokens."""
    return (problem for problem in plan.request.problems if refusal(problem) is kind)


def verdict(problem: Problem, plan: Plan) -> Verdict:
    """Return a parser problem as a verdict; its fix names this version's replacement, if known."""
    version = plan.request.version
    text = problem.message.removeprefix(f"SGLang {version} refuses ")
    own = text.startswith(f"SGLang {version} ")  # a full sentence already
    return Verdict(
        text if own else f"SGLang {version} refuses this: {text}",
        why="the engine's parser exits with code 2 before loading anything",
        fix=_with_edits(_or_declare(_instead(problem, plan), problem, plan), problem, plan),
        place=problem.place,
    )


def fork_of(problem: Problem, plan: Plan) -> KnownFork | None:
    """Return the known fork that has the problem's argument.

    None if no fork has it, or if it is probably a typo of a release's argument.
    """
    found = written(problem)
    if MARK in plan.request.version or found is None:
        return None
    from speclaunch.engine import fork_with  # noqa: PLC0415  nearly no command needs it

    name, fork = name_of(found), fork_with(name_of(found))
    is_exact = fork is not None and name in fork.begins
    return fork if is_exact or not nearest(name, released_names()) else None


def how_to_declare(plan: Plan) -> str:
    """Return advice on how to make speclaunch read the arguments of an unreleased engine."""
    if plan.request.origin is RequestOrigin.RECIPE:
        return "set engine.catalogue to `installed`, or to the path of its package"
    return "add --engine installed, or --engine with the path of its package"


def written(problem: Problem) -> str | None:
    """Return the argument that a problem reports as unknown or ambiguous, else None."""
    if refusal(problem) not in (ArgumentRefusal.UNKNOWN, ArgumentRefusal.AMBIGUOUS):
        return None
    found = _FLAG.search(problem.message) or _QUOTED.search(problem.message)
    return found[0].strip("`") if found is not None else None


def _or_declare(fix: Fix | None, problem: Problem, plan: Plan) -> Fix | None:
    """Return `fix`, with advice to declare a fork if no release has the argument."""
    if MARK in plan.request.version or not _in_no_release(problem, plan):
        return fix
    advice = f"{fix.text}; " if fix is not None else "no release has it; "
    return Fix(f"{advice}for a fork, {how_to_declare(plan)}")


def _with_edits(fix: Fix | None, problem: Problem, plan: Plan) -> Fix | None:
    """Return `fix`, with the edit to the intended name or value if exactly one is known."""
    if fix is None:
        return None
    name = written(problem)
    meant = _MEANT.match(fix.text)
    if name is not None:
        same = same_argument(name_of(name), plan.catalogue)
        if same is not None:
            return replace(fix, rename=(name.lstrip("-"), same.lstrip("-")), safe=True)
        return replace(fix, rename=(name.lstrip("-"), meant[1])) if meant is not None else fix
    argument = _named(problem, plan)
    if meant is None or argument is None:  # same either way: the flag names what is rejected
        return fix
    return replace(fix, set={argument.name: meant[1]})


def _named(problem: Problem, plan: Plan) -> Argument | None:
    flag = _FLAG.search(problem.message)
    return plan.catalogue.by_name(flag[0]) if flag is not None else None


def _in_no_release(problem: Problem, plan: Plan) -> bool:
    if refusal(problem) is ArgumentRefusal.UNKNOWN:
        name = written(problem)
        return name is not None and history(name_of(name)) is None
    choice, argument = _CHOICE.search(problem.message), _named(problem, plan)
    if choice is None or argument is None:
        return False
    return not any(
        choice[1] in map(str, found.choices or ())
        for version in held_versions()
        if (found := load_catalogue(version).by_name(argument.name)) is not None
    )


def _instead(problem: Problem, plan: Plan) -> Fix | None:
    if refusal(problem) is ArgumentRefusal.MISSING:
        return Fix("set --model-path, or args.model_path in a recipe")
    flag = _FLAG.search(problem.message)
    name = name_of(flag[0]) if flag else ""
    known = plan.catalogue.by_name(name) is not None  # the value is wrong: use the parser's advice
    advice = None if known else now(name, plan)
    text = advice or problem.help
    return Fix(text) if text else None


def same_argument(name: str, catalogue: Catalogue) -> str | None:
    """Return the flag that a version has instead of `name`; None if it has `name` or neither."""
    if catalogue.by_name(name) is not None:
        return None
    found = (catalogue.by_name(other) for other in other_names(name))
    return next((argument.flag for argument in found if argument is not None), None)


def now(name: str, plan: Plan) -> str | None:
    """Return advice on an argument that this version lacks; None if no version has it."""
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


@rule("SPL001")
def unknown_argument(plan: Plan) -> Iterator[Verdict]:
    """Report an argument that the version's parser does not know."""
    for problem in refused(plan, ArgumentRefusal.UNKNOWN):
        fork = fork_of(problem, plan)
        if fork is None:
            yield verdict(problem, plan)
            continue
        is_here = plan.facts.runtime is not None  # the installed version applies
        yield Verdict(
            f"no release has `{written(problem)}`; it belongs to {fork.name} of SGLang",
            why="SGLang itself exits with code 2; speclaunch does not know the fork's arguments",
            fix=Fix(f"use {fork.package} as the engine: {how_to_declare(plan)}"),
            severity=None if is_here else Severity.WARNING,
            place=problem.place,
        )


def _verdicts(plan: Plan, kind: ArgumentRefusal) -> Iterator[Verdict]:
    return (verdict(problem, plan) for problem in refused(plan, kind))


@rule("SPL002")
def ambiguous_argument(plan: Plan) -> Iterator[Verdict]:
    """Report an abbreviation that fits several arguments."""
    return _verdicts(plan, ArgumentRefusal.AMBIGUOUS)


@rule("SPL003")
def invalid_value(plan: Plan) -> Iterator[Verdict]:
    """Report a value that the parser rejects."""
    return _verdicts(plan, ArgumentRefusal.VALUE)


@rule("SPL004")
def missing_model(plan: Plan) -> Iterator[Verdict]:
    """Report a missing model, or an empty model path, which the parser accepts."""
    yield from _verdicts(plan, ArgumentRefusal.MISSING)
    model = plan.request.values.get("model_path")
    if model is not None and model.known and model.value == "":
        yield Verdict(
            "--model-path is empty",
            at=("model_path",),
            why="the engine finds no config.json for an empty model name",
            fix=Fix("set --model-path; a shell variable in it may be unset"),
        )


@rule("SPL005")
def renamed_argument(plan: Plan) -> Iterator[Verdict]:
    """Report an argument that has another name in this engine version."""
    catalogue = plan.catalogue
    for setting in plan.request.values.values():
        name = name_of(setting.written)
        argument = catalogue.by_name(name)
        if argument is not None and not argument.deprecated:
            continue
        current = next((other for other in other_names(name) if _is_current(plan, other)), None)
        if current is None:
            continue
        message = f"{setting.written} is called {current} in SGLang {plan.request.version}"
        if _is_to_come(name, plan):
            yield Verdict(
                message,
                at=(setting.name,),
                why="the name is newer than this version; speclaunch renders the older name",
            )
            continue
        yield Verdict(
            message,
            at=(setting.name,),
            why="the engine still accepts the old name, with a warning"
            if argument is not None
            else "the engine does not know the old name; speclaunch renders the new name",
            fix=Fix(f"write {current}", safe=True),
        )


def _is_to_come(name: str, plan: Plan) -> bool:
    past = history(name)
    return past is not None and precedes(plan.request.version, past.first)


def _is_current(plan: Plan, name: str) -> bool:
    argument = plan.catalogue.by_name(name)
    return argument is not None and not argument.deprecated


@rule("SPL006")
def argument_without_effect(plan: Plan) -> Iterator[Verdict]:
    """Report an argument that the engine accepts but never reads."""
    for setting in plan.request.values.values():
        argument = plan.catalogue.by_name(name_of(setting.written))
        if argument is None or argument.read:
            continue
        yield Verdict(
            f"{setting.written} has no effect in SGLang {plan.request.version}",
            at=(setting.name,),
            why=REMOVALS.get(argument.name) or "the release does not read its value",
            fix=Fix("remove it", set={setting.name: None}),
        )


@rule("SPL007")
def variable_without_effect(plan: Plan) -> Iterator[Verdict]:
    """Report an engine variable that is set but never read."""
    for name in plan.request.env:
        if name == spec_v2.VARIABLE:  # SPL203
            continue
        dead = dead_variable(name, plan.request.version)
        declared = plan.catalogue.variables.get(name)
        if dead is None and (declared is None or declared.read):
            continue
        yield Verdict(
            f"{name} has no effect in SGLang {plan.request.version}",
            at=(name,),
            why=dead.afterwards
            if dead is not None
            else "the release declares it but does not read it",
            fix=Fix("remove it", env={name: None}, safe=True),
        )


_DIFFUSION = (
    *("SGLANG_CACHE_DIT_", "SGLANG_DIFFUSION_", "SGLANG_S3_", "SGLANG_USE_ROCM_VAE"),
    *("SGLANG_CLOUD_STORAGE_TYPE", "SGLANG_USE_RUNAI_MODEL_STREAMER", "SGLANG_VAE_"),
)
"""Starts of variables for diffusion models (sglang 0.5.23, multimodal_gen/envs.py)."""


@rule("SPL008")
def unknown_variable(plan: Plan) -> Iterator[Verdict]:
    """Report a variable that looks like the engine's but does not exist in this version."""
    known = plan.catalogue.variables
    for name in plan.request.env:
        if not name.startswith(ENGINE_VARIABLES) or name in known or name.startswith(_DIFFUSION):
            continue
        if dead_variable(name, plan.request.version) is not None:
            continue
        if forwarded_variable(name, plan.request.version) in known:
            continue
        if name in plan.request.read_variables:
            continue
        having = {v: load_catalogue(v).variables for v in held_versions()}
        versions = [v for v, names in having.items() if name in names]
        near = None
        if not versions:
            near = next(iter(nearest(name, {*known}.union(*having.values()))), None)
        others = [v for v, names in having.items() if near in names and near not in known]
        until = f" ({others[0]} to {others[-1]} have it)" if others else ""
        yield Verdict(
            f"SGLang {plan.request.version} has no variable {name}",
            at=(name,),
            why=f"it exists from {versions[0]} to {versions[-1]}"
            if versions
            else "no release reads a variable of this name",
            fix=None if near is None else Fix(f"did you mean {near}{until}?"),
        )


@rule("SPL009")
def repeated_argument(plan: Plan) -> Iterator[Verdict]:
    """Report an argument that is set twice to different values."""
    for earlier in plan.request.overridden:
        last = plan.request.values[earlier.name]
        if earlier.value == last.value:
            continue
        yield Verdict(
            f"{earlier.written} {earlier.value} is overridden by a later value",
            why=f"the last value wins: {last.written} {last.value}, line {last.place.line}",
            fix=Fix(f"set {last.written} only once"),
            place=earlier.place,
        )


@rule("SPL010")
def abbreviated_argument(plan: Plan) -> Iterator[Verdict]:
    """Report an abbreviated flag that a later release refuses."""
    for option in plan.request.values.values():
        argument = plan.catalogue.resolve_flag(option.written)
        if not isinstance(argument, Argument) or option.written in argument.flags:
            continue
        refused = _refused_from(option.written, plan.request.version)
        if refused is not None:
            yield Verdict(
                f"{option.written} abbreviates {argument.flag}; SGLang {refused} rejects it",
                at=(option.name,),
                why="argparse accepts an abbreviation only while it is unambiguous",
                fix=Fix(f"write {argument.flag}", safe=True),
            )


def _refused_from(written: str, version: str) -> str | None:
    newer = (held for held in held_versions() if precedes(version, held))
    found = (v for v in newer if not isinstance(load_catalogue(v).resolve_flag(written), Argument))
    return next(found, None)


_NAME = "json_model_override_args"


@rule("SPL011")
def unreadable_model_overrides(plan: Plan) -> Iterator[Verdict]:
    """Report a `json_model_override_args` that is not a JSON object."""
    value = plan.user_value(_NAME)
    if value is None:
        return
    try:
        found = json.loads(value)
        if not found or isinstance(found, dict):
            return
        what = f"is {type(found).__name__} in JSON, not an object"
    except (ValueError, RecursionError) as error:
        what = f"is not valid JSON: {error}"
    yield Verdict(
        f"{_NAME} {what}",
        at=(_NAME,),
        why="the engine fails on this value when it loads the model's config",
        fix=Fix("write a JSON object, in single quotes on a command line: '{\"key\": value}'"),
    )


@rule("SPL012")
def literal_secret(plan: Plan) -> Iterator[Verdict]:
    """Report a secret written in the file."""
    recipe = plan.request.origin is RequestOrigin.RECIPE
    for secret in written_secrets(plan):
        if not recipe and secret.name in KEYS_OF_A_COMMAND:  # reported by SPL802
            continue
        # in a recipe the key before it remains visible
        column = secret.place.column + recipe * (secret.place.length + len(": "))
        example = f"{secret.written}: ${{oc.env:NAME}}" if recipe else f'{secret.written}="$NAME"'
        yield Verdict(
            f"the file contains the value of {secret.name}",
            why="the value remains in the repository's history, readable by anyone with access",
            fix=Fix(f"rotate the secret, and read the new value from the environment ({example})"),
            place=replace(secret.place, column=column, hidden=True),
        )


@rule("SPL017")
def engine_refuses_when(plan: Plan) -> Iterator[Verdict]:
    """Report a refusal by a check extracted from the engine's validation."""
    if plan.request.unseen:
        raise UnknownValueError(plan.request.unseen)
    reported: set[tuple[str, ...]] = set()
    for refusal in refusals(plan):
        if refusal.names in reported:
            continue
        reported.add(refusal.names)
        yield Verdict(
            f"SGLang {plan.request.version} refuses this: {refusal.message or refusal.exception}",
            at=refusal.names,
            why=f"{refusal.exception}, {refusal.source}",
        )


@rule("SPL018")
def outdated_lock(plan: Plan) -> Iterator[Verdict]:
    """Report each difference between a recipe and its lock."""
    for problem in plan.request.lock_differences:
        yield Verdict(
            problem.message,
            why="the lock records the settings that worked before this change",
            fix=Fix("undo the change, or write the lock again with --smoke --lock"),
            place=problem.place,
        )


_KINDS = {
    "SPL902": ChangeKind.CHOSEN_PARAMETERS,
    "SPL903": ChangeKind.RUNNING_REQUESTS,
    "SPL904": ChangeKind.OVERLAP,
    "SPL905": ChangeKind.MIXED_CHUNK_OFF,
    "SPL906": ChangeKind.TARGET_IS_DRAFT,
    "SPL907": ChangeKind.ALGORITHM,
    "SPL908": ChangeKind.PAGE_SIZE,
    "SPL909": ChangeKind.DRAFT_QUANTIZATION,
    "SPL910": ChangeKind.DP_ATTENTION,
    "SPL911": ChangeKind.ONE_BLOCK,
    "SPL912": ChangeKind.NGRAM_TOPK,
    "SPL914": ChangeKind.MULTI_LAYER_EAGLE,
    "SPL915": ChangeKind.TOPK_LOWERED,
    "SPL916": ChangeKind.REJECTION_SAMPLING_ON,
    "SPL917": ChangeKind.PREFILL_GRAPHS_OFF,
}
"""Kind of plan change that each rule reports. Some kinds have no rule."""


def _changed(kind: ChangeKind, plan: Plan) -> Iterator[Verdict]:
    for change in plan.changes:
        if change.kind is kind:
            before = "" if change.before is None else f", not {_shown(change.before)}"
            yield Verdict(
                f"{plan.written_name(change.name)} will be {_shown(change.after)}{before}",
                at=(change.name, "speculative_algorithm"),
                why=change.why + ("" if change.logged else "; the engine does not log it"),
            )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


for _code, _kind in _KINDS.items():
    rule(_code)(partial(_changed, _kind))
