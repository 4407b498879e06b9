"""The table on docs/reference/performance.md, and the machine that it was measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.rows import Row
from speclaunch.core.files import replace_file

BEGIN, END = "<!-- table -->", "<!-- /table -->"
TOOLS = ("yamllint", "check-jsonschema", "hydra-core", "omegaconf", "typer", "PyYAML")


def machine(rounds: int, *, cpu: bool) -> str:
    """Processor, memory and versions, in one line."""
    memory = psutil.virtual_memory().total / 2**30
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in TOOLS)
    clock = "seconds of the processor" if cpu else "wall-clock seconds"
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB; Python "
        f"{platform.python_version()}, {versions}; {clock}, medians of {rounds} interleaved rounds."
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    lines = [
        "| work | compared with | speclaunch | reference | number | goal |",
        "|---|---|---:|---:|---:|---|",
    ]
    for row in rows:
        *cells, goal = row.cells()
        said = f"{goal} (**missed**)" if row.missed else goal
        lines.append(f"| {' | '.join([*cells, said])} |")
    return "\n".join(lines)


def write(path: Path, rows: Sequence[Row], about: str) -> None:
    """Put the table and the machine between the marks of the page.

    Raises ValueError where the page lacks them.
    """
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no {BEGIN} and {END}")
    replace_file(path, f"{before}{BEGIN}\n{about}\n\n{table(rows)}\n{END}{after}", 0o666)
