"""The rows of what released engines refuse: their form, their evaluation, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.refusals import (
    DATA,
    OPERATIONS,
    TEXTS,
    UNKNOWN,
    ConditionEvaluator,
    EngineRefusal,
    leaf,
    refusals,
)
from speclaunch.engine.releases.catalogue import held_versions, load
from speclaunch.engine.releases.renames import canonical
from tests.support.loops import rows

STORED = json.loads(DATA.read_text())
LEAVES = {"k": 1, "f": 1, "e": 3, "p": 1, "h": (1, 2), "a": (0, 1), "u": 0, "q": 1}
OTHERS = {"and", "or", "not", "?", "list", "fmt", "repr"}


def plan(words: str, version: str = "0.5.23", gpu: str | None = None) -> Plan:
    hardware = declare(gpu) if gpu else None
    return Plan(from_words(tuple(words.split()), {}, load(version)), Facts(None, None, hardware))


def test_the_rows_are_of_the_shipped_releases(tmp_path: Path) -> None:
    assert STORED["versions"] == list(held_versions(tmp_path))
    assert all(row[5] for row in STORED["rows"])


def test_every_node_is_of_a_closed_set_and_of_earlier_nodes() -> None:
    for number, (op, *args) in enumerate(STORED["nodes"]):
        if op in LEAVES:
            wanted = LEAVES[op]
            assert len(args) in (wanted if isinstance(wanted, tuple) else (wanted,)), (number, op)
            continue
        assert op in OPERATIONS or op in TEXTS or op in OTHERS, op
        assert all(isinstance(one, int) and one < number for one in args), (number, op)


def test_every_row_has_an_argument_a_place_and_an_order() -> None:
    rows = STORED["rows"]
    assert rows == sorted(rows, key=lambda row: (row[3], row[4], row[5], row[0]))
    size, versions = len(STORED["nodes"]), len(STORED["versions"])
    for condition, message, exception, file, _, lines, names in rows:
        assert condition < size and message < size
        assert exception and file.endswith(".py") and names
        assert lines == sorted(lines)
        assert all(0 <= version < versions and line > 0 for version, line in lines)


def test_arguments_have_their_newest_names() -> None:
    names = {args[0] for op, *args in STORED["nodes"] if op == "f"}
    assert {name for name in names if canonical(name) != name} == set()


def test_the_messages_hold_no_place_of_a_machine() -> None:
    assert str(DATA.parent.parent.parent) not in DATA.read_text()


def said(words: str, version: str = "0.5.23", gpu: str | None = None) -> list[EngineRefusal]:
    return list(refusals(plan(words, version, gpu)))


@rows(
    "version, words, message, names",
    [
        ("0.5.23", "--gpu-id-step 0", "gpu_id_step must be positive", {"gpu_id_step"}),
        ("0.5.9", "--gpu-id-step 0", "gpu_id_step must be positive", {"gpu_id_step"}),
        (
            "0.5.23",
            "--tokenizer-worker-num 0",
            "Tokenizer worker num must >= 1",
            {"tokenizer_worker_num"},
        ),
        ("0.5.23", "--base-gpu-id -1", "base_gpu_id must be non-negative", {"base_gpu_id"}),
        (
            "0.5.23",
            "--served-model-name a:b",
            "served_model_name cannot contain a colon",
            {"served_model_name"},
        ),
        ("0.5.18", "--tp-size 3 --nnodes 2", "divisible by number of nodes", {"tp_size", "nnodes"}),
    ],
)
def test_a_refusal_is_told_with_its_arguments(
    version: str, words: str, message: str, names: set[str]
) -> None:
    found = [one for one in said(f"--model-path m {words}", version) if message in one.message]
    assert len(found) == 1
    assert names <= set(found[0].names)
    package, release, place = found[0].source.split()
    assert (package, release) == ("sglang", version)
    file, _, line = place.partition(":")
    assert file.endswith(".py") and int(line) > 0


@rows(
    "version, release",
    [
        ("0.5.8", "0.5.8.post1"),  # its own catalogue may be added (`engine judge add 0.5.8`)
        ("0.5.18.post7", "0.5.18"),
        ("0.5.18+ours", None),
        ("0.5.18rc1", None),
        ("9.0", None),
        ("0.4.1", None),
    ],
)
def test_a_version_without_rows_has_those_of_its_line(version: str, release: str | None) -> None:
    catalogue = replace(load("0.5.23"), version=version)
    request = from_words(("--model-path", "m", "--gpu-id-step", "0"), {}, catalogue)
    found = [one.source.split()[1] for one in refusals(Plan(request, Facts(None, None, None)))]
    assert found == ([release] if release else [])


@rows(
    "words",
    [
        "--gpu-id-step 1",
        "--tokenizer-worker-num 1",
        "--tp-size 4 --nnodes 2",
        "--enable-watermark",  # the device is not known: the engine may refuse it
        "--page-size 16 --chunked-prefill-size 4096",
    ],
)
def test_what_is_accepted_or_unknown_is_no_refusal(words: str) -> None:
    assert said(f"--model-path m {words}") == []


def test_a_fact_of_the_machine_decides() -> None:
    words = "--model-path m --enable-watermark"
    assert any("requires --device cuda" in one.message for one in said(words, gpu="cpu"))
    assert not any("requires --device cuda" in one.message for one in said(words, gpu="h100:1"))


def test_nothing_written_is_asked_nothing() -> None:
    assert said("--model-path m") == []


# the evaluation -----------------------------------------------------------------------------


def holds(*nodes: list[Any], words: str = "--model-path m --tp-size 4") -> bool | None:
    return ConditionEvaluator(nodes, plan(words)).holds(len(nodes) - 1)


K, U = (lambda value: ["k", value]), ["u"]


@rows(
    "nodes, found",
    [
        ([K(True), U, ["and", 0, 1]], None),
        ([K(False), U, ["and", 1, 0]], False),
        ([K(True), U, ["or", 1, 0]], True),
        ([K(False), U, ["or", 1, 0]], None),
        ([U, ["not", 0]], None),
        ([U, K(1), K(1), ["?", 0, 1, 2]], True),
        ([U, K(1), K(0), ["?", 0, 1, 2]], None),
        ([U, K(1), K(True), ["?", 0, 1, 2], K(1), ["==", 3, 4]], None),
        ([K(None), K(1), [">", 0, 1]], None),  # the engine stumbles: that is no verdict
        ([K(1), K(0), ["%", 0, 1]], None),
        ([["f", "tp_size"], K(4), ["==", 0, 1]], True),
        ([["f", "tp_size"], K([1, 2]), ["in", 0, 1], ["not", 2]], True),
        ([["f", "pp_size"], K(1), ["==", 0, 1]], True),
        ([["f", "no_such_argument"], ["none", 0]], None),
        ([["p", "is_cuda"]], None),
        ([["a"]], None),
        ([["h", "index_topk"], ["none", 0]], None),
        ([K(""), K("X"), ["or", 0, 1], ["lower", 2], K("x"), ["==", 3, 4]], True),
        ([["e", "SGLANG_ENABLE_PP_SPEC", "bool", False]], False),
    ],
)
def test_what_is_not_known_decides_nothing(nodes: list[Any], found: bool | None) -> None:
    assert holds(*nodes) is found


def test_a_message_has_the_values_of_the_plan() -> None:
    nodes = [K("got "), ["f", "tp_size"], K(", "), U, ["repr", 0], ["fmt", 0, 1, 2, 3, 4]]
    assert ConditionEvaluator(nodes, plan("--model-path m --tp-size 4")).text(5) == "got 4, …'got '"


_VALUES = st.sampled_from([True, False, None, 0, 1, 2, "", "a", [1]])


@st.composite
def _expressions(draw: st.DrawFn) -> list[list[Any]]:
    """Nodes over constants, some of which may be unknown."""
    nodes: list[list[Any]] = [K(draw(_VALUES)) for _ in range(4)]
    for _ in range(draw(st.integers(1, 12))):
        one = st.integers(0, len(nodes) - 1)
        op = draw(st.sampled_from(["and", "or", "not", "?", "==", "!=", "in", "none"]))
        size = {"not": 1, "none": 1, "?": 3}.get(op, 2)
        nodes.append([op, *(draw(one) for _ in range(size))])
    return nodes


@pytest.mark.thorough
@given(_expressions(), st.integers(0, 3))
def test_knowing_less_never_turns_a_verdict_around(nodes: list[list[Any]], hidden: int) -> None:
    whole = ConditionEvaluator(nodes, plan("--model-path m"))
    less = ConditionEvaluator([*nodes[:hidden], U, *nodes[hidden + 1 :]], plan("--model-path m"))
    last = len(nodes) - 1
    assert less.holds(last) in (None, whole.holds(last))
    known = less.value(last)
    assert known is UNKNOWN or known == whole.value(last)


NEMOTRON = Checkpoint(
    "m",
    architectures=("NemotronHForCausalLM",),
    raw={"architectures": ["NemotronHForCausalLM"], "mlp_hidden_act": "relu2"},
)


def test_what_the_model_config_makes_of_the_checkpoint() -> None:
    """The runner that follows from no quantisation (0.5.23 model_overrides/nemotron_h.py:96)."""
    words = "--model-path m --ep-size 2 --tp-size 8 --moe-a2a-backend none"
    request = from_words(tuple(words.split()), {}, load("0.5.23"))
    (found,) = refusals(Plan(request, Facts(NEMOTRON, None, declare("h100:8"))))
    assert found.message.startswith("The expert parallel size must be 1 or the same")
    on_b200 = refusals(Plan(request, Facts(NEMOTRON, None, declare("b200:8"))))
    assert not list(on_b200)


def test_the_method_is_written_into_modelopts_entry() -> None:
    """0.5.20 model_overrides/deepseek_v2.py asks for it after ModelConfig has read it."""
    held = {"quant_method": "modelopt", "quant_algo": "NVFP4"}

    def read(version: str, said: Any = held) -> Any:
        target = Checkpoint("m", architectures=("X",), raw={"quantization_config": said})
        request = from_words(("--model-path", "m"), {}, load(version))
        return leaf(Plan(request, Facts(target, None, None)), ["h", "quantization_config"])

    assert read("0.5.10.post1")["quant_method"] == "modelopt_fp4"
    assert read("0.5.9") == held
    assert read("0.5.9", {"quant_algo": "FP8"})["quant_method"] == "modelopt_fp8"
    assert read("0.5.8.post1", {"quant_algo": "FP8"}) == {"quant_algo": "FP8"}
    assert read("0.5.23", {"quant_method": "fp8"}) == {"quant_method": "fp8"}
    assert read("0.5.23", {"quant_algo": "NF4"}) is UNKNOWN
