"""Detect the SGLang release of a container image, and the GPUs that a file requests."""

from __future__ import annotations

from speclaunch.core import InputError, lazy
from speclaunch.engine import ResolvedVersion, declare, resolve_version

_TAG = lazy(
    r"sglang[^:@]*:v?(?P<version>\d+\.\d+\.\d+(?:\.post\d+)?)"
    r"(?P<more>\.?(?:rc|dev)\d+)?(?![\d.])"
)


def tagged_version(image: str | None) -> str | None:
    """Return the release in a tag such as `lmsysorg/sglang:v0.5.10.post1-cu129`.

    A Dynamo image's tag is a release of Dynamo; return the SGLang release that it contains.
    """
    if image is not None and ("dynamo" in image or "sglang-runtime" in image):
        from speclaunch.deployments.sources import dynamo  # noqa: PLC0415  few images are Dynamo's

        if dynamo.is_image(image):
            return dynamo.sglang_release(image)
    found = _TAG.search(image or "")
    return None if found is None else found["version"]


def image_version(image: str | None) -> str | None:
    """Return the supported version that represents the release in an image's tag."""
    found = image_release(image)
    return None if found is None else found.held


def image_release(image: str | None) -> ResolvedVersion | None:
    """Return the release in an image's tag, and a note if speclaunch does not know it.

    This includes release candidates and development versions. None if the tag names no release
    (`latest`, `nightly-dev-20260101`).
    """
    version = tagged_version(image)
    if version is None:
        return None
    found = _TAG.search(image or "")
    more = found["more"] if found is not None and found["version"] == version else None
    return resolve_version(version + (more or ""))


_GPUS = lazy(r"(?P<name>[A-Za-z][\w.-]*?)(?P<memory>[:-]\d+GB)?(?::(?P<count>\d+))?\Z")


def declared(label: str | None) -> str | None:
    """Return GPUs in the form of `--hardware`; None unless all are one known GPU type."""
    found = _GPUS.match(label.strip()) if label else None
    if found is None:
        return None
    memory = (found["memory"] or "").lower().lstrip(":-")
    count = f":{found['count']}" if found["count"] else ""
    name = found["name"].lower()
    for text in ([f"{name}-{memory}{count}"] if memory else []) + [f"{name}{count}"]:
        try:
            declare(text)
        except InputError:
            continue
        return text
    return None
