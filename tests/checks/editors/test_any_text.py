"""Whatever is in a document and wherever the cursor is: no crash, and places that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lsprotocol.types import Position, PositionEncodingKind
from pygls.workspace import PositionCodec

from speclaunch.checks.editors.answers import actions, completions, diagnostics, hover
from speclaunch.checks.editors.document import (
    CheckedDocument,
    CursorKind,
    DocumentPositions,
    EditorSettings,
    check_document,
    in_command,
    in_yaml,
    kind,
    read_settings,
)
from speclaunch.core.errors import Place
from tests.support.loops import rows

CODECS = [PositionCodec(one) for one in PositionEncodingKind]
PIECES = [
    "args:", "defaults:", "  - ", "- model: glm45", "\n", "\n  ", "tp_size: ", "2", "sglang", " --tp-size", " 3", "=",
    "python3 -m sglang.launch_server --model-path m ", "# speclaunch: ignore[SPL001] x", "\\\n", "'", '"', "{", "[", "]",
    "ä", "😀", "\r\n", "\r", "\u2028", "\x85", "\t", ": ", "${oc.env:A}", "--speculative-num-draft-tokens 9 ", "<<EOF\n",
    "engine:\n  version: ", "services:\n  a:\n    command: ", "```bash\n", "# @package args\n", "&a ", "*a", "\0", "\ufeff",
]  # fmt: skip
TEXT = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=14).map("".join)
NAME = st.sampled_from(["a.yaml", "model/a.yaml", "a.sh", "a.md", "Dockerfile", "a.json", "a"])


@pytest.mark.thorough
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(TEXT, NAME, st.integers(-1, 12), st.integers(-1, 40), st.sampled_from(CODECS))
def test_nothing_crashes(
    text: str, name: str, line: int, character: int, codec: PositionCodec
) -> None:
    path = f"/nowhere/{name}"
    text = text.encode("utf-8", "replace").decode()
    checked = check_document(path, text, {path: text.encode()}, EditorSettings())
    positions = DocumentPositions(text, codec)
    shown = diagnostics(checked, positions)
    for one in shown:
        assert 0 <= one.range.start.line <= one.range.end.line < len(positions.lines)
    here = positions.place(Position(max(line, 0), max(character, 0)))
    hover(checked, text, positions, *here)
    completions(checked, text, positions, *here)

    def again(changed: str) -> CheckedDocument:
        return check_document(
            path, changed, {path: changed.encode("utf-8", "replace")}, EditorSettings()
        )

    for action in actions(
        checked, shown[:2], positions, "file:///x", 1, again, {path: text.encode()}
    ):
        assert action.edit is not None


@pytest.mark.thorough
@settings(deadline=None)
@given(st.text(max_size=30), st.sampled_from(CODECS))
def test_a_position_there_and_back_is_the_same_place(text: str, codec: PositionCodec) -> None:
    text = text.encode("utf-8", "replace").decode()
    positions = DocumentPositions(text, codec)
    for number, line in enumerate(positions.lines, 1):
        for column in range(1, len(line) + 2):
            assert positions.place(positions.position(number, column)) == (number, column)
    whole = positions.range(Place("", 1, 1, 10**6))
    assert whole.end == positions.position(1, len(positions.lines[0]) + 1)
    last = len(positions.lines)
    assert positions.position(last + 1, 1) == positions.position(last, len(positions.lines[-1]) + 1)


@rows(
    "text, above, key, word",
    [
        ("args:\n  sp|", ("args",), None, "sp"),
        ("args:\n  tp_size: |", ("args",), "tp_size", ""),
        ("args:\n  a: 1\n\n  # x\n  sp|", ("args",), None, "sp"),
        ("launch:\n  verify:\n    en|", ("launch", "verify"), None, "en"),
        ("launch:\n  verify:\n    a: 1\n  gr|", ("launch",), None, "gr"),
        ("defaults:\n- mo|", ("defaults",), None, "mo"),
        ("defaults:\n  - override model: gl|", ("defaults",), "override model", "gl"),
        ("args:\n  cuda_graph_bs: [1, 2|", ("args",), "cuda_graph_bs", "2"),
        ("re|", (), None, "re"),
    ],
)
def test_where_the_cursor_is_in_a_recipe(
    text: str, above: tuple[str, ...], key: str | None, word: str
) -> None:
    lines = text.replace("|", "").split("\n")
    number = next(n for n, line in enumerate(text.split("\n"), 1) if "|" in line)
    found = in_yaml(lines, number, text.split("\n")[number - 1].index("|") + 1, ())
    assert found is not None and (found.above, found.key, found.word) == (above, key, word)


@rows(
    "text, flag, word",
    [
        ("a --tp|", None, "--tp"), ("a --dtype fl|", "--dtype", "fl"), ("a --dtype=fl|", "--dtype", "fl"),
        ("a --dtype \\\n  |", "--dtype", ""), ("- --dtype\n- fl|", "--dtype", "fl"), ('"--dtype", "fl|', "--dtype", "fl"),
    ],
)  # fmt: skip
def test_where_the_cursor_is_in_a_command(text: str, flag: str | None, word: str) -> None:
    lines = text.replace("|", "").split("\n")
    found = in_command(lines, len(lines), len(lines[-1]) + 1)
    assert found is not None and (found.flag, found.word) == (flag, word)


def test_what_a_document_is() -> None:
    assert kind("args: {}\n", "/a/r.yaml") == (CursorKind.RECIPE, ())
    assert kind("# @package args\n", "/a/x.yaml") == (CursorKind.OPTION, ("args",))
    assert kind("# @package _global_\n", "/a/x.yaml") == (CursorKind.OPTION, ())
    assert kind("version: 1\n", "/a/engine/x.yaml") == (CursorKind.OPTION, ("engine",))
    assert kind("services:\n  a:\n    args:\n", "/a/x.yaml")[0] is CursorKind.COMMANDS
    assert kind("args: {}\n", "/a/x.sh")[0] is CursorKind.COMMANDS


def test_settings_are_read_and_what_is_wrong_is_left_out(tmp_path: Path) -> None:
    given_ = {
        "engine": ["0.5.9", "0.5.23"],
        "models": str(tmp_path),
        "configDir": [str(tmp_path)],
        "online": True,
    }
    found, wrong = read_settings(given_)
    assert wrong == [] and found.engine == "0.5.9,0.5.23" and found.config_dir == (str(tmp_path),)
    found, wrong = read_settings(
        {"hardware": "toaster", "select": ["SPL0"], "online": 1, "models": ["/none"], "x": 1}
    )
    assert found == EditorSettings(select=("SPL0",)) and len(wrong) == 4
    assert read_settings(None) == (EditorSettings(), []) and read_settings(3)[1]
