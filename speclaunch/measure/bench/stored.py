"""List stored comparisons, find them by name, and read certificates and a deployment's results.

Comparisons are stored round by round, so an interrupted comparison can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert

from speclaunch.core import InputError, from_here, json_value, mapping, read_json, text
from speclaunch.deployments import LockedCertificate, Prepared
from speclaunch.engine import suggest
from speclaunch.measure.bench.comparison import Schedule
from speclaunch.measure.bench.measurement import Round
from speclaunch.measure.bench.schema import CertificateDocument, SingleDocument, measured_of
from speclaunch.measure.bench.sides import identity_of
from speclaunch.measure.bench.stored_names import FILE, LAST, directory, stored_files, stored_length
from speclaunch.measure.prove.answers import PROOF
from speclaunch.measure.prove.contract_servers import CONTRACT
from speclaunch.serving import command, unfinished_work

VERSION = 1
_LISTING = "`speclaunch bench ls` lists them"


class StoredBench(Struct, frozen=True):
    """A comparison on disk. `key` identifies the work; a run with the same key resumes it."""

    directory: Path
    key: str
    about: Mapping[str, Any]
    rounds: tuple[Round, ...] = ()

    @staticmethod
    def stamp() -> str:
        """Return the current time in the file's format."""
        return time.strftime("%Y-%m-%dT%H:%M:%S%z")

    def write(self, rounds: Sequence[Round], result: Mapping[str, Any] | None = None) -> None:
        """Replace the stored file atomically. Raises InputError if writing fails."""
        document = {
            "version": VERSION,
            "key": self.key,
            "updated": self.stamp(),
            "about": dict(self.about),
            "rounds": json_value(rounds),
            "result": result,
        }
        unfinished_work.write(self.directory / FILE, document)


def key_of(commands: Sequence[Sequence[str]], schedule: Schedule) -> str:
    """Return a digest of everything that affects the measurement.

    It covers engine commands with their variables, and the schedule except `rounds`.
    """
    content = {
        "commands": [list(command) for command in commands],
        "workloads": json_value(schedule.workloads),
        "concurrencies": schedule.concurrencies,
        "requests": schedule.requests,
        "blocks": schedule.blocks,
        "starts": schedule.starts,
        "seed": schedule.seed,
        "generator": schedule.generator,
    }
    return unfinished_work.digest(content)


def begin_bench(name: str, key: str, about: Mapping[str, Any], *, fresh: bool) -> StoredBench:
    """Return the newest unfinished comparison with this key, or a new one. Raises InputError."""
    files = [] if fresh else reversed(stored_files())
    for folder, document in unfinished_work.unfinished(files, key):
        return StoredBench(
            folder, key, about, convert(document.get("rounds", ()), tuple[Round, ...])
        )
    begun = StoredBench(unfinished_work.new_folder(directory(), name), key, about)
    if fresh:  # a later run continues this comparison, not an older one
        begun.write(())
    return begun


class BenchListing(Struct, frozen=True):
    """A stored comparison in `bench ls`."""

    name: str
    path: Path
    updated: str
    sides: tuple[str, ...]
    rounds: int
    result: dict[str, Any] | None

    @property
    def state(self) -> str:
        if self.result is None:
            return "interrupted"
        if not self.result.get("counts"):
            return "does not count"
        return str(self.result.get("claim") or "one server")


def stored_benches() -> list[BenchListing]:
    """Return all readable comparisons, oldest first."""
    return [found for path in stored_files() if (found := _listing(path)) is not None]


def _listing(path: Path) -> BenchListing | None:
    document = read_json(path)
    if document is None or "rounds" not in document:
        return None
    about, rounds, result = (document.get(key) for key in ("about", "rounds", "result"))
    sides = about.get("sides") if isinstance(about, dict) else None
    return BenchListing(
        path.parent.name,
        path,
        str(document.get("updated") or ""),
        tuple(map(str, sides)) if isinstance(sides, list) else (),
        len(rounds) if isinstance(rounds, list) else 0,
        result if isinstance(result, dict) else None,
    )


def stored_documents() -> list[dict[str, Any]]:
    """Return the documents of all readable comparisons with their names, oldest first."""
    return [
        {**document, "name": path.parent.name}
        for path in stored_files()
        if (document := read_json(path)) is not None
    ]


def find_certificate(name: str) -> CertificateDocument:
    """Find a certificate as `find_measured` does. Raises InputError for a single-server result."""
    found = find_measured(name)
    if isinstance(found, SingleDocument):
        raise InputError(
            f"{name} is a measurement of a single server, not a comparison",
            help="compare two servers: speclaunch bench --url URL --against url=URL",
        )
    return found


