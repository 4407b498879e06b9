"""Files that start a server in a way that no reader knows: they are named, not passed over."""

from __future__ import annotations

from pathlib import Path

from speclaunch.patterns import lazy
from speclaunch.reads.bounded import read_regular

PROSE = frozenset(
    {".md", ".rst", ".adoc", ".txt", ".html", ".log", ".out", ".err"}
    | {".csv", ".tsv", ".jsonl", ".diff", ".patch"}
)
"""Files that tell of a server, or hold what one wrote: nobody runs them."""
_MOST_BYTES = 1 << 20
"""What is larger is data."""
_HEAD = 8192
_START = lazy(
    r"\bsglang\.launch_server\b|\bdynamo\.sglang\b|\bsglang_router\.launch_server\b"
    r"|\bsglang[\"']?,?\s+[\"']?serve\b|\b(?:sgl|sglang)\.Engine\("
)
_NO_START = lazy(r"\s*(?:#|//|;|\"\"\"|\*)|.*\b(?:pkill|pgrep|grep|killall|echo|printf)\b")
"""A comment, or a line that stops, looks for or talks of a server."""


def starts_a_server(text: str) -> bool:
    """Whether a line of a text starts a server, as far as a line alone can tell."""
    if _START.search(text) is None:
        return False
    return any(_START.search(line) and not _NO_START.match(line) for line in text.splitlines())


def unread(file: Path) -> bool:
    """Whether a file of a kind that has no reader starts a server."""
    try:
        data = read_regular(file, _MOST_BYTES)
    except OSError:
        return False
    return (
        b"\0" not in data[:_HEAD]
        and b"sgl" in data
        and starts_a_server(data.decode("utf-8", "replace"))
    )
