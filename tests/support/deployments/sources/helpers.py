"""What the tests of the importer share."""

from __future__ import annotations

from pathlib import Path

from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.interface import Finding
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.sources.files import read_shell
from speclaunch.deployments.sources.interface import Invocation, Reading, Word
from tests.support.lint_report import collect, lint

SERVER = "python3 -m sglang.launch_server"


def only(reading: Reading) -> Invocation:
    """The one invocation of a reading without problems."""
    assert not reading.problems, reading.problems
    (found,) = reading.invocations
    return found


def shell(script: str) -> Invocation:
    return only(read_shell(script, "x.sh"))


def texts(found: Invocation) -> list[str]:
    return [word.text for word in found.words]


def at(word: Word) -> tuple[int, int]:
    return word.place.line, word.place.column


def env(found: Invocation) -> dict[str, str]:
    return {name: word.text for name, word in found.env.items()}


def dropped(found: Invocation) -> list[str]:
    return [item.text for item in found.dropped]


def slices(text: str, found: Invocation) -> list[str]:
    """What stands in the text at the place of each word."""
    lines = text.split("\n")
    return [
        lines[w.place.line - 1][w.place.column - 1 : w.place.column - 1 + w.place.length]
        for w in found.words
    ]


def lint_text(text: str, name: str, folder: Path, version: str | None = None) -> list[Finding]:
    """What is found in a file of this text: at its own version, else at `version`."""
    file = folder / name
    file.write_text(text)
    options = Options(Lookup(), all_rules(), (version,) if version else (), installed=lambda: None)
    return [one for told in lint(collect([str(file)]), options).files for one in told.findings]
