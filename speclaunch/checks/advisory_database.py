"""The database of advisories: validation, updates (from a file, directory or URL), OSV export."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from speclaunch.checks.advisory import (
    NONE,
    UNKNOWN,
    Advisory,
    all_advisories,
    latest,
    stored_advisories,
    stored_file,
)
from speclaunch.checks.advisory_conditions import FEATURES
from speclaunch.checks.advisory_records import Condition
from speclaunch.core import (
    HttpError,
    HttpReader,
    InputError,
    masked,
    read_regular,
    reason,
    replace_file,
)
from speclaunch.engine import held_versions, is_released_variable, released_names, within

MAX_BYTES = 8 << 20
_SECONDS = 30.0
_MAX_SUMMARY = 140


class Update(Struct, frozen=True):
    """Result of an update: the file written, and the IDs of new and changed advisories."""

    path: Path
    new: tuple[str, ...]
    changed: tuple[str, ...]


def encode_advisories(found: Iterable[Advisory]) -> bytes:
    """Encode advisories as JSON, one per line, without markers."""
    unmarked = (msgspec.structs.replace(advisory, marker=None) for advisory in found)
    return b"[\n" + b",\n".join(map(msgspec.json.encode, unmarked)) + b"\n]\n"


def defects(advisory: Advisory) -> Iterator[str]:
    """Yield the defects of one advisory. Neither its marker nor duplicates are checked."""
    held = held_versions()
    if not re.fullmatch(r"SPA-\d{4}-\d{4}", advisory.id):
        yield f"invalid ID {advisory.id}"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", advisory.name):
        yield f"invalid name {advisory.name}"
    if len(advisory.summary) > _MAX_SUMMARY or "\n" in advisory.summary:
        yield f"the summary has {len(advisory.summary)} characters, more than {_MAX_SUMMARY}"
    for bound, other in ((advisory.introduced, UNKNOWN), (advisory.fixed, NONE)):
        if bound not in (*held, other, UNKNOWN):
            yield f"unknown release {bound}"
    yield from (f"unknown release {version}" for version in advisory.seen if version not in held)
    if UNKNOWN in (advisory.introduced, advisory.fixed) and not advisory.seen:
        yield "`seen` is empty, and the range is unknown"
        return
    for version in advisory.seen:
        if version in held and not within(version, advisory.versions):
            yield f"seen in {version}, which is outside of the range"
    first = advisory.introduced
    if first in held and advisory.fixed in held[: held.index(first) + 1]:
        yield f"fixed in {advisory.fixed}, not after {advisory.introduced}"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", advisory.checked, re.ASCII):
        yield f"`checked` is not a date: {advisory.checked}"
    if not advisory.references:
        yield "no reference"
    yield from _unknown_names(advisory.when)
    if advisory.workaround is not None:
        yield from _unreleased(advisory.workaround.set, advisory.workaround.env)


def _unknown_names(condition: Condition) -> Iterator[str]:
    yield from _unreleased(condition.arguments, condition.env)
    for feature in condition.features:
        if feature.removeprefix("not-") not in FEATURES:
            yield f"unknown feature {feature}"
    configs = [part.config for part in (condition.target, condition.draft) if part is not None]
    for values in (condition.arguments, condition.env, *configs):
        for name, value in values.items():
            if not _is_expectation(value):
                yield f"invalid condition on {name}: {value}"
    for part in condition.any:
        yield from _unknown_names(part)


def _is_expectation(value: Any) -> bool:
    """True if `value` is an expectation that `advisory_conditions.matches` can evaluate."""
    match value:
        case {"above": bound} | {"below": bound}:
            return len(value) == 1 and isinstance(bound, int | float)
        case {"not": excluded}:
            return len(value) == 1 and _is_expectation(excluded)
        case list() | tuple():
            return all(map(_is_expectation, value))
    return not isinstance(value, dict)


def _unreleased(arguments: Iterable[str], variables: Iterable[str]) -> Iterator[str]:
    yield from (f"unknown argument {name}" for name in arguments if name not in released_names())
    yield from (f"unknown variable {name}" for name in variables if not is_released_variable(name))


def update_advisories(source: str, sha256: str | None) -> Update:
    """Store the advisories of a file, directory or https URL for later runs; return the changes.

    A directory must contain `advisories.json`. A checksum is required: `sha256`, or the text of
    `SOURCE.sha256` next to the source. Nothing is stored unless all advisories are valid. Raises
    InputError.
    """
    if Path(source).is_dir():
        source = str(Path(source) / stored_file().name)
    found = _decoded(source, sha256)
    for advisory in found:
        defect = next(defects(advisory), None)
        if defect is not None:
            hint = "update speclaunch, or correct the source"
            raise InputError(f"{source}: {advisory.id}: {defect}", help=hint)
    before = {advisory.id: advisory for advisory in all_advisories()}
    after = {advisory.id: advisory for advisory in latest(before.values(), found)}
    for what, used in (
        ("ID", [advisory.id for advisory in found]),
        ("name", [a.name for a in after.values()]),
    ):
        twice = next((text for text, count in Counter(used).items() if count > 1), None)
        if twice is not None:
            raise InputError(f"{source}: the {what} {twice} occurs twice")
    new = tuple(name for name in after if name not in before)
    changed = tuple(name for name in before if after[name] != before[name])
    path = stored_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, encode_advisories(latest(stored_advisories(), found)))
    except OSError as error:
        raise InputError(f"cannot write {path}: {reason(error)}") from None
    return Update(path, new, changed)


def _decoded(source: str, sha256: str | None) -> tuple[Advisory, ...]:
    data = _bytes_of(source)
    stated = _stated_checksum(source) if sha256 is None else sha256
    actual = hashlib.sha256(data).hexdigest()
    if stated.lower() != actual:
        raise InputError(f"{source}: its SHA-256 is {actual}, not {stated}")
    try:
        return msgspec.json.decode(data, type=tuple[Advisory, ...])
    except ValueError as error:
        hint = "pass a file written by `speclaunch advisories export`"
        raise InputError(f"{source}: {error}", help=hint) from None


def _stated_checksum(source: str) -> str:
    path, mark, query = source.partition("?") if "://" in source else (source, "", "")
    try:
        text = _bytes_of(f"{path}.sha256{mark}{query}").decode("ascii", "replace")
    except InputError:
        hint = "pass --sha256, or put SOURCE.sha256 next to the source"
        raise InputError(f"{source} has no checksum", help=hint) from None
    return (text.split() or [""])[0]


def _bytes_of(source: str) -> bytes:
    if "://" not in source:
        try:
            return read_regular(Path(source), MAX_BYTES)
        except OSError as error:
            raise InputError(f"cannot read {source}: {reason(error)}") from None
    try:
        url = urlsplit(source)
        is_plain = url.scheme == "https" and bool(url.hostname) and "@" not in url.netloc
    except ValueError:
        is_plain = False
    if not is_plain:
        raise InputError(f"{masked(source)}: use an https URL without credentials")
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    client = HttpReader(f"https://{url.netloc}", {"User-Agent": "speclaunch"})
    try:
        answer = client.request("GET", target, _SECONDS, most=MAX_BYTES, redirects=3)
    except HttpError as error:
        raise InputError(f"cannot fetch {source}: {error}") from None
    finally:
        client.close()
    if answer.status != 200:
        raise InputError(f"cannot fetch {source}: HTTP {answer.status}")
    return answer.content


SCHEMA = "1.6.0"


def osv_document(advisory: Advisory) -> dict[str, Any]:
    """Return an advisory as an OSV document.

    `ecosystem_specific` contains the conditions, for which OSV has no field. `versions` lists the
    affected releases that speclaunch knows.
    """
    links = [text for text in advisory.references if text.startswith("https://")]
    return {
        "schema_version": SCHEMA,
        "id": f"x_{advisory.id}",  # OSV's prefix for databases that it does not list
        "modified": f"{advisory.checked}T00:00:00Z",
        "summary": advisory.summary,
        "details": _details(advisory),
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": "sglang", "purl": "pkg:pypi/sglang"},
                "ranges": [{"type": "ECOSYSTEM", "events": _events(advisory)}],
                "versions": [v for v in held_versions() if within(v, advisory.versions)],
                "ecosystem_specific": _specific(advisory),
            }
        ],
        "references": [{"type": "WEB", "url": link} for link in links],
    }


def _details(advisory: Advisory) -> str:
    remedy = f"\n\n{advisory.remedy}" if advisory.remedy else ""
    return " ".join(advisory.details.split()) + remedy


def _events(advisory: Advisory) -> list[dict[str, str]]:
    events = [{"introduced": advisory.first}]
    if advisory.fixed == UNKNOWN:
        events.append({"last_affected": advisory.seen[-1]})
    elif advisory.fixed != NONE:
        events.append({"fixed": advisory.fixed})
    return events


def _specific(advisory: Advisory) -> dict[str, Any]:
    found = {
        "symptom": advisory.symptom.value,
        "confidence": advisory.confidence.value,
        "conditions": msgspec.to_builtins(advisory.when),
        "requests": [field.value for field in advisory.requests],
    }
    return {key: value for key, value in found.items() if value}
