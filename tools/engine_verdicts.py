"""Ask released engines themselves what they make of many configurations, without their GPUs.

    python tools/engine_verdicts.py generate                  the configurations, into the tests
    python tools/engine_verdicts.py environment VERSION DIR   packages of a release, into DIR
    python tools/engine_verdicts.py run VERSION --python PY --site DIR …   ask, and store
    python tools/engine_verdicts.py check                     what is stored fits what is generated
    python tools/engine_verdicts.py report [VERSION …]        the rules and resolver against it

SGLang's own argument validation (`prepare_server_args`, resolution, `check_server_args`, and the
config of the draft model) needs no GPU: it is run here with the answers of its platform functions
replaced by those of an H200, a B200, or a CPU (speclaunch/checks/engine_check/worker says how).
What the scheduler and the model runner refuse later is not asked.

An environment is an interpreter and one or more folders of packages. The interpreter is that of
the CPU engine, `speclaunch engine install cpu`: SGLang 0.5.23 with a CPU build of torch. The
folder holds what a release has of its own: SGLang's wheel, the transformers, tokenizers and
xgrammar that it pins, and triton, all without their dependencies. `environment` fills it (some
200 MB to fetch). A whole round for one release takes some ten minutes on one core.

The stored bytes are a function of the release and the configurations; `run` twice, and compare.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from speclaunch.checks.engine_check.engine_judge import (  # noqa: E402  # noqa: E402
    LOADING_S,
    MEMORY,
    JsonWorker,
    WorkerError,
    command_of,
    environment_of,
)
from speclaunch.engine.releases.catalogue import held_versions, load, name_of  # noqa: E402
from speclaunch.engine.releases.command import render_args  # noqa: E402
from tests.support.conformance import data  # noqa: E402
from tests.support.conformance.report import main as print_report  # noqa: E402
from tools.verdicts.configurations import generate  # noqa: E402
from tools.verdicts.models import MODELS, write  # noqa: E402

PACKAGES = {
    "0.5.3.post3": [
        "transformers==4.57.1",
        "tokenizers==0.22.1",
        "xgrammar==0.1.25",
        "huggingface_hub==0.36.0",
    ],
    "0.5.4.post3": [
        "transformers==4.57.1",
        "tokenizers==0.22.1",
        "xgrammar==0.1.25",
        "huggingface_hub==0.36.0",
    ],
    "0.5.7": [
        "transformers==4.57.1",
        "tokenizers==0.22.1",
        "xgrammar==0.1.27",
        "huggingface_hub==0.36.0",
    ],
    "0.5.9": [
        "transformers==4.57.1",
        "tokenizers==0.22.1",
        "xgrammar==0.1.27",
        "huggingface_hub==0.36.0",
    ],
    "0.5.10.post1": ["transformers==5.3.0", "tokenizers==0.22.2", "xgrammar==0.1.32"],
    "0.5.12.post1": ["transformers==5.6.0", "tokenizers==0.22.2", "xgrammar==0.2.0"],
    "0.5.14": ["transformers==5.8.1", "tokenizers==0.22.2", "xgrammar==0.2.1"],
    "0.5.16": ["transformers==5.12.1", "tokenizers==0.22.2", "xgrammar==0.2.1"],
    "0.5.18": ["transformers==5.12.1", "tokenizers==0.22.2", "xgrammar==0.2.1"],
    "0.5.21": ["transformers==5.12.1", "tokenizers==0.22.2"],
    "0.5.23": [],
}
"""What each release needs beside the packages of the CPU engine."""

TRITON = "triton==3.5.1"
"""One for all: it is imported, and compiles nothing."""

KEPT = re.compile(
    r"speculative_.*|.*attention_backend|page_size|max_running_requests|disable_overlap_schedule"
    r"|enable_mixed_chunk|mem_fraction_static|tp_size|pp_size|ep_size|dp_size|attn_dp_size"
    r"|attn_cp_size|enable_dp_attention|enable_dp_lm_head|disable_cuda_graph"
    r"|cuda_graph_(max_)?bs(_(decode|prefill))?|cuda_graph_backend_(decode|prefill)"
    r"|disable_piecewise_cuda_graph|piecewise_cuda_graph_max_tokens|piecewise_cuda_graph_tokens"
    r"|enable_multi_layer_eagle|sampling_backend|dtype|kv_cache_dtype|chunked_prefill_size"
    r"|max_prefill_tokens|context_length|device|quantization|disable_radix_cache"
    r"|enable_lora|enable_torch_compile|torch_compile_max_bs|moe_runner_backend|moe_a2a_backend"
    r"|mamba_.*|schedule_conservativeness|enable_beta_spec|enable_deterministic_inference"
    r"|disable_cuda_graph_padding|disaggregation_mode|load_format|disable_custom_all_reduce"
)
"""The fields of an accepted configuration that are recorded."""

ELSEWHERE = {"b200": ("backend", "page", "model"), "cpu": ("triple",)}
"""The groups that are asked on machines other than the H200, beside every fourth of all."""


def words_for(record: dict[str, Any], version: str) -> list[str] | None:
    """The command line of a configuration for a version; None where it is not asked.

    Arguments that the version does not know get their newest spelling, which its parser refuses:
    one in six of those configurations is enough of that.
    """
    spelling = render_args(record.get("args", {}), {}, load(version))
    tokens = [token for argument in spelling.arguments for token in argument.tokens]
    if spelling.problems:
        if int(record["id"][-7:], 16) % 6:
            return None
        newest = load(held_versions()[-1])
        for name in sorted({problem.name for problem in spelling.problems}):
            known = newest.by_name(name)
            flag = known.flag if known else "--" + name_of(name).replace("_", "-")
            value = record["args"][name]
            tokens += [flag] if value is True else [flag, str(value)]
    return [*tokens, *record.get("words", [])]


def asked_on(record: dict[str, Any], machine: str) -> bool:
    """Whether a configuration is asked on a machine."""
    if machine == "h200":
        return True
    group, _, digest = record["id"].rpartition("-")
    turn = list(data.MACHINES).index(machine)
    return group in ELSEWHERE[machine] or int(digest, 16) % 4 == turn


def cases_for(version: str, machine: str) -> list[dict[str, Any]]:
    """What one engine is asked on one machine."""
    cases = []
    for record in data.configurations():
        if asked_on(record, machine) and (words := words_for(record, version)) is not None:
            cases.append({"id": record["id"], "words": words, "env": record.get("env", {})})
    return cases


def ask(
    python: Path,
    sites: Sequence[Path],
    machine: str,
    cases: list[dict[str, Any]],
    *,
    light: bool = False,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run the engine's validation over cases: what it said of itself, and the verdicts."""
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "models")
        env = environment_of([site.absolute() for site in sites], Path(directory))
        command = command_of(python.absolute(), light=light)
        worker = JsonWorker(command, env, Path(directory))
        try:
            setting = {
                "warm": ["--model-path", "models/llama"],
                "scratch": directory,
                "seconds": 60,
                "memory": MEMORY,
            }
            hello = worker.ask(setting, LOADING_S)
            verdicts = []
            for case in cases:
                question = {"words": case["words"], "env": case["env"], "cwd": directory}
                said = worker.ask(question | {"machine": data.MACHINES[machine]}, 90)
                verdicts.append({"id": case["id"]} | recorded(said))
        except WorkerError as error:
            raise SystemExit(f"{machine}: the engine's interpreter failed: {error}") from None
        finally:
            worker.end()
    return hello, verdicts


