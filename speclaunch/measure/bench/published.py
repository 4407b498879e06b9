"""Compare measured acceptance with published values, or export a `speculation_profile.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.core import InputError, size
from speclaunch.engine import (
    DRAFT_PATH,
    STEPS,
    TOKENS,
    TOPK,
    AcceptanceReference,
    UnknownValueError,
    acceptance_reference,
)
from speclaunch.measure.bench.schema import (
    CellRecord,
    CertificateDocument,
    PublishedRecord,
    SingleCellRecord,
    SingleDocument,
    SpeculationRecord,
)
from speclaunch.measure.bench.sides import AnySide, LaunchedSide
from speclaunch.measure.bench.workload import RANDOM

LEAST_STEPS = 200
"""Minimum verify steps for comparing an acceptance length."""
_DRAFTLESS = ("NGRAM",)
_OWN = ("NEXTN", "EAGLE")
"""Algorithms that draft with the target's own layers if no draft is set."""

Document = CertificateDocument | SingleDocument
Cell = CellRecord | SingleCellRecord


def with_published(document: Document, side: AnySide) -> Document:
    """Return the document with the candidate's speculation and published acceptance lengths.

    Cells with simulated acceptance, random tokens or fewer than 200 verify steps are not compared.
    """
    speculation = speculation_of(side)
    if speculation is None:
        return document
    document = replace(document, speculation=speculation)
    if document.caveats or speculation.algorithm in _DRAFTLESS:
        return document
    setting = (speculation.num_steps, speculation.eagle_topk, speculation.num_draft_tokens)
    draft = None if _is_own(speculation) else speculation.draft
    reference = acceptance_reference(speculation.target, draft, setting)
    if reference is None:
        return document
    cells = [_record(cell, reference, speculation) for cell in document.cells if _counts(cell)]
    return replace(document, published=tuple(cells))


def _is_own(found: SpeculationRecord) -> bool:
    return found.algorithm in _OWN and found.draft in (None, found.target)


def _counts(cell: Cell) -> bool:
    length = cell.candidate.accept_length
    steps = sum(cell.candidate.verify_steps_by_accepted)
    return length is not None and steps >= LEAST_STEPS and cell.workload != RANDOM


def _record(
    cell: Cell, reference: AcceptanceReference, speculation: SpeculationRecord
) -> PublishedRecord:
    length = cell.candidate.accept_length or 1.0
    return PublishedRecord(
        workload=cell.workload,
        context=cell.context,
        concurrency=cell.concurrency,
        accept_length=length,
        lowest=reference.lowest,
        typical=reference.typical,
        highest=reference.lengths[-1],
        far_below=reference.is_far_below(length),
        differences=tuple(_differences(cell, reference, speculation)),
        sources=tuple(dict.fromkeys(str(p.source) for p in reference.published)),
    )


def _differences(
    cell: Cell, reference: AcceptanceReference, speculation: SpeculationRecord
) -> Iterator[str]:
    published = reference.published
    benchmarks = ", ".join(dict.fromkeys(p.benchmark for p in published))
    yield f"benchmarks {benchmarks}; here {cell.workload}"
    if reference.scale != 1:
        yield f"{published[0].setting_text}, converted; here {speculation.num_draft_tokens} tokens"
    targets = {p.target for p in published} - {speculation.target}
    if targets:
        yield f"target {', '.join(sorted(targets))}; here {speculation.target}"
    engines = {" ".join(filter(None, (p.engine, p.release))) for p in published} - {""}
    if engines:
        here = f"SGLang {speculation.engine or ''}".rstrip()
        yield f"engine {', '.join(sorted(engines))}; here {here}"
    sizes = {p.batch_size for p in published} - {None, cell.concurrency}
    if sizes:
        yield f"batch size {', '.join(map(str, sizes))}; here {cell.concurrency}"
    for name in ("temperature", "mode", "hardware"):
        values = {getattr(p, name) for p in published} - {None}
        if values:
            yield f"{name} {', '.join(sorted(map(str, values)))}"


def speculation_of(side: AnySide) -> SpeculationRecord | None:
    """Return a side's speculation as planned or reported; None if absent or unknown."""
    if not side.expected.speculates:
        return None
    engine: str | None
    if isinstance(side, LaunchedSide):
        names = (_MODEL, DRAFT_PATH, STEPS, TOPK, TOKENS)
        values = {name: side.plan.value_or_none(name) for name in names}
        try:
            algorithm = side.plan.algorithm
        except UnknownValueError:
            algorithm = None
        engine = side.prepared.version
    else:
        values = dict(side.info)
        algorithm = side.info.get("speculative_algorithm")
        engine = side.info.get("version")
    if not algorithm or not values.get(_MODEL):
        return None
    draft = values.get(DRAFT_PATH)
    return SpeculationRecord(
        str(algorithm),
        str(values[_MODEL]),
        str(draft) if draft else None,
        size(values.get(STEPS)),
        size(values.get(TOPK)),
        size(values.get(TOKENS)),
        str(engine) if engine else None,
    )


