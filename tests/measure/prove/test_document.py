"""A proof as text and as JSON, whose schema is a contract."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from msgspec import convert, to_builtins
from rich.console import Console

from speclaunch.app.verbs.prove import show_proof
from speclaunch.measure.prove.answers import ProofPrompt
from speclaunch.measure.prove.proof import (
    AnswerKind,
    AnswerVerdict,
    CheckedAnswer,
    Drawn,
    LevelRecord,
    Proof,
    ProofDocument,
    SamplesRecord,
    WrongRecord,
)
from tests.support.schemas import schema_of

DOCS = Path(__file__).parents[3] / "docs" / "reference"
SAME = AnswerVerdict(AnswerKind.SAME)
WRONG = AnswerVerdict(AnswerKind.WRONG, 3, 2.5, 311, 42, " cat", " dog")
SHORT = AnswerVerdict(AnswerKind.WRONG, 2)


def proof(*verdicts: AnswerVerdict, sampled: Drawn | None = None, steps: int = 4) -> Proof:
    some = [
        CheckedAnswer(ProofPrompt(f"say [{number}]", 8), 1 + 3 * (number % 2), one, 8, steps)
        for number, one in enumerate(verdicts)
    ]
    return Proof(tuple(some), 0.25, sampled)


def told(found: Proof) -> str:
    text = io.StringIO()
    console = Console(file=text, width=400, highlight=False)
    show_proof(console, found.document("r", "r alone", "0.5.23", ""))
    return text.getvalue()


def schema() -> dict[str, object]:
    return schema_of(ProofDocument)


def test_the_schema_is_that_of_the_documentation() -> None:
    """Where this fails on purpose: tests/measure/prove/write_schema.py writes it anew."""
    assert json.loads((DOCS / "prove.schema.json").read_text()) == schema()


def test_the_documentation_names_every_key() -> None:
    page = (DOCS / "prove.md").read_text()
    for model in (ProofDocument, LevelRecord, SamplesRecord, WrongRecord):
        for name in model.__struct_encode_fields__:
            assert f"`{name}`" in page, f"{model.__name__}.{name}"


def test_the_document_has_counts_by_concurrency_and_what_is_wrong() -> None:
    made = proof(SAME, WRONG, SAME, SHORT).document("r", "r alone", "0.5.23", "bfloat16")
    found = to_builtins(made)
    assert next(iter(found)) == "version" and found["version"] == 1
    assert (found["recipe"], found["baseline"], found["engine"]) == ("r", "r alone", "0.5.23")
    assert (found["lossless"], found["dtype"], found["samples"]) == (False, "bfloat16", None)
    assert found["answers"] == {"same": 2, "tie": 0, "wrong": 2}
    one, four = found["concurrencies"]
    assert (one["concurrency"], one["answers"]["wrong"], one["accept_length"]) == (1, 0, 2.0)
    assert (four["concurrency"], four["answers"]["wrong"], four["requests"]) == (4, 2, 2)
    assert found["wrong"][0] == {
        "prompt": "say [1]",
        "concurrency": 4,
        "position": 3,
        "got": 311,
        "got_text": " cat",
        "expected": 42,
        "expected_text": " dog",
        "gap_nats": 2.5,
    }
    assert (found["wrong"][1]["position"], found["wrong"][1]["got"]) == (2, None)
    assert convert(found, ProofDocument) == made


def test_the_text_says_what_is_wrong_where() -> None:
    said = told(proof(SAME, WRONG, SAME, SHORT))
    assert "✗ r is not shown to be lossless" in said
    assert "2 the same, 0 numerical ties (within 0.25 nats), 2 wrong" in said
    assert "at concurrency 1: 2 answers, acceptance length 2.00" in said
    assert "at concurrency 4: 2 answers, 2 wrong, acceptance length 2.00" in said
    assert (
        "wrong: at concurrency 4, token 4: 311 ' cat' instead of 42 ' dog', which the plain "
        "server prefers by 2.5 nats (prompt …'say [1]')"
    ) in said
    assert "token 3: the answers have different lengths (prompt …'say [3]')" in said


def test_the_first_wrong_answers_are_enough() -> None:
    said = told(proof(*[WRONG] * 12))
    assert said.count("instead of") == 5
    assert "and 7 more wrong answers" in said


def test_a_good_proof_is_short() -> None:
    said = told(proof(SAME, AnswerVerdict(AnswerKind.TIE, 1, 0.1, 3, 4)))
    assert said.startswith("✓ r is lossless in all 2 answers")
    assert "1 the same, 1 numerical ties" in said
    assert "wrong:" not in said


def test_answers_without_a_draft_are_told() -> None:
    said = told(proof(SAME, steps=0))
    assert "1 answers contain no verified draft" in said
    assert "acceptance length none" in said


@pytest.mark.parametrize(("probability", "how"), [(0.001, "differ"), (0.4, "agree")])
def test_samples_are_told(probability: float, how: str) -> None:
    found = proof(SAME, sampled=Drawn(probability, 24, 2000))
    assert f"samples {how}: probability {probability} over 24 positions" in told(found)
    said = found.document("r", "p", "0.5.23", "")
    assert said.samples is not None and said.samples.differ == (how == "differ")
    assert said.lossless == (how == "agree")
    assert said.dtype is None
