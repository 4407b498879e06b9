"""Terminal output of a proof."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from speclaunch.measure import LevelRecord, ProofDocument, WrongRecord

_SHOWN = 5
_TEXT = 60


def show_proof(console: Console, proof: ProofDocument) -> None:
    """Print the verdict, the counts that support it, and the first wrong answers."""
    if proof.lossless:
        total = proof.answers.same + proof.answers.tie
        console.print(Text(f"✓ {proof.recipe} is lossless in all {total} answers", "bold green"))
    else:
        console.print(Text(f"✗ {proof.recipe} is not shown to be lossless", "bold red"))
    for line in _lines(proof):
        console.print(f"  {line}", markup=False, highlight=False)


def _lines(proof: ProofDocument) -> list[str]:
    counts = proof.answers
    lines = [
        f"{counts.same} the same, {counts.tie} numerical ties "
        f"(within {proof.tolerance_nats:.3g} nats), {counts.wrong} wrong"
    ]
    lines += [_level(level) for level in proof.concurrencies]
    lines += [f"wrong: {_wrong(record)}" for record in proof.wrong[:_SHOWN]]
    if counts.wrong > _SHOWN:
        more = counts.wrong - _SHOWN
        lines.append(f"and {more} more wrong answers: see all with --output-format json")
    if proof.unspeculated:
        lines.append(
            f"{proof.unspeculated} answers contain no verified draft and prove nothing "
            "(use more --output-tokens)"
        )
    samples = proof.samples
    if samples is not None:
        how = "differ" if samples.differ else "agree"
        lines.append(
            f"samples {how}: probability {samples.probability:.3g} over "
            f"{samples.positions} positions (alarm at {samples.alarm})"
        )
    return lines


def _level(level: LevelRecord) -> str:
    length = "none" if level.accept_length is None else f"{level.accept_length:.2f}"
    wrong = f", {level.answers.wrong} wrong" if level.answers.wrong else ""
    return (
        f"at concurrency {level.concurrency}: {level.requests} answers{wrong}, acceptance "
        f"length {length}"
    )


def _wrong(record: WrongRecord) -> str:
    prompt = " ".join(record.prompt.split())[-_TEXT:]
    where = f"at concurrency {record.concurrency}, token {record.position + 1}"
    if record.expected is None:
        return f"{where}: the answers have different lengths (prompt …{prompt!r})"
    got, expected = (
        _token(record.got, record.got_text),
        _token(record.expected, record.expected_text),
    )
    return (
        f"{where}: {got} instead of {expected}, which the plain server prefers by "
        f"{record.gap_nats:.3g} nats (prompt …{prompt!r})"
    )


def _token(number: int | None, text: str | None) -> str:
    return str(number) if text is None else f"{number} {text!r}"
