"""Which drafts were made for which target: the file, and what is read from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from speclaunch.core.resources import models_dir
from speclaunch.engine.facts import known_models
from speclaunch.engine.facts.find_checkpoint import Sources, gather
from speclaunch.engine.facts.known_models import (
    candidates_for,
    drafts_for,
    foundation,
    index_names,
    near_names,
    partners_of,
    same_model,
    targets_of,
)
from tests.support.loops import rows

ROOT = Path(__file__).resolve().parents[3]
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.thorough
def test_the_file_is_what_the_entries_say() -> None:
    done = subprocess.run(
        [sys.executable, "tools/model_pairs.py", "check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, "python tools/model_pairs.py writes it: " + done.stdout


def test_the_drafts_of_a_target_the_best_founded_first() -> None:
    found = drafts_for(LLAMA)
    eagle3 = [one for one in found if one.algorithm == "EAGLE3" and one.form is None]
    assert len(eagle3) >= 2 and {one.target for one in eagle3} == {LLAMA}
    assert [foundation(one.confidence) for one in eagle3] == sorted(
        foundation(one.confidence) for one in eagle3
    )
    assert "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat" in {one.draft for one in found}
    assert all(one.sources for one in found)
    assert drafts_for("o/none") == ()


def test_no_pair_names_a_test_file_as_its_source() -> None:
    text = (models_dir() / known_models.PAIRS_FILE).read_text().casefold()
    assert "fixture" not in text and "test file" not in text


def test_the_target_of_a_draft() -> None:
    assert LLAMA in targets_of("jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B")
    assert targets_of("o/none") == ()


def test_another_export_of_a_target_takes_its_drafts_with_less_certainty() -> None:
    found = {one.draft: one for one in drafts_for("meta-llama/Meta-Llama-3.1-8B-Instruct")}
    same = found["jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B"]
    assert same.sibling == LLAMA and same.confidence == "medium"


@rows(
    "one, other, same",
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8", True),
        ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "meta-llama/Llama-3.3-70B-Instruct", True),
        (LLAMA, "meta-llama/Meta-Llama-3.1-8B-Instruct", True),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-4B", False),
        ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-Instruct-2507", False),
        ("moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.6", False),
    ],
)
def test_exports_of_one_model(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) is same


def test_partners_have_the_same_vocabulary_and_are_smaller() -> None:
    for target in ("Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct"):
        partners = partners_of(target)
        assert partners
        sizes = [vocabulary(name) for name in (target, *partners)]
        assert len(set(sizes)) == 1
        assert target not in partners
    assert "Qwen/Qwen2.5-1.5B-Instruct" not in partners_of("Qwen/Qwen2.5-7B-Instruct")  # padded


def vocabulary(name: str) -> int:
    found = gather(name, None, sources=Sources(index=models_dir())).target
    assert found is not None and found.vocab_size is not None
    return found.vocab_size


def test_every_name_in_the_file_is_one_of_the_index() -> None:
    known = set(index_names())
    said = json.loads((models_dir() / known_models.PAIRS_FILE).read_text())
    assert {one["draft"] for some in said["drafts"].values() for one in some} <= known
    assert {name for some in said["partners"].values() for name in some} <= known


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 2, "drafts": {"a/b": [{"draft": "c/d"}]}}',
        '{"format": 1, "drafts": 3, "partners": []}',
        '{"format": 1, "drafts": {"a/b": 7, "c/d": [3, null]}, "partners": {"a/b": [1, {}]}}',
    ],
)
def test_a_file_that_is_something_else_knows_no_draft(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / known_models.PAIRS_FILE
    path.write_text(text)
    found = known_models._read(path)
    monkeypatch.setattr(known_models, "_table", lambda: found)
    known_models._made_for.cache_clear()
    for name in ("a/b", "c/d"):
        assert not known_models.candidates_for(name) and not known_models.targets_of(name)
    known_models._made_for.cache_clear()


def test_no_file_knows_no_draft(tmp_path: Path) -> None:
    assert known_models._read(tmp_path / known_models.PAIRS_FILE).drafts == {}


def test_all_entries_are_not_opened_for_one_target() -> None:
    code = (
        "import sys, speclaunch.engine.facts.known_models as p; opened = []; "
        "sys.addaudithook(lambda event, args: event == 'open' and opened.append(args[0])); "
        f"assert p.drafts_for({LLAMA!r}); "
        "print(sum(str(path).endswith(('.json', '.yaml')) for path in opened))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT)
    assert int(done.stdout) == 1


def test_candidates_are_drafts_and_partners_each_once() -> None:
    found = [one.draft for one in candidates_for("Qwen/Qwen3-8B")]
    assert len(found) == len(set(found))
    assert {"z-lab/Qwen3-8B-DFlash-b16", "Qwen/Qwen3-0.6B"} <= set(found)


def test_facts_have_them_where_the_index_is_asked() -> None:
    assert gather(LLAMA, None, sources=Sources(index=models_dir())).made_for_target
    assert gather(LLAMA, None).made_for_target == ()


@rows(
    "said, meant",
    [
        ("Qwen3-8B", "Qwen/Qwen3-8B"),
        ("qwen/qwen3-8b", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8BB", "Qwen/Qwen3-8B"),
        ("unsloth/Qwen3-8B-bnb-4bit", "Qwen/Qwen3-8B"),
    ],
)
def test_names_that_were_meant(said: str, meant: str) -> None:
    assert near_names(said)[0] == meant


def test_a_name_like_none() -> None:
    assert near_names("my-company/secret-model-of-ours") == ()
