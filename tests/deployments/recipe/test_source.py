from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.core.errors import InputError, Place
from speclaunch.deployments.recipe.source import (
    MAX_FILE_BYTES,
    RecipeProvenance,
    depth_bound,
    read_positions,
    read_source,
)
from tests.support.loops import rows


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_every_key_and_list_item_has_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "# x\nargs:\n  tp_size: 2\n  cuda_graph_bs: [1, 22]\n")
    places = read_positions(path, "a.yaml")
    assert places[("args",)] == Place("a.yaml", 2, 1, 4)
    assert places[("args", "tp_size")] == Place("a.yaml", 3, 3, 7)
    assert places[("args", "cuda_graph_bs", 1)] == Place("a.yaml", 4, 22, 2)


def test_the_nearest_key_above_answers_for_what_was_not_written() -> None:
    place = Place("a.yaml", 2)
    provenance = RecipeProvenance({("args",): place})
    assert provenance.find(("args", "tp_size")) == place
    assert provenance.find(("engine",)) is None


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("args:\n\ttp: 1\n", "cannot start any token", 2),
        ("a: [1, 2\n", "flow sequence", 2),
        ("- a\n", "expected `key: value` lines", 1),
        ("just text\n", "expected `key: value` lines", 1),
        ('a: "x\n', "quoted scalar", 2),
        ("a: *nowhere\n", "undefined alias", 1),
    ],
)
def test_bad_yaml_has_a_place(tmp_path: Path, text: str, message: str, line: int) -> None:
    with pytest.raises(InputError) as caught:
        read_positions(write(tmp_path / "a.yaml", text))
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.place is not None and problem.place.line == line


@pytest.mark.thorough
def test_hostile_files_are_refused_at_once(tmp_path: Path) -> None:
    cases = {
        "large": b"a: 1\n" * (MAX_FILE_BYTES // 5 + 1),
        "latin": b"a: \xff\xfe\n",
        "nul": b"a: \0\n",
        "many": b"\n".join(b"k%d: 1" % number for number in range(60_000)),
    }
    for name, data in cases.items():
        with pytest.raises(InputError):
            read_positions(write(tmp_path / f"{name}.yaml", data))
    read_positions(write(tmp_path / "deep.yaml", "a: " + "{b: " * 50 + "1" + "}" * 50))
    with pytest.raises(InputError):
        read_positions(write(tmp_path / "deeper.yaml", "a: " + "[" * 100_000))
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(8)
    )
    with pytest.raises(InputError, match="more than"):
        read_positions(write(tmp_path / "bomb.yaml", bomb))
    read_positions(write(tmp_path / "cycle.yaml", "a: &a {b: *a}\n"))


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_positions(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="is a directory"):
        read_positions(tmp_path)


@pytest.mark.thorough
@given(st.binary(max_size=300))
def test_any_bytes_give_places_or_one_clear_error(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = write(Path(directory) / "a.yaml", data)
        try:
            places = read_positions(path)
        except InputError as error:
            assert error.problems
        else:
            assert all(place.line >= 1 and place.column >= 1 for place in places.values())


def _depth(text: str) -> int:
    depth = deepest = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        deepest = max(deepest, depth)
        depth -= isinstance(event, yaml.CollectionEndEvent)
    return deepest


@pytest.mark.thorough
@given(st.lists(st.sampled_from([*"[]{}-?:a,& !|>#'\"\n\t*", "- ", ": ", "? ", "\n  "])))
def test_nothing_is_deeper_than_it_looks(parts: list[str]) -> None:
    text = "".join(parts)
    with contextlib.suppress(yaml.YAMLError):
        assert _depth(text) <= depth_bound(text)


@rows(
    "text",
    [
        "- - - - a",
        "a:\n- b:\n  - c:\n    - d",
        "? ? ? a",
        "a:\n b:\n  c:\n   d:\n   - e:\n     - f",
        "? - a\n: - b",
        "- ? - a: 1",
        "[[[{a: [b]}]]]",
        "- !!seq\n  - &x\n    - a",
    ],
)
def test_blocks_are_as_deep_as_their_margins_say(text: str) -> None:
    assert 1 < _depth(text) <= depth_bound(text)


@pytest.mark.parametrize("end", ["\u2028", "\x85"])
def test_lines_are_those_of_an_editor(tmp_path: Path, end: str) -> None:
    """YAML ends a line where an editor does not."""
    path = write(tmp_path / "a.yaml", f"a: 1 # x{end}b: 2\r\nc: 3\n".encode())
    places = read_positions(path)
    found = {key: (places[key,].line, places[key,].column) for key in "abc"}
    assert found == {"a": (1, 1), "b": (1, 10), "c": (2, 1)}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("args: {tp_size: %s}", 1),
        ("# @package _global_\nargs:\n  sizes: [1, -%s]", 3),
        ("a: &a {n: 1}\nb: {<<: *a, c: !!int %s}", 2),
        ("n: 0x%s", 1),
    ],
)
def test_a_number_that_python_does_not_read_has_its_place(
    tmp_path: Path, text: str, line: int
) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text % ("9" * 5000))
    with pytest.raises(InputError, match="a number has more than 1000 digits") as caught:
        read_source(path)
    (problem,) = caught.value.problems
    assert problem.place is not None and problem.place.line == line


def test_a_text_may_have_as_many_digits_as_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(f"key: '{'9' * 5000}'\nother: {'9' * 900}\n")
    assert read_source(path).values == {"key": "9" * 5000, "other": int("9" * 900)}
