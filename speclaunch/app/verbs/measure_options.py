"""The options of `bench`, `prove`, `tune` and `sweep`."""

from __future__ import annotations

from pathlib import Path

from speclaunch.app.verbs.options import (
    ASSUME,
    CONFIG_DIR,
    ENGINE,
    FORCE,
    HARDWARE,
    IGNORE,
    MODELS,
    ONLINE,
    OUTPUT_FORMAT,
    OVERRIDES,
    OVERWRITE,
    SELECT,
    TRUST_ENGINE,
    CertificateFormat,
    DifferenceFormat,
    VerbOptions,
    flag,
    option,
    repeated,
    required,
)
from speclaunch.measure import Generators

_REQUESTS = option(int, "--requests", least=2, default=8, help="Requests of a round, at least.")
_OUTPUT_TOKENS = option(int, "--output-tokens", least=8, default=128, help="Tokens of each answer.")
_INPUT_TOKENS = option(
    int, "--input-tokens", least=4, default=512, help="Tokens of each prompt of `random`."
)
_CERTIFICATE_FORMAT = option(
    CertificateFormat, "--output-format", default=CertificateFormat.TEXT, help="Output format."
)
_OUTPUT_FILES = repeated(
    str,
    "--output",
    "-o",
    "--output-file",
    metavar="[FORMAT=]FILE",
    help="Write it into a file as well; without FORMAT its suffix decides. Repeatable.",
)
_FAIL_UNDER = option(
    float,
    "--fail-under",
    metavar="RATIO",
    help="Exit 1 unless every interval lies above this speed-up.",
)


class BenchOptions(VerbOptions):
    """The options of `speclaunch bench run`."""

    overrides = repeated(str, metavar=OVERRIDES.metavar, help=OVERRIDES.help)
    url = option(
        str,
        "--url",
        metavar="URL",
        help="Measure a server that runs already, instead of a recipe; it is left as it is.",
    )
    against = option(
        str,
        "--against",
        metavar="BASELINE",
        help="What to compare with: `none` (the same without speculation, the default of a "
        "recipe), `recipe=NAME [key=value]…`, `engine=VERSION`, or `url=URL`.",
    )
    workload = repeated(
        str,
        "--workload",
        metavar="NAME|FILE",
        help="Prompts: code, chat, extraction, repetition, random, or a file (JSONL, "
        "or ShareGPT's). Repeatable. Default: chat.",
    )
    concurrency = option(
        str, "--concurrency", default="1,8", help="Requests at a time, for example 1,8,32."
    )
    context = option(
        str,
        "--context",
        metavar="TOKENS",
        default="0",
        help="Lengths of the prompts in tokens, for example 0,2000,8000; 0: as they are.",
    )
    goodput = option(
        str,
        "--goodput",
        metavar="METRIC=MS,…",
        help="Also count the requests a second within these bounds in milliseconds, for "
        "example ttft=500,tpot=50,e2el=4000.",
    )
    generator = option(
        Generators,
        "--generator",
        default=Generators.AUTO,
        help="What makes the load: SGLang's own generator, or aiperf. auto: SGLang's, where "
        "this machine has it.",
    )
    tokenizer = option(
        str,
        "--tokenizer",
        metavar="PATH",
        help="The tokenizer of a running server's model, where this machine does not have it "
        "under the path that the server names.",
    )
    rounds = option(int, "--rounds", least=3, most=1000, default=6, help="Rounds of each side.")
    requests = _REQUESTS
    output_tokens = _OUTPUT_TOKENS
    input_tokens = _INPUT_TOKENS
    blocks = option(
        int,
        "--blocks",
        least=0,
        help="Blocks of rounds of each side, one engine at a time; 0: both engines are up at "
        "once. Default: 0 on a CPU, else 2 (1 a start with --starts).",
    )
    starts = option(
        int,
        "--starts",
        least=1,
        most=100,
        default=1,
        help="Start each side so often; from 3 on the intervals hold what differs from start "
        "to start.",
    )
    fail_under = _FAIL_UNDER
    dry_run = flag("--dry-run", help="List the starts and rounds; start nothing.")
    fresh = flag("--fresh", help="Begin again, instead of going on with an interrupted comparison.")
    config_dir = CONFIG_DIR
    engine = ENGINE
    hardware = HARDWARE
    models = MODELS
    output_format = _CERTIFICATE_FORMAT
    output_file = _OUTPUT_FILES
    trust_engine = TRUST_ENGINE


class BenchShowOptions(VerbOptions):
    """The options of `speclaunch bench show`."""

    name = option(
        str,
        default="last",
        help="A comparison that is kept, its recipe's name (the newest), `last`, a directory, its "
        "bench.json, or a certificate as JSON.",
    )
    output_format = _CERTIFICATE_FORMAT
    output_file = _OUTPUT_FILES
    fail_under = _FAIL_UNDER


