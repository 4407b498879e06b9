"""Every option of every verb stands on the verb's page of docs/reference/."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

from speclaunch.app.verbs import commands
from speclaunch.app.verbs.options import VerbOptions
from speclaunch.app.verbs.start_options import LintOptions
from speclaunch.app.verbs.verbs import VERBS, Verb, _load
from speclaunch.engine import PROJECT_KEYS
from tests.support.loops import over
from tests.support.program import run as program

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
PAGES = {
    **dict.fromkeys(("lint", "rules", "explain"), "lint"),
    **dict.fromkeys(("runs", "ps", "logs", "stop"), "runs"),
    **dict.fromkeys(("drafts", "init"), "drafts"),
    **{
        verb: verb
        for verb in (
            *("plan", "sweep", "doctor", "diagnose", "models", "bench", "prove", "tune"),
            *("bisect", "upgrade", "watch"),
        )
    },
}
"""All other verbs are told in command-line.md."""


def every_verb(verbs: tuple[Verb, ...] = VERBS, above: str = "") -> Iterator[tuple[str, Verb]]:
    """Each verb and group with its full name."""
    for verb in verbs:
        yield above + verb.name, verb
        yield from every_verb(verb.below, f"{above}{verb.name} ")


def spellings() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each verb, and the spellings of one of its options."""
    for name, verb in every_verb():
        for option in verb.declared.declared().values():
            if option.names and not verb.below:
                yield name, option.spellings


@over(list(spellings()))
def test_an_option_stands_on_its_page(option: tuple[str, tuple[str, ...]]) -> None:
    verb, ways = option
    page = REFERENCE / f"{PAGES.get(verb.partition(' ')[0], 'command-line')}.md"
    text = page.read_text()
    assert any(re.search(rf"(?<![\w-]){one}(?![\w-])", text) for one in ways), page.name


def test_lint_names_the_keys_of_its_options() -> None:
    """In its help and in the table of keys; `extend` and `overrides` are no options."""
    shown = " ".join(program("lint", "--help").stdout.replace("│", " ").split())
    keys = set(re.findall(r"In speclaunch\.toml: `([\w-]+)`", shown))
    assert keys == set(PROJECT_KEYS) - {"extend", "overrides"}
    table = (REFERENCE / "configuration.md").read_text().partition("## Keys")[2]
    rows = re.findall(r"^\| (`.*?) \|.*\| (.*?) ?\|$", table, re.M)
    listed = {
        key: option
        for ks, options in rows
        for key, option in zip(
            re.findall(r"`([\w-]+)`", ks), [*re.findall(r"`(--[\w-]+)`", options), ""], strict=False
        )
    }
    assert listed == {key: f"--{key}" if key in keys else "" for key in PROJECT_KEYS}


@over([(name, verb) for name, verb in every_verb() if verb.where])
def test_a_verb_is_a_function_of_its_options(named: tuple[str, Verb]) -> None:
    name, verb = named
    (parameter,) = inspect.signature(_load(verb.where)).parameters.values()
    assert verb.declared.__name__ in parameter.annotation.split(" | "), name


@over(list(every_verb()))
def test_the_options_of_a_verb_have_different_names(named: tuple[str, Verb]) -> None:
    name, verb = named
    found = [one for option in verb.declared.declared().values() for one in option.spellings]
    assert len(found) == len(set(found)), name
    assert issubclass(verb.declared, VerbOptions)


@pytest.mark.thorough
@over([(name, verb) for name, verb in every_verb() if verb.example])
def test_an_example_is_a_command_line_of_the_verb(named: tuple[str, Verb]) -> None:
    name, verb = named
    words = [*name.split(" "), *shlex.split(verb.example.partition(" > ")[0])]
    commands.register(words)
    seen: list[VerbOptions] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Verb, "run", lambda _, options: seen.append(options) or 0)
        get_command(commands.app)(words, standalone_mode=False, prog_name="speclaunch")
    named_below = [below for below in verb.below if below.name == words[len(name.split(" "))]]
    assert isinstance(seen[0], [verb, *named_below][-1].declared), name


def test_help_groups_options_and_ends_with_an_example() -> None:
    commands.register(["lint"])
    command: Any = get_command(commands.app).commands["lint"]  # type: ignore[attr-defined]
    lines = command.get_help(Context(command, info_name="lint")).splitlines()
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "]
    assert titles[:3] == ["Arguments", "Options", "Deployment"]
    assert titles[-2:] == ["Baseline", "Example"]
    assert lines[-1] == "  lint deploy/ --engine 0.5.23 --hardware h100:8"


def test_an_attribute_is_the_record_of_a_class_and_the_value_of_options() -> None:
    assert LintOptions.jobs.spellings == ("--jobs",)
    assert (LintOptions().jobs, LintOptions(jobs=2).jobs, LintOptions().paths) == (None, 2, ())
    assert LintOptions(jobs=2).changed(strict=True) == LintOptions(jobs=2, strict=True)
    assert LintOptions() != LintOptions(strict=True)
    with pytest.raises(TypeError, match="no such options: job"):
        LintOptions(job=2)
