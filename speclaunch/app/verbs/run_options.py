"""The options of verbs that measure engines, or show and stop launches."""

from __future__ import annotations

from pathlib import Path

from speclaunch.app.verbs.options import (
    ASSUME,
    CONFIG_DIR,
    ENGINE,
    ENGINE_PYTHON,
    FORCE,
    HARDWARE,
    IGNORE,
    LOCK,
    MODELS,
    ONLINE,
    OUTPUT_FORMAT,
    OVERRIDES,
    OVERWRITE,
    SELECT,
    TIMEOUT,
    TRUST_ENGINE,
    CertificateFormat,
    DifferenceFormat,
    ProveFormat,
    VerbOptions,
    flag,
    option,
    repeated,
    required,
)
from speclaunch.measure import Generators

_DIRECTORY = option(
    Path,
    "--dir",
    metavar="DIR",
    help="Directory with the logs and journals (`launch.log_dir` of the recipe). Default: `runs` "
    "in speclaunch's home.",
)


class FormatOptions(VerbOptions):
    """The options of verbs that accept only an output format."""

    output_format = OUTPUT_FORMAT


class StopOptions(VerbOptions):
    """The options of `speclaunch stop`."""

    name = option(str, help="Launch, recipe, port or process ID. Default: the only running engine.")
    every = flag("--all", help="Stop every engine of this user.")
    timeout = option(
        float,
        "--timeout",
        metavar="SECONDS",
        least=0,
        default=60,
        help="Exit 1 if the engine is still running after this time.",
    )


class WatchOptions(VerbOptions):
    """The options of `speclaunch watch`."""

    names = repeated(
        str,
        metavar="NAME|URL…",
        help="Launch, recipe, port or process ID, or the address of any SGLang server or router. "
        "Default: all running engines.",
    )
    once = flag(
        "--once",
        help="Show the state once. Exit 1 if a server has a problem, 2 if a server is "
        "unreachable or still starting.",
    )
    interval = option(
        float,
        "--interval",
        metavar="SECONDS",
        least=0.5,
        most=3600,
        default=2,
        help="Time between readings.",
    )
    output_format = OUTPUT_FORMAT


class LogsOptions(VerbOptions):
    """The options of `speclaunch logs`."""

    name = option(
        str,
        help="Launch, recipe, port or process ID. Default: the newest running launch, else the "
        "newest launch.",
    )
    follow = flag("--follow", "-f", help="Follow the log as it grows.")
    tail = option(int, "--tail", "-n", least=0, help="Print only the last N lines.")
    attempt = option(
        int,
        "--attempt",
        least=1,
        help="Print the log of start attempt N. Default: the last attempt.",
    )
    own = flag("--speclaunch", help="Print speclaunch's own output (detached launches only).")


class RunsOptions(VerbOptions):
    """Options of `speclaunch runs` that precede its subcommand."""

    directory = _DIRECTORY


class RunsListOptions(VerbOptions):
    """The options of `speclaunch runs ls`."""

    directory = _DIRECTORY
    output_format = OUTPUT_FORMAT


class RunsShowOptions(VerbOptions):
    """The options of `speclaunch runs show`."""

    name = option(str, default="last", help="Launch, recipe (selects its newest launch) or `last`.")
    directory = _DIRECTORY
    output_format = OUTPUT_FORMAT


class RunsPruneOptions(VerbOptions):
    """The options of `speclaunch runs prune`."""

    keep = option(int, "--keep", least=0, default=20, help="Number of finished launches to keep.")
    directory = _DIRECTORY


class DiagnoseOptions(VerbOptions):
    """The options of `speclaunch diagnose`."""

    log = required(
        str,
        metavar="LOGFILE|RUN|-",
        help="Engine log, or a launch: its name, its recipe (selects the newest launch) or "
        "`last`. `-` reads standard input.",
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="SGLang version that wrote the log. Default: the launch's version, else "
        "inferred from the log.",
    )
    output_format = OUTPUT_FORMAT