class BenchCompareOptions(VerbOptions):
    """The options of `speclaunch bench compare`."""

    before = required(str, metavar="BEFORE", help="As for `bench show`.")
    after = required(str, metavar="AFTER", help="As for `bench show`.")
    output_format = option(
        DifferenceFormat, "--output-format", default=DifferenceFormat.TEXT, help="Output format."
    )
    output_file = _OUTPUT_FILES
    fail_under = option(
        float,
        "--fail-under",
        metavar="RATIO",
        help="Exit 1 unless the interval of every ratio of speed-ups lies above this one.",
    )


class ProveOptions(VerbOptions):
    """The options of `speclaunch prove`."""

    overrides = OVERRIDES
    workload = repeated(
        str,
        "--workload",
        metavar="NAME|FILE",
        help="Prompts: code, chat, extraction, repetition, or a file (JSONL, or "
        "ShareGPT's). Repeatable. Default: all four.",
    )
    concurrency = option(
        str, "--concurrency", default="1,4", help="Requests at a time, for example 1,4,16."
    )
    context = option(
        str, "--context", default="0,300", help="Lengths of the prompts in words; 0: as they are."
    )
    output_tokens = option(
        int, "--output-tokens", least=2, default=64, help="Tokens of each answer."
    )
    samples = option(
        int,
        "--samples",
        least=0,
        default=0,
        help="Also draw so many answers a prompt at a temperature of 1, and compare how often "
        "each token comes.",
    )
    dry_run = flag("--dry-run", help="List the starts and requests; start nothing.")
    fresh = flag("--fresh", help="Ask all again, also where an interrupted proof could go on.")
    config_dir = CONFIG_DIR
    engine = ENGINE
    hardware = HARDWARE
    models = MODELS
    output_format = OUTPUT_FORMAT
    trust_engine = TRUST_ENGINE


class TuneOptions(VerbOptions):
    """The options of `speclaunch tune`."""

    overrides = OVERRIDES
    objective = option(
        str,
        "--objective",
        metavar="OBJECTIVE",
        default="latency",
        help="`latency` (of one request at a time), `throughput@N` (of N; several: "
        "`throughput@1,8,32`), or `goodput@N:ttft=MS,tpot=MS`.",
    )
    workload = option(
        str,
        "--workload",
        metavar="NAME|FILE",
        default="chat",
        help="Prompts: code, chat, extraction, repetition, random, or a file (JSONL, "
        "or ShareGPT's).",
    )
    starts = option(
        int,
        "--starts",
        least=2,
        most=1000,
        default=12,
        help="Engine starts at most, those of --verify included.",
    )
    minutes = option(
        float, "--minutes", least=1, help="Begin no start that would end later than this."
    )
    verify = option(
        int,
        "--verify",
        least=0,
        most=8,
        default=2,
        help="How many of the best are compared with the recipe's own, in rounds that take turns.",
    )
    verify_starts = option(
        int,
        "--verify-starts",
        least=1,
        most=100,
        default=1,
        help="Start each side of this comparison so often; from 3 on its intervals hold what "
        "differs from start to start.",
    )
    draft_tokens = option(int, "--draft-tokens", least=2, help="Draft tokens at most of a setting.")
    rounds = option(int, "--rounds", least=1, most=1000, default=3, help="Rounds of each setting.")
    requests = _REQUESTS
    output_tokens = _OUTPUT_TOKENS
    input_tokens = _INPUT_TOKENS
    write = flag("--write", help="Edit the recipe, where the new setting is shown faster.")
    output_file = option(
        Path,
        "--output",
        "-o",
        "--output-file",
        metavar="FILE",
        help="Write the tuned recipe to FILE instead.",
    )
    adaptive_config = option(
        Path,
        "--adaptive-config",
        metavar="FILE",
        help="Write SGLang's file of steps by batch size (speculative_adaptive_config) for "
        "the loads of throughput@N,….",
    )
    dry_run = flag("--dry-run", help="List the starts and the time they take; start nothing.")
    fresh = flag("--fresh", help="Forget what was measured before.")
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
        help="Recipes and Hydra overrides with several values: a,b · range(1,4) · "
        "glob(eagle*). hydra/launcher=joblib chooses who runs the jobs.",
    )
    plan = flag("--plan", help="Plan each job; start nothing.")
    dry_run = flag("--dry-run", help="List the jobs, and why some are refused; run none.")
    resume = option(
        Path,
        "--resume",
        metavar="DIR",
        help="Continue the sweep of this folder. The same command continues its own, too.",
    )
    directory = option(
        Path,
        "--directory",
        metavar="DIR",
        help="The sweep's folder. Default: one in speclaunch's home, by the words. For a "
        "cluster: on storage that its nodes share.",
    )
    retry = flag("--retry", help="Run jobs that failed or were refused again.")
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
