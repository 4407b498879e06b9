"""The command lines are a function of their seed, and of arguments that the release has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.recalling.drawing import draw
from campaigns.recalling.models import lay_out, read_models
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.releases.catalogue import load

CONFIGS = {
    "org--dense.json": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "org--experts.json": {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8},
    "org--hybrid.json": {"text_config": {"linear_num_key_heads": 4}},
    "org--experts.hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}},
}


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    folder = tmp_path / "configs"
    folder.mkdir()
    for name, config in CONFIGS.items():
        (folder / name).write_text(json.dumps(config))
    return folder


def test_a_directory_is_read_by_its_names(configs: Path) -> None:
    models = read_models(configs)
    assert models.targets == ("org/dense", "org/experts", "org/hybrid")
    assert models.drafts == ()


def test_models_are_laid_out_as_their_ids_name_them(configs: Path, tmp_path: Path) -> None:
    lay_out(configs, tmp_path / "at")
    assert (
        json.loads((tmp_path / "at/org/dense/config.json").read_text())
        == CONFIGS["org--dense.json"]
    )
    assert (tmp_path / "at/org/experts/hf_quant_config.json").is_file()
    assert not (tmp_path / "at/org/dense/hf_quant_config.json").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("version", ["0.5.8.post1", "0.5.18", "0.5.23"])
def test_a_release_knows_every_argument_and_choice(configs: Path, version: str) -> None:
    models, catalogue = read_models(configs), load(version)
    lines = [draw(f"test/{number}", catalogue, models) for number in range(60)]
    assert lines == [draw(f"test/{number}", catalogue, models) for number in range(60)]
    assert len({tuple(line) for line in lines}) > 50
    for line in lines:
        assert not [problem.message for problem in from_words(line, {}, catalogue).problems], line
