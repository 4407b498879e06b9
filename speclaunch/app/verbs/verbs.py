"""The verbs of the command line, declared without loading their modules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.core import ExitCode, Problem

if TYPE_CHECKING:
    from speclaunch.app.verbs.options import VerbOptions

DEFAULT = "launch"
"""Verb of `speclaunch recipe=NAME …`."""

BENCH_RUN = "run"
"""Verb of `speclaunch bench recipe=NAME …`, below bench."""
DEFAULT_BELOW = {"bench": BENCH_RUN}
"""Default verb of each group that can be used without one."""

_BENCH = (
    "Measure whether speculation pays: two deployments, interleaved, with a confidence interval."
)


class Verb(Struct, frozen=True):
    """A verb, or a group of verbs.

    `where` names a function and `options` the class of its options: `module:name` below
    `speclaunch.app.verbs`, loaded on first use. `help` is the text of `--help`. A group with a
    function runs it if no verb below is named.
    """

    name: str
    where: str
    options: str
    help: str
    below: tuple[Verb, ...] = ()

    @property
    def summary(self) -> str:
        """First paragraph of `help`."""
        return self.help.partition("\n\n")[0]

    @property
    def declared(self) -> type[VerbOptions]:
        """Class of its options."""
        found: type[VerbOptions] = _load(self.options)
        return found

    def run(self, options: VerbOptions) -> ExitCode:
        """Run the verb. Raises SpeclaunchError."""
        function = _load(self.where)
        if getattr(options, "trust_engine", False):
            from speclaunch.engine import trust_all

            trust_all()
        return function(options) or ExitCode.CLEAN


def _load(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(f"speclaunch.app.verbs.{module}"), name)


_NONE = "options:VerbOptions"

VERBS = (
    Verb(
        "launch",
        "launch:launch",
        "start_options:LaunchOptions",
        "Start the engine of a recipe, check that it speculates, and stay until it ends.",
    ),
    Verb(
        "plan",
        "plan:plan",
        "start_options:PlanOptions",
        "Show the effective settings and their reasons, whether they fit into memory, the command."
        "\n\nNothing is started. Two recipes, or two versions (`--engine 0.5.12,0.5.23`), are "
        "compared.",
    ),
    Verb(
        "bench",
        "",
        _NONE,
        _BENCH,
        (
            Verb(BENCH_RUN, "bench:bench", "measure_options:BenchOptions", _BENCH),
            Verb(
                "ls",
                "bench_results:list_results",
                "run_options:FormatOptions",
                "List what was measured, newest last.",
            ),
            Verb(
                "show",
                "bench_results:show",
                "measure_options:BenchShowOptions",
                "Show again what was measured: as text, JSON, Markdown, or a page.",
            ),
            Verb(
                "compare",
                "bench_results:compare",
                "measure_options:BenchCompareOptions",
                "Compare two certificates: is the second one faster, and how sure is that.",
            ),
        ),
    ),
    Verb(
        "prove",
        "prove:prove",
        "measure_options:ProveOptions",
        "Prove that speculation leaves answers as they are: greedy ones, token by token.",
    ),
    Verb(
        "tune",
        "tune:tune",
        "measure_options:TuneOptions",
        "Find the fastest steps, topk and draft tokens with few engine starts.",
    ),
    Verb(
        "drafts",
        "init:drafts",
        "change_options:DraftsOptions",
        "List the ways to speculate for a target: its MTP layers, published drafts, NGRAM.\n\n"
        "Each with the engine versions that take it, and with --hardware what it costs in memory.\n"
        "Nothing is started. Exit 1 where no version takes any.",
    ),
    Verb(
        "init",
        "init:init",
        "change_options:InitOptions",
        "Write a complete recipe for a target that passes every rule and fits the hardware.\n\n"
        "The way to speculate is the best-founded one that the version serves; the recipe says "
        "why, and why\nothers were not taken. Nothing is written that is not clean (exit 1), "
        "except with --force.",
    ),
    Verb(
        "sweep",
        "sweep:sweep",
        "measure_options:SweepOptions",
        "Start (or plan) every combination of some settings, and show one table.\n\n"
        "`speclaunch -m recipe=a,b key=1,2` is the same.",
    ),
    Verb(
        "ps",
        "runs:ps",
        "run_options:FormatOptions",
        "List the running engines that speclaunch supervises.",
    ),
    Verb(
        "logs",
        "runs:logs",
        "run_options:LogsOptions",
        "Print the log of an engine; --follow continues across rotations and attempts.",
    ),
    Verb(
        "stop",
        "runs:stop",
        "run_options:StopOptions",
        "Stop an engine once its requests are finished; wait until all its processes are gone.",
    ),
    Verb(
        "import",
        "import_:import_",
        "change_options:ImportOptions",
        "Write the recipe of an existing server command to standard output. Nothing is executed."
        "\n\nA `vllm serve` command becomes one of SGLang's.\n\n"
        "Exit 1, and nothing is written, if the rules find an error in a recipe that its source "
        "does\nnot have.",
    ),
    Verb(
        "migrate",
        "migrate:migrate",
        "change_options:MigrateOptions",
        "Migrate FILE to another engine version: rename renamed flags, remove removed ones.\n\n"
        "The file is changed in place (standard input goes to standard output), and with it its\n"
        "container images and the file of its `--config`; everything else stays unchanged. The "
        "result\nis read back before it is written. Exit 1, and nothing is written, when something "
        "has no\ncounterpart in that version, the version would refuse the result, or the rules "
        "find an error\nin it that the file does not have.",
    ),
    Verb(
        "render",
        "render:render",
        "change_options:RenderOptions",
        "Write a recipe in the format of another tool, for one engine version.\n\n"
        "Exit 1, and nothing is written, if the rules find an error in it.",
    ),
    Verb(
        "doctor",
        "doctor:doctor",
        "start_options:DoctorOptions",
        "Check this machine: engine, GPUs, memory, disk, ports, leftovers; and a recipe, if given.",
    ),
    Verb(
        "lint",
        "lint:lint",
        "start_options:LintOptions",
        "Check deployments in files against the rules, for one or more engine versions.",
    ),
    Verb(
        "diagnose",
        "diagnose:diagnose",
        "run_options:DiagnoseOptions",
        "Explain an engine log: how far the engine got, what stopped it, what to do.",
    ),
    Verb(
        "rules",
        "rules:rules",
        "run_options:FormatOptions",
        "List every rule with its code, severity and engine versions.",
    ),
    Verb(
        "explain",
        "rules:explain",
        "change_options:ExplainOptions",
        "Explain a rule: what it finds, why it matters, what to do, and its sources.",
    ),
    Verb(
        "runs",
        "runs:list_runs",
        "run_options:RunsOptions",
        "List launches, or show one in detail.",
        (
            Verb(
                "ls",
                "runs:list_runs",
                "run_options:RunsListOptions",
                "List the launches, newest last.",
            ),
            Verb(
                "show",
                "runs:show",
                "run_options:RunsShowOptions",
                "Show what happened in a launch: attempts, milestones, causes, rungs, the end.",
            ),
            Verb(
                "prune",
                "runs:prune",
                "run_options:RunsPruneOptions",
                "Remove the logs and journals of all but the last ended launches.",
            ),
        ),
    ),
    Verb(
        "recipes",
        "recipes:list_recipes",
        "change_options:RecipesOptions",
        "List the recipes that come with speclaunch, or copy one.",
        (
            Verb(
                "ls",
                "recipes:list_recipes",
                "change_options:RecipesOptions",
                "List the recipes with one line each.",
            ),
            Verb(
                "cp",
                "recipes:copy",
                "change_options:CopyOptions",
                "Copy a recipe to a file of your own; launch it with recipe=path/to/file.yaml.",
            ),
            Verb(
                "schema",
                "recipes:schema",
                "change_options:SchemaOptions",
                "Write the JSON schema of recipes, for editors and other checkers.",
            ),
        ),
    ),
    Verb(
        "engine",
        "",
        _NONE,
        "The engines on this machine, and the CPU engine.",
        (
            Verb("ls", "engine:list_engines", _NONE, "List the engines that a launch finds."),
            Verb(
                "install",
                "engine:install_engine",
                "change_options:InstallOptions",
                "Install the real SGLang for the CPU (2 minutes, 1.6 GB). Safe to repeat or "
                "interrupt.",
            ),
            Verb(
                "catalogue",
                "",
                _NONE,
                "The server arguments of each SGLang version that speclaunch knows.",
                (
                    Verb(
                        "ls",
                        "engine:list_catalogues",
                        _NONE,
                        "List the versions, and how many server arguments each has.",
                    ),
                    Verb(
                        "show",
                        "engine:show_argument",
                        "change_options:CatalogueShowOptions",
                        "Show one server argument across versions.",
                    ),
                    Verb(
                        "add",
                        "engine:add_catalogue",
                        "change_options:CatalogueAddOptions",
                        "Read the server arguments of an engine that is newer than speclaunch. "
                        "Nothing is imported.",
                    ),
                ),
            ),
            Verb(
                "judge",
                "",
                _NONE,
                "The releases of SGLang whose own validation can be asked here.",
                (
                    Verb(
                        "add",
                        "engine:add_judge",
                        "change_options:JudgeAddOptions",
                        "Make a release ready to be asked: its wheel, and what it pins of what "
                        "validation needs.",
                    ),
                    Verb(
                        "ls",
                        "engine:list_judges",
                        _NONE,
                        "List the releases that can be asked, with what they take on disk.",
                    ),
                    Verb(
                        "rm",
                        "engine:remove_judge",
                        "change_options:JudgeRemoveOptions",
                        "Remove a judge and its packages.",
                    ),
                ),
            ),
        ),
    ),
    Verb(
        "models",
        "",
        _NONE,
        "Checkpoints: the facts that a repository keeps of them, and what is in their files.",
        (
            Verb(
                "inspect",
                "models:inspect",
                "change_options:InspectOptions",
                "Check a checkpoint's tensors against what the engine loads, by the heads of its "
                "files.",
            ),
            Verb(
                "pull",
                "models:pull",
                "change_options:PullOptions",
                "Fetch the facts of checkpoints, never their weights, into files to be committed.",
            ),
            Verb(
                "ls",
                "models:list_models",
                "change_options:ModelsListOptions",
                "List the checkpoints whose facts the repository keeps.",
            ),
            Verb(
                "show",
                "models:show",
                "change_options:ModelsShowOptions",
                "Show everything that is known of a checkpoint, and where it comes from.",
            ),
            Verb(
                "check",
                "models:check",
                "change_options:ModelsCheckOptions",
                "Compare the repository's facts with the hub; exit 1 where one is stale or "
                "unknown there.",
            ),
        ),
    ),
    Verb(
        "lsp",
        "lsp:lsp",
        "change_options:LspOptions",
        "Check deployments while you type: the language server that an editor starts.",
    ),
    Verb(
        "completion",
        "completion_scripts:completion",
        "completion_scripts:CompletionOptions",
        "Print the script that completes verbs, options, recipes and overrides in a shell.",
    ),
)
"""All verbs; `GROUPS` sets their order in the help."""

GROUPS = (
    ("Start", ("init", "plan", "launch", "lint", "doctor")),
    ("Run", ("ps", "logs", "stop", "runs", "diagnose")),
    ("Measure", ("bench", "prove", "tune", "sweep")),
    ("Change", ("import", "migrate", "render")),
    ("Know", ("drafts", "models", "recipes", "rules", "explain", "engine")),
    ("Integrate", ("lsp", "completion")),
)
"""Sections of the help, and the verbs in each."""

SHOWN = {"sweep": "-m"}
"""Names in the help that differ from the verb: `speclaunch -m recipe=A,B` runs a sweep."""

COMPLETION = "_SPECLAUNCH_COMPLETE"
"""Environment variable with the shell that requests completions: see completion_scripts.py."""


def verb_named(name: str) -> Verb:
    """Return a verb by its name; `bench run` names a verb below a group."""
    found, *below = name.split(" ")
    verb = next(verb for verb in VERBS if verb.name == found)
    for part in below:
        verb = next(subverb for subverb in verb.below if subverb.name == part)
    return verb


def verb_of(words: Sequence[str]) -> str | None:
    """Return the verb of a command line; None if it names neither a verb nor a recipe."""
    names = {verb.name for verb in VERBS}
    if words and words[0] in names:
        return words[0]
    recipe = any("=" in word and not word.startswith("-") for word in words)
    return DEFAULT if recipe else None


def misspelled_verb(words: Sequence[str]) -> Problem | None:
    """Return the problem of a misspelled verb before a recipe (`luanch recipe=NAME`), or None."""
    first = words[0] if words else ""
    names_recipe = any(word.startswith("recipe=") for word in words[1:])
    if not names_recipe or "=" in first or first.startswith("-") or verb_of(words) == first:
        return None
    from speclaunch.engine import nearest

    close = nearest(first, [verb.name for verb in VERBS], 1)
    if not close:
        return None
    help_ = f"did you mean `speclaunch {' '.join((close[0], *words[1:]))}`?"
    return Problem(f"unknown verb {first!r}", help=help_)


_MULTIRUN = ("-m", "--multirun")
"""Hydra's options for a sweep."""


def rewrite_multirun(words: Sequence[str]) -> list[str]:
    """Rewrite a command line with `-m` to use `sweep`; return any other unchanged.

    `-m` applies to `speclaunch -m recipe=a,b key=1,2` and `speclaunch plan -m …`. Each job of a
    launch implies `--smoke`, which is removed.
    """
    verb = verb_of(words)
    if verb not in (DEFAULT, "plan") or not any(word in _MULTIRUN for word in words):
        return list(words)
    dropped = (*_MULTIRUN, *(("--smoke",) if verb == DEFAULT else ()))
    rest = [word for word in words if word not in dropped]
    rest = rest[1:] if rest[:1] == [verb] else rest
    return ["sweep", *(("--plan",) if verb == "plan" else ()), *rest]


_RETURNS = ("-h", "--help", "--dry")
"""Prefixes of the options with which a launch starts nothing."""


def is_foreground_launch(words: Sequence[str]) -> bool:
    """True if a command line is a launch that starts and supervises an engine, unless refused."""
    if COMPLETION in os.environ or verb_of(words) != DEFAULT:
        return False
    return not any(word.startswith(_RETURNS) for word in words)
