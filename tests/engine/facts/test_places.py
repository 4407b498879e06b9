"""Where a checkpoint is looked for, in which order, and what is never looked at."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from speclaunch.engine.facts import find_checkpoint as gather_module
from speclaunch.engine.facts.facts import Checkpoint, UnknownFact
from speclaunch.engine.facts.find_checkpoint import Sources, find_checkpoint, gather
from speclaunch.engine.facts.hardware import Hardware, Vendor

NOWHERE = {"HF_HUB_CACHE": "/nonexistent"}


def model(directory: Path, hidden_size: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"hidden_size": hidden_size}))
    return directory


def hidden(found: Checkpoint | UnknownFact) -> int | None:
    assert isinstance(found, Checkpoint), found
    return found.hidden_size


def cached(cache: Path, name: str, commits: dict[str, int], **references: str) -> None:
    repository = cache / f"models--{name.replace('/', '--')}"
    for age, (commit, size) in enumerate(commits.items()):
        snapshot = model(repository / "snapshots" / commit, size)
        os.utime(snapshot, (1000 - age, 1000 - age))
    for reference, commit in references.items():
        path = repository / "refs" / reference
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)


def test_the_nearest_place_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, models, cache = tmp_path / "here", tmp_path / "models", tmp_path / "cache"
    here.mkdir()
    monkeypatch.chdir(here)
    places = [
        lambda: cached(cache, "org/name", {"c0": 1}),
        lambda: model(models / "name", 2),
        lambda: cached(models / "hub", "org/name", {"c1": 3}),
        lambda: cached(models, "org/name", {"c2": 4}),
        lambda: model(models / "org" / "name", 5),
        lambda: model(here / "org" / "name", 6),
    ]
    for size, make in enumerate(places, 1):
        make()
        found = find_checkpoint(
            "org/name", Sources((models,)), environment={"HF_HUB_CACHE": str(cache)}
        )
        assert hidden(found) == size


def test_the_first_models_directory_wins(tmp_path: Path) -> None:
    model(tmp_path / "b" / "name", 1)
    model(tmp_path / "c" / "org" / "name", 2)
    directories = [tmp_path / letter for letter in "abc"]
    assert (
        hidden(find_checkpoint("org/name", Sources(tuple(directories)), environment=NOWHERE)) == 1
    )


def test_a_directory_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    model(tmp_path / "mine", 1)
    assert hidden(find_checkpoint("~/mine", environment=NOWHERE)) == 1
    cached(tmp_path / ".cache" / "huggingface" / "hub", "org/name", {"c0": 2})
    assert hidden(find_checkpoint("org/name", environment={})) == 2


@pytest.mark.parametrize(
    ("environment", "below"),
    [
        ({"HF_HUB_CACHE": "{}/x", "HF_HOME": "/nonexistent"}, "x"),
        ({"HUGGINGFACE_HUB_CACHE": "{}/y"}, "y"),
        ({"HF_HOME": "{}", "XDG_CACHE_HOME": "/nonexistent"}, "hub"),
        ({"XDG_CACHE_HOME": "{}"}, "huggingface/hub"),
    ],
)
def test_the_variables_of_the_cache(
    tmp_path: Path, environment: dict[str, str], below: str
) -> None:
    cached(tmp_path / below, "org/name", {"c0": 7})
    said = {name: value.format(tmp_path) for name, value in environment.items()}
    assert hidden(find_checkpoint("org/name", environment=said)) == 7


def test_a_revision_is_the_one_that_is_read(tmp_path: Path) -> None:
    cached(tmp_path, "org/name", {"aa": 1, "bb": 2, "cc": 3}, main="aa", v2="bb")
    for revision, size in ((None, 1), ("main", 1), ("v2", 2), ("cc", 3)):
        found = find_checkpoint(
            "org/name", Sources((tmp_path,)), revision=revision, environment=NOWHERE
        )
        assert hidden(found) == size
    for revision in ("v3", "dd", "../../../etc", "", "a\0b", "x" * 5000):
        found = find_checkpoint(
            "org/name", Sources((tmp_path,)), revision=revision, environment=NOWHERE
        )
        assert isinstance(found, UnknownFact), revision
    # a model without its organisation is of no known revision
    model(tmp_path / "other", 9)
    found = find_checkpoint("org/other", Sources((tmp_path,)), revision="v2", environment=NOWHERE)
    assert isinstance(found, UnknownFact)


def test_the_newest_snapshot_when_no_branch_says(tmp_path: Path) -> None:
    cached(tmp_path, "org/name", {"aa": 1, "bb": 2}, main="not a commit")
    assert hidden(find_checkpoint("org/name", Sources((tmp_path,)), environment=NOWHERE)) == 1
    (tmp_path / "models--org--name" / "refs" / "main").unlink()
    (tmp_path / "models--org--name" / "refs" / "main").mkdir()
    (tmp_path / "models--org--name" / "snapshots" / "loop").symlink_to("loop")
    assert hidden(find_checkpoint("org/name", Sources((tmp_path,)), environment=NOWHERE)) == 1


@pytest.mark.parametrize("name", ["../up", "org/../../up", "..", ".", "./up", "org/..", "a/../up"])
def test_a_name_does_not_lead_out_of_a_directory(tmp_path: Path, name: str) -> None:
    model(tmp_path, 1)
    model(tmp_path / "up", 2)
    (tmp_path / "models" / "org").mkdir(parents=True)
    (tmp_path / "models" / "a").mkdir()
    found = find_checkpoint(name, Sources((tmp_path / "models",)), environment=NOWHERE)
    assert isinstance(found, UnknownFact)


def test_a_path_of_another_machine(tmp_path: Path) -> None:
    model(tmp_path / "org" / "name", 1)
    model(tmp_path / "other" / "name", 2)
    for path, size in (("/data/org/name", 1), ("/x/other/name/", 2)):
        assert hidden(find_checkpoint(path, Sources((tmp_path,)), environment=NOWHERE)) == size
    assert isinstance(
        find_checkpoint("/x/name", Sources((tmp_path,)), environment=NOWHERE), UnknownFact
    )
    # `*` is a name like any other
    assert isinstance(
        find_checkpoint("/x/*", Sources((tmp_path,)), environment=NOWHERE), UnknownFact
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("s3://bucket/model", "URL"),
        ("HTTPS://host/model", "URL"),
        ("/data/model-Q4.GGUF", "GGUF"),
        ("org/name", "no config.json in the Hugging Face cache or "),
        ("/data/name", "no config.json in a directory of that name or "),
    ],
)
def test_why_it_is_not_known(tmp_path: Path, name: str, why: str) -> None:
    found = find_checkpoint(name, Sources((tmp_path,)), environment=NOWHERE)
    assert isinstance(found, UnknownFact)
    assert why in found.why
    assert found.what == f"the checkpoint {name}"


def test_each_checkpoint_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def find(name: str, *_: object, **options: object) -> Checkpoint | UnknownFact:
        read.append(f"{name}@{options['revision']}")
        return Checkpoint(name) if name != "none" else UnknownFact("none", "why")

    monkeypatch.setattr(gather_module, "find_checkpoint", find)
    gather_module._found.cache_clear()
    try:
        for _ in range(3):
            facts = gather("a", "a", sources=Sources((tmp_path,)))
            assert facts.target is facts.draft
            assert facts.unknown == ()
        assert gather("a", "none").unknown == (UnknownFact("none", "why"),)
        assert gather("none", "none").unknown == (UnknownFact("none", "why"),)
        gather("a", "a", target_revision="v1", draft_revision="v2")
    finally:
        gather_module._found.cache_clear()
    assert read == ["a@None", "a@None", "none@None", "a@v1", "a@v2"]


def test_what_is_given_is_passed_on() -> None:
    hardware = Hardware("h100-80gb", Vendor.NVIDIA)
    facts = gather(None, None, hardware=hardware)
    assert (facts.hardware, facts.runtime, facts.target) == (hardware, None, None)