_REQUESTS = option(
    int,
    "--requests",
    least=2,
    default=8,
    section="Load",
    help="Minimum number of requests per round.",
)
_OUTPUT_TOKENS = option(
    int, "--output-tokens", least=8, default=128, section="Load", help="Tokens per answer."
)
_INPUT_TOKENS = option(
    int,
    "--input-tokens",
    least=4,
    default=512,
    section="Load",
    help="Tokens per prompt of the workload `random`.",
)
_CERTIFICATE_FORMAT = option(
    CertificateFormat,
    "--output-format",
    default=CertificateFormat.TEXT,
    section="Output",
    help="Output format.",
)
_OUTPUT_FILES = repeated(
    str,
    "--output",
    "-o",
    aliases=("--output-file",),
    metavar="[FORMAT=]FILE",
    section="Output",
    help="Also write the result to FILE. Without FORMAT, the file suffix selects the format. "
    "Repeatable.",
)
_FAIL_UNDER = option(
    float,
    "--fail-under",
    metavar="RATIO",
    section="Output",
    help="Exit 1 unless the confidence interval of every speed-up is above RATIO.",
)


class BenchOptions(VerbOptions):
    """The options of `speclaunch bench run`."""

    overrides = repeated(str, metavar=OVERRIDES.metavar, help=OVERRIDES.help)
    url = option(
        str,
        "--url",
        metavar="URL",
        help="Measure a running server instead of a recipe. The server is left unchanged.",
    )
    against = option(
        str,
        "--against",
        metavar="BASELINE",
        help="Baseline: `none` (the same recipe without speculation), "
        "`recipe=NAME [key=value]…`, `engine=VERSION`, or `url=URL`. Default: `none`; with --url, "
        "no baseline.",
    )
    workload = repeated(
        str,
        "--workload",
        metavar="NAME|FILE",
        section="Load",
        help="Prompts: code, chat, extraction, repetition, random, or a JSONL or ShareGPT file. "
        "Repeatable. Default: chat.",
    )
    concurrency = option(
        str,
        "--concurrency",
        metavar="N,…",
        default="1,8",
        section="Load",
        help="Concurrency levels to measure, for example 1,8,32.",
    )
    context = option(
        str,
        "--context",
        metavar="TOKENS,…",
        default="0",
        section="Load",
        help="Prompt lengths to measure, in tokens, for example 0,2000,8000. 0 leaves the "
        "workload's prompts unchanged.",
    )
    goodput = option(
        str,
        "--goodput",
        metavar="METRIC=MS,…",
        section="Load",
        help="Also report how many requests per second meet these latency limits in "
        "milliseconds, for example ttft=500,tpot=50,e2el=4000.",
    )
    generator = option(
        Generators,
        "--generator",
        default=Generators.AUTO,
        section="Load",
        help="Load generator: `sglang` (SGLang's own), `aiperf`, or `auto` (SGLang's if it is "
        "installed, else aiperf).",
    )
    tokenizer = option(
        str,
        "--tokenizer",
        metavar="PATH",
        section="Load",
        help="Local path of a running server's tokenizer. Needed if the path that the server "
        "reports does not exist on this machine.",
    )
    rounds = option(
        int,
        "--rounds",
        least=3,
        most=1000,
        default=6,
        section="Rounds",
        help="Rounds per side. The sides are the recipe (or server) and the baseline.",
    )
    requests = _REQUESTS
    output_tokens = _OUTPUT_TOKENS
    input_tokens = _INPUT_TOKENS
    blocks = option(
        int,
        "--blocks",
        least=0,
        section="Rounds",
        help="Split the rounds of each start into N blocks, with one engine running at a time. 0 "
        "runs both engines at once. Default: 0 on a CPU, else 2 for one start and 1 for several.",
    )
    starts = option(
        int,
        "--starts",
        least=1,
        most=100,
        default=1,
        section="Rounds",
        help="Engine starts per side: 1, or at least 3 to include the variation between starts in "
        "the confidence intervals.",
    )
    fail_under = _FAIL_UNDER
    dry_run = flag("--dry-run", help="List the engine starts and rounds. Start nothing.")
    fresh = flag("--fresh", help="Start over instead of resuming an interrupted measurement.")
    config_dir = CONFIG_DIR
    engine = ENGINE
    hardware = HARDWARE
    models = MODELS
    output_format = _CERTIFICATE_FORMAT
    output_file = _OUTPUT_FILES
    lock = LOCK
    trust_engine = TRUST_ENGINE


class BenchShowOptions(VerbOptions):
    """The options of `speclaunch bench show`."""

    name = option(
        str,
        default="last",
        help="Saved measurement: its name, recipe (selects the newest), `last`, its directory or "
        "its JSON file.",
    )
    output_format = _CERTIFICATE_FORMAT
    output_file = _OUTPUT_FILES
    fail_under = _FAIL_UNDER


