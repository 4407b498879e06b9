"""Ask whether speclaunch's translations keep the meaning; the judge is not our own parser.

    python -m campaigns translations texts [--count N]             print the generated texts
    python -m campaigns translations run --python PY --wheels DIR  the campaign, stored for tests
    python -m campaigns translations verify VERSION … (same)       the judge against the CPU engine
    python -m campaigns translations merge PART …                  parts of it (--step, --store)

`migrate`, `import`, `render` and `launch --dry-run` are run over generated texts, all recipes, and
the commands of a JSONL file (`--cases`). Every text, before and after, is run by a real bash with
recording stand-ins (tests/support/bash.py), and the recorded words are given to the release's own
argparse (campaigns/translating/oracle.py). The results are stored for tests/translations.

PY is an interpreter with msgspec and PyYAML, such as that of `speclaunch engine install cpu`; DIR
holds the unpacked wheel of each release, `DIR/0.5.23/sglang`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from campaigns.translating.campaign import Campaign, Defect, Outcome, shown
from campaigns.translating.meaning import Reader
from campaigns.translating.page import page
from campaigns.translating.releases import Installed, Verdict, releases
from campaigns.translating.sources import published, recipes
from campaigns.translating.verbs import load_verbs
from speclaunch.core.files import speclaunch_home
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.engine.releases.catalogue import held_versions
from tests.support.bash import sandbox
from tests.support.corpora.arguments import draw
from tests.support.corpora.texts import COUNT, SEED, digest, generate

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "tests/translations/results.json"
PAGE = REPOSITORY / "docs/reference/translations.md"


def texts(args: argparse.Namespace) -> int:
    """Print generated texts."""
    for text in generate(args.count, args.seed):
        print(f"##### {text.id}: {text.version} → {text.to}\n{text.text}")
    return 0


def run(args: argparse.Namespace) -> int:
    """The campaign."""
    others = [*published(args.cases, args.seed)] if args.cases else []
    others += [] if args.generated else recipes(REPOSITORY / "recipes", args.seed)
    chosen = others[args.begin :: args.step]
    chosen += generate(args.count, args.seed, begin=args.begin, step=args.step)
    chosen = [t for t in chosen if not args.select or args.select in t.id]
    if args.versions:
        only = args.versions.split(",")
        chosen = [t for t in chosen if t.version in only and t.to in only]
    counts: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    defects: list[Defect] = []
    load_verbs()
    with sandbox() as box, releases(args.python, str(args.wheels / "{version}")) as held:
        campaign = Campaign(Reader(box, held), args.rarely)
        for number, text in enumerate(chosen, 1):
            outcome = campaign.judge(text)
            counts["texts: generated"] += text.id[:7] not in ("recipe-", "publish")
            counts += outcome.counts
            kinds.setdefault(text.kind, Counter()).update(of_kind(outcome))
            defects += outcome.defects
            for defect in outcome.defects:
                print(f"{defect.group}: {defect.text.id}: {defect.detail[:160]}", flush=True)
            if outcome.defects and args.report:
                args.report.write_text("\n".join(line for d in defects for line in shown(d)) + "\n")
            if number % 20 == 0:
                print(f"{number} of {len(chosen)}: {len(defects)} defects", flush=True)
                if args.store:
                    store(args.store, part(args, counts, kinds, defects))
    report(counts, defects, args.report)
    if args.store:
        store(args.store, part(args, counts, kinds, defects))
    return bool(defects)


def of_kind(outcome: Outcome) -> Counter[str]:
    """What one text adds to the row of its kind: the comparisons by each verb, and defects."""
    ending = ": compared"
    compared = {k.removesuffix(ending): n for k, n in outcome.counts.items() if k.endswith(ending)}
    return Counter({"texts": 1, "defects": len(outcome.defects), **compared})


def part(
    args: argparse.Namespace,
    counts: Counter[str],
    kinds: dict[str, Counter[str]],
    defects: list[Defect],
) -> dict[str, Any]:
    """What is kept of a campaign."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": args.seed,
        "digest": digest(generate(60, args.seed)),
        "versions": list(held_versions()),
        "generated": counts["texts: generated"],
        "counts": {k: n for k, n in sorted(counts.items()) if not k.startswith("defaults")},
        "kinds": {kind: dict(sorted(row.items())) for kind, row in sorted(kinds.items())},
        "open": [{"id": d.text.id, "group": d.group, "detail": d.detail[:200]} for d in defects],
    }


