"""Rules about the ranks of one server and the routers in front of servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule, rule_across
from speclaunch.checks.rules.roles import (
    ADDRESS,
    DECODE,
    NODES,
    PREFILL,
    RANK,
    groups,
    mode,
    model_of,
    place_of,
)
from speclaunch.checks.rules.values import number
from speclaunch.core import COMMAND_LINE, Place
from speclaunch.engine import (
    Plan,
    RequestOrigin,
    Router,
    Service,
    Setting,
    UnknownValueError,
    Upstream,
    gpus_needed,
)

_SWITCH = "pd-disaggregation"
_BALANCER = "mini_lb"
"""SGLang's own test router, which supports only prefill/decode disaggregation."""
_ROUTERS = ("sglang_router", "sglang-router", "smg", "amg", "sgl-model-gateway")
_OTHERS = "dynamo"
"""Router whose frontend discovers the roles of its servers."""


class Routed(Struct, frozen=True):
    """A router and the servers of its deployment."""

    router: Router
    plans: tuple[Plan, ...]
    services: tuple[Service, ...]
    """Services between the router and its servers."""


def routed(plans: Sequence[Plan]) -> Iterator[Routed]:
    """Yield each router other than Dynamo's, with the servers of its deployment."""
    for group, members in groups(plans):
        for router in group.routers:
            if _OTHERS not in router.program.lower():
                yield Routed(router, tuple(members), group.services)


def has_router(plan: Plan) -> bool:
    """True if the file of a server configures a router in front of it."""
    context = plan.request.server_context
    return context is not None and bool(context.group.routers)


def is_disaggregated(router: Router) -> bool | None:
    """True if a router is configured for prefill and decode; None if its options do not show it."""
    option = router.options.get(_SWITCH)
    if option is not None and option.known:
        return str(option.value).lower() != "false"
    if option is not None:
        return None
    if _BALANCER in router.program:
        return True
    if any(upstream.role in (PREFILL, DECODE) for upstream in router.upstreams):
        return not _drops_its_lists(router)
    return False if router.upstreams else None


def _drops_its_lists(router: Router) -> bool:
    """True if the router ignores its prefill and decode lists without `--pd-disaggregation`.

    See sglang_router 0.3.2 router.py:222. The renderer adds the option to a recipe's router.
    """
    written = any(upstream.host is not None for upstream in router.upstreams)
    return written and router.program.startswith(_ROUTERS)


def place_of_switch(router: Router) -> Place:
    """Return the place of the disaggregation option; the router's if unset."""
    option = router.options.get(_SWITCH)
    return router.place if option is None else option.place


