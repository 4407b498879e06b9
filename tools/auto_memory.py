"""Ask released engines what they set by the memory of a GPU, for
tests/engine/plan/auto_memory.json.

    python tools/auto_memory.py VERSION --python PY --site DIR [--site DIR]

The chunk of prefill, the largest batch with a CUDA graph and the list of them, the graphs of
prefill and `mem_fraction_static`: for ten kinds of GPU, three sizes of tensor parallelism and five
algorithms, by the release's own code (verdicts/memory.py). The interpreter and the folders of
packages are those of tools/engine_verdicts.py; a release that it has no environment for takes the
one of a neighbour, with its own wheel, unpacked, before it on the path.

The file keeps each list once, and each release's cells once: a release that sets the same as
another one names that. Running it again for the same release gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from tests.support.engine.plan import auto_memory  # noqa: E402
from tools.verdicts.models import write  # noqa: E402

GPUS: dict[str, tuple[int, int]] = {
    "T4": (15360, 75),
    "A10": (23028, 86),
    "RTX 4090": (24564, 89),
    "RTX 5090": (32607, 120),
    "A100 40 GB": (40960, 80),
    "L40S": (46068, 89),
    "A100 80 GB": (81920, 80),
    "H100": (81559, 90),
    "H200": (143771, 90),
    "B200": (183359, 100),
}
"""MiB as nvidia-smi tells them, and the compute capability."""
TP = (1, 4, 8)
ALGORITHMS = (None, "EAGLE3", "STANDALONE", "NGRAM", "DFLASH")


def ask(python: Path, sites: Sequence[Path]) -> tuple[str, list[dict[str, Any]]]:
    """What one release sets: its version, and a record for each combination."""
    shim = REPOSITORY / "speclaunch" / "serving" / "cpu_engine" / "shim"
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    env = {name: os.environ[name] for name in kept if name in os.environ} | {
        "PYTHONPATH": os.pathsep.join(map(str, [*(s.absolute() for s in sites), shim])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    document = {"gpus": GPUS, "tp": TP, "algorithms": ALGORITHMS}
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "models")
        done = subprocess.run(
            [str(python.absolute()), str(REPOSITORY / "tools/verdicts/memory.py")],
            input=json.dumps(document),
            capture_output=True,
            text=True,
            cwd=directory,
            env=env,
            check=False,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    cells = [line for line in lines[1:] if "failed" not in line]
    if done.returncode or len(cells) != len(GPUS) * len(TP) * len(ALGORITHMS):
        failed = next((line["failed"] for line in lines[1:] if "failed" in line), done.stderr)
        raise SystemExit(f"the engine's interpreter failed:\n{failed[-3000:]}")
    return lines[0]["sglang"], cells


def packed(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The document of all releases: lists once, releases that set the same once."""
    lists: list[list[int]] = []
    releases: dict[str, Any] = {}
    for version in sorted(found, key=Version):
        table: dict[str, dict[str, Any]] = {}
        for cell in found[version]:
            row = [cell["chunked_prefill_size"], cell["max_bs"], number(lists, cell["bs"])]
            row += [cell["prefill"], number(lists, cell["prefill_bs"])]
            row.append(cell["mem_fraction_static"])
            key = f"{cell['tp']} {cell['algorithm'] or 'none'}"
            table.setdefault(cell["gpu"], {})[key] = row
        same = next((other for other, rows in releases.items() if rows == table), None)
        releases[version] = same or table
    return {"gpus": GPUS, "lists": lists, "releases": releases}


def number(lists: list[list[int]], one: list[int]) -> int:
    """The index of a list among those that are kept."""
    if one not in lists:
        lists.append(one)
    return lists.index(one)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/auto_memory.py", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--python", type=Path, required=True, help="the CPU engine's interpreter")
    parser.add_argument("--site", type=Path, action="append", default=[], help="repeatable")
    args = parser.parse_args()
    add_release(args.version, args.python, args.site)
    return 0


def add_release(version: str, python: Path, sites: Sequence[Path]) -> None:
    """Ask a release, and hold what it sets."""
    said, cells = ask(python, sites)
    if said != version:
        raise SystemExit(f"the folders hold SGLang {said}, not {version}")
    found = auto_memory.records() if auto_memory.DATA.is_file() else {}
    store({**found, version: cells})
    print(f"{version}: {len(cells)} cells")


def remove_release(version: str) -> None:
    """Hold a release no longer."""
    store({held: cells for held, cells in auto_memory.records().items() if held != version})


def store(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write the file."""
    text = json.dumps(packed(found), separators=(",", ":")).replace('},"', '},\n"')
    auto_memory.DATA.write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
