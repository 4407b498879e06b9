"""The verbs of the command line: their names and what they do, without loading one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from speclaunch.record import record

DEFAULT = "launch"
"""The verb of `speclaunch recipe=NAME …`."""


@record
class Verb:
    """A verb, or a group of them: `where` names the module below `speclaunch.cli` and what of it.

    `help` is its summary, which `speclaunch --help` shows before the verb is loaded.
    """

    name: str
    where: str
    help: str
    is_group: bool = False


VERBS = (
    Verb(
        "launch",
        "launch:launch",
        "Start the engine of a recipe, check that it speculates, and stay until it ends.",
    ),
    Verb(
        "plan",
        "plan:plan",
        "Show the effective settings and their reasons, whether they fit into memory, the command.",
    ),
    Verb(
        "drafts",
        "drafts:drafts",
        "List the ways to speculate for a target: its MTP layers, published drafts, NGRAM.",
    ),
    Verb(
        "init",
        "init:init",
        "Write a complete recipe for a target that passes every rule and fits the hardware.",
    ),
    Verb("ps", "ps:ps", "List the running engines that speclaunch supervises."),
    Verb(
        "logs",
        "logs:logs",
        "Print the log of an engine; --follow continues across rotations and attempts.",
    ),
    Verb(
        "stop",
        "stop:stop",
        "Stop an engine once its requests are finished; wait until all its processes are gone.",
    ),
    Verb(
        "import",
        "import_:import_",
        "Write the recipe of an existing server command to standard output. Nothing is executed.",
    ),
    Verb(
        "migrate",
        "migrate:migrate",
        "Migrate FILE to another engine version: rename renamed flags, remove removed ones.",
    ),
    Verb(
        "render",
        "render:render",
        "Write a recipe in the format of another tool, for one engine version.",
    ),
    Verb(
        "doctor",
        "doctor:doctor",
        "Check this machine: engine, GPUs, memory, disk, ports, leftovers; and a recipe, if given.",
    ),
    Verb(
        "lint",
        "lint:lint",
        "Check deployments in files against the rules, for one or more engine versions.",
    ),
    Verb(
        "diagnose",
        "diagnose:diagnose",
        "Explain an engine log: how far the engine got, what stopped it, what to do.",
    ),
    Verb("rules", "rules:rules", "List every rule with its code, severity and engine versions."),
    Verb(
        "explain",
        "rules:explain",
        "Explain a rule: what it finds, why it matters, what to do, and its sources.",
    ),
    Verb("runs", "runs:app", "List launches, or show one in detail.", is_group=True),
    Verb(
        "recipes",
        "recipes:app",
        "List the recipes that come with speclaunch, or copy one.",
        is_group=True,
    ),
    Verb("engine", "engine:app", "The engines on this machine, and the CPU engine.", is_group=True),
    Verb(
        "models",
        "models:app",
        "Checkpoints: the facts that a repository keeps of them, and what is in their files.",
        is_group=True,
    ),
)
"""In the order in which the help lists them."""

COMPLETION = "_TYPER_COMPLETE_ARGS"
"""The command line so far, where a shell asks for its completion."""


def asked(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> str | None:
    """The verb that a command line is about; None where it is about none, or all of them."""
    if COMPLETION in environment:
        words = environment[COMPLETION].split()[1:]
    names = {verb.name for verb in VERBS}
    if words and words[0] in names:
        return words[0]
    recipe = any("=" in word and not word.startswith("-") for word in words)
    return DEFAULT if recipe else None


_RETURNS = ("-h", "--help", "--dry")
"""Beginnings of the options with which a launch starts nothing."""


def stays(words: Sequence[str]) -> bool:
    """Whether a command line is a launch that stays with an engine, if it is not refused."""
    if COMPLETION in os.environ or asked(words) != DEFAULT:
        return False
    return not any(word.startswith(_RETURNS) for word in words)
