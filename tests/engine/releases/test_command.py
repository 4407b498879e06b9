from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.core.safe_text import is_secret_variable
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.command import RenderedArgs, render_args
from speclaunch.engine.releases.shell import shell_command
from tests.support.loops import rows


def words(args: dict[str, Any], version: str = "0.5.23") -> list[str]:
    spelling = render_args(args, {}, load(version))
    assert not spelling.problems
    return [token for argument in spelling.arguments for token in argument.tokens]


@rows(
    "args, expected",
    [
        ({"mem_fraction_static": 0.7}, ["--mem-fraction-static", "0.7"]),
        ({"tensor_parallel_size": 2}, ["--tp-size", "2"]),
        ({"trust_remote_code": True}, ["--trust-remote-code"]),
        ({"trust_remote_code": False, "port": None}, []),
        ({"cuda_graph_bs_decode": [1, 2]}, ["--cuda-graph-bs-decode", "1", "2"]),
        ({"cuda_graph_bs_decode": 8}, ["--cuda-graph-bs-decode", "8"]),
        ({"json_model_override_args": {"a": [1]}}, ["--json-model-override-args", '{"a": [1]}']),
        ({"chunked_prefill_size": -1}, ["--chunked-prefill-size=-1"]),
        ({"served_model_name": "--x"}, ["--served-model-name=--x"]),
        ({"context_length": "32k"}, ["--context-length", "32k"]),
    ],
)
def test_values_become_words(args: dict[str, Any], expected: list[str]) -> None:
    assert words(args) == expected


@pytest.mark.parametrize(
    ("value", "flag"),
    [("no_buffer", "--mamba-radix-cache-strategy"), ("a", "--mamba-scheduler-strategy")],
)
def test_a_deprecated_name_stays_where_only_it_takes_the_value(value: str, flag: str) -> None:
    assert words({"mamba_scheduler_strategy": value}, "0.5.17") == [flag, value]


@pytest.mark.parametrize("name", ["cuda_graph_max_bs", "cuda_graph_max_bs_decode"])
@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("0.5.11", "--cuda-graph-max-bs"),
        ("0.5.13", "--cuda-graph-max-bs"),
        ("0.5.14", "--cuda-graph-max-bs-decode"),
        ("0.5.23", "--cuda-graph-max-bs-decode"),
    ],
)
def test_either_name_is_spelled_for_the_version(name: str, version: str, flag: str) -> None:
    assert words({name: 8}, version) == [flag, "8"]


def test_a_renamed_argument_is_noted() -> None:
    spelling = render_args({"cuda_graph_max_bs_decode": 8}, {}, load("0.5.11"))
    assert spelling.notes == (
        "cuda_graph_max_bs_decode is called cuda_graph_max_bs in SGLang 0.5.11",
    )


@pytest.mark.parametrize(
    ("args", "version", "note"),
    [
        ({"decoupled_spec_rank": 1}, "0.5.23", "ignores it"),
        ({"disable_cuda_graph": True}, "0.5.23", "is deprecated in SGLang 0.5.23; use --cuda"),
        ({"enable_piecewise_cuda_graph": True}, "0.5.11", "ignores it"),
    ],
)
def test_an_argument_without_effect_is_noted(args: dict[str, Any], version: str, note: str) -> None:
    assert any(note in said for said in render_args(args, {}, load(version)).notes)


def problem(args: dict[str, Any], version: str = "0.5.23") -> tuple[str, str]:
    (found,) = render_args(args, {}, load(version)).problems
    return found.message, found.help or ""


def test_what_cannot_be_said_is_a_problem() -> None:
    message, help_ = problem({"mem_fracton_static": 0.7})
    assert "no server argument `mem_fracton_static`" in message
    assert "`mem_fraction_static`" in help_
    assert problem({"tp": 2})[1] == "did you mean `tp_size`?"
    message, help_ = problem({"speculative_adaptive": True}, "0.5.7")
    assert "SGLang 0.5.7 has no server argument `speculative_adaptive`" in message
    assert "from 0.5.11" in help_
    assert "true or false, not 'yes'" in problem({"trust_remote_code": "yes"})[0]
    assert "the list is empty" in problem({"cuda_graph_bs_decode": []})[0]
    assert "NUL" in problem({"model_path": "a\0b"})[0]
    message, _ = problem({"tensor_parallel_size": 2, "tp_size": 4})
    assert "are the same argument" in message
    message, _ = problem({"cuda_graph_max_bs": 2, "cuda_graph_max_bs_decode": 4}, "0.5.11")
    assert "are the same argument" in message


@rows("version, kept", [("0.5.3", False), ("0.5.10", True), ("0.5.13", True), ("0.5.14", False)])
def test_a_variable_that_nothing_reads_is_left_out_and_said(version: str, kept: bool) -> None:
    spelling = render_args({}, {"SGLANG_ENABLE_SPEC_V2": "True", "OTHER": "1"}, load(version))
    assert ("SGLANG_ENABLE_SPEC_V2" in spelling.env) is kept
    assert spelling.env["OTHER"] == "1"
    assert bool(spelling.notes) is not kept


def test_secrets_are_known_by_name() -> None:
    for name in (
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "KEY",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "MY_CREDENTIALS",
    ):
        assert is_secret_variable(name), name
    for name in ("SGLANG_ENABLE_SPEC_V2", "TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY_PATCH"):
        assert not is_secret_variable(name), name


def run_in_bash(spelling: RenderedArgs, env: dict[str, str | None]) -> list[str]:
    text = shell_command(
        [
            "python3",
            "-c",
            "import sys,json,os;print(json.dumps([sys.argv[1:],os.environ.get('V')]))",
        ],
        spelling.arguments,
        env,
        notes=["a note"],
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    import json

    result: list[str] = json.loads(done.stdout)
    return result


@pytest.mark.thorough
@pytest.mark.parametrize(
    "value",
    ["plain", "a b", "it's", '"quoted"', "$(touch /tmp/owned)", "`id`", "a\nb", "~", "*", "é;&|"],
)
def test_a_printed_command_pasted_into_bash_gives_the_same_words(value: str) -> None:
    spelling = render_args({"served_model_name": value, "tp_size": 2}, {}, load("0.5.23"))
    expected = [token for argument in spelling.arguments for token in argument.tokens]
    assert run_in_bash(spelling, {"V": value, "GONE": None}) == [expected, value]


@pytest.mark.thorough
@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_any_text_is_one_word(value: str) -> None:
    spelling = render_args({"served_model_name": value}, {}, load("0.5.23"))
    text = shell_command(["x"], spelling.arguments, {})
    assert shlex.split(text.replace("\\\n", " ")) == ["x", *spelling.arguments[0].tokens]


def test_a_printed_command_shows_no_secret_and_asks_for_it() -> None:
    spelling = render_args({"api_key": "sk-secret"}, {}, load("0.5.23"))
    text = shell_command(["x"], spelling.arguments, {"HF_TOKEN": "hf_secret"})
    assert "secret" not in text
    assert '--api-key "${API_KEY:?}"' in text
    assert 'HF_TOKEN="${HF_TOKEN:?}"' in text
