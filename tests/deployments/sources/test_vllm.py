"""vLLM's commands, imported as SGLang's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from speclaunch.app.verbs.convert import read
from speclaunch.checks.edit.import_recipes import import_command
from speclaunch.deployments.sources import vllm
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation
from speclaunch.engine.releases.catalogue import held_versions, load
from tests.support.deployments.sources.helpers import lint_text, only, texts
from tests.support.loops import over

CHAIN = ["--speculative-eagle-topk", "1"]


def _command(*words: str) -> Invocation:
    reading = vllm.servers_in_words(["vllm", "serve", *words])
    assert reading is not None
    return only(reading)


def _speculation(config: dict[str, Any]) -> Invocation:
    return _command("org/m", "--speculative-config", json.dumps(config))


def _file(text: str, name: str) -> Invocation:
    reading = vllm.servers_in(text.encode(), name, Path(name).suffix)
    assert reading is not None
    return only(reading)


def test_counterparts_exist_in_the_newest_release() -> None:
    arguments = load(held_versions()[-1]).arguments
    flags = {*arguments, *(alias for found in arguments.values() for alias in found.aliases)}
    assert {*vllm.SAME.values(), *(names[0] for names in vllm.SWITCHES.values())} <= flags
    for option, values in vllm.VALUES.items():
        choices = arguments[vllm.RENAMED.get(option, option)].choices
        assert set(values.values()) <= set(choices or ()), option


SPELLINGS = [
    "-sc {}",
    "--spec-method eagle3 --spec-model d --spec-tokens 2",
    "--speculative-config.method eagle3 --speculative-config.model d"
    " --speculative-config.num_speculative_tokens 2",
]


@over(SPELLINGS)
def test_each_spelling_of_the_configuration(spelling: str) -> None:
    config = '{"method":"eagle3","model":"d","num_speculative_tokens":2}'
    found = _command(
        "org/m", *(word.format(config) if word == "{}" else word for word in spelling.split())
    )
    assert texts(found) == texts(_command("org/m", "--speculative-config", config))
    assert "--speculative-num-draft-tokens" in texts(found)


def test_a_draft_does_not_inherit_the_quantization_of_its_target() -> None:
    def quantized(**config: Any) -> list[str]:
        spec = json.dumps({"num_speculative_tokens": 2, **config})
        words = texts(_command("m", "--quantization", "fp8", "--speculative-config", spec))
        flag = "--speculative-draft-model-quantization"
        return words[words.index(flag) + 1 :][:1] if flag in words else []

    assert quantized(method="eagle3", model="d") == ["unquant"]
    assert quantized(method="eagle3", model="d", quantization="awq") == ["awq"]
    assert quantized(method="ngram", model="[ngram]") == []
    assert quantized(method="mtp") == quantized(method="ngram") == []


def test_the_default_number_of_tokens_is_reported() -> None:
    found = _speculation({"method": "eagle3", "model": "d"})
    assert "--speculative-num-draft-tokens" not in texts(found)
    assert "the default num_speculative_tokens" in [
        one.text for one in found.dropped if one.is_lost
    ]


def test_a_class_of_the_user_has_no_counterpart() -> None:
    found = _speculation({"model": "pack.Proposer", "num_speculative_tokens": 2})
    assert "custom_class" in found.refused[0].message


METHODS: list[tuple[dict[str, Any], str, str | None, bool]] = [
    ({"method": "eagle", "model": "d"}, "EAGLE", "d", True),
    ({"method": "eagle3", "model": "d"}, "EAGLE3", "d", True),
    ({"method": "mtp"}, "EAGLE", None, True),
    ({"method": "deepseek_mtp"}, "EAGLE", None, True),
    ({"method": "glm5_next_mtp"}, "EAGLE", None, True),
    ({"method": "mtp", "model": "z-lab/M-DFlash"}, "DFLASH", "z-lab/M-DFlash", False),
    ({"method": "draft_model", "model": "d"}, "STANDALONE", "d", True),
    ({"model": "d"}, "STANDALONE", "d", True),
    ({"method": "ngram"}, "NGRAM", None, False),
    ({"model": "[ngram]"}, "NGRAM", None, False),
    ({"method": "dflash", "model": "d"}, "DFLASH", "d", False),
    ({"method": "dspark", "model": "d"}, "DSPARK", "d", False),
    (
        {"model": "yuhuili/EAGLE-LLaMA3-Instruct-8B"},
        "EAGLE",
        "yuhuili/EAGLE-LLaMA3-Instruct-8B",
        True,
    ),
    ({"model": "AngelSlim/Qwen3-8B_eagle3"}, "EAGLE3", "AngelSlim/Qwen3-8B_eagle3", True),
    ({"model": "z-lab/Qwen3-8B-DFlash-b16"}, "DFLASH", "z-lab/Qwen3-8B-DFlash-b16", False),
]


@over(METHODS, lambda case: json.dumps(case[0]))
def test_k_tokens_are_k_steps_and_one_more_token_to_verify(
    case: tuple[dict[str, Any], str, str | None, bool],
) -> None:
    config, algorithm, draft, is_chain = case
    found = _speculation({**config, "num_speculative_tokens": 3})
    path = ["--speculative-draft-model-path", draft] if draft else []
    steps = ["--speculative-num-steps", "3", *CHAIN] if is_chain else []
    assert texts(found) == [
        *("--model-path", "org/m", "--speculative-algorithm", algorithm, *path, *steps),
        *("--speculative-num-draft-tokens", "4"),
    ]
    assert not found.refused


@over(["medusa", "mlp_speculator", "suffix", "custom_class", "extract_hidden_states"])
def test_methods_without_counterpart_are_errors(method: str) -> None:
    found = _speculation({"method": method, "model": "d", "num_speculative_tokens": 3})
    assert texts(found) == ["--model-path", "org/m"]
    assert method in found.refused[0].message
    imported, _ = import_command(found, "x", "x", None)
    assert imported.problems


VALUES = [
    ("-tp 8 -pp=2 --data_parallel_size 4", "--tp-size 8 --pp-size 2 --dp-size 4"),
    ("--max-model-len 32k", "--context-length 32000"),
    ("--max-model-len=1.5K", "--context-length 1536"),
    ("--max-model-len auto", ""),
    ("--served-model-name a b --seed 1", "--served-model-name a --random-seed 1"),
    ("--kv-cache-dtype fp8", "--kv-cache-dtype fp8_e4m3"),
    ("--no-enable-prefix-caching --enforce-eager", "--disable-radix-cache --disable-cuda-graph"),
    ("--tool-call-parser deepseek_v3", "--tool-call-parser deepseekv3"),
    ("--tool-call-parser of-their-own", ""),
    ("--gpu-memory-utilization 0.9 --max-num-seqs 8", "--max-running-requests 8"),
    ("--generation-config vllm", "--sampling-defaults openai"),
    ("-O3 --trust-remote-code", "--trust-remote-code"),
    ("-dcp 2 --stream-interval 4", "--dcp-size 2 --stream-interval 4"),
    ("--tokenizer-mode hf --load-format runai_streamer", ""),
    ("--tokenizer-mode slow --load-format dummy", "--tokenizer-mode slow --load-format dummy"),
    (
        "--no-enable-chunked-prefill --enable-log-requests",
        "--chunked-prefill-size -1 --log-requests",
    ),
    ("--uvicorn-log-level warning --no-enable-log-deltas", "--log-level-http warning"),
    ("--mamba-ssm-cache-dtype float32", "--mamba-ssm-dtype float32"),
    ("--cpu-offload-gb 4 --scheduling-policy fcfs", "--cpu-offload-gb 4"),
    ("--cpu-offload-gb 0.5 --device-memory-utilization 0.8", ""),
    (
        "--tool-call-parser qwen3_xml --reasoning-parser nemotron_v3",
        "--tool-call-parser qwen3_coder --reasoning-parser nemotron_3",
    ),
    ("--nnodes 2 --master-addr h", "--nnodes 2 --dist-init-addr h:29501"),
    ("--master-port 7 --master-addr h", "--dist-init-addr h:7"),
    ("-tp 4 --enable-expert-parallel", "--tp-size 4 --ep-size 4"),
    ("-ep -tp 2 -dp 4", "--tp-size 8 --dp-size 4 --enable-dp-attention --ep-size 8"),
    (
        "-dp 2 --max-num-seqs 8 -ep",
        "--dp-size 2 --max-running-requests 16 --tp-size 2 --enable-dp-attention --ep-size 2",
    ),
    ("-O 3 --seed 1", "--random-seed 1"),
    ("-dp 4 -ep", "--dp-size 4 --tp-size 4 --enable-dp-attention --ep-size 4"),
]


@over(VALUES)
def test_options(case: tuple[str, str]) -> None:
    theirs, ours = case
    assert texts(_command("org/m", *theirs.split())) == ["--model-path", "org/m", *ours.split()]


def test_what_is_lost_is_reported() -> None:
    found = _command(
        *("org/m", "--swap-space", "4", "--enable-prefix-caching", "--speculative-config"),
        '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 4}',
    )
    imported, text = import_command(found, "x", "x", None)
    warned = [one.message for one in imported.assumed]
    assert [one.partition(":")[0] for one in warned] == [
        "left out --swap-space 4",
        "left out prompt_lookup_max of --speculative-config",
    ]
    assert "# command line: --enable-prefix-caching: left out" in text
    assert "127.0.0.1:30000" in text


FORMS = [
    ("x.sh", "export VLLM_USE_V1=1 A=b\nnohup vllm serve m --port 1 --host 0 &\n"),
    ("x.sh", "python3 -m vllm.entrypoints.openai.api_server --model m --port 1 --host 0\n"),
    ("x.sh", "docker run -p 1:1 vllm/vllm-openai:v0.12.0 --model m --port 1 --host 0\n"),
    ("x.md", "Run\n```bash\n$ vllm serve m --port 1 --host 0\n```\n"),
    (
        "pod.yaml",
        "kind: Pod\nspec:\n  containers:\n  - command: [vllm, serve]\n"
        "    args: [m, --port, '1', --host, '0']\n",
    ),
    ("compose.yaml", "services:\n  a:\n    command: vllm serve m --port 1 --host 0\n"),
    (
        "compose.yaml",
        "services:\n  a:\n    image: vllm/vllm-openai\n"
        "    command: [--model, m, --port, '1', --host, '0']\n",
    ),
    (
        "pod.yaml",
        "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai@sha256:0\n"
        "    args: [m, --port, '1', --host, '0']\n",
    ),
    ("task.yaml", "run: |\n  vllm serve m --port 1 --host 0\n"),
]


@over(FORMS, lambda case: case[1])
def test_forms(case: tuple[str, str]) -> None:
    name, text = case
    found = _file(text, name)
    assert texts(found) == ["--model-path", "m", "--port", "1", "--host", "0"]
    shown = [one.text for one in (*found.program, *found.dropped)]
    assert not any("\ue010" in one for one in shown)
    for word in found.words:
        line = text.split("\n")[word.place.line - 1]
        at = line[word.place.column - 1 :]
        assert at.startswith((word.text, "m", "--model")), (word, at)
    assert list(found.env) == [name for name in ("A",) if "A=b" in text]


def test_a_variable_in_the_configuration_stays_one() -> None:
    found = _file(
        'vllm serve m --speculative-config "{\\"model\\": \\"$DRAFT\\",'
        ' \\"num_speculative_tokens\\": 2}"\n',
        "x.sh",
    )
    _, text = import_command(found, "x", "x", None)
    assert "speculative_draft_model_path: ${oc.env:DRAFT}\n" in text


def test_a_configuration_that_is_no_json_is_an_error() -> None:
    assert "not a JSON object" in _command("m", "--speculative-config", "{").refused[0].message
    dotted = _command("m", "--speculative-config.num_speculative_tokens", "x")
    assert "must be a known number, not 'x'" in dotted.refused[0].message


def test_only_an_import_reads_them_and_only_without_a_command_of_sglangs(
    tmp_path: Path,
) -> None:
    script = "vllm serve m --tp-slip 8\n"
    assert not read_text(script, "x.sh").invocations
    assert not lint_text(script, "x.sh", tmp_path)
    both = tmp_path / "both.sh"
    both.write_text(f"{script}python3 -m sglang.launch_server --model-path s\n")
    reading, _, _ = read([str(both)])
    assert texts(only(reading)) == ["--model-path", "s"]
