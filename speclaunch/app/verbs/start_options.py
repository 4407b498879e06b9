"""The options of `lint`, `launch`, `plan`, `doctor` and `upgrade`."""

from __future__ import annotations

from pathlib import Path

from speclaunch.app.verbs.options import (
    ASSUME,
    CONFIG_DIR,
    ENGINE,
    ENGINE_PYTHON,
    ENGINES,
    HARDWARE,
    IGNORE,
    LOCK,
    MODELS,
    MOST_TOKENS,
    ONLINE,
    OUTPUT_FORMAT,
    OVERRIDES,
    ROLE,
    SELECT,
    STRICT,
    TIMEOUT,
    TRUST_ENGINE,
    LintFormat,
    VerbOptions,
    flag,
    option,
    repeated,
    required,
)
from speclaunch.engine import EngineCheckMode

ASK = option(
    EngineCheckMode,
    "--ask",
    section="Facts",
    help="Engine check: run the release's own validation without starting the engine. If no "
    "validator of that release is available, `auto` (the default) skips the check and `always` "
    "exits 2.",
)


class LintOptions(VerbOptions):
    """The options of `speclaunch lint`."""

    is_configurable = True

    paths = repeated(
        str,
        metavar="PATHS",
        help="Files or directories. `-` reads standard input. Default: the current directory.",
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
    info = flag(
        "--info",
        section="Output",
        help="Show info findings, skipped rules and sources of checkpoint facts.",
    )
    no_cache = flag("--no-cache", help="Ignore cached results and check all files again.")
    jobs = option(
        int,
        "--jobs",
        least=1,
        help="Number of worker processes. Default: depends on the number of files and CPU cores.",
    )
    output_format = option(
        LintFormat,
        "--output-format",
        section="Output",
        help="Output format. Default: text. In GitHub Actions, lint also prints annotations.",
    )
    output_file = repeated(
        str,
        "--output",
        "-o",
        aliases=("--output-file",),
        metavar="[FORMAT=]FILE",
        section="Output",
        help="Also write the report to FILE, for example `sarif=lint.sarif`. Without FORMAT, "
        "the file suffix selects the format. Repeatable.",
    )
    exit_zero = option(
        bool,
        "--exit-zero/--no-exit-zero",
        section="Output",
        help="Exit 0 despite findings. Default: --exit-zero for the output format `sarif`, "
        "else --no-exit-zero.",
    )
    fix = flag("--fix", section="Fixes", help="Apply safe fixes.")
    unsafe_fixes = flag("--unsafe-fixes", section="Fixes", help="Apply all fixes, safe or not.")
    diff = flag("--diff", section="Fixes", help="Print the fixes as a patch without applying them.")
    only_deployments = flag(
        "--only-deployments",
        section="Files",
        help="Skip files on the command line that contain no deployment. Exit 0 if no file "
        "remains.",
    )
    config = option(
        Path,
        "--config",
        metavar="FILE",
        section="Files",
        help="Configuration file. Default: the speclaunch.toml or pyproject.toml nearest to each "
        "file.",
    )
    no_config = flag(
        "--no-config", section="Files", help="Ignore speclaunch.toml and pyproject.toml."
    )
    exclude = repeated(
        str,
        "--exclude",
        metavar="PATTERN",
        section="Files",
        help="In directories, skip paths that match PATTERN (.gitignore syntax). Repeatable.",
    )
    no_gitignore = flag("--no-gitignore", section="Files", help="Also check files ignored by Git.")
    baseline = option(
        Path,
        "--baseline",
        metavar="FILE",
        section="Baseline",
        help="Omit the findings listed in FILE.",
    )
    write_baseline = option(
        Path,
        "--write-baseline",
        metavar="FILE",
        section="Baseline",
        help="Write the findings to FILE, for --baseline in later runs.",
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
        help="Print the exact command and environment. Start nothing.",
    )
    ladder = flag("--ladder", help="With --dry-run: show the recovery steps for memory failures.")
    smoke = flag(
        "--smoke",
        help="Start, verify, report and stop. Exit 0 if the engine serves.",
    )
    detach = flag("--detach", "-d", help="Return once the engine serves, and leave it running.")
    lock = flag("--lock", section="Output", help=f"{LOCK.help} Needs --smoke.")
    locked = flag(
        "--locked",
        help="Start only if settings, engine, packages and weights match the recipe's lock.",
    )
    verify = flag(
        "--verify",
        help="With --lock or --locked: hash weights even if file size and time are unchanged.",
    )
    fresh = flag("--fresh", help="Start from the recipe, ignoring the last known good settings.")
    max_attempts = option(
        int,
        "--max-attempts",
        least=1,
        most=100,
        help="Maximum number of start attempts. Default: the recipe's.",
    )
    verbose = flag("--verbose", "-v", help="Show the engine's output.")
    on_degraded_exec = option(
        Path,
        "--on-degraded-exec",
        metavar="PROGRAM",
        help="Program to run when the acceptance length drops. It runs for at most 30 seconds, "
        "without arguments or secrets. SPECLAUNCH_… environment variables describe the change.",
    )
    force = flag(
        "--force",
        help="Start with unchanged settings, despite errors or insufficient memory.",
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
        metavar="RECIPE [RECIPE|key=value]…",
        help="Recipe (`recipe=NAME`, `NAME` or a path) and Hydra overrides. An override applies to "
        "the preceding recipe, or to all if it comes first.",
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
    full = flag(
        "--full",
        section="Output",
        help="Show each value with its reason, and a bar chart of memory.",
    )
    everything = flag(
        "--all", section="Output", help="Like --full, but also show arguments at their defaults."
    )
    fit = flag("--fit", help="Propose the smallest change that makes the recipe fit in memory.")
    best = flag(
        "--best",
        help="Recommend settings for the load set by --requests and --context.",
    )
    requests = option(
        int,
        "--requests",
        metavar="N",
        least=1,
        most=65536,
        help="Number of concurrent requests for --best. Default: 32.",
    )
    context = option(
        int,
        "--context",
        metavar="L",
        least=1,
        most=MOST_TOKENS,
        help="Tokens per request (prompt plus output) for --best. Default: 4096.",
    )
    strict = STRICT
    html = option(
        Path,
        "--html",
        metavar="FILE",
        section="Output",
        help="Also write the plan to FILE as HTML.",
    )
    output_format = OUTPUT_FORMAT
    ask = ASK
    trust_engine = TRUST_ENGINE


class DoctorOptions(VerbOptions):
    """The options of `speclaunch doctor`."""

    overrides = repeated(str, metavar=OVERRIDES.metavar, help=OVERRIDES.help)
    config_dir = CONFIG_DIR
    role = ROLE
    engine = ENGINES
    hardware = option(
        str,
        "--hardware",
        metavar=HARDWARE.metavar,
        section="Deployment",
        help="Hardware to check against, such as h100:8. Default: this machine's.",
    )
    models = MODELS
    online = ONLINE
    assume = ASSUME
    strict = STRICT
    output_format = OUTPUT_FORMAT
    ask = ASK
    trust_engine = TRUST_ENGINE


class UpgradeOptions(VerbOptions):
    """The options of `speclaunch upgrade`."""

    words = repeated(
        str,
        is_required=True,
        metavar="RECIPE [key=value]… | PATH…",
        help="Recipe (`recipe=NAME`, `NAME` or the path of a YAML file) with Hydra overrides, or "
        "scripts, manifests and directories.",
    )
    to = required(str, "--to", metavar="VERSION", help="SGLang version to move to.")
    source = option(
        str,
        "--from",
        metavar="VERSION",
        help="Current SGLang version. Default: the recipe's or image's version, else the "
        "installed one. For a command without an image: the newest version that accepts it.",
    )
    run = flag(
        "--run",
        section="Run",
        help="Start both versions on this machine and compare arguments, greedy answers and "
        "acceptance.",
    )
    engine_python = ENGINE_PYTHON
    timeout = TIMEOUT
    fresh = flag(
        "--fresh", section="Run", help="Start over instead of resuming an interrupted --run."
    )
    write = flag(
        "--write",
        section="Output",
        help="Migrate the recipe's file, unless the verdict is `not safe`.",
    )
    force = flag(
        "--force",
        section="Output",
        help="With --write: migrate despite errors or a `not safe` verdict.",
    )
    config_dir = CONFIG_DIR
    hardware = HARDWARE
    models = MODELS
    online = ONLINE
    assume = ASSUME
    everything = flag("--all", section="Output", help="Also show differences in unused features.")
    output_format = OUTPUT_FORMAT
    ask = ASK
    trust_engine = TRUST_ENGINE
