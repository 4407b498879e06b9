"""An image whose kernels do not run on the GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, text
from speclaunch.rules.deployments.gpus import GPU_RESOURCES, asked_gpus
from speclaunch.rules.deployments.images import Image
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Setting

_FIRST: Mapping[int | None, tuple[int, int]] = {
    100: (12, 8),
    103: (12, 9),
    120: (12, 8),
    121: (12, 9),
}
"""The CUDA release that first compiles for a generation (CUDA toolkit release notes: sm_100 and
sm_120 in 12.8, sm_103 and sm_121 in 12.9)."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for the image of a server."""
    written = around(plan).pod.image
    name = text(written)
    if written is None or not name:
        return
    image = Image(name)
    yield from _resource(plan, image, written)
    hardware = plan.facts.hardware
    if hardware is None:
        return
    first = _FIRST.get(hardware.capability)
    if image.cuda is not None and first is not None and image.cuda < first:
        had = ".".join(map(str, image.cuda))
        yield Verdict(
            f"the image has CUDA {had} and {hardware.name} needs {'.'.join(map(str, first))}",
            why=f"no kernel of CUDA {had} is compiled for sm_{hardware.capability}: no kernel "
            "image is available for execution on the device",
            fix=Fix("take an image with a newer CUDA: cu129 or cu130"),
            place=written.place,
        )


def _resource(plan: Plan, image: Image, written: Setting) -> Iterator[Verdict]:
    asked = asked_gpus(plan)
    if asked is None or image.vendor is None:
        return
    vendor = GPU_RESOURCES[asked[0]]
    if vendor is not image.vendor:
        yield Verdict(
            f"the image is for GPUs of {image.vendor.value} and the pod asks for {asked[0]}",
            why="it has no kernel for another maker's GPUs: the engine finds no device",
            fix=Fix(f"take the image of this release for {vendor.value}"),
            place=written.place,
            others=(asked[1].place,),
        )


RULE = rule("SPL862", "image-accelerator", Severity.ERROR, check)
