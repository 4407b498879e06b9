"""Rules about Services, routers and ranks of servers on several hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from speclaunch.checks.rules.deployment_values import (
    COMPOSE,
    RouterTarget,
    context_of,
    gives_ranks,
    grouped,
    hosts,
    http_port,
    in_compose,
    in_kubernetes,
    integer,
    is_in_container,
    is_on,
    is_worker,
    known_ports,
    ranks,
    services_of,
    target_of,
    text,
    written,
)
from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule, rule_across
from speclaunch.engine import (
    METRICS_PATH,
    Plan,
    Router,
    Scrape,
    Service,
    Setting,
    Upstream,
)


@rule("SPL870")
def service_port(plan: Plan) -> Iterator[Verdict]:
    """Report a Service that points to a port without a listener."""
    if not in_kubernetes(plan) or not plan.request.serves_http or is_worker(plan):
        return
    for service in services_of(plan):
        if not service.headless:
            yield from _of_service(plan, service)


def _of_service(plan: Plan, service: Service) -> Iterator[Verdict]:
    targets = [outer if inner is None else inner for outer, inner in service.ports]
    numbers = [integer(target) for target in targets]
    if not numbers or None in numbers or http_port(plan) in numbers:
        return
    if known_ports(plan) & set(numbers):
        return
    yield _verdict_of_service_port(plan, service, targets[0])


def _verdict_of_service_port(plan: Plan, service: Service, target: Setting) -> Verdict:
    port = http_port(plan)
    named = {integer(named_port) for named_port in context_of(plan).pod.ports}
    # a port that this container does not name may belong to another container of the pod
    sure = not named or target.value in named
    return Verdict(
        f"the Service {service.name} targets port {target.value}, but the server listens on {port}",
        at=("port",),
        why="every connection through the Service is refused",
        fix=Fix(f"set targetPort to {port}"),
        place=target.place,
        others=() if plan.is_set("port") else (plan.request.place,),
        severity=None if sure else Severity.WARNING,
    )


@rule_across("SPL871")
def shared_host_port(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report two servers in one host's network that use the same port."""
    for group, members in grouped(plans):
        taken: dict[object, Plan] = {}
        for plan in members:
            port = plan.value_or_none("port")
            if port is None or not _is_on_the_host(plan):
                continue
            first = taken.setdefault(port, plan)
            if first is plan or _are_on_separate_nodes(first, plan, port):
                continue
            sure = group.platform == COMPOSE
            yield (
                plan,
                Verdict(
                    f"{plan.request.name} and {first.request.name} listen on port {port} of the "
                    "host's network",
                    at=("port",),
                    why="the second server fails: address already in use"
                    + ("" if sure else ", if both run on one node"),
                    fix=Fix("set a different port for each server"),
                    others=(*written(plan, "port"), *written(first, "port")),
                    severity=Severity.ERROR if sure else None,
                ),
            )


def _is_on_the_host(plan: Plan) -> bool:
    network = context_of(plan).pod.host_network
    return is_on(network) and plan.request.serves_http and is_in_container(plan)


def _are_on_separate_nodes(first: Plan, plan: Plan, port: object) -> bool:
    """True if no node runs both servers.

    Ranks of one server have separate nodes, and so have pods that both name the host port `port`.
    """
    if (
        context_of(first).part != context_of(plan).part
        and context_of(first).role == context_of(plan).role
    ):
        return True
    named = all(
        port in [integer(p) for p in context_of(server).pod.ports] for server in (first, plan)
    )
    return named and in_kubernetes(plan)