class BenchCompareOptions(VerbOptions):
    """The options of `speclaunch bench compare`."""

    before = required(
        str, metavar="BEFORE", help="Measurement to compare with, named as in `bench show`."
    )
    after = required(
        str,
        metavar="AFTER",
        help="Measurement to compare, named as in `bench show`. Ratios are AFTER to BEFORE.",
    )
    output_format = option(
        DifferenceFormat,
        "--output-format",
        default=DifferenceFormat.TEXT,
        section="Output",
        help="Output format.",
    )
    output_file = _OUTPUT_FILES
    fail_under = option(
        float,
        "--fail-under",
        metavar="RATIO",
        section="Output",
        help="Exit 1 unless the confidence interval of every ratio of speed-ups is above RATIO.",
    )


SAMPLED_PROMPTS = 8
"""Number of prompts that `prove --samples` samples answers for."""


class ProveOptions(VerbOptions):
    """The options of `speclaunch prove`."""

    overrides = OVERRIDES
    workload = repeated(
        str,
        "--workload",
        metavar="NAME|FILE",
        section="Load",
        help="Prompts: code, chat, extraction, repetition, or a JSONL or ShareGPT file. "
        "Repeatable. Default: all four.",
    )
    concurrency = option(
        str,
        "--concurrency",
        metavar="N,…",
        default="1,4",
        section="Load",
        help="Concurrency levels to test, for example 1,4,16.",
    )
    context = option(
        str,
        "--context",
        metavar="WORDS,…",
        default="0,300",
        section="Load",
        help="Prompt lengths to test, in words. 0 leaves the workload's prompts unchanged.",
    )
    output_tokens = option(
        int, "--output-tokens", least=2, default=64, section="Load", help="Tokens per answer."
    )
    samples = option(
        int,
        "--samples",
        least=0,
        default=0,
        section="Load",
        help="Also sample N answers at temperature 1 for each of the first "
        f"{SAMPLED_PROMPTS} prompts, and compare the token frequencies.",
    )
    requests = flag(
        "--requests",
        help="Check request fields (stop, penalties, grammars, logprobs, …) instead of greedy "
        "answers.",
    )
    dry_run = flag("--dry-run", help="List the engine starts and requests. Start nothing.")
    fresh = flag("--fresh", help="Start over instead of resuming an interrupted run.")
    config_dir = CONFIG_DIR
    engine = ENGINE
    hardware = HARDWARE
    models = MODELS
    output_format = option(
        ProveFormat,
        "--output-format",
        default=ProveFormat.TEXT,
        section="Output",
        help="Output format. `html` needs --requests.",
    )
    lock = LOCK
    trust_engine = TRUST_ENGINE


class TuneOptions(VerbOptions):
    """The options of `speclaunch tune`."""

    overrides = OVERRIDES
    objective = option(
        str,
        "--objective",
        metavar="OBJECTIVE",
        default="latency",
        help="`latency` (one request at a time), `throughput@N` or `throughput@N,…` (N concurrent "
        "requests), or `goodput@N:ttft=MS,tpot=MS` (requests within these latency limits).",
    )
    workload = option(
        str,
        "--workload",
        metavar="NAME|FILE",
        default="chat",
        section="Load",
        help="Prompts: code, chat, extraction, repetition, random, or a JSONL or ShareGPT file.",
    )
    starts = option(
        int,
        "--starts",
        least=2,
        most=1000,
        default=12,
        help="Maximum number of engine starts, including the starts for --verify.",
    )
    minutes = option(
        float,
        "--minutes",
        metavar="MINUTES",
        least=1,
        help="Time limit. Starts that would exceed it are skipped. Default: no limit.",
    )
    verify = option(
        int,
        "--verify",
        least=0,
        most=8,
        default=2,
        help="Number of top settings to compare with the recipe's settings in interleaved rounds.",
    )
    verify_starts = option(
        int,
        "--verify-starts",
        least=1,
        most=100,
        default=1,
        help="Engine starts per side of the --verify comparison: 1, or at least 3 to include the "
        "variation between starts in the confidence intervals.",
    )
    draft_tokens = option(
        int,
        "--draft-tokens",
        least=2,
        help="Maximum speculative_num_draft_tokens to try. Default: no limit.",
    )
    rounds = option(int, "--rounds", least=1, most=1000, default=3, help="Rounds per setting.")
    requests = _REQUESTS
    output_tokens = _OUTPUT_TOKENS
    input_tokens = _INPUT_TOKENS
    write = flag(
        "--write",
        section="Output",
        help="Write the best settings to the recipe if they are measurably faster.",
    )
    output_file = option(
        Path,
        "--output",
        "-o",
        aliases=("--output-file",),
        metavar="FILE",
        section="Output",
        help="Like --write, but write to FILE and leave the recipe unchanged.",
    )
    adaptive_config = option(
        Path,
        "--adaptive-config",
        metavar="FILE",
        section="Output",
        help="Write the best number of steps per batch size to FILE, for SGLang's "
        "speculative_adaptive_config. Needs the objective `throughput@N,…`.",
    )
    dry_run = flag(
        "--dry-run", help="List the engine starts with their expected duration. Start nothing."
    )
    fresh = flag("--fresh", help="Delete earlier measurements and start over.")
    overwrite = OVERWRITE
    force = FORCE
    config_dir = CONFIG_DIR
    engine = ENGINE
    hardware = HARDWARE
    models = MODELS
    output_format = OUTPUT_FORMAT
    trust_engine = TRUST_ENGINE


