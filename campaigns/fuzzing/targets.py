"""The promises that have to hold for every text. Each target gets a file, and raises."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclaunch.app.verbs.app import plain_options
from speclaunch.app.verbs.lint import lint as lint_verb
from speclaunch.app.verbs.start_options import LintOptions
from speclaunch.checks.edit.edits import applied, text_edits_between
from speclaunch.checks.edit.fix_files import fix_file
from speclaunch.checks.edit.import_recipes import import_command
from speclaunch.checks.edit.migrate_file import migrate_data
from speclaunch.checks.lint.collect import read_found
from speclaunch.checks.lint.configuration import FoundFile, Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.errors import ExitCode, SpeclaunchError
from speclaunch.deployments.sources.files import read_file
from speclaunch.engine.releases.catalogue import held_versions

DEPLOYMENTS = (".sh", ".yaml", ".md")


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about a file, and the kinds of files that it is asked about."""

    name: str
    ask: Callable[[Path], None]
    suffixes: tuple[str, ...] = DEPLOYMENTS


def lint(path: Path) -> None:
    """Every format can be written, and every place is in the file."""
    found = json.loads(_linted(path, "json") or '{"files": []}')
    lines = path.read_text(errors="replace").removeprefix("\ufeff").split("\n")
    for file in found["files"]:
        for one in file["findings"]:
            _require_place(one, str(path), lines)
    _linted(path, "text")


def _linted(path: Path, written: str) -> str:
    """What lint writes in a format; empty where there is nothing to check."""
    words = ["--no-cache", "--engine", held_versions()[-1], "--hardware", "h100:8"]
    options = plain_options(LintOptions, [*words, "--output-format", written, str(path)])
    assert options is not None
    out = io.StringIO()
    with contextlib.redirect_stdout(out), _only_bugs():
        lint_verb(options)
    return out.getvalue()


def _require_place(one: dict[str, Any], path: str, lines: list[str]) -> None:
    if one["path"] != path or one["line"] is None:
        return
    assert 1 <= one["line"] <= len(lines), one
    assert 1 <= one["column"] <= len(lines[one["line"] - 1]) + 1, one


@contextlib.contextmanager
def _only_bugs() -> Any:
    """Let pass what a user is told; a bug of ours is one, whoever tells it."""
    try:
        yield
    except SpeclaunchError as error:
        if error.exit_code is ExitCode.INTERNAL:
            raise


def importing(path: Path) -> None:
    """Each command becomes a recipe that is proven, or it is said why not."""
    with _only_bugs():
        reading = read_file(path, str(path))
        for invocation in reading.commands(str(path)):
            with _only_bugs():
                import_command(invocation, "fuzzed", str(path), None)


def migrate(path: Path) -> None:
    """What is carried to another version is proven, or it is said why not."""
    data = path.read_bytes()
    dice = random.Random(data)  # noqa: S311 - not a secret
    with _only_bugs():
        migrate_data(data, str(path), dice.choice(held_versions()), None)


def fix(path: Path) -> None:
    """All fixes of a file: proven, told as edits that make the same text, and nothing twice."""
    options = Options(Lookup(), all_rules(), (held_versions()[-1],))
    with _only_bugs():
        source = read_found(FoundFile(str(path), is_named=True))
        if source is None or source.not_read:
            return
        done = fix_file(source, options, unsafe=True)
        assert applied(done.before, text_edits_between(done.before, done.after)) == done.after
        path.write_bytes(done.after.encode())
        again = read_found(FoundFile(str(path), is_named=True))
        assert again is not None
        assert not fix_file(again, options, unsafe=True).is_changed


TARGETS = (
    Target("lint", lint),
    Target("import", importing),
    Target("migrate", migrate),
    Target("fix", fix),
)
