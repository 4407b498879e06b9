"""Write the type stubs of the front doors: `speclaunch/LIBRARY/__init__.pyi`.

    python tools/front_doors.py           # write them
    python tools/front_doors.py --check   # exit 1 if one is out of date

A front door loads its names lazily, from a table in `__init__.py`. Type checkers read the stub.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from speclaunch.core.front_door import homes_of

PACKAGE = Path(__file__).resolve().parent.parent / "speclaunch"
HEAD = "# Written by tools/front_doors.py from the table in __init__.py."


def stub(library: str) -> str:
    """Return the text of a library's stub."""
    name = f"speclaunch.{library}"
    homes = homes_of(name, import_module(name).NAMES)
    lines = sorted(f"from {home} import {one} as {one}" for one, home in homes.items())
    return "\n".join([HEAD, *lines]) + "\n"


def main(check: bool) -> int:
    """Write or check the stubs; return the exit code."""
    old = []
    for door in sorted(PACKAGE.glob("*/__init__.py")):
        path, text = door.with_suffix(".pyi"), stub(door.parent.name)
        if path.is_file() and path.read_text() == text:
            continue
        old.append(door.parent.name)
        if not check:
            path.write_text(text)
    if check and old:
        print(f"out of date: {', '.join(old)}; run python tools/front_doors.py")
    return int(check and bool(old))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if outdated")
    sys.exit(main(parser.parse_args().check))
