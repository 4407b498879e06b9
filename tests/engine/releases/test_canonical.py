"""One name for one argument: no code compares a name that only some versions have."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import speclaunch
from speclaunch.engine.releases.catalogue import held_versions, load, name_of
from speclaunch.engine.releases.command import render_args
from speclaunch.engine.releases.renames import CONVERSIONS, REMOVALS, RENAMES, canonical, value_of
from tests.support.loops import rows

PACKAGE = Path(speclaunch.__file__).parent
APART = ("engine/releases/renames.py", "engine/releases/extraction/", "serving/cpu_engine/")
"""The tables of names themselves, the reader of releases, and what runs inside the engine."""
ORDINARY = {"model", "ep"}
"""Names that are words of other vocabularies, too (a key of a conf group, a JSON field)."""
MEANT = {
    # A field of ServerArgs in the engine's own log text, which has its version's name.
    ("serving/launch/diagnosis/launch_log.py", "cuda_graph_max_bs"),
    # A key of vLLM's speculative configuration.
    ("deployments/sources/vllm.py", "tensor_parallel_size"),
    # verl's own options.
    ("deployments/sources/verl.py", "data_parallel_size"),
    ("deployments/sources/verl.py", "expert_parallel_size"),
}


@cache
def other_spellings() -> frozenset[str]:
    """Every name of a held version that is not the newest's own."""
    found: set[str] = set()
    for version in held_versions():
        for argument in load(version).arguments.values():
            found |= {argument.name, argument.dest, *map(name_of, argument.aliases)}
    return frozenset(name for name in found if canonical(name) != name and name not in ORDINARY)


@pytest.mark.thorough
@pytest.mark.core
def test_no_literal_in_the_code_is_a_name_of_some_versions_only() -> None:
    assert "tensor_parallel_size" in other_spellings()
    hits = []
    for path in sorted(PACKAGE.rglob("*.py")):
        shown = path.relative_to(PACKAGE).as_posix()
        if shown.startswith(APART):
            continue
        hits += [
            f"{shown}:{node.lineno}: {node.value!r} is {canonical(node.value)!r}"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value in other_spellings()
            and (shown, node.value) not in MEANT
        ]
    assert not hits, "\n".join(hits)


@rows("version", held_versions())
def test_a_spelled_argument_is_called_as_the_newest_engine_calls_it(version: str) -> None:
    spelling = render_args({"tp_size": 8, "cuda_graph_max_bs": 4}, {}, load(version))
    assert [one.name for one in spelling.arguments] == ["tp_size", "cuda_graph_max_bs_decode"]
    assert spelling.value("tp_size") == "8"
    for one in spelling.arguments:
        found = load(version).by_name(one.dest)
        assert found is not None and found.dest == one.dest


def test_a_value_is_found_under_any_of_its_names() -> None:
    assert value_of({"model": "x"}, "model_path") == "x"
    assert value_of({"tensor_parallel_size": 2}, "tp_size") == 2
    assert value_of({"port": 1}, "host") is None


def test_canonical_is_the_newest_name_of_every_table() -> None:
    newest = load(held_versions()[-1])
    for rename in RENAMES:
        assert canonical(rename.old) == canonical(rename.new)
    for entry in CONVERSIONS:
        assert newest.by_name(canonical(entry.new)) is not None
    assert all(canonical(name) == name for name in REMOVALS if newest.by_name(name) is None)
