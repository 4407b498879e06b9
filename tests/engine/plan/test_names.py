"""Asking a Plan for what no release has is a bug of ours: it raises, and no literal does it."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import speclaunch
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.plan.plan import NoSuchArgumentError
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.releases.catalogue import (
    add_fork,
    held_versions,
    is_released_variable,
    load,
    released_names,
)
from tests.engine.plan.resolving import plan
from tests.support.loops import rows

PACKAGE = Path(speclaunch.__file__).parent
ASKS = {
    "value",
    "user_value",
    "is_set",
    "default",
    "written_name",
    "has_argument",
    "env",
    "env_flag",
}
"""Methods of a Plan that take a name first."""
TAKES_PLAN = {"number", "attention_backend"}
"""Functions that take a plan, and a name after it."""
OTHERS = {"CUDA_VISIBLE_DEVICES"}


@rows(
    "ask",
    ["value", "user_value", "is_set", "default", "written_name", "has_argument", "env", "env_flag"],
)
def test_a_misspelt_name_raises(ask: str) -> None:
    name = "SGLANG_ENABLE_SPEC_V3" if ask.startswith("env") else "disable_mla"
    with pytest.raises(NoSuchArgumentError, match=name):
        getattr(plan("0.5.23"), ask)(name)


def test_a_misspelt_name_is_not_resolved_either() -> None:
    found = plan("0.5.23")
    with pytest.raises(NoSuchArgumentError, match="spec_v2"):
        Working(found.request, found.facts).set("spec_v2", True, "why", "source")


def test_any_name_of_any_release_may_be_asked_for_in_all() -> None:
    for version in (held_versions()[0], held_versions()[-1]):
        found = plan(version)
        for name in released_names():
            found.has_argument(name)
        for name in {*load(version).variables, *OTHERS}:
            found.env(name)


def test_an_argument_of_a_fork_may_be_asked_for(tmp_path: Path) -> None:
    flag = {"dest": "their_own", "kind": "value", "type": "int", "default": 3}
    document = {"version": "0.5.23", "arguments": {"--their-own": flag}, "variables": {}}
    source = tmp_path / "fork.json"
    source.write_text(json.dumps(document))
    fork = load(add_fork(source, tmp_path), tmp_path)
    found = Working(from_words([], {}, fork), plan("0.5.23").facts)
    assert found.value("their_own") == fork.arguments["--their-own"].default


def literals() -> Iterator[tuple[str, str]]:
    """Every name that the code asks a plan for, or that a verdict names, and where."""
    for path in sorted(PACKAGE.rglob("*.py")):
        shown = path.relative_to(PACKAGE).as_posix()
        if shown.startswith("serving/cpu_engine/") or path.name == "__main__.py":
            continue
        tree = ast.parse(path.read_text())
        module = None
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            for part in _names(node):
                value = part.value if isinstance(part, ast.Constant) else None
                said = ast.unparse(part).split(".")  # `SWITCH`, or `graphs.SWITCH` of a topic
                if said[-1].isupper() and len(said) <= 2 and all(map(str.isidentifier, said)):
                    if module is None:
                        dotted = shown.removesuffix(".py").replace("/", ".")
                        module = importlib.import_module(f"speclaunch.{dotted}")
                    value = module
                    for name in said:
                        value = getattr(value, name, None)
                if isinstance(value, str):
                    yield value, f"{shown}:{node.lineno}"


def _names(call: ast.Call) -> Iterator[ast.expr]:
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in ASKS:
        yield from call.args[:1]
    elif isinstance(func, ast.Attribute) and ast.unparse(func.value) == "working":
        if func.attr == "set":
            yield from call.args[:1]
        elif func.attr == "change":
            yield from call.args[1:2]
        elif func.attr == "deciding":
            yield from call.args
    elif isinstance(func, ast.Name) and func.id in TAKES_PLAN:
        yield from call.args[1:2]
    elif isinstance(func, ast.Name) and func.id in ("Verdict", "Fix"):
        for keyword in call.keywords:
            if keyword.arg == "at" and isinstance(keyword.value, ast.Tuple):
                yield from keyword.value.elts
            elif keyword.arg in ("set", "env") and isinstance(keyword.value, ast.Dict):
                yield from (key for key in keyword.value.keys if key is not None)


@pytest.mark.thorough
@pytest.mark.core
def test_every_name_in_the_code_exists() -> None:
    found = list(literals())
    assert len(found) > 900
    known = released_names() | OTHERS
    wrong = [
        f"{where}: {name}"
        for name, where in found
        if name not in known and not is_released_variable(name)
    ]
    assert not wrong, "\n".join(wrong)
