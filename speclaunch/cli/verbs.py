"""The verbs of the command line: their names and what they do, without loading one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from speclaunch.errors import Problem
from speclaunch.record import record

DEFAULT = "launch"
"""The verb of `speclaunch recipe=NAME …`."""

BENCH_RUN = "run"
"""That of `speclaunch bench recipe=NAME …`, below bench."""
DEFAULT_BELOW = {"bench": BENCH_RUN}
"""The groups whose words need no verb of their own, and which one they then mean."""


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
        "bench",
        "bench_group:app",
        "Measure whether speculation pays: two deployments, interleaved, with a confidence "
        "interval.",
        is_group=True,
    ),
    Verb(
        "prove",
        "prove:prove",
        "Prove that speculation leaves answers as they are: greedy ones, token by token.",
    ),
    Verb(
        "tune",
        "tune:tune",
        "Find the fastest steps, topk and draft tokens with few engine starts.",
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
    Verb(
        "sweep",
        "sweep:sweep",
        "Start (or plan) every combination of some settings, and show one table.",
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
    Verb(
        "lsp",
        "lsp:lsp",
        "Check deployments while you type: the language server that an editor starts.",
    ),
    Verb(
        "completion",
        "completion:completion",
        "Print the script that completes verbs, options, recipes and overrides in a shell.",
    ),
)
"""`GROUPS` has the order in which the help lists them."""

GROUPS = (
    ("Start", ("init", "plan", "launch", "lint", "doctor")),
    ("Run", ("ps", "logs", "stop", "runs", "diagnose")),
    ("Measure", ("bench", "prove", "tune", "sweep")),
    ("Change", ("import", "migrate", "render")),
    ("Know", ("drafts", "models", "recipes", "rules", "explain", "engine")),
    ("Integrate", ("lsp", "completion")),
)
"""The verbs by what they are for, as the help shows them."""

SHOWN = {"sweep": "-m"}
"""The verb as the help shows it: `speclaunch -m recipe=A,B` is how a sweep is written."""

COMPLETION = "_SPECLAUNCH_COMPLETE"
"""Names the shell that asks what the last word can become: see completion_scripts.py."""


def asked(words: Sequence[str]) -> str | None:
    """The verb that a command line is about; None where it is about none, or all of them."""
    names = {verb.name for verb in VERBS}
    if words and words[0] in names:
        return words[0]
    recipe = any("=" in word and not word.startswith("-") for word in words)
    return DEFAULT if recipe else None


def misspelled_verb(words: Sequence[str]) -> Problem | None:
    """The problem of a first word that is neither a verb nor a recipe: `luanch recipe=NAME`."""
    first = words[0] if words else ""
    names_recipe = any(word.startswith("recipe=") for word in words[1:])
    if not names_recipe or "=" in first or first.startswith("-") or asked(words) == first:
        return None
    from speclaunch.engine.nearest import nearest

    close = nearest(first, [verb.name for verb in VERBS], 1)
    if not close:
        return None
    help_ = f"did you mean `speclaunch {' '.join((close[0], *words[1:]))}`?"
    return Problem(f"unknown verb {first!r}", help=help_)


_MULTIRUN = ("-m", "--multirun")
"""Hydra's own words for a sweep."""


def swept(words: Sequence[str]) -> list[str]:
    """The same command line, where it says `-m` as `sweep`: `speclaunch -m recipe=a,b key=1,2`,
    `speclaunch plan -m …`. Each job of a launch is a `--smoke`, which need not be said."""
    verb = asked(words)
    if verb not in (DEFAULT, "plan") or not any(word in _MULTIRUN for word in words):
        return list(words)
    dropped = (*_MULTIRUN, *(("--smoke",) if verb == DEFAULT else ()))
    rest = [word for word in words if word not in dropped]
    rest = rest[1:] if rest[:1] == [verb] else rest
    return ["sweep", *(("--plan",) if verb == "plan" else ()), *rest]


_RETURNS = ("-h", "--help", "--dry")
"""Beginnings of the options with which a launch starts nothing."""


def stays(words: Sequence[str]) -> bool:
    """Whether a command line is a launch that stays with an engine, if it is not refused."""
    if COMPLETION in os.environ or asked(words) != DEFAULT:
        return False
    return not any(word.startswith(_RETURNS) for word in words)
