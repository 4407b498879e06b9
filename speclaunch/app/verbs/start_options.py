"""The options of `lint`, `launch`, `plan` and `doctor`."""

from __future__ import annotations

from pathlib import Path

from speclaunch.app.verbs.options import (
    ASSUME,
    CONFIG_DIR,
    ENGINE,
    ENGINES,
    HARDWARE,
    IGNORE,
    MODELS,
    MOST_TOKENS,
    ONLINE,
    OUTPUT_FORMAT,
    OVERRIDES,
    ROLE,
    SELECT,
    STRICT,
    TRUST_ENGINE,
    LintFormat,
    VerbOptions,
    flag,
    option,
    repeated,
)
from speclaunch.engine import EngineCheckMode

ASK = option(
    EngineCheckMode,
    "--ask",
    help="Ask the engine itself, without starting it: `auto` where that release is available, "
    "`always`, `never`.",
)


class LintOptions(VerbOptions):
    """The options of `speclaunch lint`."""

    paths = repeated(
        str,
        metavar="PATHS",
        help="Files or directories; `-` reads standard input. Default: the current directory.",
    )
    config_dir = CONFIG_DIR
    engine = ENGINES
    hardware = HARDWARE
    models = MODELS
    online = ONLINE
    assume = ASSUME
    select = SELECT
    ignore = IGNORE
    strict = STRICT
    info = flag("--info", help="Show info findings, skipped rules and the sources of checkpoints.")
    no_cache = flag("--no-cache", help="Check all files, also those that did not change.")
    jobs = option(
        int, "--jobs", least=1, help="Processes that check. Default: more than one for many files."
    )
    output_format = option(
        LintFormat,
        "--output-format",
        help="Output format. Default: text; in GitHub Actions annotations beside it.",
    )
    output_file = repeated(
        str,
        "--output",
        "-o",
        "--output-file",
        metavar="[FORMAT=]FILE",
        help="Write a file, too: `sarif=lint.sarif`; without FORMAT its suffix decides. "
        "Repeatable.",
    )
    exit_zero = option(
        bool,
        "--exit-zero/--no-exit-zero",
        help="Exit with 0 when there are findings. Default: only with the format sarif.",
    )
    fix = flag("--fix", help="Apply the safe fixes.")
    unsafe_fixes = flag("--unsafe-fixes", help="Apply all fixes, the unsafe ones, too.")
    diff = flag("--diff", help="Print what the fixes would change; write nothing.")
    only_deployments = flag(
        "--only-deployments",
        help="Skip named files without a deployment; exit with 0 when none is left.",
    )
    config = option(
        Path,
        "--config",
        metavar="FILE",
        help="The file that configures: default is the nearest speclaunch.toml or "
        "pyproject.toml of each linted file.",
    )
    no_config = flag("--no-config", help="Read no speclaunch.toml and no pyproject.toml.")
    exclude = repeated(
        str,
        "--exclude",
        metavar="PATTERN",
        help="Leave out what this matches below a directory, as in .gitignore. Repeatable.",
    )
    no_gitignore = flag("--no-gitignore", help="Check also what Git ignores.")
    baseline = option(
        Path, "--baseline", metavar="FILE", help="Leave out the findings in this file."
    )
    write_baseline = option(
        Path,
        "--write-baseline",
        metavar="FILE",
        help="Write what is found into this file, so that it is known from now on.",
    )
    ask = ASK
    trust_engine = TRUST_ENGINE


class LaunchOptions(VerbOptions):
    """The options of `speclaunch launch`."""

    overrides = OVERRIDES
    config_dir = CONFIG_DIR
    role = ROLE
    engine = ENGINE
    dry_run = flag(
        "--dry-run",
        help="Print the exact command and environment; start nothing.",
    )
    ladder = flag("--ladder", help="With --dry-run: show the recovery steps if memory runs out.")
    smoke = flag("--smoke", help="Start, verify, report, stop; exit 0 if it serves.")
    detach = flag("--detach", "-d", help="Return once it serves, and leave it running.")
    fresh = flag(
        "--fresh", help="Start with the recipe itself, not with the last known good settings."
    )
    max_attempts = option(
        int,
        "--max-attempts",
        least=1,
        most=100,
        help="Start the engine at most this often until it serves.",
    )
    verbose = flag("--verbose", "-v", help="Show the engine's output.")
    force = flag(
        "--force",
        help="Start as written, despite findings of error severity and a memory budget that fails.",
    )
    hardware = HARDWARE
    models = MODELS
    online = ONLINE
    assume = ASSUME
    select = SELECT
    ignore = IGNORE
    output_format = OUTPUT_FORMAT
    ask = ASK
    trust_engine = TRUST_ENGINE


class PlanOptions(VerbOptions):
    """The options of `speclaunch plan`."""

    words = repeated(
        str,
        is_required=True,
        metavar="RECIPE [RECIPE] [key=value]…",
        help="The recipe (`recipe=NAME`, `NAME` or a path) and Hydra overrides. With several "
        "recipes, plan shows their differences. An override applies to the recipe before "
        "it; before all recipes, to all.",
    )
    config_dir = CONFIG_DIR
    role = ROLE
    engine = ENGINES
    hardware = HARDWARE
    models = MODELS
    online = ONLINE
    assume = ASSUME
    select = SELECT
    ignore = IGNORE
    full = flag("--full", help="Show each value with its reason, and the memory bar.")
    everything = flag("--all", help="As --full, with arguments at their defaults as well.")
    fit = flag("--fit", help="Propose the settings that fit with the least loss.")
    best = flag("--best", help="Recommend settings for --requests of --context tokens.")
    requests = option(
        int,
        "--requests",
        metavar="N",
        least=1,
        most=65536,
        help="For --best: concurrent requests. Default: 32.",
    )
    context = option(
        int,
        "--context",
        metavar="L",
        least=1,
        most=MOST_TOKENS,
        help="For --best: tokens of each request, prompt and output. Default: 4096.",
    )
    strict = STRICT
    html = option(Path, "--html", metavar="FILE", help="Write the plan as an HTML page as well.")
    output_format = OUTPUT_FORMAT
    ask = ASK
    trust_engine = TRUST_ENGINE


class DoctorOptions(VerbOptions):
    """The options of `speclaunch doctor`."""

    overrides = repeated(
        str,
        metavar="RECIPE [key=value]…",
        help="A recipe (`recipe=NAME`, `NAME` or a path to a YAML file) and Hydra overrides: "
        "all rules check it as well.",
    )
    config_dir = CONFIG_DIR
    role = ROLE
    engine = ENGINES
    hardware = HARDWARE
    models = MODELS
    online = ONLINE
    assume = ASSUME
    strict = STRICT
    output_format = OUTPUT_FORMAT
    ask = ASK
    trust_engine = TRUST_ENGINE
