"""Which values of a deployment are paths of this machine, and which of them are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speclaunch.engine.facts.missing_paths import _READ, missing_paths
from speclaunch.engine.releases.catalogue import held_versions, load
from speclaunch.engine.releases.command import render_args
from tests.support.loops import rows

DRAFT = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "/nope/draft"}


def missing(args: dict[str, Any], version: str = "0.5.23", **more: Any) -> list[str]:
    catalogue = load(version)
    spelling = render_args(args, {}, catalogue)
    assert not spelling.problems
    return [one.message for one in missing_paths(spelling, catalogue, **more)]


@rows(
    "args, path",
    [
        ({"model_path": "/nope/model"}, "model_path: /nope/model"),
        ({"model_path": "./nope"}, "model_path: ./nope"),
        ({"model_path": "../nope/model"}, "model_path: ../nope/model"),
        ({"tokenizer_path": "/nope/t"}, "tokenizer_path: /nope/t"),
        (DRAFT, "speculative_draft_model_path: /nope/draft"),
        ({"lora_paths": ["ok=org/adapter", "a=/nope/lora"]}, "lora_paths: /nope/lora"),
        ({"lora_paths": ["/nope/plain"]}, "lora_paths: /nope/plain"),
        (
            {"lora_paths": ['{"lora_name": "x", "lora_path": "/nope/json"}']},
            "lora_paths: /nope/json",
        ),
        ({"chat_template": "/nope/chat.jinja"}, "chat_template: /nope/chat.jinja"),
        ({"config": "/nope/server.yaml"}, "config: /nope/server.yaml"),
        ({"ssl_certfile": "/nope/cert.pem"}, "ssl_certfile: /nope/cert.pem"),
        ({"deepep_config": "/nope/deepep.json"}, "deepep_config: /nope/deepep.json"),
        (
            {"hicache_storage_backend_extra_config": "@/nope/hicache.json"},
            "hicache_storage_backend_extra_config: /nope/hicache.json",
        ),
        (
            {"speculative_algorithm": "EAGLE", "speculative_token_map": "/nope/map.pt"},
            "speculative_token_map: /nope/map.pt",
        ),
        (
            {"speculative_algorithm": "NGRAM", "speculative_ngram_external_corpus_path": "/nope/c"},
            "speculative_ngram_external_corpus_path: /nope/c",
        ),
    ],
)
def test_a_path_that_is_not_there(args: dict[str, Any], path: str) -> None:
    (said,) = missing({"model_path": "org/model", **args})
    assert said.startswith(path)


@rows(
    "args",
    [
        {"model_path": "models/none"},  # may be a name on the hub
        {"model_path": "s3://bucket/model"},
        {"chat_template": "llama-2"},
        {"deepep_config": '{"normal_dispatch": {"num_sms": 24}}'},
        {"download_dir": "/nope/made-by-the-engine"},
        {"crash_dump_folder": "/nope/made"},
        {"speculative_draft_model_path": "/nope/not-loaded"},
        {"speculative_algorithm": "NGRAM", "speculative_draft_model_path": "/nope/not-loaded"},
        {"speculative_algorithm": "EAGLE3", "speculative_token_map": "/nope/ignored.pt"},
    ],
)
def test_what_is_no_path_of_this_machine_or_is_not_read(args: dict[str, Any]) -> None:
    assert missing({"model_path": "org/model", **args}) == []


def test_what_is_there_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    template = tmp_path / "chat.jinja"
    template.write_text("x")
    monkeypatch.chdir(tmp_path)
    assert missing({"model_path": "./model", "chat_template": str(template)}) == []
    (tmp_path / "dead").symlink_to(tmp_path / "gone")
    assert missing({"model_path": "./dead"}) != []


def test_the_engine_does_not_expand_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    catalogue = load("0.5.23")
    (one,) = missing_paths(render_args({"model_path": "~/model"}, {}, catalogue), catalogue)
    assert "does not expand ~" in one.message
    assert one.help == f"write {tmp_path}/model"


def test_what_we_make_ourselves_is_not_missing(tmp_path: Path) -> None:
    args = {"model_path": str(tmp_path / "models" / "cycle")}
    assert missing(args) != []
    assert missing(args, made=(tmp_path / "models",)) == []


def test_an_older_name_and_an_argument_that_nothing_reads() -> None:
    assert missing({"model_path": "/nope"}, "0.4.6.post5") == [
        "model_path: /nope does not exist on this machine"
    ]
    catalogue = load("0.5.23")
    unread = [n for n in _READ if (a := catalogue.by_name(n)) is not None and not a.read]
    for name in unread:
        assert missing({"model_path": "m", name: "/nope"}) == [], name


def test_every_argument_of_the_table_is_one_of_some_release() -> None:
    known = {a.dest for version in held_versions() for a in load(version).arguments.values()}
    assert set(_READ) <= known, set(_READ) - known
