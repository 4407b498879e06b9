"""Resolves a requested version to a known version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.core import InputError, Problem, lazy

if TYPE_CHECKING:
    from packaging.version import Version

_VERSION = lazy(r"^\s*(?:sglang\s*==\s*)?v?(?P<version>\S+)\s*$", re.IGNORECASE)
_NEWEST = ("latest", "newest")


class UnknownVersion(InputError):
    """Error: the requested text is not a version."""


class ResolvedVersion(Struct, frozen=True):
    """The known version (``held``) used for ``requested``. ``note`` explains any difference."""

    requested: str
    held: str
    exact: bool
    note: str | None = None


def ascending(versions: Iterable[str]) -> tuple[str, ...]:
    """Return versions in release order, without duplicates."""
    found = set(versions)
    keys = {version: _plain_key(version) for version in found}
    if None in keys.values():
        return tuple(sorted(found, key=_parse))
    return tuple(sorted(found, key=lambda version: keys[version] or ((), 0)))


def is_version(text: str) -> bool:
    """True if ``text`` is a valid version."""
    from packaging.version import InvalidVersion  # noqa: PLC0415

    try:
        return bool(_parse(text))
    except InvalidVersion:
        return False


@lru_cache(maxsize=8192)
def within(version: str, specifier: str) -> bool:
    """True if a version is within a specifier set (`>=0.5.7,<0.5.11`).

    All version checks use this function, about two hundred times per plan. A pre-release counts as
    the release that it leads to, because it has the code of that release's branch.
    """
    plain = _plain_key(version)
    if plain is not None:
        clauses = [_plain_clause(text) for text in specifier.split(",")] if specifier else []
        if None not in clauses:
            return all(_holds(plain, clause) for clause in clauses if clause is not None)
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  most callers never need it

    found = _parse(version)
    base = found.base_version if found.is_prerelease else version
    return SpecifierSet(specifier).contains(base, prereleases=True)


_PlainKey = tuple[tuple[int, ...], int]
"""A sort key: the release without trailing zeros, and the post-release (-1 for none)."""


@lru_cache(maxsize=1024)
def _plain_key(version: str) -> _PlainKey | None:
    """Return the sort key of a release or a post-release; None for any other version."""
    public, _, post = version.partition(".post")
    parts = public.split(".")
    if not all(part.isdecimal() and part.isascii() for part in parts):
        return None
    if (post or version != public) and not (post.isdecimal() and post.isascii()):
        return None
    release = [int(part) for part in parts]
    while release and not release[-1]:
        release.pop()
    return tuple(release), int(post) if post else -1


@lru_cache(maxsize=1024)
def _plain_clause(text: str) -> tuple[str, _PlainKey] | None:
    """Return a clause's operator and sort key; None if a plain comparison is insufficient."""
    text = text.strip()
    operator = next((operator for operator in _COMPARED if text.startswith(operator)), None)
    key = _bound(text[len(operator) :].strip()) if operator is not None else None
    if operator is None or key is None or (operator == ">" and key[1] < -1):
        return None
    return operator, key


def _bound(version: str) -> _PlainKey | None:
    """Return the sort key of a release, or of a candidate (before its release); None otherwise."""
    release, candidate, number = version.partition("rc")
    if not candidate:
        return _plain_key(version)
    key = _plain_key(release)
    if key is None or key[1] >= 0 or not (number.isdecimal() and number.isascii()):
        return None
    return key[0], int(number) - _CANDIDATES


_CANDIDATES = 1000
"""A number higher than that of any release candidate."""
_COMPARED = (">=", "<=", "<", ">")
"""PEP 440 operators that this module evaluates. packaging handles the others (`==`, `~=`,
wildcards)."""


def _holds(key: _PlainKey, clause: tuple[str, _PlainKey]) -> bool:
    operator, bound = clause
    if operator == ">=":
        return key >= bound
    if operator == "<=":
        return key <= bound
    if operator == "<":
        return key < bound
    # `>0.5.13` excludes post-releases of 0.5.13 itself
    return key > bound and not (key[0] == bound[0] and bound[1] < 0)


def precedes(version: str, other: str) -> bool:
    """True if a version is earlier than `other`."""
    return within(version, f"<{other}")


def is_of_its_line(found: ResolvedVersion) -> bool:
    """True if the resolved version is the requested release or a post-release of it."""
    requested = found.requested.strip().removeprefix("v")
    plain, held = _plain_key(requested), _plain_key(found.held)
    return found.exact or (plain is not None and held is not None and plain[0] == held[0])


def resolve(text: str, held: Sequence[str]) -> ResolvedVersion:
    """Return the version of ``held`` (ascending) for ``text``; see ``catalogue.resolve_version``.

    Raises UnknownVersion if ``text`` is not a version.
    """
    if text in held:
        return ResolvedVersion(text, text, exact=True)
    matched = _VERSION.match(text)
    release = matched["version"] if matched else text.strip()
    if release.lower() in _NEWEST:
        return ResolvedVersion(text, held[-1], exact=True)
    if release in held:
        return ResolvedVersion(text, release, exact=True)
    requested = _parse_requested(text, release, held)
    known = [(_parse(version), version) for version in held]
    for version, name in known:
        if version.public == requested.public:
            return _with_local_part(text, requested, name)
    line = [name for version, name in known if version.release == requested.release]
    if line:
        note = f"SGLang {release} has no catalogue; {line[-1]} of the same line is used"
        return ResolvedVersion(text, line[-1], exact=False, note=note)
    newest = known[-1]
    below = [name for version, name in known if version < requested]
    if requested > newest[0]:
        note = f"SGLang {release} is newer than every known release; {newest[1]} is used"
    elif below:
        note = f"SGLang {release} is not a known release; {below[-1]} is used"
    else:
        note = f"SGLang {release} is older than every known release; {held[0]} is used"
    return ResolvedVersion(text, below[-1] if below else held[0], exact=False, note=note)


def _parse(version: str) -> Version:
    from packaging.version import Version  # noqa: PLC0415  most callers never need it

    return Version(version)


def _parse_requested(text: str, release: str, held: Sequence[str]) -> Version:
    from packaging.version import InvalidVersion  # noqa: PLC0415

    try:
        return _parse(release)
    except InvalidVersion:
        raise _unknown(f"{text!r} is not a version of SGLang", held) from None


def _with_local_part(text: str, requested: Version, name: str) -> ResolvedVersion:
    if requested.local is None:
        return ResolvedVersion(text, name, exact=True)
    note = f"SGLang {requested} is a build of {name} with unknown local changes"
    return ResolvedVersion(text, name, exact=False, note=note)


def _unknown(message: str, held: Sequence[str]) -> UnknownVersion:
    return UnknownVersion(
        Problem(message, help=f"name a release from {held[0]} to {held[-1]} (the newest)")
    )
