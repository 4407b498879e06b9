"""Where the facts of a checkpoint come from: the nearest source, and what is only assumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speclaunch.core.errors import InputError
from speclaunch.engine.facts.facts import (
    Checkpoint,
    FactSource,
    Origin,
    PartialConfig,
    UnknownFact,
    UnknownValueError,
    merged,
)
from speclaunch.engine.facts.find_checkpoint import Sources, find_checkpoint
from speclaunch.engine.facts.project_settings import SettingsFrom, assumption, nearest_file

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096}


def entry(folder: Path, name: str, **more: Any) -> Path:
    said = {"format": 1, "model": name, "source": "a page", "read": "2026-11-22", "config": LLAMA}
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said | more))
    return folder


def look(name: str, sources: Sources, **more: Any) -> Any:
    return find_checkpoint(name, sources, environment={"HF_HUB_CACHE": "/nonexistent"}, **more)


def origin(found: object) -> Origin:
    assert isinstance(found, Checkpoint) and found.origin is not None
    return found.origin


def test_the_nearest_source_counts(tmp_path: Path) -> None:
    index = entry(tmp_path / "index", "org/name")
    kept = entry(tmp_path / ".speclaunch/models", "org/name")
    directory = tmp_path / "models" / "org" / "name"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(LLAMA))
    for sources, provenance in (
        (Sources((tmp_path / "models",), (kept,), index), FactSource.DIRECTORY),
        (Sources((), (kept,), index), FactSource.REPOSITORY),
        (Sources((), (), index), FactSource.INDEX),
    ):
        assert origin(look("org/name", sources)).provenance is provenance
    assert isinstance(look("org/name", Sources()), UnknownFact)


def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    """A team's own file is wrong: the index is no answer to that."""
    index = entry(tmp_path / "index", "org/name")
    kept = entry(tmp_path / ".speclaunch/models", "org/name", format=99)
    found = look("org/name", Sources((), (kept,), index))
    assert isinstance(found, UnknownFact) and "format" in found.why


def test_another_revision_is_a_doubt(tmp_path: Path) -> None:
    commit = "0123456789" * 4
    index = entry(tmp_path, "org/name", revision=commit)
    for asked, doubted in ((None, False), ("main", False), (commit, False), ("v2", True)):
        assert (
            origin(look("org/name", Sources(index=index), revision=asked)).doubt is not None
        ) is doubted


def test_what_nobody_read_is_unknown(tmp_path: Path) -> None:
    index = entry(tmp_path, "org/name", unread=["vocab_size", "max_position_embeddings"])
    found = look("org/name", Sources(index=index))
    assert found.hidden_size == 4096
    assert found.head_dim is None  # known to be absent
    for field in ("vocab_size", "context_length", "context_lengths"):
        with pytest.raises(UnknownValueError, match="is unknown: no source"):
            getattr(found, field)
        assert found.field_or_none(field) is None
    with pytest.raises(UnknownValueError, match="vocab_size"):
        found.config.get("vocab_size")
    with pytest.raises(UnknownValueError):
        "vocab_size" in found.raw  # noqa: B015


def test_a_rounded_size_is_told_apart(tmp_path: Path) -> None:
    for exact in (True, False):
        index = entry(tmp_path, "org/name", weights={"bytes": 10**9, "exact": exact, "source": "x"})
        found = look("org/name", Sources(index=index))
        assert (found.weight_bytes, found.weights_rounded) == (10**9, not exact)


def test_a_key_that_is_read_in_a_part_is_known() -> None:
    outer = PartialConfig("org/name", {"a": 1}, ["b", "c"])
    both = merged(outer, {"b": 2})
    assert both["b"] == 2
    with pytest.raises(UnknownValueError):
        both.get("c")


def test_a_pair_alone_is_no_config(tmp_path: Path) -> None:
    index = entry(tmp_path, "org/name", config={}, unread=["config"])
    found = look("org/name", Sources(index=index))
    assert isinstance(found, UnknownFact) and "not its config.json" in found.why


def test_a_sibling_is_named_and_taken_only_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Sources(index=_own_index(tmp_path, monkeypatch, "org/Llama-3.1-8B-Instruct"))
    found = look("other/Llama-3.1-8B-Instruct-FP8", sources)
    assert isinstance(found, UnknownFact)
    assert "--assume other/Llama-3.1-8B-Instruct-FP8=org/Llama-3.1-8B-Instruct" in str(found.help)
    told = (("other/Llama-3.1-8B-Instruct-FP8", "org/Llama-3.1-8B-Instruct"),)
    found = look("other/Llama-3.1-8B-Instruct-FP8", Sources(index=sources.index, assume=told))
    assert found.hidden_size == 4096 and origin(found).assumed == "org/Llama-3.1-8B-Instruct"
    for field in ("quantization", "dtype"):  # an FP8 export stores its weights in its own way
        with pytest.raises(UnknownValueError):
            getattr(found, field)


