"""Measure what speclaunch catches of what released engines refuse, on random command lines.

    python -m campaigns recall ask VERSION --configs DIR --python PY [--site DIR …] --out FILE
    python -m campaigns recall compare FILE … --configs DIR          counts, misses, false alarms
    python -m campaigns recall page FILE … --configs DIR             docs/reference/recall.md
    python -m campaigns recall sample FILE … --configs DIR           tests/recall/sample.jsonl.xz

`ask` draws command lines over the models of a directory (`ORG--NAME.json`, each a config.json) and
has the engine judge them on pretended machines (speclaunch/checks/engine_check/worker); interpreter
and folders are those of tools/engine_verdicts.py. `compare` has speclaunch judge the same words,
with the same models and the machine by its name, and counts only findings of error severity.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import tempfile
from pathlib import Path
from random import Random

from campaigns.recalling.comparing import Line, compare
from campaigns.recalling.drawing import draw
from campaigns.recalling.engines import ask
from campaigns.recalling.generated import section
from campaigns.recalling.machines import MACHINES
from campaigns.recalling.models import lay_out, read_models
from campaigns.recalling.reporting import alarms, campaign, counts_text, misses, page
from speclaunch.engine.releases.catalogue import load

REPOSITORY = Path(__file__).resolve().parent.parent

PAGE = REPOSITORY / "docs" / "reference" / "recall.md"
CAMPAIGN = REPOSITORY / "tests" / "recall" / "campaign.json"
SAMPLE = REPOSITORY / "tests" / "recall" / "sample.jsonl.xz"


def ask_engine(args: argparse.Namespace) -> int:
    """Draw, ask one release on each machine, write one JSON object a line."""
    models, catalogue = read_models(args.configs), load(args.version)
    with tempfile.TemporaryDirectory() as folder, args.out.open("a") as out:
        lay_out(args.configs, Path(folder))
        for machine in args.machines.split(","):
            seeds = [f"{args.seed}/{machine}/{number}" for number in range(args.count)]
            lines = {seed: draw(seed, catalogue, models) for seed in seeds}
            version, verdicts = ask(
                args.python, args.site, machine, lines, Path(folder), jobs=args.jobs
            )
            if version != args.version:
                raise SystemExit(f"{args.site} holds sglang {version}, not {args.version}")
            for verdict in verdicts:
                said = {k: v for k, v in verdict.items() if k not in ("id", "values")}
                row = {"release": version, "machine": machine, "seed": verdict["id"]}
                words = lines[verdict["id"]]
                print(json.dumps(row | {"words": words, "said": said}), file=out, flush=True)
    return 0


def compared(files: list[Path], configs: Path) -> list[Line]:
    """Every stored line with what speclaunch says of it."""
    rows = [json.loads(text) for file in files for text in file.read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        lay_out(configs, Path(folder))
        return [
            compare(r["seed"], r["release"], r["machine"], tuple(r["words"]), r["said"])
            for r in rows
        ]


def compare_all(args: argparse.Namespace) -> int:
    """Print counts, false alarms, and misses grouped by the engine's place."""
    files, configs = [file.absolute() for file in args.files], args.configs.absolute()
    lines = compared(files, configs)
    print(counts_text(lines), alarms(lines), misses(lines, args.examples), sep="\n\n")
    print(section(lines))
    return 0


def write_page(args: argparse.Namespace) -> int:
    """Write the page of the campaign."""
    files, configs = [file.absolute() for file in args.files], args.configs.absolute()
    lines, models = compared(files, configs), len(read_models(configs).configs)
    PAGE.write_text(page(lines, models))
    CAMPAIGN.write_text(json.dumps(campaign(lines, models), indent=1) + "\n")
    return 0


def write_sample(args: argparse.Namespace) -> int:
    """Write the sample that a test judges again."""
    files, configs = [file.absolute() for file in args.files], args.configs.absolute()
    judged = [line for line in compared(files, configs) if line.outcome != "not judged"]
    chosen = Random("sample").sample(judged, min(args.examples, len(judged)))  # noqa: S311
    rows = [
        {
            "seed": line.seed,
            "release": line.release,
            "machine": line.machine,
            "words": line.words,
            "said": {key: line.said.get(key, "") for key in ("verdict", "message", "where")},
        }
        for line in sorted(chosen, key=lambda line: (line.release, line.machine, line.seed))
    ]
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    SAMPLE.write_bytes(lzma.compress(text.encode(), preset=9))
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(required=True)
    asking = verbs.add_parser("ask", help=(ask_engine.__doc__ or "").partition("\n")[0])
    asking.set_defaults(verb=ask_engine)
    asking.add_argument("version")
    asking.add_argument("--python", type=Path, required=True)
    asking.add_argument("--site", type=Path, action="append", default=[])
    asking.add_argument("--machines", default=",".join(MACHINES))
    asking.add_argument("--count", type=int, default=250, help="command lines a machine")
    asking.add_argument("--seed", default="1")
    asking.add_argument("--jobs", type=int, default=1)
    asking.add_argument("--out", type=Path, required=True)
    reading = {"compare": compare_all, "page": write_page, "sample": write_sample}
    for name, verb in reading.items():
        added = verbs.add_parser(name, help=(verb.__doc__ or "").partition("\n")[0])
        added.set_defaults(verb=verb)
        added.add_argument("files", type=Path, nargs="+")
        added.add_argument("--examples", type=int, default=300 if name == "sample" else 2)
    for added in verbs.choices.values():
        added.add_argument("--configs", type=Path, required=True)
    args = parser.parse_args()
    return int(args.verb(args))
