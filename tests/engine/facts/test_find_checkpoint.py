from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from speclaunch.engine.facts.facts import Checkpoint, UnknownFact
from speclaunch.engine.facts.find_checkpoint import Sources, find_checkpoint, gather
from speclaunch.engine.facts.hub import fetch_checkpoint

NOWHERE = {"HF_HUB_CACHE": "/nonexistent"}


def model(directory: Path, hidden_size: int = 64) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"hidden_size": hidden_size}))
    return directory


def hidden(found: Checkpoint | UnknownFact) -> int | None:
    assert isinstance(found, Checkpoint), found
    return found.hidden_size


def test_a_directory_comes_first(tmp_path: Path) -> None:
    model(tmp_path / "mine", 1)
    assert hidden(find_checkpoint(str(tmp_path / "mine"), environment=NOWHERE)) == 1


def test_below_a_models_directory(tmp_path: Path) -> None:
    model(tmp_path / "org" / "name", 2)
    assert hidden(find_checkpoint("org/name", Sources((tmp_path,)), environment=NOWHERE)) == 2
    # a script's path on another machine
    model(tmp_path / "Llama-3.1-8B", 3)
    found = find_checkpoint("/data/models/Llama-3.1-8B/", Sources((tmp_path,)), environment=NOWHERE)
    assert hidden(found) == 3


def test_the_last_part_of_a_path_must_be_one_model(tmp_path: Path) -> None:
    model(tmp_path / "one" / "Llama", 4)
    assert hidden(find_checkpoint("/data/Llama", Sources((tmp_path,)), environment=NOWHERE)) == 4
    model(tmp_path / "two" / "Llama", 5)
    found = find_checkpoint("/data/Llama", Sources((tmp_path,)), environment=NOWHERE)
    assert isinstance(found, UnknownFact)


def test_a_hub_cache_prefers_main(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--name"
    model(repository / "snapshots" / "aaa", 4)
    model(repository / "snapshots" / "bbb", 5)
    os.utime(repository / "snapshots" / "aaa", (1, 1))
    for cache in ({"HF_HOME": str(tmp_path)}, {"HF_HUB_CACHE": str(tmp_path / "hub")}):
        assert hidden(find_checkpoint("org/name", environment=cache)) == 5
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("aaa\n")
    assert (
        hidden(find_checkpoint("org/name", Sources((tmp_path / "hub",)), environment=NOWHERE)) == 4
    )
    (repository / "refs" / "main").write_text("../../../../etc")
    assert (
        hidden(find_checkpoint("org/name", Sources((tmp_path / "hub",)), environment=NOWHERE)) == 5
    )


@pytest.mark.parametrize(
    "name",
    ["org/name", "../up", "/etc", "", "a\0b", "x" * 5000, "s3://bucket/m", "a/b/c", "m.gguf", "~x"],
)
def test_what_is_nowhere_is_unknown(tmp_path: Path, name: str) -> None:
    model(tmp_path / "up", 1)
    (tmp_path / "dir").mkdir()
    found = find_checkpoint(name, Sources((tmp_path / "dir",)), environment=NOWHERE)
    assert isinstance(found, UnknownFact)
    assert found.why


def test_facts_of_two_checkpoints(tmp_path: Path) -> None:
    model(tmp_path / "t", 1)
    facts = gather(str(tmp_path / "t"), "no/such", sources=Sources((tmp_path,)))
    assert facts.target is not None
    assert facts.draft is None
    assert [one.what for one in facts.unknown] == ["the checkpoint no/such"]
    assert gather(None, None).unknown == ()


@pytest.mark.thorough
def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    found = fetch_checkpoint("org/name")
    assert isinstance(found, UnknownFact)
    assert "cannot be reached" in found.why
