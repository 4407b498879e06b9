"""The model lies in a directory that no volume brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.deployments.common import (
    around,
    grouped,
    is_in_container,
    text,
    written,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Volume

_PATHS = ("model_path", "speculative_draft_model_path")


def check(_plan: Plan) -> Iterator[Verdict]:
    """An image may hold its model: nothing can be said of one container by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a part that lacks what another one mounts for the same path."""
    for _, members in grouped(plans):
        for name in _PATHS:
            mounted: dict[str, tuple[Plan, Volume]] = {}
            without: list[tuple[Plan, str]] = []
            for plan in members:
                path = _path(plan, name)
                if path is None or not is_in_container(plan):
                    continue
                volume = _volume(plan, path)
                if volume is None:
                    without.append((plan, path))
                else:
                    mounted.setdefault(path, (plan, volume))
            for plan, path in without:
                if path in mounted:
                    yield plan, _verdict(plan, name, path, *mounted[path])


def _path(plan: Plan, name: str) -> str | None:
    try:
        found = plan.given(name)
    except UnknownValueError:
        return None
    return found if isinstance(found, str) and found.startswith("/") else None


def _volume(plan: Plan, path: str) -> Volume | None:
    wanted = PurePosixPath(path)
    for volume in around(plan).pod.volumes:
        mount = text(volume.mount)
        if mount is None or wanted.is_relative_to(mount):
            return volume
    return None


def _verdict(plan: Plan, name: str, path: str, other: Plan, volume: Volume) -> Verdict:
    return Verdict(
        f"{around(plan).part or around(plan).role} has no volume at {path}, where "
        f"{around(other).part or around(other).role} mounts one",
        at=(name,),
        why="what is not mounted does not exist in the container, unless its image holds it: the "
        "engine takes the path for a repository, and stops",
        fix=Fix("mount the same volume in all parts"),
        others=(volume.mount.place, *written(other, name)),
    )


RULE = rule(
    "SPL882",
    "unmounted-model",
    Severity.WARNING,
    check,
    check_across=check_across,
)