def store(path: Path, found: dict[str, Any]) -> None:
    """Write results."""
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def merge(args: argparse.Namespace) -> int:
    """The parts of one campaign together."""
    parts = [json.loads(path.read_text()) for path in args.parts]
    whole = parts[0]
    for other in parts[1:]:
        if any(other[key] != whole[key] for key in ("seed", "digest", "versions")):
            raise SystemExit("the parts are of different campaigns")
        whole["generated"] += other["generated"]
        counts = Counter(whole["counts"]) + Counter(other["counts"])
        whole["counts"] = dict(sorted(counts.items()))
        for kind, row in other["kinds"].items():
            both = Counter(row) + Counter(whole["kinds"].get(kind, {}))
            whole["kinds"][kind] = dict(sorted(both.items()))
        whole["open"] += other["open"]
    whole["kinds"] = dict(sorted(whole["kinds"].items()))
    store(RESULTS, whole)
    PAGE.write_text(page(whole))
    print(
        f"{RESULTS.relative_to(REPOSITORY)}: {whole['generated']} texts, {len(whole['open'])} open"
    )
    return 0


def verify(args: argparse.Namespace) -> int:
    """Whether the parser out of the wheel says what that of the CPU engine says."""
    dice = random.Random(args.seed)  # noqa: S311 - not a secret
    asked = []
    for number in range(args.lines):
        of = args.version if number % 2 else dice.choice(held_versions())
        uses = draw(of, dice)
        words = [word for use in uses for word in (use.flag, *use.values)]
        asked.append(("launch_server", ["--model-path", "m", *words]))
    installed = CpuEngine(speclaunch_home())
    engine = Installed(installed.python, {**os.environ, **installed.environment(os.environ)})
    differ = refused = 0
    with releases(args.python, str(args.wheels / "{version}")) as held:
        for entry, words in asked:
            ours = held.ask(args.version, entry, words)
            theirs = engine.ask(args.version, entry, words)
            refused += theirs.error is not None
            if _plain(ours) != _plain(theirs):
                differ += 1
                print(words, ours.error, theirs.error, sep="\n  ")
        differ += held.destinations(args.version) != engine.destinations(args.version)
    engine.close()
    print(f"{len(asked)} command lines, {refused} refused by the engine: {differ} differ")
    return bool(differ)


def _plain(verdict: Verdict) -> tuple[bool, Any, Any]:
    return verdict.error is None, verdict.values, verdict.given


def report(counts: Counter[str], defects: Iterable[Defect], path: Path | None) -> None:
    """Print the counts, and the defects by group."""
    for key in sorted(k for k in counts if not k.startswith("defaults")):
        print(f"{counts[key]:6} {key}")
    groups: dict[str, list[Defect]] = {}
    for defect in defects:
        groups.setdefault(defect.group, []).append(defect)
    for group, found in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"{len(found):6} DEFECT {group}: {found[0].text.id}: {found[0].detail[:200]}")
    if path:
        lines = [line for found in groups.values() for d in found for line in shown(d)]
        told = [f"{n} {k}" for k, n in counts.most_common() if k.startswith("defaults")]
        path.write_text("\n".join([*lines, *told]) + "\n")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(required=True)
    show = verbs.add_parser("texts", help="print generated texts")
    show.set_defaults(verb=texts)
    ask = verbs.add_parser("run", help="the campaign")
    ask.set_defaults(verb=run)
    prove = verbs.add_parser("verify", help="the judge against the CPU engine")
    prove.set_defaults(verb=verify)
    prove.add_argument("version")
    prove.add_argument("--lines", type=int, default=200)
    prove.add_argument("--seed", type=int, default=SEED)
    join = verbs.add_parser("merge", help="the parts of a campaign, stored for tests")
    join.set_defaults(verb=merge)
    join.add_argument("parts", type=Path, nargs="+")
    for verb in (show, ask):
        verb.add_argument("--count", type=int, default=COUNT)
        verb.add_argument("--seed", type=int, default=SEED)
    for verb in (ask, prove):
        verb.add_argument("--python", type=Path, required=True)
        verb.add_argument("--wheels", type=Path, required=True)
    ask.add_argument("--cases", type=Path, help="commands of others, JSONL")
    ask.add_argument("--select", help="part of an id")
    ask.add_argument("--versions", help="only texts from and to these")
    ask.add_argument("--begin", type=int, default=0)
    ask.add_argument("--step", type=int, default=1)
    ask.add_argument("--generated", action="store_true", help="no recipes")
    ask.add_argument("--rarely", type=int, default=1, help="import one text in so many only")
    ask.add_argument("--store", type=Path, help="write counts and open defects here, for `merge`")
    ask.add_argument("--report", type=Path, help="write every defect with its text here")
    args = parser.parse_args()
    return int(args.verb(args))