class SweepOptions(VerbOptions):
    """The options of `speclaunch sweep`."""

    words = repeated(
        str,
        metavar="RECIPE[,RECIPE…] [key=value,value…]…",
        help="Recipes and Hydra overrides with several values, for example `a,b`, `range(1,4)` "
        "or `glob(eagle*)`. `hydra/launcher=joblib` runs jobs in parallel.",
    )
    plan = flag("--plan", help="Plan each job. Start nothing.")
    dry_run = flag("--dry-run", help="List the jobs, and why any are refused. Run none.")
    resume = option(
        Path,
        "--resume",
        metavar="DIR",
        help="Resume the sweep in DIR. Repeating a sweep's command also resumes it.",
    )
    directory = option(
        Path,
        "--directory",
        metavar="DIR",
        help="Directory of the sweep. Default: one per set of arguments, in speclaunch's "
        "home. On a cluster, use storage that all nodes share.",
    )
    retry = flag("--retry", help="Rerun failed and refused jobs.")
    config_dir = CONFIG_DIR
    engine = ENGINE
    hardware = HARDWARE
    models = MODELS
    online = ONLINE
    assume = ASSUME
    select = SELECT
    ignore = IGNORE
    output_format = OUTPUT_FORMAT
    trust_engine = TRUST_ENGINE


class BisectOptions(VerbOptions):
    """The options of `speclaunch bisect`."""

    overrides = OVERRIDES
    good = required(str, "--good", metavar="VERSION", help="SGLang version that passes the check.")
    bad = required(
        str,
        "--bad",
        metavar="VERSION",
        help="SGLang version that fails the check, newer or older than --good.",
    )
    check = required(
        str,
        "--check",
        metavar="CHECK",
        help="Check to run: `start` (the engine serves and speculates), `'acceptance>=X'` (minimum "
        "acceptance length), `same-output` (greedy answers equal those of --good), `contract` "
        "(request fields work as in --good), or a quoted command that reads SPECLAUNCH_URL and "
        "exits 0 (good), 1 to 124 (bad) or 125 (skip).",
    )
    flaky = option(
        float,
        "--flaky",
        metavar="RATE",
        least=0,
        most=0.4,
        help="Expected fraction of starts with a wrong result. bisect repeats starts until it is "
        "99% certain of the two versions; with 0: one check per version. Default: one start per "
        "version; checks other than `start` and `contract` are repeated until passes outnumber "
        "failures by four, or the reverse.",
    )
    engine_python = ENGINE_PYTHON
    timeout = option(
        float,
        "--timeout",
        metavar=TIMEOUT.metavar,
        least=TIMEOUT.least,
        default=TIMEOUT.default,
        section="Run",
        help="Time limit for each engine start, and for a --check command.",
    )
    dry_run = flag("--dry-run", help="List the versions and engine starts. Start nothing.")
    fresh = flag("--fresh", help="Start over instead of resuming an interrupted search.")
    config_dir = CONFIG_DIR
    output_format = OUTPUT_FORMAT
    trust_engine = TRUST_ENGINE
