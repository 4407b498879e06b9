"""A contract as text, JSON and HTML."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import pytest
from msgspec import convert, to_builtins
from rich.console import Console

from speclaunch.app.verbs.prove import contract_page, show_contract
from speclaunch.measure.prove.contract import FIELDS
from speclaunch.measure.prove.contract_servers import (
    Contract,
    ContractDocument,
    FieldCounts,
    FieldResult,
    FieldRow,
)
from tests.support.loops import rows
from tests.support.program import run
from tests.support.schemas import schema_of

DOCS = Path(__file__).parents[3] / "docs" / "reference"
SAME = FieldRow("stop", FieldResult.SAME, "", 20)
BROKEN = FieldRow("n", FieldResult.DIFFERS, "1 answers, not 3 <b>", 2, None, ("SPA-2026-0002",))
KNOWN = FieldRow("top_k", FieldResult.DIFFERS, "another distribution", 3, "Only on a CPU (f.py:1)")
SKIPPED = FieldRow("tools", FieldResult.NOT_TESTED, "the servers have no tool_call_parser")


def document(*rows: FieldRow) -> ContractDocument:
    return Contract(rows, "0.5.23", "EAGLE").document("mine", "mine without speculation")


def printed(*rows: FieldRow) -> list[str]:
    text = io.StringIO()
    show_contract(Console(file=text, width=400, highlight=False), document(*rows))
    return text.getvalue().splitlines()


def schema() -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(schema_of(ContractDocument)))
    return found


def test_the_schema_is_that_of_the_documentation() -> None:
    """Where this fails on purpose: tests/measure/contract/write_schema.py writes it anew."""
    assert json.loads((DOCS / "contract.schema.json").read_text()) == schema()


def test_the_documentation_names_every_key_and_field() -> None:
    page = (DOCS / "prove.md").read_text()
    names = [
        name
        for model in (ContractDocument, FieldRow, FieldCounts)
        for name in model.__struct_encode_fields__
    ]
    missing = [n for n in (*names, *(field.name for field in FIELDS)) if f"`{n}`" not in page]
    assert missing == []


def test_the_document_counts_results_and_reads_back() -> None:
    made = document(SAME, BROKEN, KNOWN, SKIPPED)
    found = to_builtins(made)
    assert next(iter(found)) == "version" and found["version"] == 1
    assert found["counts"] == {"same": 1, "differs": 2, "not_tested": 1}
    assert (found["same"], found["engine"], found["algorithm"]) == (False, "0.5.23", "EAGLE")
    assert convert(found, ContractDocument) == made


@rows(
    "rows, same, verdict",
    [
        ((SAME, SKIPPED), True, "✓ mine keeps the meaning of 1 request fields"),
        (
            (SAME, KNOWN),
            True,
            "✓ mine keeps the meaning of 1 request fields, 1 more differ as documented",
        ),
        ((SAME, KNOWN, BROKEN), False, "✗ mine changes the meaning of n"),
        ((SKIPPED,), False, "✗ mine: no request field could be tested"),
    ],
)
def test_the_verdict_counts_undocumented_differences(
    rows: tuple[FieldRow, ...], same: bool, verdict: str
) -> None:
    assert document(*rows).same == same
    assert printed(*rows)[0] == verdict


def test_the_text_has_a_line_for_each_field_and_what_is_known() -> None:
    assert printed(SAME, BROKEN, KNOWN, SKIPPED)[1:] == [
        "  ✓ stop                    same",
        "  ✗ n                       differs: 1 answers, not 3 <b>",
        "    known: SPA-2026-0002 (speclaunch explain SPA-2026-0002)",
        "  ! top_k                   differs (documented): another distribution",
        "    documented: Only on a CPU (f.py:1)",
        "  - tools                   not tested: the servers have no tool_call_parser",
    ]


def test_the_page_has_every_row_and_escapes_what_servers_answer() -> None:
    page = contract_page(document(SAME, BROKEN, KNOWN, SKIPPED))
    assert re.findall(r"<tr><td><code>(\w+)", page) == ["stop", "n", "top_k", "tools"]
    assert "1 answers, not 3 &lt;b&gt;" in page and "<b>" not in page
    assert "differs (documented)" in page and "SPA-2026-0002" in page
    assert "<script" not in page and "http" not in page.partition("</head>")[2]
    assert page == contract_page(document(SAME, BROKEN, KNOWN, SKIPPED))


def prove(*words: str, home: Path) -> tuple[int, str, str]:
    done = run("prove", *words, env={**os.environ, "SPECLAUNCH_HOME": str(home)})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.thorough
def test_a_dry_run_lists_the_fields(tmp_path: Path) -> None:
    code, text, _ = prove("recipe=cpu_ngram", "--requests", "--dry-run", home=tmp_path)
    starts, fields = text.splitlines()
    assert code == 0
    assert starts == "starts:   2, both at once: cpu_ngram; cpu_ngram without speculation"
    assert fields.split()[1:] == [
        f"{field.name}{',' * (field is not FIELDS[-1])}" for field in FIELDS
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_a_proof_has_no_page(tmp_path: Path) -> None:
    words = ("recipe=cpu_ngram", "--output-format", "html", "--dry-run")
    code, text, error = prove(*words, home=tmp_path)
    assert (code, text) == (2, "")
    assert "a proof has no HTML page" in error and "--requests" in error
