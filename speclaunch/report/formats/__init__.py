"""How `lint` writes what it found: one module a format, behind one interface."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from speclaunch.report.formats.interface import Format

MODULES = {
    "text": "text",
    "concise": "concise",
    "json": "json_report",
    "github": "github",
    "gitlab": "gitlab",
    "sarif": "sarif",
    "junit": "junit",
    "rdjson": "rdjson",
    "azure": "azure",
}
"""The formats by their names; a module is imported when its format is asked for."""


def format_named(name: str) -> Format:
    """The format of a name of `MODULES`."""
    found: Format = import_module(f"{__name__}.{MODULES[name]}").FORMAT
    return found
