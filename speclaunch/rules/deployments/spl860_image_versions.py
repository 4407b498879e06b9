"""Parts of one deployment run different releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, grouped, text
from speclaunch.rules.deployments.images import Image
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a part whose release is not that of the first one."""
    for _, members in grouped(plans):
        tagged = [(plan, image) for plan in members if (image := _release(plan)) is not None]
        for plan, image in tagged:
            first, other = tagged[0]
            ours, theirs = around(plan).pod.image, around(first).pod.image
            if image == other or ours is None or theirs is None:
                continue
            yield (
                plan,
                Verdict(
                    f"{around(plan).part or around(plan).role} runs SGLang {image}, "
                    f"{around(first).part or around(first).role} runs {other}",
                    why="what ranks and roles tell each other (KV layout, bootstrap, messages) has "
                    "no version of its own: releases that differ fail to connect, or serve wrongly",
                    fix=Fix("give all parts one image"),
                    place=ours.place,
                    others=(theirs.place,),
                ),
            )


def _release(plan: Plan) -> str | None:
    name = text(around(plan).pod.image)
    return None if name is None else Image(name).release


RULE = rule(
    "SPL860",
    "image-versions",
    Severity.WARNING,
    check,
    check_across=check_across,
)
