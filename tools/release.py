"""Take a new SGLang release in: all data of it, and a report of what is left to do by hand.

    python tools/release.py VERSION [--wheels DIR] [--skip STEP,…] [--report FILE]
    python tools/release.py --report-only VERSION      the report alone; nothing is written
    python tools/release.py --check                    whether all data hold the same releases
    python tools/release.py --remove VERSION           take a release out of all data

The steps, in order: `catalogue`, `architectures`, `metrics`, `refusals` and `states` read the
wheel (a minute); `memory` and `verdicts` run the release's own code in the CPU engine's interpreter
(`--python`, default: that of `speclaunch engine install cpu`), with the unpacked wheel, and the
folders of `--site`, before the packages of that engine (minutes). Without `--site`, pip fetches
what tools/engine_verdicts.py names for the release in PACKAGES; where the pins below moved, add a
line there first.

DIR holds the wheels; releases before VERSION may lie there unpacked, as DIR/VERSION/sglang. The
wheels of VERSION and of the release before it are fetched with pip if need be. The same wheel gives
the same bytes. Exit code 1: data sets hold different releases.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import architectures  # noqa: E402
import auto_memory  # noqa: E402
import catalogue  # noqa: E402
import engine_states  # noqa: E402
import engine_verdicts  # noqa: E402
import metrics  # noqa: E402
import refusals  # noqa: E402
from releasing import differences, evidence  # noqa: E402
from releasing.data_sets import SETS, unequal  # noqa: E402
from releasing.sources import Sources, wheel_or_folder  # noqa: E402

import advisories  # noqa: E402
from speclaunch.core.files import speclaunch_home  # noqa: E402
from speclaunch.engine.facts.cpu_engine import CpuEngine  # noqa: E402
from speclaunch.engine.releases.extraction.source import PackageSource  # noqa: E402

STEPS = tuple(one.name for one in SETS)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("version", nargs="?", metavar="VERSION")
    what.add_argument("--report-only", metavar="VERSION")
    what.add_argument("--check", action="store_true")
    what.add_argument("--remove", metavar="VERSION")
    parser.add_argument("--wheels", type=Path, default=catalogue.default_cache())
    parser.add_argument("--skip", default="", metavar="STEP,…", help=", ".join(STEPS))
    parser.add_argument("--python", type=Path, help="the CPU engine's interpreter")
    parser.add_argument("--site", type=Path, action="append", default=[], help="repeatable")
    parser.add_argument("--report", type=Path, metavar="FILE", help="default: standard output")
    chosen = parser.parse_args(arguments)
    skipped = tuple(filter(None, chosen.skip.split(",")))
    if wrong := [step for step in skipped if step not in STEPS]:
        parser.error(f"--skip {','.join(wrong)}: the steps are {', '.join(STEPS)}")
    if chosen.remove:
        remove(chosen.remove)
    elif chosen.version:
        take_in(chosen.version, chosen.wheels, chosen.python, chosen.site, skipped)
    if version := chosen.version or chosen.report_only:
        text = "\n".join(report(version, chosen.wheels)) + "\n"
        if chosen.report:
            chosen.report.write_text(text)
        else:
            print(text, end="")
    return check(skipped)


def take_in(
    version: str, wheels: Path, python: Path | None, sites: Sequence[Path], skipped: Sequence[str]
) -> None:
    """Make all data of a release, and say what each step took."""
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / version
        with zipfile.ZipFile(catalogue.wheel(version, wheels)) as archive:
            archive.extractall(unpacked)
        python = python or CpuEngine(speclaunch_home()).python
        packages = [unpacked, *sites]
        if not sites and not {"memory", "verdicts"} <= set(skipped):
            packages.append(Path(folder) / "packages")
            pins = engine_verdicts.PACKAGES.get(version, [])
            if engine_verdicts.fetch(python, packages[-1], pins):
                raise SystemExit(f"pip could not fetch the packages of {version}: --site DIR")
        steps: dict[str, Callable[[], object]] = {
            "catalogue": lambda: catalogue.add_releases([version], wheels, 1),
            "architectures": lambda: architectures.add_release(version, wheels),
            "metrics": lambda: metrics.add_release(version, wheels),
            "refusals": lambda: refusals.add_release(version, unpacked),
            "states": lambda: engine_states.add_release(unpacked),
            "memory": lambda: auto_memory.add_release(version, python, packages),
            "verdicts": lambda: engine_verdicts.add_release(version, python, packages),
        }
        for name, step in steps.items():
            if name in skipped:
                print(f"{name}: skipped")
                continue
            begun = time.monotonic()
            step()
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


def remove(version: str) -> None:
    """Take a release out of all data."""
    must_be_held(version)
    for one in SETS:
        one.remove(version)


def must_be_held(version: str) -> tuple[str, ...]:
    """The releases that the data hold. Raises SystemExit where this is none of them."""
    held = catalogue.held()
    if version not in held:
        raise SystemExit(f"{version} is not held: {', '.join(held)}")
    return held


def check(skipped: Sequence[str] = ()) -> int:
    """Print what the data sets do not agree in; 1 where there is such."""
    problems = unequal([one for one in SETS if one.name not in skipped])
    for problem in problems:
        print(f"unequal: {problem}", file=sys.stderr)
    for step in skipped:
        print(f"not checked, because it was skipped: {step}", file=sys.stderr)
    return bool(problems)


def report(version: str, wheels: Path) -> Iterator[str]:
    """What the release changed, and what is left to do by hand, as Markdown."""
    held = must_be_held(version)
    place = held.index(version)
    if place == 0:
        return
    before = held[place - 1]
    yield f"# SGLang {version}, compared with {before}"
    for name, file in (
        ("Arguments", "arguments.json"),
        ("Environment variables", "variables.json"),
    ):
        records = catalogue.stored(file)
        yield from _section(name, differences.flags(records[before], records[version]))
    known = architectures.stored()
    if version in known and before in known:
        found = differences.architectures(known[before], known[version])
        yield from _section("Architectures", found)
    with ExitStack() as stack:

        @cache
        def get(one: str) -> Sources | None:
            place = wheel_or_folder(wheels, one)
            if place is None and one in (version, before):
                place = catalogue.wheel(one, wheels)
            return Sources(stack.enter_context(PackageSource(place))) if place else None

        old, new = get(before), get(version)
        assert old is not None and new is not None
        yield from _sources(old, new)
        found = evidence.review(evidence.citations(REPOSITORY), get, before, version)
        yield from _section(
            f"Statements that we cite, changed or gone ({found.kept} are as they were)",
            iter(found.changed),
        )
        yield from _section("Statements that we cite, in another file", iter(found.moved))
        if found.unread:
            yield from _section("Cited releases without a wheel here", iter(found.unread))
    release = advisories.Release(version, wheels)
    yield from _section("Advisories that it changes", advisories.changes(release))
    yield '\nContinue with step 4 of "A new SGLang release" in speclaunch/engine/README.md.'


def _sources(old: Sources, new: Sources) -> Iterator[str]:
    lists = [s.members("speculative/spec_info.py", "SpeculativeAlgorithm") for s in (old, new)]
    yield from _section("Speculative algorithms", _gained(*lists))
    gone = {text: at for text, at in old.messages.items() if text not in new.messages}
    came = {text: at for text, at in new.messages.items() if text not in old.messages}
    yield from _section("Messages that are new", (f"{at}: {text}" for text, at in came.items()))
    yield from _section("Messages that are gone", (f"{at}: {text}" for text, at in gone.items()))
    yield from _section(
        "Our texts that quote a message that is gone", evidence.quoted(REPOSITORY, gone)
    )
    yield from _section(
        "Causes of failures without their message", evidence.unrecognised(gone, new.messages)
    )
    yield from _section("Marks without their line", evidence.unmarked(old.course, new.course))
    yield from _section("Packages that it pins", _gained(old.requirements, new.requirements))


def _gained(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    yield from (f"new: {one}" for one in new if one not in old)
    yield from (f"gone: {one}" for one in old if one not in new)


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield f"\n## {title}\n"
    found = [f"- {line}" for line in lines]
    yield from found or ["None."]


if __name__ == "__main__":
    sys.exit(main())
