"""What is resolved without OmegaConf is what OmegaConf resolves."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe import resolve_values as module
from speclaunch.deployments.recipe.resolve_values import resolve_values
from speclaunch.deployments.recipe.source import RecipeProvenance
from speclaunch.engine.releases.command import FromEnvironment

NOWHERE = RecipeProvenance({})
NAMES = ("TP", "PORT", "NOT_SET", "not-set", "EMPTY", "ODD", "null", "e5", "N1")
DEFAULTS = (
    *(
        "8",
        "0",
        "08",
        "1_000",
        "1e3",
        "0.5",
        "-1",
        "+1",
        "0x1F",
        "null",
        "None",
        "true",
        "inf",
        "nan",
    ),
    *(
        "text",
        "/models/llama-3.1",
        "a.b",
        "e5",
        "_",
        "a b",
        "'8'",
        '"x"',
        "${args.size}",
        "a:b",
        "[1]",
    ),
    *("", " 8", "8 ", "a,b", "???", "123456789012345678901", "$x", "\\$x", "é"),
)
KEYS = ("args.size", "args.text", "args.float", "args.bool", "args.none", "args.list", "args.nope")
FORMS = (
    "{}",
    "{}",
    "{}",
    "a{}",
    "{}b",
    "$ {}",
    "${}",
    "{{{}}}",
    "\\{}",
    "{}{}",
    "x{}y{}z",
    "\\\\{}",
)


def _interpolation(chance: random.Random) -> str:
    kind = chance.choice(("oc.env", "env_or", "oc.env", "cpu_model", "oc.decode", "nope", "key"))
    if kind == "key":
        key = chance.choice((*KEYS, "name", "args", "args.inner.size", ".size", "args.sizes[0]"))
        return f"${{{key}}}"
    name = chance.choice(NAMES)
    default = f",{chance.choice(DEFAULTS)}" if chance.random() < 0.5 else ""
    blank = chance.choice(("",) * 8 + (" ",))
    return f"${{{blank}{kind}:{name}{default}{blank}}}"


def _text(chance: random.Random) -> Any:
    if chance.random() < 0.15:
        return chance.choice(
            ("???", 8, 0.5, True, None, "text", "a\\b", ["???"], [1, "${args.size}"])
        )
    form = chance.choice(FORMS)
    return (
        form.replace("{}", "\0")
        .replace("{{", "{")
        .replace("}}", "}")
        .replace("\0", _interpolation(chance))
    )


def _raw(chance: random.Random) -> dict[str, Any]:
    args = {"size": 8, "text": "a b", "float": 0.5, "bool": True, "none": None, "list": [1]}
    more = {
        name: _text(chance) for name in chance.sample(("a", "b", "c"), chance.choice((1, 1, 2)))
    }
    if chance.random() < 0.1:
        more["size"] = _text(chance)
    return {"name": "own", "args": {**args, **more, "inner": {"size": 1}}}


def _outcome(raw: dict[str, Any]) -> Any:
    try:
        return _told(resolve_values(raw, NOWHERE, "recipe.yaml"))
    except InputError as error:
        return error.problems


def _told(value: Any) -> Any:
    """With the type of each value, and what a variable's text holds besides."""
    if isinstance(value, dict):
        return {key: _told(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_told(inner) for inner in value]
    if isinstance(value, FromEnvironment):
        return (str(value), value.template, value.unset)
    return repr(value)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TP", "4")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("ODD", "${args.size}")
    monkeypatch.setenv("N1", "???")


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_random_texts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    simple = 0
    for _ in range(400):
        raw = _raw(chance)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_simply", _never)
            expected = _outcome(raw)
        before = repr(raw)
        assert _outcome(raw) == expected, raw
        assert repr(raw) == before, "what is composed is not changed"
        simple += _is_simple(raw)
    assert simple > 20


def _never(_: object) -> None:
    raise module._NotSimpleError


def _is_simple(raw: dict[str, Any]) -> bool:
    try:
        module._simply(raw)
    except module._NotSimpleError:
        return False
    return True


@pytest.mark.parametrize(
    "written",
    [
        *(
            "${oc.env:TP}",
            "${oc.env:NOT_SET}",
            "${oc.env:NOT_SET,8}",
            "${env_or:EMPTY,/models/a-b.c}",
        ),
        *("${cpu_model:llama-eagle3}", "${args.size}", "${oc.env:TP}/a/${env_or:NOT_SET,b}"),
    ],
)
def test_what_recipes_say_needs_no_omegaconf(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omegaconf", None)
    resolve_values({"args": {"size": 8, "one": written}}, NOWHERE, "recipe.yaml")