@rule_across("SPL827", compares=has_router)
def router_disaggregation(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report a router and servers that disagree about prefill and decode."""
    for found in routed(plans):
        disaggregated = is_disaggregated(found.router)
        sides = [mode(plan) for plan in found.plans]
        if disaggregated is False and {PREFILL, DECODE} <= {*sides}:
            yield _verdict_of_router_disaggregation(
                found.plans[sides.index(PREFILL)],
                "the router is not configured for prefill and decode",
                "it treats each server as complete, but both refuse requests without the partner's "
                "address: Disaggregated request received without bootstrap room id",
                "pass --pd-disaggregation with --prefill and --decode to the router",
                found.router,
            )
        elif disaggregated and not {PREFILL, DECODE} & {*sides}:
            yield _verdict_of_router_disaggregation(
                found.plans[0],
                "the router expects prefill and decode servers, but the deployment has neither",
                "the router sends each request to a pair, but a server without "
                "disaggregation_mode has no partner",
                "set disaggregation_mode on the servers, or remove --pd-disaggregation",
                found.router,
            )


def _verdict_of_router_disaggregation(
    plan: Plan, message: str, why: str, fix: str, router: Router
) -> tuple[Plan, Verdict]:
    others = (place_of(plan, ("disaggregation_mode",)),)
    return plan, Verdict(
        message, why=why, fix=Fix(fix), place=place_of_switch(router), others=others
    )


_BOOTSTRAP = "disaggregation_bootstrap_port"


@rule_across("SPL828", compares=has_router)
def router_ports(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report a router with ports on which its servers do not listen."""
    for found in routed(plans):
        for upstream in found.router.upstreams:
            servers = [plan for plan in found.plans if _fits(plan, upstream)]
            if upstream.bootstrap is not None:
                yield from _compared(upstream.bootstrap, servers, _BOOTSTRAP, upstream)
            if upstream.port is not None and not found.services:
                yield from _compared(upstream.port, servers, "port", upstream)


def _fits(plan: Plan, upstream: Upstream) -> bool:
    context = plan.request.server_context
    if context is not None and context.part == "worker":
        return False  # a rank that serves no requests
    if upstream.role != PREFILL:
        return mode(plan) == (upstream.role if upstream.role == "decode" else None)
    return mode(plan) == PREFILL


def _compared(
    setting: Setting, servers: Sequence[Plan], name: str, upstream: Upstream
) -> Iterator[tuple[Plan, Verdict]]:
    if not setting.known or not servers:
        return
    try:
        ports = {server.value(name) for server in servers}
    except UnknownValueError:
        return
    if str(setting.value) in {str(port) for port in ports}:
        return
    listening = ", ".join(sorted(str(port) for port in ports))
    yield (
        servers[0],  # same either way: the places are explicit
        Verdict(
            f"the router has {name} {setting.value} for {upstream.role}, but the servers have "
            f"{listening}",
            why="decode queries the ranks of prefill at this port, but no server listens there"
            if name == _BOOTSTRAP
            else "the router finds no server there",
            fix=Fix(f"set {name} to {listening} in the router"),
            place=setting.place,
            others=tuple(place_of(server, (name,)) for server in servers),
        ),
    )


def is_of_several(plan: Plan) -> bool:
    """True if a plan's server has several hosts."""
    nodes = plan.value_or_none(NODES)
    return isinstance(nodes, int) and nodes > 1


def servers(plans: Sequence[Plan]) -> Iterator[tuple[Plan, ...]]:
    """Yield the plans of each server with several hosts, one plan per command.

    A file may group these plans (leader and worker of one role). Otherwise they follow each
    other in one file, for one model, and each rank 0 begins another server.
    """
    found: list[tuple[Any, list[Plan]]] = []
    for plan in plans:
        if not is_of_several(plan):
            continue
        home = _home(plan)
        open_ = next((some for key, some in reversed(found) if key == home), None)
        if open_ is None or (home[0] == "file" and _begins(plan, open_)):
            found.append((home, [plan]))
        else:
            open_.append(plan)
    yield from (tuple(part) for some in _joined(found) for part in _by_address(some))


def _by_address(plans: list[Plan]) -> list[list[Plan]]:
    """Return the plans of each address, if each address has one rank 0; else all plans."""
    parts: dict[Any, list[Plan]] = {}
    for plan in plans:
        parts.setdefault(plan.value_or_none(ADDRESS), []).append(plan)
    leaders = [[plan.value_or_none(RANK) for plan in part].count(0) for part in parts.values()]
    return list(parts.values()) if None not in parts and set(leaders) == {1} else [plans]


def _joined(found: Sequence[tuple[Any, list[Plan]]]) -> Iterator[list[Plan]]:
    """Yield the plans of each server, including plans in different roles (`rank0`, `rank1`).

    Such plans belong to one server if exactly one is the leader, or all have one rendezvous
    address.
    """
    open_parts: dict[Any, list[Plan]] = {}
    for home, some in found:
        first, *others = some
        context = first.request.server_context
        if others or context is None or context.part is None:
            yield some
        else:
            open_parts.setdefault((*home[:2], mode(first)), []).extend(some)
    for some in open_parts.values():
        parts = [plan.request.server_context.part for plan in some if plan.request.server_context]
        addresses = [plan.request.values.get(ADDRESS) for plan in some]
        meet = {str(address.value) if address is not None else None for address in addresses}
        if parts.count("leader") == 1 or (len(meet) == 1 and None not in meet):
            yield some
        else:
            yield from ([plan] for plan in some)


def _home(plan: Plan) -> tuple[Any, ...]:
    context = plan.request.server_context
    if context is not None and context.part is None and _runs_on_all(context.nodes):
        return "object", context.place
    if context is not None:
        return "group", (context.group.name, context.group.place), context.role
    return "file", plan.request.place.path, model_of(plan), mode(plan), plan.request.version


def _runs_on_all(nodes: Setting | None) -> bool:
    """True if the platform starts one command on several hosts."""
    return nodes is not None and nodes.known and isinstance(nodes.value, int) and nodes.value > 1


def _begins(plan: Plan, others: Sequence[Plan]) -> bool:
    """True if `plan` begins a server: its rank is 0, or its rank or `others[-1]`'s is unknown."""
    last = others[-1].value_or_none(RANK)  # same either way: an unknown rank begins a server
    rank = plan.value_or_none(RANK)
    return not isinstance(rank, int) or not isinstance(last, int) or rank == 0


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
"""Arguments that all ranks of a server must agree on."""


@rule_across("SPL830", compares=is_of_several)
def server_ranks(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report commands of one server's hosts that contradict each other."""
    for commands in servers(plans):
        first = commands[0]
        for name in _ALIKE:
            for other in commands[1:]:  # same either way: the first equals itself
                if _differs(first, other, name):
                    yield _verdict_of_server_ranks(first, other, name)
                    break
        yield from _ranks(commands)


def _differs(first: Plan, other: Plan, name: str) -> bool:
    mine, theirs = first.request.values.get(name), other.request.values.get(name)
    if mine is not None and theirs is not None:
        return mine.known and theirs.known and bool(mine.value != theirs.value)
    if name == ADDRESS:
        return False
    return bool(first.value_or_none(name) != other.value_or_none(name))


def _verdict_of_server_ranks(first: Plan, other: Plan, name: str) -> tuple[Plan, Verdict]:
    return other, Verdict(
        f"{name} is {_shown(other, name)} on one host of a server and {_shown(first, name)} on "
        "another",
        at=(name,),
        why="all hosts of a server start one engine; with different arguments they wait for "
        "each other forever, or stop in the first collective operation",
        fix=Fix(f"set the same {name} on all hosts"),
        others=(place_of(first, (name,)),),
    )


def _shown(plan: Plan, name: str) -> str:
    value = plan.value_or_none(name)
    return "not set" if value is None else str(value)


def _ranks(commands: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    ranks = [plan.value_or_none(RANK) for plan in commands]
    for rank in dict.fromkeys(rank for rank in ranks if rank is not None):
        first, *others = [plan for plan, own in zip(commands, ranks, strict=True) if own == rank]
        elsewhere = (other for other in others if other.request.place != first.request.place)
        second = next(elsewhere, None)  # the passes of a loop may run one after another
        if second is None:
            continue
        if not second.request.values.keys() & {RANK} and not first.request.values.keys() & {RANK}:
            continue  # one command for all hosts; the platform sets the rank
        yield (
            second,
            Verdict(
                f"two hosts of one server have node_rank {rank}",
                place=place_of(second, (RANK, NODES)),
                why="the engine refuses the second host, or both hosts wait for a missing rank",
                fix=Fix("number the hosts from 0"),
                others=(place_of(first, (RANK, NODES)),),
            ),
        )


@rule("SPL831")
def node_address(plan: Plan) -> Iterator[Verdict]:
    """Report a server host that cannot find the other hosts."""
    nodes = number(plan, NODES) or 0  # same either way: every release has it
    if nodes < 2 or plan.value("use_ray"):
        return
    rank = plan.value_or_none(RANK)  # None if the platform sets it
    if rank is not None and rank >= nodes:
        yield Verdict(
            f"node_rank {rank} is not below nnodes {nodes}",
            at=(RANK, NODES),
            why="the host's rank is too high, and the other hosts ignore it",
            fix=Fix(f"number the hosts from 0 to {nodes - 1}"),
        )
    if plan.request.origin is RequestOrigin.RECIPE:
        yield from _fixed(plan)
    elif not plan.is_set(ADDRESS):
        yield Verdict(
            f"nnodes is {nodes}, but dist_init_addr is not set",
            at=(NODES,),
            why="each host waits for the others on its own 127.0.0.1 until startup times out",
            fix=Fix(
                "on all hosts, set --dist-init-addr HOST:PORT to the address of the first host"
            ),
        )


def _fixed(plan: Plan) -> Iterator[Verdict]:
    name = RANK
    if plan.is_set(name) and plan.place(name).path != COMMAND_LINE:
        yield Verdict(
            f"the recipe is for {number(plan, NODES)} hosts, but sets {name}",
            at=(name,),
            why="each host starts the same recipe; the platform supplies the host's rank",
            fix=Fix(f"remove {name} and pass it at launch: args.{name}=…"),
            severity=Severity.WARNING,
        )


@rule("SPL832")
def platform_nodes(plan: Plan) -> Iterator[Verdict]:
    """Report a platform whose host or GPU count does not match the server's arguments."""
    context = plan.request.server_context
    if context is None or plan.request.origin is RequestOrigin.RECIPE or plan.value("use_ray"):
        return
    from speclaunch.checks.rules.deployment_values import requested_gpus  # noqa: PLC0415  manifests

    _, gpus = requested_gpus(plan) or (None, context.gpus_per_node)
    short = list(_gpus(plan, _amount(gpus)))
    if NODES in plan.request.values or gpus is None or short:
        yield from _hosts(plan, _amount(context.nodes))  # else each host starts a separate server
    yield from short


def _hosts(plan: Plan, provided: tuple[int, Place] | None) -> Iterator[Verdict]:
    nodes = number(plan, NODES) or 1  # same either way: every release has it
    if provided is None or nodes == provided[0]:
        return
    hosts, place = provided
    if hosts == 1 and RANK in plan.request.values:
        return  # each rank has its own object
    yield Verdict(
        f"nnodes is {nodes}, but the platform starts {hosts} hosts for the server",
        at=(NODES,),
        why="the engine waits for hosts that are never started"
        if nodes > hosts  # same either way: equal numbers yield no verdict
        else "the hosts beyond nnodes have no ranks and stop",
        fix=Fix(f"set nnodes to {hosts}, or start {nodes} hosts"),
        others=(place,),
    )


def _gpus(plan: Plan, provided: tuple[int, Place] | None) -> Iterator[Verdict]:
    if provided is None:
        return
    there, place = provided
    try:
        needed = gpus_needed(plan)
    except UnknownValueError:
        return
    if needed == there:
        return
    short = needed > there  # same either way: equal numbers yield no verdict
    yield Verdict(
        f"the arguments need {needed} GPUs per host, but the platform provides {there}",
        at=("tp_size", "pp_size", "dp_size", NODES),
        why="a rank without a GPU stops: CUDA error: invalid device ordinal"
        if short
        else f"{there - needed} GPUs of each host remain idle",
        fix=Fix(f"set the parallel sizes and nnodes to use {there} GPUs per host"),
        severity=None if short else Severity.INFO,
        others=(place,),
    )


def _amount(setting: Setting | None) -> tuple[int, Place] | None:
    if setting is None or not str(setting.value).isdecimal():
        return None
    return (int(str(setting.value)), setting.place) if setting.known else None


@rule("SPL833")
def nodes_and_stages(plan: Plan) -> Iterator[Verdict]:
    """Report host and pipeline stage counts if neither divides the other."""
    nodes, stages = number(plan, NODES), number(plan, "pp_size")
    if not nodes or not stages or max(nodes, stages) % min(nodes, stages) == 0:
        return
    yield Verdict(
        f"{nodes} hosts and {stages} pipeline stages: neither divides the other",
        at=(NODES, "pp_size"),
        why="the engine assigns entire stages to hosts, or entire hosts to stages, by integer "
        "division: some ranks never start, and the others wait for them",
        fix=Fix(f"set pp_size to a divisor or a multiple of {nodes}"),
    )
