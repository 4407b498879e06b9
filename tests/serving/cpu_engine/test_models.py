"""The tiny models, written by the engine's interpreter."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.cpu_engine.programs import MAKE_MODELS, InstallError, ensure_model

pytestmark = [pytest.mark.e2e, pytest.mark.core(0)]

NAMES = (
    "cycle",
    "cycle-8",
    "cycle-draft",
    "cycle-draft-50",
    "llama",
    "llama-eagle3",
    "llama-eagle",
    "glm-mtp",
)


def write(
    engine: CpuEngine, name: str, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [engine.python, "-P", MAKE_MODELS, name, folder, *options],
        env=engine.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )


def digest(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_same_name_gives_the_same_bytes(
    name: str, cpu_engine: CpuEngine, tmp_path: Path
) -> None:
    first, second = ensure_model(cpu_engine, name), tmp_path / "deeper" / name
    assert write(cpu_engine, name, second).returncode == 0
    assert digest(first) == digest(second)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(digest(first))
    assert [item.name for item in second.parent.iterdir()] == [name]
    config = json.loads((first / "config.json").read_text())
    assert config["vocab_size"] == 512


def test_drafts_of_other_error_rates_differ(cpu_engine: CpuEngine, tmp_path: Path) -> None:
    named = ensure_model(cpu_engine, "cycle-draft-50")
    assert write(cpu_engine, "cycle-draft", tmp_path / "a", "--error-rate", "0.5").returncode == 0
    weights = "model.safetensors"
    assert digest(tmp_path / "a")[weights] == digest(named)[weights]
    assert digest(ensure_model(cpu_engine, "cycle-draft"))[weights] != digest(named)[weights]


def test_a_model_on_disk_is_replaced_whole(cpu_engine: CpuEngine, tmp_path: Path) -> None:
    folder = tmp_path / "cycle"
    folder.mkdir()
    (folder / "leftover").touch()
    assert write(cpu_engine, "cycle", folder).returncode == 0
    assert "leftover" not in digest(folder)
    assert [item.name for item in tmp_path.iterdir()] == ["cycle"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nothing", (), "no model 'nothing'"),
        ("llama", ("--error-rate", "0.5"), "is for cycle-draft"),
        ("cycle-draft", ("--error-rate", "1.5"), "not between 0 and 1"),
    ],
)
def test_what_it_cannot_write_is_said_in_one_line(
    name: str, options: tuple[str, ...], message: str, cpu_engine: CpuEngine, tmp_path: Path
) -> None:
    ended = write(cpu_engine, name, tmp_path / "model", *options)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_vocabulary_of_the_eagle3_draft_maps_both_ways(cpu_engine: CpuEngine) -> None:
    code = (
        "import sys, torch; from safetensors.torch import load_file\n"
        "draft = load_file(sys.argv[1] + '/model.safetensors')\n"
        "target = load_file(sys.argv[2] + '/model.safetensors')\n"
        "known = draft['d2t'] + torch.arange(len(draft['d2t']))\n"
        "assert draft['t2d'].nonzero().flatten().equal(known)\n"
        "assert draft['lm_head.weight'].equal(target['lm_head.weight'][known])"
    )
    folders = [ensure_model(cpu_engine, name) for name in ("llama-eagle3", "llama")]
    subprocess.run([cpu_engine.python, "-c", code, *folders], check=True)


def test_the_chat_template_and_all_tokens_can_be_read(
    cpu_engine: CpuEngine, cpu_environment: dict[str, str]
) -> None:
    code = (
        "import sys; from transformers import AutoTokenizer\n"
        "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "chat = [{'role': 'user', 'content': 'Hello there'}]\n"
        "assert len(tokenizer) == 512\n"
        "text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)\n"
        "assert text == '<s><|user|>Hello there<|end|><|assistant|>', text\n"
        "ids = tokenizer.encode(text, add_special_tokens=False)\n"
        "assert tokenizer.decode(ids) == text, ids"
    )
    folder = ensure_model(cpu_engine, "cycle")
    subprocess.run([cpu_engine.python, "-c", code, folder], env=cpu_environment, check=True)


def test_an_unknown_model_is_an_install_error(cpu_engine: CpuEngine) -> None:
    with pytest.raises(InstallError, match="no model 'nothing'"):
        ensure_model(cpu_engine, "nothing")
    assert not cpu_engine.model("nothing").exists()
