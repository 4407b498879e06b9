"""Make the list of model classes that Transformers has, which ships with speclaunch.

    python tools/transformers_classes.py build            from wheels, fetched with pip

The engine serves a class that it lacks by Transformers' own, where that has one. Read are the
releases that SGLang's pins begin and end with, and those between where Transformers changed much;
a class that any of them has may be there. Nothing of a wheel is run.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from catalogue import default_cache  # noqa: E402

from speclaunch.engine.plan.architectures import CLASS_ENDINGS, TRANSFORMERS_DATA  # noqa: E402

RELEASES = ("4.51.1", "4.57.1", "5.3.0", "5.12.1", "5.19.0")
"""SGLang 0.4.6.post5 pins the first, 0.5.22 and 0.5.23 the last."""
_CLASS = re.compile(rf"^class (\w+(?:{'|'.join(CLASS_ENDINGS)}))\(", re.M)


def names(wheel: Path) -> set[str]:
    """The classes of language models in a wheel."""
    with zipfile.ZipFile(wheel) as files:
        modules = [name for name in files.namelist() if "/models/" in name and "/modeling_" in name]
        return {found for name in modules for found in _CLASS.findall(files.read(name).decode())}


def fetched(release: str, cache: Path) -> Path:
    """The wheel of a release, from the cache or the registry."""
    cache.mkdir(parents=True, exist_ok=True)
    if not (found := sorted(cache.glob(f"transformers-{release}-*.whl"))):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        subprocess.run([*command, str(cache), f"transformers=={release}"], check=True)
        found = sorted(cache.glob(f"transformers-{release}-*.whl"))
    return found[0]


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("command", choices=["build"])
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are")
    cache = parser.parse_args().cache
    found = sorted(set[str]().union(*(names(fetched(release, cache)) for release in RELEASES)))
    TRANSFORMERS_DATA.write_text(
        json.dumps({"releases": RELEASES, "classes": found}) + "\n", encoding="utf-8"
    )
    print(
        f"{TRANSFORMERS_DATA.name}: {len(found)} classes, {TRANSFORMERS_DATA.stat().st_size} bytes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
