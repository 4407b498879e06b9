"""NVIDIA's srt-slurm recipes: one command for each role of each job."""

from __future__ import annotations

from pathlib import Path

from speclaunch.checks.edit.migrate_file import migrate_data
from speclaunch.deployments.sources.deployment import to_deployment
from speclaunch.deployments.sources.files import read_yaml
from speclaunch.deployments.sources.interface import InvocationKind
from tests.support.deployments.sources.helpers import at, dropped, env, lint_text, only, texts
from tests.support.loops import rows

RECIPE = """\
name: job
model:
  path: dsr1
  container: lmsysorg+sglang+v0.5.8.post1.sqsh
resources:
  gpu_type: h200
  gpus_per_node: 8
  prefill_nodes: 1
  prefill_workers: 1
  decode_nodes: 4
  decode_workers: 2
environment: {SHARED: "1"}
backend:
  prefill_environment:
    SGLANG_ENABLE_SPEC_V2: "1"
    NODE: "{node_id}"
  sglang_config:
    prefill: &p
      served-model-name: "dsr1"
      model-path: /model/
      tp_size: 8
      disable-radix-cache: true
      enable-dp-attention: false
      quantization: null
      cuda-graph-bs: [1, 2]
      mem-fraction-static: "{fraction}"
    decode:
      <<: *p
      tp_size: 16
      disaggregation-mode: decode
"""


def test_the_roles_of_a_recipe() -> None:
    prefill, decode = read_yaml(RECIPE, "r.yaml").invocations
    assert prefill.kind is InvocationKind.SRT_SLURM
    assert (prefill.name, decode.name) == ("job/prefill", "job/decode")
    assert texts(prefill) == [
        *("--model-path", "dsr1", "--served-model-name", "dsr1", "--tp-size", "8"),
        *("--disable-radix-cache", "--cuda-graph-bs", "1", "2"),
        *("--mem-fraction-static", "{fraction}", "--disaggregation-mode", "prefill"),
    ]
    unknown = [word.text for word in prefill.words if not word.evaluated]
    assert unknown == ["dsr1", "{fraction}"]
    assert [at(word) for word in prefill.words[4:7]] == [(21, 7), (21, 16), (22, 7)]
    assert at(prefill.words[0]) == (3, 9)
    assert env(prefill) == {
        "SHARED": "1", "SGLANG_ENABLE_SPEC_V2": "1", "NODE": "{node_id}",
    }  # fmt: skip
    assert not prefill.env["NODE"].evaluated
    assert dropped(prefill) == ["model-path", "enable-dp-attention: false", "quantization: null"]
    assert prefill.image == "lmsysorg/sglang:v0.5.8.post1"
    assert (prefill.hardware, decode.hardware) == ("h200:8", "h200:8")
    assert " ".join(texts(decode)).count("--tp-size 16") == 1
    assert texts(decode)[-2:] == ["--disaggregation-mode", "decode"]


def test_a_recipe_without_a_model_leaves_it_open(tmp_path: Path) -> None:
    text = "backend: {sglang_config: {prefill: {tp-size: 2}, decode: {tp-size: 2}}}\n"
    assert not [one for one in lint_text(text, "x.yaml", tmp_path) if one.code == "SPL004"]


@rows("path, known", [("hf:org/m", "org/m"), ("org/m", "org/m"), ("/models/x", None), ("a", None)])
def test_the_model(path: str, known: str | None) -> None:
    text = (
        f"model: {{path: '{path}'}}\nbackend: {{sglang_config: {{aggregated: {{tp-size: 2}}}}}}\n"
    )
    word = only(read_yaml(text, "r.yaml")).words[1]
    assert (word.text if word.evaluated else None) == known


VARIANTS = """\
base:
  name: b
  backend:
    sglang_config:
      prefill:
        tp-size: 8
        dp-size: 8
override_one:
  name: one
  backend: {sglang_config: {prefill: {tp-size: 4}}}
zip_override_two:
  name: [x, y]
  backend:
    sglang_config:
      prefill:
        tp-size: [1, 2]
        mem-fraction-static: [0.5]
        cuda-graph-bs: [[1, 2], [3]]
"""


def test_variants_are_merged_over_the_base() -> None:
    found = read_yaml(VARIANTS, "r.yaml").invocations
    assert [one.name for one in found] == ["one/prefill", "x/prefill", "y/prefill"]
    said = [" ".join(texts(one)) for one in found]
    assert said[0].startswith("--tp-size 4 --dp-size 8")
    graphs = ["--mem-fraction-static 0.5 --cuda-graph-bs 1 2", "--cuda-graph-bs 3"]
    assert said[1].startswith("--tp-size 1 --dp-size 8") and graphs[0] in said[1]
    assert said[2].startswith("--tp-size 2 --dp-size 8") and graphs[1] in said[2]
    assert [at(one.words[1]) for one in found] == [(10, 48), (16, 19), (16, 22)]
    assert at(found[1].words[2]) == (7, 9)


def test_a_base_alone_is_a_job() -> None:
    text = VARIANTS.partition("override_one")[0]
    assert texts(only(read_yaml(text, "r.yaml")))[:2] == ["--tp-size", "8"]


def test_another_backend_is_none_of_ours() -> None:
    text = "name: x\nmodel: {path: m}\nbackend: {type: vllm, vllm_config: {prefill: {a: 1}}}\n"
    assert not read_yaml(text, "r.yaml").invocations


def test_it_is_judged_at_its_release_on_its_hardware(tmp_path: Path) -> None:
    text = RECIPE.replace("tp_size: 8", "tp_sizes: 16").replace(
        "container: lmsysorg+", "container: x+"
    )
    found = lint_text(text, "r.yaml", tmp_path)
    assert {finding.engine for finding in found} == {"0.5.8.post1"}
    (unknown,) = [one for one in found if one.code == "SPL001"]
    assert (unknown.place.line, unknown.place.column) == (21, 7)
    text = RECIPE.replace("tp_size: 8", "tp_size: 32")
    (few,) = [one for one in lint_text(text, "r.yaml", tmp_path) if one.code == "SPL506"]
    assert "h200" in few.message and few.place.line == 21


def test_it_is_imported_and_never_edited() -> None:
    prefill = read_yaml(RECIPE, "r.yaml").invocations[0]
    args = {name: line.value for name, line in to_deployment(prefill, "x").args.items()}
    assert args["disable_radix_cache"] is True
    assert args["model_path"] == args["mem_fraction_static"] == "???"
    text = RECIPE.replace("cuda-graph-bs", "cuda-graph-max-bs").replace("[1, 2]", "4")
    after, migration = migrate_data(text.encode(), "r.yaml", "0.5.23", "0.5.11")
    assert migration.text == text == after
    assert any("nothing is edited here" in problem.message for problem in migration.problems)
