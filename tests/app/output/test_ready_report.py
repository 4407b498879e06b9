"""The report of an engine that serves."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from speclaunch.app.output.live_start import show_passed, show_ready
from speclaunch.engine.releases.shell import Address


def test_the_text_of_a_tiny_model_is_declared_meaningless() -> None:
    for tiny in (False, True):
        text = io.StringIO()
        show_ready(
            Console(file=text, width=200),
            name="cpu_ngram",
            version="0.5.23",
            address=Address("127.0.0.1", 30000),
            seconds=3.0,
            verification=None,
            log=Path("engine.log"),
            tiny=tiny,
        )
        assert ("meaningless by design" in text.getvalue()) is tiny


def test_a_smoke_test_of_a_tiny_model_ends_with_commands_for_another() -> None:
    for tiny in (False, True):
        text = io.StringIO()
        show_passed(Console(file=text, width=200), tiny=tiny)
        lines = text.getvalue().splitlines()
        assert lines[0] == "passed"
        assert [line.split()[:2] for line in lines[3:]] == [
            ["speclaunch", verb] for verb in ("drafts", "init", "plan") if tiny
        ]
