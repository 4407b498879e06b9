"""Command lines of `lint`, `launch` and `explain` that are read without the framework: it is slow.

Whatever is not plainly one of these (an abbreviation, a value that begins with a hyphen, an unknown
option, a mistake) is read by typer, which says what is wrong. A test holds that both read the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speclaunch.cli.verbs import COMPLETION, DEFAULT, asked

if TYPE_CHECKING:
    from enum import StrEnum

    from speclaunch.cli.launching import LaunchWords
    from speclaunch.cli.linting import LintWords

FLAGS = {
    "--online": "online",
    "--strict": "strict",
    "--info": "info",
    "--no-cache": "no_cache",
    "--exit-zero": "exit_zero",
    "--fix": "fix",
    "--unsafe-fixes": "unsafe_fixes",
    "--diff": "diff",
    "--only-deployments": "only_deployments",
    "--no-config": "no_config",
    "--no-gitignore": "no_gitignore",
    "--trust-engine": "trust_engine",
}
NEGATED = {"--no-exit-zero": "exit_zero"}
LAUNCH_FLAGS = {
    "--dry-run": "dry_run",
    "--smoke": "smoke",
    "--detach": "detach",
    "-d": "detach",
    "--fresh": "fresh",
    "--verbose": "verbose",
    "-v": "verbose",
    "--force": "force",
    "--online": "online",
    "--trust-engine": "trust_engine",
}
TEXTS = {"--engine": "engine", "--hardware": "hardware", "--ask": "ask"}
LISTS = {"--assume": "assume", "--select": "select", "--ignore": "ignore"}
_OUTPUTS = ("--output", "-o", "--output-file")
LINT_LISTS = {**dict.fromkeys(_OUTPUTS, "output_file"), "--exclude": "exclude"}
PATHS = {"--models": "models", "--config-dir": "config_dir"}
FORMAT = "--output-format"
JOBS = "--jobs"
ROLE = "--role"
OTHERS = {FORMAT: "output_format", JOBS: "jobs"}
FILES = {"--config": "config", "--baseline": "baseline", "--write-baseline": "write_baseline"}
"""Of `lint` alone, as `LINT_LISTS` are."""


def quick_lint(
    words: Sequence[str], environment: Mapping[str, str] = os.environ
) -> LintWords | None:
    """What a command line asks of `lint`; None where the framework has to read it."""
    if words[:1] != ["lint"] or COMPLETION in environment:
        return None
    found = _options(words[1:], FLAGS, OTHERS | FILES, "paths", NEGATED, LINT_LISTS)
    if found is None:
        return None
    from speclaunch.asking.mode import Ask
    from speclaunch.cli.formats import LintFormat

    if not _chosen(found, "output_format", LintFormat) or not _chosen(found, "ask", Ask):
        return None
    from speclaunch.cli.linting import LintWords

    if "jobs" in found:
        if not (found["jobs"].isascii() and found["jobs"].isdigit() and int(found["jobs"])):
            return None
        found["jobs"] = int(found["jobs"])
    from pathlib import Path

    for name in FILES.values():
        if name in found:
            found[name] = Path(found[name])
    return LintWords(**found)


def quick_explain(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a command line asks for the page of one rule, and nothing else."""
    plain = len(words) == 2 and words[0] == "explain" and not words[1].startswith("-")
    return plain and COMPLETION not in environment


def quick_launch(
    words: Sequence[str], environment: Mapping[str, str] = os.environ
) -> LaunchWords | None:
    """What a command line asks of `launch`; None where the framework has to read it."""
    if asked(words) != DEFAULT or COMPLETION in environment:
        return None
    if words[0] == DEFAULT:
        words = words[1:]
    elif words[0].startswith("-"):
        return None
    found = _options(words, LAUNCH_FLAGS, {FORMAT: OTHERS[FORMAT], ROLE: "role"}, "overrides")
    if found is None or not found["overrides"]:
        return None
    from speclaunch.asking.mode import Ask
    from speclaunch.cli.formats import OutputFormat

    if not _chosen(found, "output_format", OutputFormat) or not _chosen(found, "ask", Ask):
        return None
    from speclaunch.cli.launching import LaunchWords

    return LaunchWords(**found)


def _chosen(found: dict[str, Any], option: str, choices: type[StrEnum]) -> bool:
    """Put the choice for its name; whether it is one of them."""
    name = found.get(option)
    if name is not None:
        by_name = {one.value: one for one in choices}
        found[option] = by_name.get(name)
    return name is None or found[option] is not None


def _options(
    words: Sequence[str],
    flags: Mapping[str, str],
    others: Mapping[str, str],
    rest_name: str,
    negated: Mapping[str, str] = {},
    more_lists: Mapping[str, str] = {},
) -> dict[str, Any] | None:
    """The values by their names; None for what is not plainly one of the options."""
    lists = {**LISTS, **more_lists, **PATHS}
    found: dict[str, Any] = dict.fromkeys((rest_name, *lists.values()), ())
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            found[rest_name] += (word,)
            continue
        if word in flags or word in negated:
            found[flags.get(word) or negated[word]] = word in flags
            continue
        option, equals, value = word.partition("=")
        if option not in TEXTS and option not in lists and option not in others:
            return None
        if equals and not option.startswith("--"):
            return None  # `-o=x`: the framework takes `=x` for the value
        if not equals:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        if option in lists:
            found[lists[option]] += (value,)
        else:
            found[{**TEXTS, **others}[option]] = value
    from pathlib import Path

    for name in PATHS.values():
        found[name] = tuple(Path(text) for text in found[name])
    return found
