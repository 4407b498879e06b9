"""The container image of a deployment, carried to another release with it."""

from __future__ import annotations

import re

from speclaunch.engine.images import REPOSITORY, official_image
from speclaunch.errors import Place, Problem
from speclaunch.importer.comments import comments_of
from speclaunch.importer.images import image_version
from speclaunch.patterns import lazy
from speclaunch.record import record

_OFFICIAL = lazy(
    rf"(?P<registry>(?:(?:index\.)?docker\.io/)?){re.escape(REPOSITORY)}:"
    r"v\d+\.\d+\.\d+(?:\.post\d+)?(?P<variant>-cu\d{3}|-rocm\d{3}(?:-mi3[05]x)?)?"
)


@record
class NewImage:
    """The image that replaces one, and what to know of it."""

    name: str
    warning: str | None = None


def is_outdated(image: str | None, to: str) -> bool:
    """True if the tag of an image names a release that `to` does not answer for."""
    found = image_version(image)
    return found is not None and found != to


def successor(image: str, to: str) -> NewImage | None:
    """The official image of the release `to` in place of an official one; None if it is unknown:
    another repository, a digest, another variant."""
    found = _OFFICIAL.fullmatch(image)
    if found is None:
        return None
    variant = found["variant"] or ""
    vendor = "amd" if variant.startswith("-rocm") else "nvidia"
    name = official_image(to, vendor=vendor, gpu="mi350" if variant.endswith("-mi35x") else "")
    if name is None:
        return None
    warning = None
    if variant.startswith("-cu") and not name.endswith(variant):
        warning = f"{name} has another CUDA release than {image} ({variant[1:]}): check the driver"
    return NewImage(f"{found['registry']}{name}", warning)


def unknown_image(image: str, to: str) -> Problem:
    """That an image stays at its release, which rejects what is written for `to`."""
    return Problem(
        f"{image} has SGLang {image_version(image)}, and its counterpart with {to} is unknown",
        help=f"set an image with SGLang {to} (official: {official_image(to)}); --force leaves it",
    )


def image_places(text: str, shown: str, image: str) -> tuple[Place, ...]:
    """Where a file names an image outside of comments."""
    is_comment = comments_of(text, shown)
    whole = re.compile(rf"(?<![\w./@]){re.escape(image)}(?![\w.@-])")
    found = [match.start() for match in whole.finditer(text)]
    return tuple(
        Place(shown, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at), len(image))
        for at in found
        if is_comment is None or not is_comment(at)
    )
