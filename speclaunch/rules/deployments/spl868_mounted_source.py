"""A volume lies over the engine's source in its image."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.patterns import lazy
from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, text
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_SOURCE = lazy(r"/sgl-workspace(?:/sglang(?:/.*)?)?|.*/(?:site|dist)-packages(?:/sglang(?:/.*)?)?")
_OF_HOST = ("hostPath", "bind", "persistentVolumeClaim", "volume", "emptyDir", "nfs")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a volume."""
    for volume in around(plan).pod.volumes:
        mount = (text(volume.mount) or "").rstrip("/")
        if volume.kind not in _OF_HOST or not _SOURCE.fullmatch(mount):
            continue
        yield Verdict(
            f"a volume of kind {volume.kind} replaces the engine's source at {mount}",
            why="the release in the image's tag is not what runs, and each node may run "
            "something else; an empty directory there and the engine does not start",
            fix=Fix("build an image with the change, and remove the mount"),
            place=volume.mount.place,
            others=(volume.place,),
        )


RULE = rule("SPL868", "mounted-source", Severity.WARNING, check)