def find_measured(name: str) -> CertificateDocument | SingleDocument:
    """Return the result that `name` selects: a certificate file, or a comparison by name or path.

    Raises InputError if it does not exist or is not finished.
    """
    path = Path(name)
    if path.is_file():
        return _read(path)
    if (path / FILE).is_file():
        return _read(path / FILE)
    if path.is_dir() and "/" in name:
        raise InputError(f"{name} is not a comparison: it has no {FILE}", help=_LISTING)
    if path.suffix == ".json" or "/" in name:
        raise InputError(f"cannot read {name}: no such file or directory", help=_LISTING)
    return _read(_named(name))


def _named(name: str) -> Path:
    stored = stored_benches()
    if not stored:
        raise InputError(
            f"{name}: no comparison is saved in {directory()}",
            help="measure one: speclaunch bench recipe=NAME",
        )
    matches = [listing for listing in stored if listing.name == name]
    if name == LAST:
        matches = [listing for listing in stored if listing.result is not None] or stored[-1:]
    if not matches:
        # a recipe's name means its newest comparison, as in `speclaunch runs show`
        matches = [listing for listing in stored if _recipe(listing.name) == name]
        matches = [listing for listing in matches if listing.result is not None] or matches
    if matches:
        return matches[-1].path
    names = [
        *(listing.name for listing in stored),
        *(_recipe(listing.name) for listing in stored),
        LAST,
    ]
    near = suggest(name, names)
    raise InputError(f"{name}: no comparison of that name is saved", help=near or _LISTING)


def _recipe(name: str) -> str:
    """Return the recipe part of a name: `cpu_ngram` for `20261123-101500-cpu_ngram`."""
    return name.split("-", 2)[-1]


def _read(path: Path) -> CertificateDocument | SingleDocument:
    shown = from_here(path)
    document = read_json(path)
    if document is None:
        message = f"cannot read {shown}: it is not a JSON document"
        raise InputError(message, help="name a certificate in JSON")
    if "rounds" in document and "result" in document:
        rounds, document = document["rounds"], document["result"]
        if document is None:
            raise InputError(
                f"{path.parent.name} is not finished: {len(rounds)} rounds measured",
                help="repeat the same `speclaunch bench` command to resume it",
            )
    try:
        return measured_of(document)
    except ValidationError as error:
        raise InputError(
            f"{shown}: not a certificate of `speclaunch bench`: {error}",
            help="write one with `speclaunch bench recipe=NAME --output-format json`",
        ) from error


def require_cells(name: str, found: CertificateDocument) -> None:
    """Raise InputError with the reasons if a measurement does not count."""
    if found.counts and found.cells:
        return
    reasons = "; ".join(objection.message for objection in found.objections) or "it has no cells"
    raise InputError(
        f"{name}: the measurement does not count: {reasons}",
        help="measure it again: speclaunch bench … --fresh",
    )


def certificates_of(prepared: Prepared) -> tuple[LockedCertificate, ...]:
    """Return the newest bench, proof and contract results of the recipe's exact command."""
    proofs, contracts = map(unfinished_work.stored_work, (PROOF, CONTRACT))
    found = (
        _newest("bench", stored_files(), identity_of(prepared), _measured),
        _newest("prove", proofs, command(prepared), _proven),
        _newest("contract", contracts, command(prepared), _contracted),
    )
    return tuple(certificate for certificate in found if certificate is not None)


def _newest(
    kind: str, files: Sequence[Path], identity: Sequence[str], result_of: Any
) -> LockedCertificate | None:
    for path in reversed(files):
        document = read_json(path) or {}
        commands = mapping(document.get("about")).get("commands")
        if not isinstance(commands, Iterable) or list(commands)[:1] != [list(identity)]:
            continue
        stored = mapping(document.get("result"))
        result = result_of(stored)
        if result is not None:
            day = (text(document.get("updated")) or "")[:10]
            length = stored_length(stored)
            return LockedCertificate(kind, path.parent.name, day, result, length)
    return None


def _measured(result: Mapping[str, Any]) -> str | None:
    return text(result.get("sentence")) if result.get("counts") else None


def _proven(result: Mapping[str, Any]) -> str | None:
    if "lossless" not in result:
        return None
    answers = mapping(result.get("answers"))
    counted = ", ".join(f"{answers.get(kind)} {kind}" for kind in ("same", "tie", "wrong"))
    return f"{'lossless' if result['lossless'] else 'not lossless'}: {counted}"


def _contracted(result: Mapping[str, Any]) -> str | None:
    if "counts" not in result or "same" not in result:
        return None
    counts = mapping(result["counts"])
    counted = f"{counts.get('same')} request fields the same, {counts.get('differs')} differ"
    return f"{'same' if result['same'] else 'not the same'}: {counted}"
