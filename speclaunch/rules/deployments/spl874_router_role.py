"""A router takes a prefill server for a decode server, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import grouped, value_or, written
from speclaunch.rules.deployments.targets import target_of
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_WORKER = "worker"
_SAYS = {"prefill": "prefill", "decode": "decode", "null": "neither"}


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a server that is not what the router was told."""
    for group, members in grouped(plans):
        for router in group.routers:
            for upstream in router.upstreams:
                target = target_of(upstream.host, group, members)
                if target is None:
                    continue
                modes = {str(value_or(one, "disaggregation_mode")) for one in target.plans}
                mode = min(modes)
                wanted = "null" if upstream.role == _WORKER else upstream.role
                if len(modes) > 1 or mode not in _SAYS or mode == wanted:
                    continue
                plan = target.plans[0]
                as_what = "a plain worker" if wanted == "null" else f"a {wanted} server"
                yield (
                    plan,
                    Verdict(
                        f"the router {router.name} takes {upstream.host} for {as_what} and its "
                        f"disaggregation_mode says {_SAYS[mode]}",
                        at=("disaggregation_mode",),
                        why="a prefill server without a decode server behind it, or a decode "
                        "server that is sent prompts, answers no request",
                        fix=Fix("list it by its own role"),
                        place=upstream.place,
                        others=written(plan, "disaggregation_mode"),
                    ),
                )


RULE = rule(
    "SPL874",
    "router-role",
    Severity.ERROR,
    check,
    check_across=check_across,
)