@rule_across("SPL872")
def router_upstream(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report a router that queries a server at a port without a listener."""
    for router, upstream, target in _upstreams(plans):
        if target.service is not None:  # SPL828 covers the others
            yield from _wrong_of_router_upstream(router.name, upstream, target, target.service)


def _upstreams(plans: Sequence[Plan]) -> Iterator[tuple[Router, Upstream, RouterTarget]]:
    for group, members in grouped(plans):
        for router in group.routers:
            for upstream in router.upstreams:
                target = target_of(upstream.host, group, members)
                if target is not None:
                    yield router, upstream, target


def _wrong_of_router_upstream(
    router: str, upstream: Upstream, target: RouterTarget, service: Service
) -> Iterator[tuple[Plan, Verdict]]:
    port = integer(upstream.port)
    if port is None or upstream.port is None:
        return
    plan = target.plans[0]
    listens = {server.value_or_none("port") for server in target.plans}
    behind = target.port_behind(port)
    if target.leads_on(port) and (behind is None or behind in listens or None in listens):
        return
    has = f"the server listens on {plan.value_or_none('port')}"
    if not target.leads_on(port):
        has = f"the Service {service.name} has no such port"
    yield (
        plan,
        Verdict(
            f"the router {router} uses {upstream.host} at port {port}, but {has}",
            why=(
                "connection refused: the router marks the server as unhealthy and sends it nothing"
            ),
            fix=Fix("connect the router to a port that reaches the server"),
            place=upstream.port.place,
            others=(*written(plan, "port"), service.place),
        ),
    )


_PORT = "disaggregation_bootstrap_port"


@rule_across("SPL873")
def bootstrap_port(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report a prefill server's Service that does not expose the bootstrap port."""
    for _, upstream, target in _upstreams(plans):
        if upstream.role == "prefill":
            yield from _wrong_of_bootstrap_port(upstream, target)


def _wrong_of_bootstrap_port(
    upstream: Upstream, target: RouterTarget
) -> Iterator[tuple[Plan, Verdict]]:
    plan = target.plans[0]
    serves = plan.value_or_none(_PORT)
    if not isinstance(serves, int) or target.service is None or target.leads_on(serves):
        return
    yield (
        plan,
        Verdict(
            f"the Service {target.service.name} does not expose the bootstrap port {serves}",
            why="decode servers connect to the router's prefill host at that port, and are refused",
            fix=Fix(f"add port {serves} to the Service"),
            place=target.service.place,
            others=(*written(plan, _PORT), upstream.place),
        ),
    )


_WORKER = "worker"
_SAYS = {"prefill": "prefill", "decode": "decode", "null": "neither"}


@rule_across("SPL874")
def router_role(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report a router that expects a role other than the server's `disaggregation_mode`."""
    for router, upstream, target in _upstreams(plans):
        modes = {str(server.value_or_none("disaggregation_mode")) for server in target.plans}
        mode = min(modes)
        expected = "null" if upstream.role == _WORKER else upstream.role
        if len(modes) > 1 or mode not in _SAYS or mode == expected:
            continue
        plan = target.plans[0]
        as_what = "a plain worker" if expected == "null" else f"a {expected} server"
        yield (
            plan,
            Verdict(
                f"the router {router.name} uses {upstream.host} as {as_what}, but the server's "
                f"disaggregation_mode is {_SAYS[mode]}",
                at=("disaggregation_mode",),
                why="no request is answered: prefill stops after the first token, and decode waits "
                "for a KV cache",
                fix=Fix("list the server under its actual role"),
                place=upstream.place,
                others=written(plan, "disaggregation_mode"),
            ),
        )


@rule_across("SPL876")
def missing_router(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report prefill and decode servers without a router."""
    for group, members in grouped(plans):
        by_mode = {
            server.value_or_none("disaggregation_mode"): server for server in reversed(members)
        }
        prefill, decode = by_mode.get("prefill"), by_mode.get("decode")
        if prefill is None or decode is None or group.routers or not is_in_container(prefill):
            continue
        yield (
            prefill,
            Verdict(
                "the deployment has prefill and decode servers, but no router",
                at=("disaggregation_mode",),
                why="each request must reach both servers, with the same bootstrap room and the "
                "prefill server's address; neither server answers clients directly",
                fix=Fix("add sglang_router with --pd-disaggregation unless it runs elsewhere"),
                place=context_of(prefill).place,
                others=(context_of(decode).place,),
            ),
        )


_LEADER_AND_ONE = 2
_FIXED_RANK_FIX = Fix(
    "set node_rank from the platform: $(LWS_WORKER_INDEX), the pod's index or SLURM_NODEID"
)
_WHY = (
    "each rank connects once: a second host with the same rank is refused, or all hosts wait for "
    "the missing rank until they time out"
)


@rule("SPL878")
def fixed_rank(plan: Plan) -> Iterator[Verdict]:
    """Report a rank that is wrong for its host, or that several hosts share."""
    if not gives_ranks(plan):
        return
    number = plan.value_or_none("node_rank")  # None if the platform sets it
    nodes = integer(context_of(plan).nodes)
    count = hosts(plan)
    if number is None or count < 2:
        return
    part = context_of(plan).part
    if part is None and nodes is not None and nodes > 1:
        yield _verdict_of_fixed_rank(plan, f"{nodes} hosts run one command with node_rank {number}")
    elif part == "leader" and number != 0:
        yield _verdict_of_fixed_rank(
            plan, f"the leader has node_rank {number}, but dist_init_addr belongs to rank 0"
        )
    elif part == "worker" and number == 0:
        yield _verdict_of_fixed_rank(plan, "the workers have node_rank 0, which is the leader's")
    elif part == "worker" and nodes is not None and nodes > _LEADER_AND_ONE:
        yield _verdict_of_fixed_rank(
            plan, f"{nodes - 1} workers run one command with node_rank {number}"
        )


def _verdict_of_fixed_rank(plan: Plan, message: str) -> Verdict:
    nodes = context_of(plan).nodes
    return Verdict(
        message,
        at=("node_rank",),
        why=_WHY,
        fix=_FIXED_RANK_FIX,
        others=(*written(plan, "nnodes"), *(() if nodes is None else (nodes.place,))),
    )


_OWN_RANK_ADDRESS_OWN = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104
_NAME = "dist_init_addr"
_OWN_RANK_ADDRESS_FIX = Fix(
    "on all hosts, set dist_init_addr to rank 0's address: $(LWS_LEADER_ADDRESS), its Service or "
    "host"
)


@rule("SPL879")
def own_rank_address(plan: Plan) -> Iterator[Verdict]:
    """Report a server on several hosts whose rendezvous address is the local host."""
    if not gives_ranks(plan) or hosts(plan) < 2:
        return
    if in_compose(plan) and is_on(context_of(plan).pod.host_network):
        return  # the ranks share the machine's loopback address
    address = plan.user_value(_NAME)  # SPL831 requires it
    if _host(str(address)) in _OWN_RANK_ADDRESS_OWN:
        yield Verdict(
            f"{hosts(plan)} hosts use {_host(str(address))}, which is local to each host",
            at=(_NAME, "nnodes"),
            why="each host waits for the others at its own address until it times out",
            fix=_OWN_RANK_ADDRESS_FIX,
        )


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]") or address


_EACH_ALONE = ("Deployment", "ReplicaSet", "DaemonSet")
_GROUPS = {
    "LeaderWorkerSet": "RecreateGroupOnPodRestart",
    "RoleBasedGroup": "RecreateRoleInstanceOnPodRestart",
    "RoleBasedGroupSet": "RecreateRoleInstanceOnPodRestart",
}
"""Each platform's default restart policy, which restarts all ranks of a server together."""
_NEVER = "None"


@rule("SPL880")
def lone_restart(plan: Plan) -> Iterator[Verdict]:
    """Report a rank that restarts without the other ranks."""
    group, restart = context_of(plan).group, context_of(plan).pod.restart
    if hosts(plan) < 2:
        return
    why = (
        "a restarted rank waits at dist_init_addr for all other ranks; those keep their old "
        "connections and hang until their watchdog ends them"
    )
    if group.platform in _EACH_ALONE:
        yield Verdict(
            f"a {group.platform} restarts each of the {hosts(plan)} ranks separately",
            at=("nnodes",),
            why=why,
            fix=Fix("use a LeaderWorkerSet, which restarts all ranks together"),
            place=group.place,
            others=written(plan, "nnodes"),
        )
    elif group.platform in _GROUPS and restart is not None and text(restart) == _NEVER:
        yield Verdict(
            f"the restart policy None restarts each of the {hosts(plan)} ranks separately",
            at=("nnodes",),
            why=why,
            fix=Fix(f"set it to {_GROUPS[group.platform]}"),
            place=restart.place,
            others=written(plan, "nnodes"),
        )


_COMMON = ("NCCL_", "NVSHMEM_", "GLOO_", "SGLANG_", "SGL_", "UCX_", "MC_")
"""Prefixes of variables that all ranks have to agree on."""
_RANK_ENVIRONMENT_OWN = ("DEBUG", "LOG", "HOST_IP", "RANK", "TRACE", "PROFILE", "DUMP")
"""Substrings of the names of variables that may differ between ranks."""


@rule_across("SPL883")
def rank_environment(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report ranks of one server with different environments."""
    for _, members in grouped(plans):
        for leader, *workers in ranks(members):
            for plan in workers:
                yield from _differing(plan, leader)


def _differing(plan: Plan, other: Plan) -> Iterator[tuple[Plan, Verdict]]:
    ours, theirs = _common(plan), _common(other)
    for name in sorted({*ours, *theirs}):
        mine, its = ours.get(name), theirs.get(name)
        if text(mine) == text(its) or not all(
            setting is None or setting.known for setting in (mine, its)
        ):
            continue
        values = " and ".join(
            f"{context_of(server).part} has {'none' if value is None else text(value)}"
            for server, value in ((plan, mine), (other, its))
        )
        yield (
            plan,
            Verdict(
                f"ranks of one server differ in {name}: {values}",
                why="all ranks must choose the same collectives and kernels; otherwise they "
                "hang or fail to connect",
                fix=Fix("set the same variables on all ranks"),
                place=context_of(plan).place if mine is None else mine.place,
                others=(context_of(other).place if its is None else its.place,),
            ),
        )


def _common(plan: Plan) -> dict[str, Setting]:
    return {
        name: value
        for name, value in context_of(plan).pod.env.items()
        if name.startswith(_COMMON) and not any(word in name for word in _RANK_ENVIRONMENT_OWN)
    }


_KEYS = ("api-key", "control-plane-api-keys")
"""Secret router options. Only the place of a value is stored, never the value."""


@rule_across("SPL884")
def router_secret(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report a router's key written in the file."""
    for group, members in grouped(plans):
        for router in group.routers:
            for name in _KEYS:
                written = router.options.get(name)
                if written is None or not written.known:
                    continue
                yield (
                    members[0],
                    Verdict(
                        f"the file contains the value of --{name} for the router {router.name}",
                        why="the key remains in the repository's history, readable by anyone with "
                        "access",
                        fix=Fix("rotate the exposed key, and read the new key from a secret"),
                        place=replace(written.place, hidden=True),
                    ),
                )


@rule("SPL885")
def scrape_without_metrics(plan: Plan) -> Iterator[Verdict]:
    """Report a scrape of a wrong port or path, or of a server without metrics."""
    if not plan.request.serves_http or not in_kubernetes(plan):
        return
    for scrape in context_of(plan).pod.scrapes:
        port, path = integer(scrape.port), text(scrape.path) or METRICS_PATH
        if scrape.port is not None and not scrape.port.known:
            continue
        if port is not None and port != http_port(plan):
            yield from _scrape_of_other_port(plan, scrape, port)
        elif not plan.value("enable_metrics"):
            yield Verdict(
                f"{scrape.name} scrapes the server, which exports no metrics",
                why="without enable_metrics, /metrics returns 404: alerts and dashboards get no "
                "data",
                fix=Fix("add --enable-metrics"),
                place=scrape.place,
                others=written(plan, "enable_metrics"),
            )
        elif not path.startswith(METRICS_PATH):
            yield Verdict(
                f"{scrape.name} scrapes {path}, but the metrics are at {METRICS_PATH}",
                why="alerts and dashboards get no data",
                fix=Fix(f"scrape {METRICS_PATH}"),
                place=scrape.place if scrape.path is None else scrape.path.place,
            )


def _scrape_of_other_port(plan: Plan, scrape: Scrape, port: int) -> Iterator[Verdict]:
    """Report a scraped port unless it may belong to another container of the pod."""
    named = {integer(named_port) for named_port in context_of(plan).pod.ports}
    if port in known_ports(plan) or (named and port not in named):
        return
    yield Verdict(
        f"{scrape.name} scrapes port {port}, but the server listens on {http_port(plan)}",
        at=("port",),
        why="the scrape fails: alerts and dashboards get no data",
        fix=Fix(f"scrape port {http_port(plan)}"),
        place=scrape.place if scrape.port is None else scrape.port.place,
        others=() if plan.is_set("port") else (plan.request.place,),
    )
