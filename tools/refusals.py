"""Read what released engines refuse, out of their own validation, into the product's rows.

    python tools/refusals.py --sources DIR        all held releases, unpacked at DIR/VERSION/sglang
    python tools/refusals.py --sources DIR --report FILE    what could not be read, too

Nothing of SGLang is imported or run: its sources are read as syntax trees, from the entry point
of the validation on, in the order in which the engine runs it. docs/explanation/refusals.md says
how, and what is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from refusal_reading.gather import Gathered, add, decode, encode, remove  # noqa: E402

from speclaunch.core.files import replace_file  # noqa: E402
from speclaunch.engine.releases.catalogue import held_versions  # noqa: E402

OUTPUT = REPOSITORY / "speclaunch" / "engine" / "plan" / "data" / "refusals.json"
REPORT = REPOSITORY / "tests" / "engine" / "plan" / "refusals_report.json"


def gather(sources: Path, versions: Sequence[str]) -> Gathered:
    """The rows of releases, each read from `sources/VERSION`."""
    found = Gathered()
    for version in versions:
        begun = time.monotonic()
        add(found, version, sources / version)
        said = found.unread[version]
        took = time.monotonic() - begun
        print(f"{version}: {said['kept']} of {said['raising']} in {took:.0f} s", flush=True)
    return found


def stored() -> Gathered:
    """What the files hold."""
    found = decode(OUTPUT.read_text(encoding="utf-8"))
    found.unread = json.loads(REPORT.read_text(encoding="utf-8"))
    return found


def store(found: Gathered, output: Path | None = None, report: Path | None = None) -> None:
    """Write both files."""
    replace_file(output or OUTPUT, encode(found), 0o666)
    replace_file(report or REPORT, json.dumps(found.unread, indent=1) + "\n", 0o666)


def add_release(version: str, folder: Path) -> None:
    """Read a release that is unpacked in a folder, in the place of what is held of it."""
    found = stored()
    remove(found, version)
    add(found, version, folder)
    store(found)


def remove_release(version: str) -> None:
    """Take a release out."""
    found = stored()
    remove(found, version)
    store(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--versions", default="", metavar="VERSION,…", help="default: all held")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--report", type=Path, default=REPORT)
    chosen = parser.parse_args(arguments)
    versions = [one for one in chosen.versions.split(",") if one] or list(held_versions())
    sys.setrecursionlimit(20000)  # not in `gather`: tests that call it would change their process
    found = gather(chosen.sources, versions)
    store(found, chosen.output, chosen.report)
    print(f"{len(found.rows)} rows, {chosen.output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
