"""The JSON of a plan is a contract: its schema is kept in the documentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import convert

from speclaunch.app.output.plan_document import (
    ArgumentRecord,
    ComparisonDocument,
    Graphs,
    MemoryRecord,
    PlanDocument,
    RoleRecord,
    RolesDocument,
    comparison_document,
    plan_document,
)
from speclaunch.measure.advice.plan_requests import compared
from tests.support.app.output.plan.helpers import FAILS, FITS, UNKNOWN, planned
from tests.support.schemas import schema_of

DOCS = Path(__file__).parents[4] / "docs" / "reference"


def schema() -> dict[str, object]:
    return {
        "plan": schema_of(PlanDocument),
        "comparison": schema_of(ComparisonDocument),
        "roles": schema_of(RolesDocument),
    }


def test_the_schema_is_that_of_the_documentation() -> None:
    """Where this fails on purpose: tests/app/output/plan/write_schema.py writes it anew."""
    assert json.loads((DOCS / "plan.schema.json").read_text()) == schema()


def test_the_documentation_names_every_key() -> None:
    page = (DOCS / "plan.md").read_text()
    for model in (
        PlanDocument,
        ComparisonDocument,
        RolesDocument,
        RoleRecord,
        ArgumentRecord,
        MemoryRecord,
        Graphs,
    ):
        for name in model.__struct_encode_fields__:
            assert f"`{name}`" in page, f"{model.__name__}.{name}"


def test_a_plan_as_json() -> None:
    found = json.loads(plan_document(planned(budget=FAILS)))
    assert next(iter(found)) == "version" and found["version"] == 1
    assert (found["recipe"], found["engine"], found["hardware"]) == (
        "eagle3_llama8b",
        "0.5.23",
        "h100",
    )
    by_name = {one["name"]: one for one in found["arguments"]}
    assert len(by_name) == len(found["arguments"]) > 400
    running = by_name["max_running_requests"]
    assert running["effective"] == 48 and running["given"] is None and not running["is_given"]
    assert running["outcome"] == "filled" and running["source"].startswith("sglang")
    steps = by_name["speculative_num_steps"]
    assert (steps["given"], steps["effective"], steps["changed"]) == (3, 3, False)
    assert steps["path"].endswith("eagle3_tree.yaml") and steps["line"] == 5
    budget = found["budget"]
    assert budget["fit"] == "fails" and budget["phase"] == "capture CUDA graphs"
    assert budget["working_fractions"] == [0.231, 0.912]
    (rank,) = budget["ranks"]
    total = sum(share["bytes"] for share in rank["shares"])
    assert total == rank["memory_bytes"] + rank["short_bytes"]
    assert all(isinstance(share["bytes"], int) for share in rank["shares"])
    assert found["graphs"]["captured"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found["graphs"]["spans"][-1] == {"first": 9, "last": 48, "covered": "uncovered"}
    assert "SPL403" in {finding["code"] for finding in found["findings"]}
    assert found["argv"][:3] == ["python3", "-m", "sglang.launch_server"]
    convert(found, PlanDocument)


def test_what_is_not_known_is_null_with_a_reason() -> None:
    found = json.loads(plan_document(planned(hardware=None, budget=UNKNOWN)))
    backend = next(one for one in found["arguments"] if one["name"] == "attention_backend")
    assert backend["effective"] is None and backend["unknown"] == "the hardware is unknown"
    assert found["hardware"] is None and found["budget"]["unknown"] == ["the memory of the GPU"]
    assert found["graphs"]["known"] is False and found["graphs"]["why"]
    assert found["budget"]["tokens"] is None


def test_secrets_are_blotted_out() -> None:
    one = planned("args.api_key=sk-secret", "+engine.env.HF_TOKEN=hf-secret")
    text = plan_document(one) + comparison_document((one, one), (compared(planned(), one),))
    assert "sk-secret" not in text and "hf-secret" not in text
    assert json.loads(plan_document(one))["env"]["HF_TOKEN"] == "***"


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_json_lacks(value: str) -> None:
    found = planned(f"args.mem_fraction_static={value}")
    document = json.loads(plan_document(found), parse_constant=pytest.fail)
    fraction = next(o for o in document["arguments"] if o["name"] == "mem_fraction_static")
    assert fraction["given"] == value


def test_a_comparison_as_json() -> None:
    one, other = planned(version="0.5.9", budget=FAILS), planned(budget=FITS)
    found = json.loads(comparison_document((one, other), (compared(one, other),)))
    assert next(iter(found)) == "version" and found["version"] == 1
    assert [plan["engine"] for plan in found["plans"]] == ["0.5.9", "0.5.23"]
    (comparison,) = found["comparisons"]
    assert (comparison["before"], comparison["after"]) == (0, 1)
    by_name = {one["name"]: one for one in comparison["arguments"]}
    assert by_name["disable_overlap_schedule"]["before"]["effective"] is True
    assert by_name["cuda_graph_backend_prefill"]["before"] is None
    numbers = {one["name"]: one for one in comparison["budget"]}
    assert numbers["tokens in the KV cache"]["after"] == 304_742
    assert "running requests" not in numbers  # it is the same
    assert "SPL904" in {finding["code"] for finding in comparison["findings_lost"]}
    assert "- --cuda-graph-max-bs 8" in comparison["command"]
    convert(found, ComparisonDocument)
