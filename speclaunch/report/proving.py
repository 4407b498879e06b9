"""A proof on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.proving.proof import ALARM, Judged, Level, Proof
from speclaunch.proving.verdict import Kind
from speclaunch.report.proof_schema import (
    Counts,
    LevelRecord,
    ProofDocument,
    SamplesRecord,
    WrongRecord,
)

_SHOWN = 5
_TEXT = 60


def show_proof(console: Console, proof: Proof, name: str) -> None:
    """The verdict, the counts it rests on, and the first answers that are wrong."""
    total = len(proof.answers)
    if proof.is_lossless:
        console.print(Text(f"✓ {name} is lossless in all {total} answers", "bold green"))
    else:
        console.print(Text(f"✗ {name} is not shown to be lossless", "bold red"))
    for line in _lines(proof):
        console.print(f"  {line}", markup=False, highlight=False)


def _lines(proof: Proof) -> list[str]:
    same, tie, wrong = (proof.count(kind) for kind in (Kind.SAME, Kind.TIE, Kind.WRONG))
    lines = [
        f"{same} the same, {tie} numerical ties (within {proof.tolerance:.3g} nats), {wrong} wrong"
    ]
    lines += [_at(level) for level in proof.levels]
    lines += [f"wrong: {_told(one)}" for one in proof.wrong[:_SHOWN]]
    if wrong > _SHOWN:
        lines.append(f"and {wrong - _SHOWN} more that are wrong: --output-format json has all")
    if proof.unspeculated:
        lines.append(
            f"{proof.unspeculated} answers were generated without one verified draft: they prove "
            "nothing (--output-tokens makes answers longer)"
        )
    if proof.sampled is not None:
        how = "differ" if proof.samples_differ else "agree"
        lines.append(
            f"samples {how}: a probability of {proof.sampled.probability:.3g} over "
            f"{proof.sampled.positions} positions (alarm at {ALARM})"
        )
    return lines


def _at(level: Level) -> str:
    length = "none" if level.accept_length is None else f"{level.accept_length:.2f}"
    wrong = f", {level.counts[Kind.WRONG]} wrong" if level.counts[Kind.WRONG] else ""
    return (
        f"at a concurrency of {level.concurrency}: {level.requests} answers{wrong}, acceptance "
        f"length {length}"
    )


def _told(one: Judged) -> str:
    found = one.verdict
    prompt = " ".join(one.question.text.split())[-_TEXT:]
    where = f"at a concurrency of {one.concurrency}, token {(found.position or 0) + 1}"
    if found.expected is None:
        return f"{where}: the answers have different lengths (prompt …{prompt!r})"
    got, expected = (
        _token(found.got, found.got_text),
        _token(found.expected, found.expected_text),
    )
    return (
        f"{where}: {got} instead of {expected}, which the plain server prefers by "
        f"{found.gap:.3g} nats (prompt …{prompt!r})"
    )


def _token(number: int | None, text: str | None) -> str:
    return str(number) if text is None else f"{number} {text!r}"


def document(proof: Proof, name: str, baseline: str, engine: str, dtype: str) -> Mapping[str, Any]:
    """For programs."""
    sampled = proof.sampled
    found = ProofDocument(
        recipe=name,
        baseline=baseline,
        engine=engine,
        dtype=dtype or None,
        lossless=proof.is_lossless,
        answers=_counts({kind: proof.count(kind) for kind in Kind}),
        unspeculated=proof.unspeculated,
        tolerance_nats=proof.tolerance,
        concurrencies=[
            LevelRecord(
                concurrency=one.concurrency,
                requests=one.requests,
                answers=_counts(one.counts),
                unspeculated=one.unspeculated,
                accept_length=one.accept_length,
            )
            for one in proof.levels
        ],
        samples=None
        if sampled is None
        else SamplesRecord(
            positions=sampled.positions,
            draws=sampled.draws,
            probability=sampled.probability,
            alarm=ALARM,
            differ=proof.samples_differ,
        ),
        wrong=[_wrong(one) for one in proof.wrong],
    )
    return found.model_dump(mode="json")


def _counts(counts: Mapping[Kind, int]) -> Counts:
    return Counts(**{kind.value: number for kind, number in counts.items()})


def _wrong(one: Judged) -> WrongRecord:
    found = one.verdict
    return WrongRecord(
        prompt=one.question.text,
        concurrency=one.concurrency,
        position=found.position or 0,
        got=found.got,
        got_text=found.got_text,
        expected=found.expected,
        expected_text=found.expected_text,
        gap_nats=found.gap,
    )
