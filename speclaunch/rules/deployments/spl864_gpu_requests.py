"""A container asks for GPUs in a way that the API server refuses."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, in_kubernetes, whole
from speclaunch.rules.deployments.gpus import GPU_RESOURCES
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """What the API server refuses of a resource that cannot be shared."""
    if not in_kubernetes(plan):
        return
    pod = around(plan).pod
    for name in GPU_RESOURCES:
        request, limit = pod.requests.get(name), pod.limits.get(name)
        if request is None:
            continue
        if limit is None:
            yield Verdict(
                f"{name} is requested without a limit",
                why="the API server refuses the pod: Limit must be set for non overcommitable "
                "resources",
                fix=Fix("write it under limits"),
                place=request.place,
            )
        elif request.known and limit.known and whole(request) != whole(limit):
            yield Verdict(
                f"the request for {name} is {request.value} and its limit {limit.value}",
                why="the API server refuses the pod: must be equal to nvidia.com/gpu limit"
                if name.startswith("nvidia")
                else "the API server refuses the pod: both must be equal",
                fix=Fix("write the limit alone"),
                place=request.place,
                others=(limit.place,),
            )


RULE = rule("SPL864", "gpu-requests", Severity.ERROR, check)
