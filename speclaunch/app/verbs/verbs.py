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
"""Verb that `speclaunch recipe=NAME …` runs."""

BENCH_RUN = "run"
"""Verb of the group `bench` that `speclaunch bench recipe=NAME …` runs."""
DEFAULT_BELOW = {"bench": BENCH_RUN}

_BENCH = "Measure the speed-up of speculation over a baseline, with confidence intervals."


class Verb(Struct, frozen=True):
    """A verb, or a group of verbs.

    `where` names a function and `options` its option class, as `module:name` in
    `speclaunch.app.verbs`; both are loaded on first use. `help` is the text of `--help`, and
    `example` the arguments of its example. A group with `where` runs it if no subverb is named.
    """

    name: str
    where: str
    options: str
    help: str
    example: str = ""
    below: tuple[Verb, ...] = ()

    @property
    def summary(self) -> str:
        return self.help.partition("\n\n")[0]

    @property
    def declared(self) -> type[VerbOptions]:
        found: type[VerbOptions] = _load(self.options)
        return found

    def run(self, options: VerbOptions) -> ExitCode:
        """Run the verb, with `--trust-engine` applied first. Raises SpeclaunchError."""
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
        "Start a recipe's engine, verify that it speculates, and supervise it until it exits.",
        "recipe=eagle3_llama8b --smoke",
    ),
    Verb(
        "plan",
        "plan:plan",
        "start_options:PlanOptions",
        "Show the effective settings with their reasons, the memory fit and the exact command."
        "\n\nStarts nothing. Can compare recipes and versions (`--engine 0.5.12,0.5.23`).",
        "recipe=eagle3_llama8b --hardware h100",
    ),
    Verb(
        "bench",
        "",
        _NONE,
        _BENCH,
        below=(
            Verb(
                BENCH_RUN,
                "bench:bench",
                "run_options:BenchOptions",
                _BENCH,
                "recipe=eagle3_llama8b --workload code --output bench.html",
            ),
            Verb(
                "ls",
                "bench:list_results",
                "run_options:FormatOptions",
                "List saved measurements, newest last.",
                "--output-format json",
            ),
            Verb(
                "show",
                "bench:show",
                "run_options:BenchShowOptions",
                "Show a saved measurement as text, JSON, Markdown or HTML.",
                "last --output bench.html",
            ),
            Verb(
                "compare",
                "bench:compare",
                "run_options:BenchCompareOptions",
                "Compare two saved measurements: ratios of speed-ups with confidence intervals.",
                "old.json new.json",
            ),
        ),
    ),
    Verb(
        "prove",
        "prove:prove",
        "run_options:ProveOptions",
        "Prove that speculation leaves greedy answers unchanged, token by token.",
        "recipe=eagle3_llama8b --concurrency 1,16",
    ),
    Verb(
        "tune",
        "tune:tune",
        "run_options:TuneOptions",
        "Find the fastest speculation settings (steps, topk, draft tokens) with few engine starts.",
        "recipe=eagle3_llama8b --objective throughput@8 --write",
    ),
    Verb(
        "bisect",
        "releases:bisect",
        "run_options:BisectOptions",
        "Find the two engine versions between which a recipe stops passing a check.\n\nInstalls "
        "CPU engines as needed, and starts as few versions as possible. Rerun an interrupted "
        "search to resume it. Exits 1 if the two versions are not found.",
        "recipe=cpu_ngram --good 0.5.17 --bad 0.5.23 --check 'acceptance>=3'",
    ),
    Verb(
        "drafts",
        "init:drafts",
        "change_options:DraftsOptions",
        "List the speculation methods for a target: MTP layers, published drafts and NGRAM.\n\n"
        "Shows which engine versions accept each method and, with --hardware, its memory cost. "
        "Starts nothing. Exits 1 if no version accepts any method.",
        "meta-llama/Llama-3.1-8B-Instruct --hardware h100",
    ),
    Verb(
        "init",
        "init:init",
        "change_options:InitOptions",
        "Write a recipe that serves a target, passes every rule and fits the hardware.\n\nUses "
        "the first method listed by `speclaunch drafts` that serves the full context, else the "
        "method that serves the most requests. The recipe explains the choice. If the rules find "
        "errors, nothing is written (exit 1) unless --force is set.",
        "meta-llama/Llama-3.1-8B-Instruct --hardware h100 -o llama8b.yaml",
    ),
    Verb(
        "sweep",
        "sweep:sweep",
        "run_options:SweepOptions",
        "Launch (or plan) every combination of settings and show the results in one table.\n\n"
        "`speclaunch -m recipe=a,b key=1,2` is short for `speclaunch sweep recipe=a,b key=1,2`.",
        "recipe=cpu_ngram args.speculative_num_draft_tokens=4,8 --plan",
    ),
    Verb(
        "ps",
        "runs:ps",
        "run_options:FormatOptions",
        "List the running engines that speclaunch supervises.",
        "--output-format json",
    ),
    Verb(
        "watch",
        "watch:watch",
        "run_options:WatchOptions",
        "Watch the speculation of running engines: acceptance, speed, KV cache, ranks, events.\n\n"
        "Reads /metrics if enabled, else /server_info and the log. Press Ctrl-C to quit.",
        "eagle3_llama8b",
    ),
    Verb(
        "logs",
        "runs:logs",
        "run_options:LogsOptions",
        "Print an engine's log; --follow continues across rotations and start attempts.",
        "eagle3_llama8b --follow",
    ),
    Verb(
        "stop",
        "runs:stop",
        "run_options:StopOptions",
        "Stop an engine after its requests finish, and wait until all its processes exit.",
        "eagle3_llama8b",
    ),
    Verb(
        "import",
        "convert:import_",
        "change_options:ImportOptions",
        "Convert a server command or manifest into a recipe on standard output.\n\n"
        "Executes nothing. Converts `vllm serve` commands to SGLang's arguments. "
        "Writes nothing and exits 1 if the rules find an error that the source does not have.",
        "serve.sh > recipe.yaml",
    ),
    Verb(
        "migrate",
        "convert:migrate",
        "change_options:MigrateOptions",
        "Update a file to another engine version: rename and remove flags that changed.\n\n"
        "Edits the file in place, including its container images and `--config` file, and "
        "leaves the rest unchanged. With `-`, reads standard input and writes standard output. "
        "Writes nothing and exits 1 if a setting has no counterpart in the new version, that "
        "version rejects the result, or the rules find a new error.",
        "deployment.yaml --to 0.5.23 --diff",
    ),
    Verb(
        "upgrade",
        "releases:upgrade",
        "start_options:UpgradeOptions",
        "Show on one page whether a deployment can move to another engine version.\n\nCompares "
        "the command, effective arguments, memory, rule errors and known bugs; with --run, also "
        "the behavior of both versions. Exits 0 if the verdict is `safe`, 1 if it is "
        "`differs`, `not safe` or `unknown`. Prints one table for several deployments.",
        "recipe=eagle3_llama8b --to 0.5.23 --hardware h100",
    ),
    Verb(
        "render",
        "render:render",
        "change_options:RenderOptions",
        "Convert a recipe into another tool's format, for one engine version.\n\nWrites nothing "
        "and exits 1 if the rules find an error in the recipe.",
        "recipe=eagle3_llama8b --to kubernetes -o deployment.yaml",
    ),
    Verb(
        "doctor",
        "doctor:doctor",
        "start_options:DoctorOptions",
        "Check this machine (engine, GPUs, memory, disk, ports), optionally for a recipe.",
        "recipe=eagle3_llama8b",
    ),
    Verb(
        "lint",
        "lint:lint",
        "start_options:LintOptions",
        "Check deployments in files against the rules, for one or more engine versions.",
        "deploy/ --engine 0.5.23 --hardware h100:8",
    ),
    Verb(
        "diagnose",
        "diagnose:diagnose",
        "run_options:DiagnoseOptions",
        "Explain an engine log: how far startup got, what stopped it, and how to fix it.",
        "server.log",
    ),
    Verb(
        "rules",
        "rules:rules",
        "run_options:FormatOptions",
        "List every rule with its code, severity and engine versions.",
        "--output-format json",
    ),
    Verb(
        "explain",
        "rules:explain",
        "change_options:ExplainOptions",
        "Explain a rule: what it finds, why it matters, how to fix it, and its sources.",
        "SPL101",
    ),
    Verb(
        "advisories",
        "advisories:list_advisories",
        "change_options:AdvisoriesListOptions",
        "List known engine bugs, or check a deployment against them.",
        "--engine 0.5.16",
        (
            Verb(
                "ls",
                "advisories:list_advisories",
                "change_options:AdvisoriesListOptions",
                "List the advisories: symptom, affected releases, summary.",
                "--engine 0.5.16",
            ),
            Verb(
                "show",
                "advisories:show",
                "change_options:AdvisoriesShowOptions",
                "Show an advisory: cause, affected releases, remedy, sources.",
                "SPA-2026-0005",
            ),
            Verb(
                "check",
                "advisories:check",
                "change_options:AdvisoriesCheckOptions",
                "Show the known bugs that affect each server.\n\n"
                "Also lists bugs that may affect a server, depending on a missing fact. Exits 1 "
                "if a bug of error severity affects a server.",
                "recipe=eagle3_llama8b --engine 0.5.12,0.5.23 --hardware h100",
            ),
            Verb(
                "export",
                "advisories:export",
                "change_options:AdvisoriesExportOptions",
                "Print all advisories, as JSON or OSV.",
                "--osv",
            ),
            Verb(
                "update",
                "advisories:update",
                "change_options:AdvisoriesUpdateOptions",
                "Store newer advisories from a file, a directory or an https address.\n\nChecks "
                "their schema and SHA-256 checksum. No other command fetches advisories.",
                "advisories.json",
            ),
        ),
    ),
    Verb(
        "runs",
        "runs:list_runs",
        "run_options:RunsOptions",
        "List, show or prune launches.",
        "show last",
        below=(
            Verb(
                "ls",
                "runs:list_runs",
                "run_options:RunsListOptions",
                "List launches, newest last.",
                "--output-format json",
            ),
            Verb(
                "show",
                "runs:show",
                "run_options:RunsShowOptions",
                "Show a launch: start attempts, causes of failure, recovery steps, outcome.",
                "last",
            ),
            Verb(
                "prune",
                "runs:prune",
                "run_options:RunsPruneOptions",
                "Delete the logs and journals of all but the newest finished launches.",
                "--keep 5",
            ),
        ),
    ),
    Verb(
        "recipes",
        "recipes:list_recipes",
        "change_options:RecipesOptions",
        "List or copy the recipes shipped with speclaunch.",
        "cp eagle3_llama8b mine.yaml",
        below=(
            Verb(
                "ls",
                "recipes:list_recipes",
                "change_options:RecipesOptions",
                "List each recipe with a one-line description.",
            ),
            Verb(
                "cp",
                "recipes:copy",
                "change_options:CopyOptions",
                "Copy a recipe to a file that you can edit.",
                "eagle3_llama8b my_recipe.yaml",
            ),
            Verb(
                "schema",
                "recipes:schema",
                "change_options:SchemaOptions",
                "Write a JSON Schema of recipes, for editors and validators.",
                "--output recipe.schema.json",
            ),
        ),
    ),
    Verb(
        "engine",
        "",
        _NONE,
        "List, install and remove engines, and manage their argument catalogues and validators.",
        "install cpu",
        below=(
            Verb("ls", "engine:list_engines", _NONE, "List the engines that a launch can use."),
            Verb(
                "install",
                "engine:install_engine",
                "change_options:InstallOptions",
                "Install SGLang for the CPU (2 minutes, 1.6 GB). Safe to repeat or interrupt.",
                "cpu",
            ),
            Verb(
                "rm",
                "engine:remove",
                "change_options:EngineRemoveOptions",
                "Remove a CPU engine. Fails while a process uses it.",
                "cpu --release 0.5.22",
            ),
            Verb(
                "catalogue",
                "",
                _NONE,
                "Show or add catalogues: the server arguments of SGLang versions.",
                "show speculative_algorithm",
                below=(
                    Verb(
                        "ls",
                        "engine:list_catalogues",
                        _NONE,
                        "List the known versions and the number of server arguments in each.",
                    ),
                    Verb(
                        "show",
                        "engine:show_argument",
                        "change_options:CatalogueShowOptions",
                        "Show one server argument across versions.",
                        "speculative_algorithm",
                    ),
                    Verb(
                        "add",
                        "engine:add_catalogue",
                        "change_options:CatalogueAddOptions",
                        "Add the arguments of an engine newer than speclaunch, without "
                        "importing the engine.",
                        "installed",
                    ),
                ),
            ),
            Verb(
                "judge",
                "",
                _NONE,
                "Manage judges: installed validators, one per SGLang release.",
                "add 0.5.23",
                below=(
                    Verb(
                        "add",
                        "engine:add_judge",
                        "change_options:JudgeAddOptions",
                        "Install a release's validator: its wheel and pinned dependencies.",
                        "0.5.23",
                    ),
                    Verb("ls", "engine:list_judges", _NONE, "List judges and their disk usage."),
                    Verb(
                        "rm",
                        "engine:remove_judge",
                        "change_options:JudgeRemoveOptions",
                        "Remove a judge and its packages.",
                        "0.5.23",
                    ),
                ),
            ),
        ),
    ),
    Verb(
        "models",
        "",
        _NONE,
        "Save checkpoint facts in your repository, and inspect checkpoint files.",
        "pull recipe=eagle3_llama8b",
        below=(
            Verb(
                "inspect",
                "models:inspect",
                "change_options:InspectOptions",
                "Check that a checkpoint has the tensors that the engine loads.\n\nReads only "
                "a small part of the weights.",
                "path/to/draft --target meta-llama/Llama-3.1-8B-Instruct",
            ),
            Verb(
                "pull",
                "models:pull",
                "change_options:PullOptions",
                "Save checkpoint facts, without weights, in the repository for offline checks.",
                "recipe=eagle3_llama8b",
            ),
            Verb(
                "ls",
                "models:list_models",
                "change_options:ModelsListOptions",
                "List the checkpoints whose facts the repository stores.",
                "--output-format json",
            ),
            Verb(
                "show",
                "models:show",
                "change_options:ModelsShowOptions",
                "Show all known facts about a checkpoint, with their sources.",
                "meta-llama/Llama-3.1-8B-Instruct",
            ),
            Verb(
                "check",
                "models:check",
                "change_options:ModelsCheckOptions",
                "Compare the stored facts with Hugging Face.\n\n"
                "Exits 1 if a fact is stale or could not be compared.",
                "--update",
            ),
        ),
    ),
    Verb(
        "lsp",
        "integrations:lsp",
        "change_options:LspOptions",
        "Run the language server that checks deployments in an editor.",
    ),
    Verb(
        "completion",
        "integrations:completion",
        "integrations:CompletionOptions",
        "Print the shell script that completes commands, options, recipes and overrides.",
        "bash > ~/.local/share/bash-completion/completions/speclaunch",
    ),
)
"""All verbs; `GROUPS` sets their order in the help."""

