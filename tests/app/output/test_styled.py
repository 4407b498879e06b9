"""Plain text is what rich writes to a pipe."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from speclaunch.app.output.console import PlainPrinter, Styled

_TEXT = st.text(st.one_of(st.sampled_from("\t\n[]/\r\a\b\v\f\\ 漢é"), st.characters(codec="utf-8")))
_STYLES = st.sampled_from(["", "bold", "bold red", "dim"])


@pytest.mark.thorough
@given(pieces=st.lists(st.tuples(_TEXT, _STYLES), max_size=4))
def test_pieces(pieces: list[tuple[str, str]]) -> None:
    text = Styled()
    for piece in pieces:
        text.append(*piece)
    drawn, plain = io.StringIO(), io.StringIO()
    Console(file=drawn, highlight=False, soft_wrap=True, width=400).print(text)
    PlainPrinter(plain).print(text)
    assert plain.getvalue() == drawn.getvalue()


def test_a_terminal_gets_the_styles() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, color_system="standard")
    console.print(Styled("error", "bold red").append(": [x]"))
    assert drawn.getvalue() == "\x1b[1;31merror\x1b[0m: [x]\n"
