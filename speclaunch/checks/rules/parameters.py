"""Rules about speculation parameters: steps, top-k, draft tokens, and their combinations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speclaunch.checks.rules.arguments import how_to_declare
from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.values import number, tree_capacity
from speclaunch.engine import (
    MARK,
    Plan,
    UnknownValueError,
    algorithm_names,
    nearest,
    speculation,
)

if TYPE_CHECKING:
    from speclaunch.engine import KnownFork


@rule("SPL101")
def unknown_algorithm(plan: Plan) -> Iterator[Verdict]:
    """Report an algorithm that the engine lacks."""
    known = algorithm_names(plan)
    name = plan.algorithm
    if name is None or name in known:
        return
    fork = _fork(name, plan)
    if fork is not None:
        is_here = plan.facts.runtime is not None  # the installed version applies
        yield Verdict(
            f"no release has the speculative algorithm {name}; it belongs to {fork.name} of SGLang",
            at=("speculative_algorithm",),
            why="SGLang itself refuses it; the behavior of the fork is unknown",
            fix=Fix(f"use {fork.package} as the engine: {how_to_declare(plan)}"),
            severity=None if is_here else Severity.WARNING,
        )
        return
    close = nearest(name, sorted(known), 1)
    plugins = plan.env("SGLANG_PLUGINS")
    yield Verdict(
        f"SGLang {plan.version} has no speculative algorithm {name}"
        + (f"; did you mean {close[0]}?" if close else ""),
        at=("speculative_algorithm",),
        why="the engine refuses: Unknown speculative algorithm name: "
        f"{name}. It has {', '.join(sorted(known))}"
        + (f"; the plugins {plugins} may add more" if plugins else "; plugins may add more"),
        fix=Fix(
            f"use {close[0]}" if close else "use one of the known names",
            set={"speculative_algorithm": close[0]} if close else {},
        ),
        severity=Severity.WARNING if plugins else Severity.ERROR,
    )


def _fork(name: str, plan: Plan) -> KnownFork | None:
    if MARK in plan.request.version:
        return None
    from speclaunch.engine import fork_with_algorithm  # noqa: PLC0415  nearly no command needs it

    return fork_with_algorithm(name)


_OTHERS = ("speculative_eagle_topk", "speculative_num_draft_tokens")


@rule("SPL102")
def partial_parameters(plan: Plan) -> Iterator[Verdict]:
    """Report top-k or draft tokens without `speculative_num_steps`."""
    explicit = [name for name in _OTHERS if plan.user_value(name) is not None]
    if not explicit or plan.user_value("speculative_num_steps") is not None:
        return
    if speculation.adaptive_fills_parameters(plan) or speculation.draft_sets_parameters(plan):
        return
    yield Verdict(
        f"speculative_num_steps is not set, unlike {' and '.join(explicit)}",
        at=tuple(explicit),
        why="without speculative_num_steps the engine chooses all three values, but stops with "
        "a bare AssertionError if one of the other two is set",
        fix=_fix(plan),
    )


def _fix(plan: Plan) -> Fix:
    tokens, topk = (
        plan.user_value("speculative_num_draft_tokens"),
        plan.user_value("speculative_eagle_topk"),
    )
    steps = int(tokens) - 1 if tokens is not None and topk in (None, 1) else 0
    if steps < 1:  # same either way: only the advice differs
        return Fix(
            "set speculative_num_steps, or remove the others so that the engine chooses all three"
        )
    return Fix(
        f"set speculative_num_steps to {steps} and speculative_eagle_topk to 1 for a chain of "
        f"{tokens} tokens",
        set={"speculative_num_steps": steps, "speculative_eagle_topk": 1},
    )


@rule("SPL103")
def steps_without_topk(plan: Plan) -> Iterator[Verdict]:
    """Report `speculative_num_steps` without `speculative_eagle_topk`."""
    steps = plan.user_value("speculative_num_steps")
    if steps is None or plan.user_value("speculative_eagle_topk") is not None:
        return
    if speculation.adaptive_fills_parameters(plan) or speculation.draft_sets_parameters(plan):
        return
    yield Verdict(
        f"speculative_num_steps {steps} needs speculative_eagle_topk",
        at=("speculative_num_steps",),
        why="the engine sets topk only if speculative_num_steps is also missing; otherwise it "
        "fails: "
        + (
            "'>' not supported between instances of 'NoneType' and 'int'"
            if plan.in_versions(">=0.5.2")
            else "unsupported operand type(s) for *: 'int' and 'NoneType'"
        ),
        fix=Fix(
            "set speculative_eagle_topk to 1, which drafts a chain",
            set={"speculative_eagle_topk": 1},
        ),
    )


@rule("SPL104")
def tree_without_tokens(plan: Plan) -> Iterator[Verdict]:
    """Report a draft tree without `speculative_num_draft_tokens`."""
    steps = number(plan, "speculative_num_steps")
    topk = number(plan, "speculative_eagle_topk")
    if steps is None or topk is None or topk <= 1:
        return
    if plan.value("speculative_num_draft_tokens") is not None:
        return
    tokens = min(tree_capacity(steps, topk), 16)
    yield Verdict(
        f"a draft tree ({steps} steps, topk {topk}) needs speculative_num_draft_tokens",
        at=("speculative_eagle_topk", "speculative_num_steps"),
        why="the engine sets it only for topk 1; otherwise it remains unset, and startup fails "
        "with a TypeError after the argument checks",
        fix=Fix(
            f"set speculative_num_draft_tokens to {tokens} (at most {tree_capacity(steps, topk)})",
            set={"speculative_num_draft_tokens": tokens},
        ),
    )


@rule("SPL105")
def adjusted_draft_tokens(plan: Plan) -> Iterator[Verdict]:
    """Report a draft token count that the engine adjusts: with topk 1, any other than steps + 1."""
    tokens = plan.user_value("speculative_num_draft_tokens")
    if tokens is None or number(plan, "speculative_eagle_topk") != 1:
        return
    steps = number(plan, "speculative_num_steps")
    if steps is None or int(tokens) == steps + 1:
        return
    yield Verdict(
        f"speculative_num_draft_tokens {tokens} becomes {steps + 1} with topk 1 and {steps} steps",
        at=("speculative_num_draft_tokens",),
        why="the engine logs: speculative_num_draft_tokens is adjusted to speculative_num_steps + "
        "1 when speculative_eagle_topk == 1",
        fix=Fix(
            f"set it to {steps + 1}, or set speculative_num_steps to {int(tokens) - 1} for "
            f"{tokens} tokens",
            set={"speculative_num_draft_tokens": steps + 1},
            safe=True,
        ),
    )


@rule("SPL106")
def tree_capacity_check(plan: Plan) -> Iterator[Verdict]:
    """Report more draft tokens than the draft tree has nodes."""
    steps = number(plan, "speculative_num_steps")
    topk = number(plan, "speculative_eagle_topk")
    tokens = number(plan, "speculative_num_draft_tokens")
    if steps is None or topk is None or tokens is None:
        return
    capacity = tree_capacity(steps, topk)
    if min(steps, topk) < 1 or tokens <= capacity:  # below 1: SPL107
        return
    yield Verdict(
        f"speculative_num_draft_tokens {tokens} is more than the {capacity} tokens of a draft tree "
        f"with {steps} steps and topk {topk}",
        at=("speculative_num_draft_tokens", "speculative_num_steps", "speculative_eagle_topk"),
        why=f"the engine selects the best {tokens - 1} of {capacity - 1} drafted tokens, and "
        "torch.topk fails: selected index k out of range",
        fix=Fix(
            f"lower speculative_num_draft_tokens to {capacity}, or raise speculative_num_steps",
            set={"speculative_num_draft_tokens": capacity},
        ),
    )


@rule("SPL107")
def nonpositive_parameter(plan: Plan) -> Iterator[Verdict]:
    """Report a step, topk or draft token count below 1."""
    steps = number(plan, "speculative_num_steps")
    topk = number(plan, "speculative_eagle_topk")
    tokens = number(plan, "speculative_num_draft_tokens")
    idle = steps == 0 and plan.in_versions(">=0.5.14")
    if steps is not None and steps < 1:
        yield Verdict(
            f"speculative_num_steps {steps} drafts nothing",
            at=("speculative_num_steps",),
            why="the draft model occupies memory, but every step verifies only one token"
            if idle
            else (
                "without draft steps the engine concatenates an empty list, or requests a "
                "negative number of tokens"
            ),
            fix=Fix("set it to 1 or more", set={"speculative_num_steps": 1}),
            severity=Severity.WARNING if idle else Severity.ERROR,
        )
    if topk is not None and topk < 1:
        yield Verdict(
            f"speculative_eagle_topk {topk} leaves no branch to draft",
            at=("speculative_eagle_topk",),
            why="the engine does not check it; torch.topk finds no token to select",
            fix=Fix("set it to 1, which drafts a chain", set={"speculative_eagle_topk": 1}),
        )
    if tokens is not None and topk != 1 and tokens < 1:
        yield Verdict(
            f"speculative_num_draft_tokens {tokens} verifies nothing",
            at=("speculative_num_draft_tokens",),
            why=f"the engine selects the best {tokens - 1} drafted tokens, and torch.topk fails",
            fix=Fix("set it to 2 or more: a drafted token and the target's own"),
        )


@rule("SPL110")
def accept_threshold(plan: Plan) -> Iterator[Verdict]:
    """Report an acceptance threshold that is not a probability."""
    if plan.algorithm is None:
        return
    for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        value = plan.user_value(name)
        if value is not None and not 0 <= float(value) <= 1:
            yield Verdict(
                f"{name} {value} is not between 0 and 1",
                at=(name,),
                why="the kernel that verifies sampled tokens requires a probability: the first "
                "request with a temperature above 0 stops the server",
                fix=Fix(
                    "set it to 1.0, which preserves the target's distribution", set={name: 1.0}
                ),
            )


_CAPTURE = "enable_return_aux_hidden_states"
"""Switch that turns speculation off; `speculative_algorithm` then only selects the hidden states to
capture (0.5.23)."""


@rule("SPL120")
def without_algorithm(plan: Plan) -> Iterator[Verdict]:
    """Report speculation arguments without `speculative_algorithm`."""
    if plan.user_value("speculative_algorithm") is not None or plan.user_value(_CAPTURE):
        return
    idle = [
        setting
        for name, setting in plan.request.values.items()
        if name.startswith("speculative_") and setting.value is not False
    ]
    if idle:
        names = [setting.written for setting in idle]
        yield Verdict(
            f"speculation is off: speculative_algorithm is not set, unlike {', '.join(names)}",
            at=tuple(setting.name for setting in idle),
            why="without speculative_algorithm the engine ignores them silently and generates "
            "one token at a time",
            fix=Fix("set speculative_algorithm, or remove them"),
        )


_ROLE = "decoupled_spec_role"
_NEEDED = (
    "decoupled_spec_bind_endpoint",
    "decoupled_spec_connect_endpoints",
    "decoupled_spec_rank",
)


@rule("SPL121")
def decoupled_speculation(plan: Plan) -> Iterator[Verdict]:
    """Report decoupled speculation without its endpoints or rank."""
    role = plan.user_value(_ROLE)
    missing = [name for name in _NEEDED if plan.user_value(name) is None]
    if role not in (None, "null") and missing:
        yield Verdict(
            f"{_ROLE} {role} needs {', '.join(missing)}",
            at=(_ROLE,),
            why="the engine refuses: --decoupled-spec-bind-endpoint, "
            "--decoupled-spec-connect-endpoints, and --decoupled-spec-rank are required",
            fix=Fix(f"set them all, or remove {_ROLE}", set={_ROLE: None}),
        )


_RAGGED_VERIFY_MODE_NAME = "SGLANG_RAGGED_VERIFY_MODE"
_MODES = ("static", "cap-accept", "compact")


@rule("SPL123")
def ragged_verify_mode(plan: Plan) -> Iterator[Verdict]:
    """Report an unknown value of `SGLANG_RAGGED_VERIFY_MODE`."""
    mode = plan.env(_RAGGED_VERIFY_MODE_NAME)
    if mode is None or mode in _MODES or plan.algorithm is None:
        return
    yield Verdict(
        f"{_RAGGED_VERIFY_MODE_NAME} {mode!r} is not one of {', '.join(_MODES)}",
        at=(_RAGGED_VERIFY_MODE_NAME,),
        why=f"the engine refuses: invalid SGLANG_RAGGED_VERIFY_MODE={mode!r}",
        fix=Fix("use static, the default", env={_RAGGED_VERIFY_MODE_NAME: "static"}),
    )


_REPLAY_TREE_NAME = "enable_linear_replayssm_spec"
_TOPK = "speculative_eagle_topk"
_TOKENS = "speculative_num_draft_tokens"
_RING = "linear_replayssm_cache_len"
_ADAPTIVE_TOKENS = 8
"""Maximum draft token count of adaptive speculation in 0.5.16: its maximum step count plus 1."""


@rule("SPL124")
def replay_tree(plan: Plan) -> Iterator[Verdict]:
    """Report linear attention's cached replay with a tree or, in 0.5.16, a wrong cache length."""
    if not plan.user_value(_REPLAY_TREE_NAME):
        return
    topk = plan.user_value(_TOPK)
    if topk not in (None, 1):
        yield Verdict(
            f"{plan.written_name(_REPLAY_TREE_NAME)} does not work with {_TOPK} {topk}",
            at=(_REPLAY_TREE_NAME, _TOPK),
            why="the engine refuses: it requires a linear draft chain (--speculative-eagle-topk "
            "in {None, 1})",
            fix=Fix(f"set {_TOPK} to 1, which drafts a chain", set={_TOPK: 1, _TOKENS: None}),
        )
    elif plan.in_versions(">=0.5.16,<0.5.17"):
        yield from _ring(plan)


def _ring(plan: Plan) -> Iterator[Verdict]:
    """Report a replay cache length that 0.5.16 refuses (server_args.py:5415 and :5459)."""
    length, tokens = int(plan.value(_RING)), _most_tokens(plan)
    needed = 1 << (max(2 * tokens, length) - 1).bit_length()
    if length == needed:
        return
    why = f"be at least 2 * {tokens} draft tokens, and is {length}"
    if length.bit_count() != 1:  # the engine checks that first
        why = f"be a power of two, and {length} is not"
    yield Verdict(
        f"{plan.written_name(_REPLAY_TREE_NAME)} needs {_RING} {needed}, not {length}",
        at=(_RING, _REPLAY_TREE_NAME),
        why=f"the engine refuses: --linear-replayssm-cache-len must {why}",
        fix=Fix(f"set {_RING} to {needed}", set={_RING: needed}),
    )


def _most_tokens(plan: Plan) -> int:
    tokens = plan.value(_TOKENS)
    if tokens is None:
        return 0
    if not plan.value("speculative_adaptive"):
        return int(tokens)
    if plan.user_value("speculative_adaptive_config") is not None:
        raise UnknownValueError("the file that speculative_adaptive_config names was not read")
    return _ADAPTIVE_TOKENS