GROUPS = (
    ("Start", ("init", "plan", "launch", "lint", "doctor")),
    ("Run", ("ps", "watch", "logs", "stop", "runs", "diagnose")),
    ("Measure", ("bench", "prove", "tune", "sweep", "bisect")),
    ("Change", ("import", "migrate", "upgrade", "render")),
    ("Know", ("drafts", "models", "recipes", "rules", "explain", "advisories", "engine")),
    ("Integrate", ("lsp", "completion")),
)
"""Sections of the help, and the verbs in each."""

SHOWN = {"sweep": "-m"}
"""Names that the help shows instead of the verb: `speclaunch -m recipe=A,B` runs a sweep."""

COMPLETION = "_SPECLAUNCH_COMPLETE"
"""Environment variable with the shell that requests completions; see integrations.py."""


def verb_named(name: str) -> Verb:
    """Return a verb by its name, such as `lint` or `bench run`."""
    found, *below = name.split(" ")
    verb = next(verb for verb in VERBS if verb.name == found)
    for part in below:
        verb = next(subverb for subverb in verb.below if subverb.name == part)
    return verb


def verb_of(words: Sequence[str]) -> str | None:
    """Return a command line's verb: `launch` if only a recipe is named, None if neither is."""
    names = {verb.name for verb in VERBS}
    if words and words[0] in names:
        return words[0]
    recipe = any("=" in word and not word.startswith("-") for word in words)
    return DEFAULT if recipe else None


