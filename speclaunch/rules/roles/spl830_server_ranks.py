"""The commands of one server's hosts do not fit each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles import ADDRESS, NODES, RANK
from speclaunch.rules.roles.ranks import is_of_several, known, servers
from speclaunch.rules.roles.sides import place_of

_ALIKE = (
    NODES,
    ADDRESS,
    "model_path",
    "revision",
    "disaggregation_mode",
    "tp_size",
    "pp_size",
    "dp_size",
    "attn_dp_size",
    "ep_size",
    "enable_dp_attention",
    "page_size",
    "kv_cache_dtype",
    "attention_backend",
    "moe_a2a_backend",
    "context_length",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
"""What all ranks of a server work out together."""


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one rank by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict for each argument that the hosts of a server say differently."""
    for commands in servers(plans):
        first = commands[0]
        for name in _ALIKE:
            for other in commands[1:]:  # same either way: the first is as itself
                if _differs(first, other, name):
                    yield _verdict(first, other, name)
                    break
        yield from _ranks(commands)


def _differs(first: Plan, other: Plan, name: str) -> bool:
    one, two = first.request.given.get(name), other.request.given.get(name)
    if one is not None and two is not None:
        return one.known and two.known and bool(one.value != two.value)
    if name == ADDRESS:
        return False
    return bool(known(first, name) != known(other, name))


def _verdict(first: Plan, other: Plan, name: str) -> tuple[Plan, Verdict]:
    return other, Verdict(
        f"{name} is {_shown(other, name)} on one host and {_shown(first, name)} on the other of "
        "one server",
        at=(name,),
        why="all hosts of a server start one engine; with other arguments they wait for each other "
        "for ever, or stop in the first collective operation",
        fix=Fix(f"give all hosts the same {name}"),
        others=(place_of(first, (name,)),),
    )


def _shown(plan: Plan, name: str) -> str:
    value = known(plan, name)
    return "not set" if value is None else str(value)


def _ranks(commands: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    ranks = [known(plan, RANK) for plan in commands]
    counted = Counter(rank for rank in ranks if rank is not None)
    for rank, count in counted.items():
        if count < 2:
            continue
        first, second = [plan for plan, one in zip(commands, ranks, strict=True) if one == rank][:2]
        if not second.request.given.keys() & {RANK} and not first.request.given.keys() & {RANK}:
            continue  # one command for all hosts, to which something else gives the rank
        yield (
            second,
            Verdict(
                f"two hosts of one server have node_rank {rank}",
                place=place_of(second, (RANK, NODES)),
                why="the second host is refused, or both wait for a rank that no host has",
                fix=Fix("number the hosts from 0"),
                others=(place_of(first, (RANK, NODES)),),
            ),
        )


RULE = rule(
    "SPL830",
    "server-ranks",
    Severity.ERROR,
    check,
    check_across=check_across,
    compares=is_of_several,
)
