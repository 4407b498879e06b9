"""A rank of several is restarted by itself."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, hosts, text, written
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_EACH_ALONE = ("Deployment", "ReplicaSet", "DaemonSet")
_GROUPS = {
    "LeaderWorkerSet": "RecreateGroupOnPodRestart",
    "RoleBasedGroup": "RecreateRoleInstanceOnPodRestart",
    "RoleBasedGroupSet": "RecreateRoleInstanceOnPodRestart",
}
"""The policy that starts the ranks of one server together, and is the default."""
_NEVER = "None"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a server of several hosts."""
    group, restart = around(plan).group, around(plan).pod.restart
    if hosts(plan) < 2:
        return
    why = (
        "the others keep their old connections: a rank that starts again waits at dist_init_addr "
        "for all of them, and the rest hangs until its watchdog"
    )
    if group.platform in _EACH_ALONE:
        yield Verdict(
            f"a {group.platform} restarts each of {hosts(plan)} ranks by itself",
            at=("nnodes",),
            why=why,
            fix=Fix("use a LeaderWorkerSet, which restarts the group"),
            place=group.place,
            others=written(plan, "nnodes"),
        )
    elif group.platform in _GROUPS and restart is not None and text(restart) == _NEVER:
        yield Verdict(
            f"the restart policy None restarts each of {hosts(plan)} ranks by itself",
            at=("nnodes",),
            why=why,
            fix=Fix(f"set it to {_GROUPS[group.platform]}"),
            place=restart.place,
            others=written(plan, "nnodes"),
        )


RULE = rule("SPL880", "lone-restart", Severity.WARNING, check)