_MODEL = "model_path"


_SCHEMA_VERSION = "1.0"
_CHAINS = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
"""Methods whose shorter draft chains are prefixes of longer chains. Trees lack this property."""
_TOLERANCE = 0.02


def speculation_profile(document: Document) -> dict[str, Any]:
    """Return the candidate's acceptance as NVIDIA Model-Optimizer's `speculation_profile.json`.

    The format is schema 1.0 of examples/specdec_bench/specdec_bench/speculation_profile.py,
    `build_profile` (Model-Optimizer #2247). Rates are by draft position; lengths include the
    target's token. Raises InputError if the document has no histogram of a speculative candidate.
    """
    found = document.speculation
    counts: dict[int, int] = {}
    for cell in document.cells:
        for accepted, number in enumerate(cell.candidate.verify_steps_by_accepted):
            counts[accepted + 1] = counts.get(accepted + 1, 0) + number
    steps = sum(counts.values())
    if found is None or not steps or found.num_draft_tokens is None:
        raise InputError(
            "a speculation profile needs counts of verify steps by accepted draft tokens",
            help="measure a speculative deployment whose engine reports them",
        )
    width = max(found.num_steps or found.num_draft_tokens - 1, 1)
    marginal = [sum(n for at, n in counts.items() if at >= i + 2) / steps for i in range(width)]
    conditional = [now / before if before else 0.0 for before, now in pairwise((1.0, *marginal))]
    mean = sum(length * number for length, number in counts.items()) / steps
    implied = 1 + sum(marginal)
    is_chain = found.algorithm in _CHAINS and (found.eagle_topk or 1) == 1
    cells = [c.candidate for c in document.cells if c.candidate.accept_length_per_request]
    answered = sum(cell.requests for cell in cells)
    sums = sum(cell.requests * (cell.accept_length_per_request or 0) for cell in cells)
    return {
        "schema_version": _SCHEMA_VERSION,
        "measured": True,
        "method": "mtp" if _is_own(found) else found.algorithm.lower(),
        "draft_checkpoint": {"id": _checkpoint_id(found.draft)} if found.draft else None,
        "target_model": {"id": _checkpoint_id(found.target)},
        "num_speculative_tokens": width,
        "block_size": None if found.num_steps else found.num_draft_tokens,
        "max_supported_k": width,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": _rounded(conditional),
        "marginal_accept_rates": _rounded(marginal),
        "mean_accept_length": round(mean, 6),
        "mean_accept_length_per_request": round(sums / max(answered, 1), 6),
        "accept_length_model": "chain_analytic" if is_chain else "measured_per_k",
        "accept_length_by_k": {str(width): round(mean, 6)},
        "acceptance_length_histogram": {str(at): n for at, n in sorted(counts.items()) if n},
        "per_category": _categories(document),
        "measurement_conditions": _conditions(document, found),
        "validation": {
            "mean_consistency": {
                "implied_mean_accept_length": round(implied, 6),
                "reported_mean_accept_length": round(mean, 6),
                "abs_delta": round(abs(implied - mean), 6),
                "tolerance": _TOLERANCE,
                "passed": abs(implied - mean) <= _TOLERANCE,
            },
            "marginal_monotonicity": {"passed": True, "violations": []},
        },
    }


def _checkpoint_id(path: str) -> str:
    """Return a checkpoint's `organization/name`, because a profile must not show local paths."""
    return "/".join(Path(path).parts[-2:])


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 6) for value in values]


def _categories(document: Document) -> Mapping[str, Any]:
    found: dict[str, list[tuple[int, int]]] = {}
    for cell in document.cells:
        counts = enumerate(cell.candidate.verify_steps_by_accepted, 1)
        found.setdefault(cell.workload, []).extend(counts)
    return {
        name: {"mean_accept_length": round(sum(at * n for at, n in some) / max(steps, 1), 6)}
        for name, some in found.items()
        if (steps := sum(n for _, n in some))
    }


def _conditions(document: Document, found: SpeculationRecord) -> Mapping[str, Any]:
    cells = document.cells
    return {
        "dataset": ", ".join(dict.fromkeys(cell.workload for cell in cells)),
        "concurrency": sorted({cell.concurrency for cell in cells}),
        "num_samples": sum(cell.candidate.requests for cell in cells),
        "engine": "SGLang",
        "engine_version": found.engine,
        "gpu": document.hardware if isinstance(document, CertificateDocument) else None,
        "eagle_topk": found.eagle_topk,
        "simulated": bool(document.caveats),
    }
