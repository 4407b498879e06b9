"""Output formats of `lint`: a class per format, behind one interface."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from speclaunch.app.output.formats.interface import Format

FORMATS = {
    "text": "text:TextFormat",
    "concise": "text:ConciseFormat",
    "json": "json_documents:JsonFormat",
    "github": "ci_commands:GithubFormat",
    "gitlab": "json_documents:GitlabFormat",
    "sarif": "sarif:SarifFormat",
    "junit": "junit:JunitFormat",
    "rdjson": "json_documents:RdjsonFormat",
    "azure": "ci_commands:AzureFormat",
}
"""Module and class of each format; modules are imported on first use."""


def format_named(name: str) -> Format:
    """Return the format of a name in `FORMATS`."""
    module, _, kind = FORMATS[name].partition(":")
    found: Format = getattr(import_module(f"{__name__}.{module}"), kind)()
    return found
