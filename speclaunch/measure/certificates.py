"""Stored results of a deployment, for its lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from speclaunch.core import mapping, read_json, text
from speclaunch.deployments import LockedCertificate, Prepared
from speclaunch.measure.bench.sides import identity_of
from speclaunch.measure.bench.stored_names import stored_files, stored_length
from speclaunch.measure.contract.records import CONTRACT
from speclaunch.measure.prove.stored import PROOF
from speclaunch.serving import command, unfinished_work


def certificates_of(prepared: Prepared) -> tuple[LockedCertificate, ...]:
    """Return the newest finished result of each kind for exactly this command."""
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
