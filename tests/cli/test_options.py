"""Every option of every verb stands on the verb's page of docs/reference/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from speclaunch.cli import commands
from speclaunch.cli.verbs import VERBS
from tests.loops import over

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = {
    **dict.fromkeys(("lint", "rules", "explain"), "lint"),
    **dict.fromkeys(("runs", "ps", "logs", "stop"), "runs"),
    **dict.fromkeys(("drafts", "init"), "drafts"),
    **{
        verb: verb
        for verb in ("plan", "sweep", "doctor", "diagnose", "models", "bench", "prove", "tune")
    },
}
"""All other verbs are told in command-line.md."""


def spellings() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each verb, and the spellings of one of its options."""
    for verb in VERBS:
        commands.register([verb.name])
    left: list[tuple[str, Any]] = [("", get_command(commands.app))]
    while left:
        verb, command = left.pop()
        below = getattr(command, "commands", {})
        left += [(f"{verb} {name}".strip(), one) for name, one in below.items()]
        for parameter in () if below else command.params:
            if parameter.param_type_name == "option":
                yield verb, tuple(parameter.opts)


@over(list(spellings()))
def test_an_option_stands_on_its_page(option: tuple[str, tuple[str, ...]]) -> None:
    verb, ways = option
    page = REFERENCE / f"{PAGES.get(verb.partition(' ')[0], 'command-line')}.md"
    text = page.read_text()
    assert any(re.search(rf"(?<![\w-]){one}(?![\w-])", text) for one in ways), page.name
