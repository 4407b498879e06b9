"""The places in a TOML file: what stands there is what tomllib reads."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.engine.facts.toml_places import places

FILE = '''\
# a comment with "quotes" and [brackets]
title = "x"   # [not, a, header]
[tool.black]
line-length = 100
[tool.speclaunch]
engine = ["0.5.8", # one
  "0.5.23",
]
"quoted key" = 'it''s'
text = """
[no.header]
x = 1"""
dotted . key = { a = 1, "b.c" = [1, {d = 2}] }

[[tool.speclaunch.overrides]]
paths = ["a/**"]
[[tool.speclaunch.overrides]]
paths = ["b/**", "c"]
hardware="h100:8"
[tool.speclaunch.assume]
"my/x" = "org/y"
'''.replace("it''s", "its")
BASE = ("tool", "speclaunch")


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    found: dict[tuple[str | int, ...], Any] = {}
    if isinstance(value, dict):
        for key, one in value.items():
            found |= leaves(one, (*path, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            found |= leaves(one, (*path, number))
    else:
        found[path] = value
    return found


def holds(text: str) -> None:
    """Each value's text, read by itself, is the value; and there are no others."""
    found = places(text)
    normal = text.replace("\r\n", "\n")
    wanted = leaves(tomllib.loads(text))
    for path, value in wanted.items():
        span = found.values[path]
        assert tomllib.loads(f"x = {normal[span.start : span.end]}")["x"] == value
        line = normal.split("\n")[span.line - 1]
        assert line[span.column - 1 :].startswith(normal[span.start : span.end].split("\n")[0])
        assert path[-1] in found.keys or isinstance(path[-1], int) or path in found.keys


def test_every_value_stands_where_it_is_said_to() -> None:
    holds(FILE)
    holds(FILE.replace("\n", "\r\n"))


def test_keys_headers_and_arrays_of_tables() -> None:
    found = places(FILE)
    assert found.key((*BASE, "engine"))[:3] == (6, 1, 6)
    assert found.of((*BASE, "engine", 1))[:3] == (7, 3, 8)
    assert found.of((*BASE, "overrides", 1))[:3] == (17, 1, 29)
    assert found.of((*BASE, "overrides", 1, "paths", 1))[:3] == (18, 18, 3)
    assert found.of((*BASE, "assume", "my/x"))[:3] == (21, 10, 7)
    assert found.of((*BASE, "missing"))[:2] == (5, 1)
    assert found.of(("nothing",))[:2] == (1, 1)


KEYS = st.text("abé .\"'=[]#\\-_", min_size=1, max_size=5)
SCALARS = st.one_of(
    st.booleans(), st.integers(-99, 99), st.text("ab \"'\\[]{},#=\n\té", max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def quoted(text: str, how: int) -> str:
    if how == 1 and not set("'\n\t") & set(text):
        return f"'{text}'"
    if how == 2 and "'" not in text and "\t" not in text:
        return f"'''\n{text}'''"
    special = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    inner = "".join(special.get(letter, letter) for letter in text)
    return f'"{inner}"' if how != 3 else f'"""{inner}"""'


def written(value: Any, draw: Any) -> str:
    space = draw(st.sampled_from(["", " ", "\n", " # ],}\n"]))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return quoted(value, draw(st.integers(0, 3)))
    if isinstance(value, list):
        return f"[{space}{f',{space}'.join(written(one, draw) for one in value)}{space}]"
    pairs = (f"{quoted(key, 0)} = {written(one, draw)}" for key, one in value.items())
    return "{" + ", ".join(pairs) + "}"


@pytest.mark.thorough
@given(st.dictionaries(KEYS, VALUES, max_size=4), st.data())
def test_generated_documents(document: dict[str, Any], data: st.DataObject) -> None:
    lines = []
    for number, (key, value) in enumerate(document.items()):
        if number == 2:
            lines.append(data.draw(st.sampled_from(["[t]", "[[t.u]]", "[ t . 'v' ] # x"])))
        lines.append(f"{quoted(key, 0)} = {written(value, data.draw)}")
    holds("\n".join(lines))


@given(st.text("[]{}=\"'#.,\nab \\", max_size=40))
def test_what_is_no_toml_neither_crashes_nor_hangs(text: str) -> None:
    places(text)
