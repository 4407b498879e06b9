"""The release of SGLang that a container image holds."""

from __future__ import annotations

from speclaunch.engine.catalogue import UnknownVersion, resolve_version
from speclaunch.patterns import lazy

_TAG = lazy(r"sglang[^:@]*:v?(?P<version>\d+\.\d+\.\d+(?:\.post\d+)?)(?![\d.])")


def tagged_version(image: str | None) -> str | None:
    """The release in a tag such as `lmsysorg/sglang:v0.5.10.post1-cu129`."""
    found = _TAG.search(image or "")
    return None if found is None else found["version"]


def image_version(image: str | None) -> str | None:
    """The held version that answers for the release in an image's tag."""
    version = tagged_version(image)
    if version is None:
        return None
    try:
        return resolve_version(version).held
    except UnknownVersion:
        return None