def recorded(said: dict[str, Any]) -> dict[str, Any]:
    """What is stored of a verdict: the fields that matter here, one line of the message."""
    kept = {name: said[name] for name in ("verdict", "stage", "error") if name in said}
    if kept["verdict"] == "unjudged":  # a checkpoint that is nowhere: the configurations' own ones
        kept["verdict"] = "refused" if said["error"] not in ("", "NotChecked") else "artefact"
    if "message" in said:
        lines = (line.strip() for line in said["message"].splitlines() if line.strip())
        kept["message"] = next(lines, "")[:300]
    if "where" in said and said["error"] != "SystemExit":
        kept["where"] = said["where"]
    if "values" in said:
        values = said["values"]
        kept["values"] = {name: values[name] for name in sorted(values) if KEPT.fullmatch(name)}
    return kept


def run(args: argparse.Namespace) -> int:
    """Ask one release about everything, and store what it says."""
    machines = args.machines.split(",")
    add_release(args.version, args.python, args.site, machines, jobs=args.jobs, select=args.select)
    return 0


def add_release(
    version: str,
    python: Path,
    sites: Sequence[Path],
    machines: Sequence[str] = tuple(data.MACHINES),
    *,
    jobs: int = 1,
    select: str | None = None,
) -> None:
    """Ask a release, and store what it says; with `select` (part of an id) print it alone."""
    cases = {machine: cases_for(version, machine) for machine in machines}
    if select:
        cases = {m: [c for c in found if select in c["id"]] for m, found in cases.items()}
    with ThreadPoolExecutor(jobs) as pool:
        asked = pool.map(lambda m: ask(python, sites, m, cases[m]), machines)
        answers = dict(zip(machines, asked, strict=True))
    records: dict[str, dict[str, Any]] = {}
    for machine, (engine, verdicts) in answers.items():
        if engine["sglang"] != version:
            raise SystemExit(f"{sites} holds sglang {engine['sglang']}, not {version}")
        for module, why in engine["failed"].items():
            print(f"{machine}: not imported: {module}: {why}", file=sys.stderr)
        for case, verdict in zip(cases[machine], verdicts, strict=True):
            env = {"env": case["env"]} if case["env"] else {}
            new = {"id": case["id"], "words": case["words"], **env, "said": {}}
            record = records.setdefault(case["id"], new)
            record["said"][machine] = {k: v for k, v in verdict.items() if k != "id"}
            if verdict["verdict"] == "artefact" or select:
                shown = {k: v for k, v in verdict.items() if k != "values"}
                print(f"{machine}: {shown} {' '.join(case['words'])}", file=sys.stderr)
    if select:
        return
    path = data.store(version, [records[key] for key in sorted(records)])
    print(f"{path.relative_to(REPOSITORY)}: {len(records)} configurations, {summary(answers)}")