def misspelled_verb(words: Sequence[str]) -> Problem | None:
    """Return a problem if a misspelled verb precedes a recipe (`luanch recipe=NAME`), else None."""
    first = words[0] if words else ""
    names_recipe = any(word.startswith("recipe=") for word in words[1:])
    if not names_recipe or "=" in first or first.startswith("-") or verb_of(words) == first:
        return None
    from speclaunch.engine import nearest

    close = nearest(first, [verb.name for verb in VERBS], 1)
    if not close:
        return None
    help_ = f"did you mean `speclaunch {' '.join((close[0], *words[1:]))}`?"
    return Problem(f"unknown command {first!r}", help=help_)


_MULTIRUN = ("-m", "--multirun")
"""Hydra's options for a sweep."""


def rewrite_multirun(words: Sequence[str]) -> list[str]:
    """Rewrite a command line with `-m` to use `sweep`; return other command lines unchanged.

    `-m` applies to `speclaunch -m recipe=a,b key=1,2` and `speclaunch plan -m …`. Jobs that
    launch imply `--smoke`, so the option is removed.
    """
    verb = verb_of(words)
    is_multirun = any(word in _MULTIRUN for word in words)
    if not is_multirun or (verb not in (DEFAULT, "plan") and words[0] not in _MULTIRUN):
        return list(words)
    dropped = (*_MULTIRUN, *(("--smoke",) if verb == DEFAULT else ()))
    rest = [word for word in words if word not in dropped]
    rest = rest[1:] if rest[:1] == [verb] else rest
    return ["sweep", *(("--plan",) if verb == "plan" else ()), *rest]


_RETURNS = ("-h", "--help", "--dry")
"""Prefixes of the options that prevent a launch from starting an engine."""


def is_foreground_launch(words: Sequence[str]) -> bool:
    """True if a command line requests a launch that starts and supervises an engine."""
    if COMPLETION in os.environ or verb_of(words) != DEFAULT:
        return False
    return not any(word.startswith(_RETURNS) for word in words)
