"""An image that is another one tomorrow."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, text
from speclaunch.rules.deployments.images import Image
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for the image of a server."""
    written = around(plan).pod.image
    name = text(written)
    if written is None or not name:
        return
    image = Image(name)
    if not image.is_moving:
        return
    called = f"the tag {image.tag}" if image.tag is not None else "no tag"
    yield Verdict(
        f"the image has {called}: it changes from day to day",
        why="a pod that is rescheduled may run another release than its neighbours, which renames "
        "arguments and changes defaults",
        fix=Fix(f"pin the release: v{plan.request.version}, or a digest"),
        place=written.place,
    )


RULE = rule("SPL861", "moving-image", Severity.WARNING, check)
