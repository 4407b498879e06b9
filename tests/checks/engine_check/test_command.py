"""A deployment in the words of its engine: what is asked, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.checks.engine_check.questions import (
    ANY_MACHINE,
    NotQueriedError,
    QueryCommand,
    query_command,
)
from speclaunch.checks.rules.examine import Lookup
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.requests import from_invocation
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load as load_catalogue
from tests.checks.engine_check.scripted_judge import MODEL, RELEASE, plan_of
from tests.support.loops import rows


def command(*words: str, **more) -> QueryCommand:  # type: ignore[no-untyped-def]
    return query_command(plan_of(*words, **more))


def why_not(*words: str, **more) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(NotQueriedError) as raised:
        query_command(plan_of(*words, **more))
    return str(raised.value)


def test_it_has_the_words_the_machine_and_the_config() -> None:
    found = command("--tp-size", "2", env={"SGLANG_ENABLE_SPEC_V2": "1", "PYTHONPATH": "/x"})
    question = found.question("h200:8")
    assert question.words == ("--model-path", MODEL, "--tp-size", "2")
    assert question.env == (("SGLANG_ENABLE_SPEC_V2", "1"),)
    ((name, text),) = question.configs
    assert name == MODEL
    assert json.loads(text)["num_hidden_layers"] == 36
    assert [unit.name for unit in found.units] == ["tp_size", "SGLANG_ENABLE_SPEC_V2"] or [
        unit.name for unit in found.units
    ] == ["SGLANG_ENABLE_SPEC_V2", "tp_size"]


def test_units_are_left_out_with_their_values() -> None:
    found = command("--tp-size", "2", "--cuda-graph-bs-decode", "1", "2", "--disable-radix-cache")
    at = {unit.name: number for number, unit in enumerate(found.units)}
    question = found.question("h200:8", frozenset({at["cuda_graph_bs_decode"]}))
    assert question.words == ("--model-path", MODEL, "--tp-size", "2", "--disable-radix-cache")


@pytest.mark.parametrize("words", [("--api-key", "sk-4711ffe8"), ("--api-key=sk-4711ffe8",)])
def test_no_secret_is_asked(words: tuple[str, ...]) -> None:
    found = command(*words, env={"SGLANG_SECRET_TOKEN": "sk-4711ffe8"})
    assert "sk-4711ffe8" not in repr(found.question("cpu"))


@rows(
    "hardware, machines",
    [
        ("h200:4", ("h200:4",)),
        ("h100", ("h100-80gb:2",)),
        ("cpu", ("cpu",)),
        (None, ANY_MACHINE),
    ],
)
def test_the_machine(hardware: str | None, machines: tuple[str, ...]) -> None:
    assert command("--tp-size", "2", hardware=hardware).machines == machines


def test_a_value_of_no_weight_may_be_unknown_and_no_other() -> None:
    def asked(line: str) -> QueryCommand:
        reading = read_text(f"python3 -m sglang.launch_server {line}\n", "a.sh")
        request = from_invocation(reading.invocations[0], "a", load_catalogue(RELEASE))
        return query_command(resolve(request, Lookup().facts(request)))

    found = asked(f"--model-path {MODEL} --port $PORT --host=$HOST")
    assert found.words[2:] == ("--port", "30000", "--host=127.0.0.1")
    with pytest.raises(NotQueriedError, match=r"\Athe value of --tp-size is unknown\Z"):
        asked(f"--model-path {MODEL} --tp-size $TP")
    with pytest.raises(NotQueriedError, match=r"\Athe model is unknown\Z"):
        asked("--model-path $MODEL")


def test_a_model_that_is_not_known_in_whole_is_not_asked() -> None:
    assert "is not available" in why_not("--speculative-draft-model-path", "nobody/nothing")
    part = "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"
    assert "only partly known" in why_not("--speculative-draft-model-path", part)


def test_code_that_a_variable_names_is_not_run() -> None:
    why = why_not(env={"SGLANG_EXTERNAL_MODEL_PACKAGE": "evil"})
    assert why == "SGLANG_EXTERNAL_MODEL_PACKAGE loads code, which an engine check never runs"


def test_a_model_on_disk_is_left_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    found = command("--speculative-draft-model-path", str(tmp_path))
    assert [name for name, _ in found.configs] == [MODEL]
    assert any("LlamaForCausalLM" in text for text in found.seen)


def test_a_flag_that_our_parser_refuses_is_asked_as_it_is() -> None:
    found = command("--no-such-flag", "7", "--tp-size", "2")
    assert found.words[2:] == ("--no-such-flag", "7", "--tp-size", "2")
    assert [unit.words for unit in found.units] == [(2, 3), (4, 5)]