def summary(answers: dict[str, Any]) -> str:
    """How many verdicts of each kind."""
    kinds: dict[str, int] = {}
    for _, verdicts in answers.values():
        for verdict in verdicts:
            kinds[verdict["verdict"]] = kinds.get(verdict["verdict"], 0) + 1
    return ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))


def generated() -> str:
    """The text of the configurations' file: one configuration, one model a line."""

    def lines(items: Iterator[str]) -> str:
        return ",\n  ".join(items)

    configurations = lines(json.dumps(c.record()) for c in generate())
    models = lines(f"{json.dumps(n)}: {json.dumps(c)}" for n, c in MODELS.items())
    return (
        f'{{\n "configurations": [\n  {configurations}\n ],\n "models": {{\n  {models}\n }}\n}}\n'
    )


def write_configurations(_: argparse.Namespace) -> int:
    """Write the configurations."""
    data.CONFIGURATIONS.write_text(generated())
    print(f"{data.CONFIGURATIONS.relative_to(REPOSITORY)}: {len(data.configurations())}")
    return 0


def environment(args: argparse.Namespace) -> int:
    """Fetch the packages of a release."""
    own = [f"sglang=={args.version}", *PACKAGES[args.version]]
    return fetch(args.python, args.directory, own)


def fetch(python: Path, directory: Path, packages: Sequence[str]) -> int:
    """Put packages, and triton, into a folder without what they depend on; pip's exit code."""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    return subprocess.run([*pip, str(directory), TRITON, *packages], check=False).returncode


def check(_: argparse.Namespace) -> int:
    """Whether the stored files fit the generator and the spelling of today; what does not."""
    wrong = []
    if data.CONFIGURATIONS.read_text() != generated():
        wrong.append("configurations.json is not what `generate` writes")
    for version in data.versions():
        for machine in data.MACHINES:
            asked = {case["id"]: tuple(case["words"]) for case in cases_for(version, machine)}
            stored = {s.id: s.words for s in data.load(version) if s.machine == machine}
            differ = sorted(i for i in asked.keys() | stored if asked.get(i) != stored.get(i))
            if differ:
                wrong.append(f"{version} on {machine}: {len(differ)} differ, as {differ[0]}")
    print("\n".join(wrong) or f"{', '.join(data.versions())}: as generated")
    return bool(wrong)


def report(args: argparse.Namespace) -> int:
    """Print how the rules and the resolver agree with the engine."""
    return print_report(args.rest)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(required=True)

    def verb(name: str, what: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=(what.__doc__ or "").partition("\n")[0])
        added.set_defaults(verb=what)
        return added

    verb("generate", write_configurations)
    verb("check", check)
    fetch = verb("environment", environment)
    fetch.add_argument("version", choices=list(PACKAGES))
    fetch.add_argument("directory", type=Path)
    fetch.add_argument("--python", type=Path, default=Path(sys.executable))
    ask_all = verb("run", run)
    ask_all.add_argument("version")
    ask_all.add_argument("--python", type=Path, required=True, help="the CPU engine's interpreter")
    ask_all.add_argument("--site", type=Path, action="append", default=[], help="repeatable")
    ask_all.add_argument("--machines", default=",".join(data.MACHINES))
    ask_all.add_argument("--jobs", type=int, default=1)
    ask_all.add_argument("--select", help="part of an id: print those verdicts, store nothing")
    verb("report", report).add_argument("rest", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    return int(partial(args.verb, args)())


if __name__ == "__main__":
    sys.exit(main())