def test_what_a_sibling_does_not_show_stays_unknown_of_another_export(tmp_path: Path) -> None:
    part = {"torch_dtype": "bfloat16", "hidden_size": 64}
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": part}
    index = entry(tmp_path, "org/a", config=config, unread=["vocab_size"])
    found = look("my/a-FP8", Sources(index=index, assume=(("my/a-FP8", "org/a"),)))
    assert found.hidden_size == 64
    for field in ("vocab_size", "dtype"):  # the dtype stands in a part of the config
        with pytest.raises(UnknownValueError):
            getattr(found, field)


def test_an_assumption_goes_before_a_guess_by_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = _own_index(tmp_path, monkeypatch, "org/a", "org/b")
    found = look("/models/a", Sources(index=index, assume=(("/models/a", "org/b"),)))
    assert origin(found).assumed == "org/b"


def test_a_nearer_source_goes_before_an_assumption(tmp_path: Path) -> None:
    index = entry(entry(tmp_path, "org/a"), "org/b")
    found = look("org/a", Sources(index=index, assume=(("org/a", "org/b"),)))
    assert origin(found).assumed is None


def test_assumptions_do_not_chain_or_circle(tmp_path: Path) -> None:
    circle = (("org/a", "org/b"), ("org/b", "org/a"))
    found = look("org/a", Sources(index=tmp_path, assume=circle))
    assert isinstance(found, UnknownFact) and "assumed to match org/b" in found.why


def test_a_path_is_likely_the_only_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = _own_index(tmp_path, monkeypatch, "org/Llama-3.1-8B-Instruct", "a/twice", "b/twice")
    for path in (
        "/models/Llama-3.1-8B-Instruct",
        "/x/org/Llama-3.1-8B-Instruct/",
        "ORG/llama-3.1-8b-instruct",
        "/hub/models--org--Llama-3.1-8B-Instruct/snapshots/0123",
    ):
        assert origin(look(path, Sources(index=index))).doubt is not None, path
    for path in (
        "/models/twice",
        "/models/Llama-3.1-8B-Instruct-FP8",
        "Llama-3.1-8B-Instruct",
        "x/twice",
    ):
        assert isinstance(look(path, Sources(index=index)), UnknownFact), path


def _own_index(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    for name in names:
        entry(folder, name)
    monkeypatch.setattr(
        "speclaunch.engine.facts.known_models.index_names", lambda: tuple(sorted(names))
    )
    return folder


def test_speclaunch_toml_is_found_upward_as_far_as_the_repository(tmp_path: Path) -> None:
    (tmp_path / "speclaunch.toml").write_text('[assume]\n"my/x" = "org/y"\n')
    (tmp_path / "deep/er").mkdir(parents=True)
    assert SettingsFrom().of(tmp_path / "deep/er").assume == (("my/x", "org/y"),)
    (tmp_path / "deep/.git").mkdir()
    nearest_file.cache_clear()
    assert SettingsFrom().of(tmp_path / "deep/er").assume == ()


@pytest.mark.parametrize(
    ("text", "why", "line"),
    [
        ("assume = 3", "not a table", 1),
        ('[assume]\n"a/b" = 3', "not of the form ORGANIZATION/NAME", 2),
        ('[assume]\n"a/b" = "../../etc/passwd"', "not of the form ORGANIZATION/NAME", 2),
        ('# a\n[asume]\n"a/b" = "c/d"', "unknown key `asume`", 2),
        ('[assume]\n"a/b" = ', "not TOML", 2),
        ("\x00", "not TOML", 1),
    ],
)
def test_a_wrong_speclaunch_toml_says_where(tmp_path: Path, text: str, why: str, line: int) -> None:
    (tmp_path / "speclaunch.toml").write_text(text)
    with pytest.raises(InputError) as raised:
        SettingsFrom().of(tmp_path)
    (problem,) = raised.value.problems
    assert why in problem.message and problem.place is not None and problem.place.line == line


def test_an_assumption_of_the_command_line() -> None:
    assert assumption("my/x=org/y") == ("my/x", "org/y")
    assert assumption("/models/x=org/y") == ("/models/x", "org/y")
    for text in ("my/x", "=org/y", "my/x=", "my/x=../y"):
        with pytest.raises(InputError):
            assumption(text)
