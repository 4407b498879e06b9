"""Scalars of YAML as settings: typed, with their places; amounts and sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.source_text import Document
from speclaunch.patterns import lazy
from speclaunch.surroundings import Setting

_OPEN = lazy(r"\{\{.*?\}\}|\$\{[^}]*\}|\$\([^)]*\)|\$[A-Za-z_]\w*|__[A-Z][A-Z0-9_]*__")
"""What another program fills in."""
_INTEGER = lazy(r"[-+]?\d+\Z")
_QUANTITY = lazy(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<unit>[A-Za-z]{0,2}|e[+-]?\d+)\Z")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_COMPOSE = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}
_TRUE = frozenset({"true", "yes", "on"})
_DURATION = lazy(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>us|ms|s|m|h)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def setting(node: yaml.Node | None, document: Document) -> Setting | None:
    """A scalar as what YAML makes of it; None where there is none."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    text = nodes.text(node)
    if text is None:
        return None
    place = nodes.place(node, document)
    if _OPEN.search(text):
        return Setting(text, place, known=False)
    return Setting(_typed(node, text), place)


def _typed(node: yaml.ScalarNode, text: str) -> Any:
    tag = node.tag.rpartition(":")[2]
    if tag == "bool":
        return text.lower() in _TRUE
    if tag == "int" and _INTEGER.match(text) and len(text) < 19:
        return int(text)
    if tag == "float":
        try:
            return float(text)
        except ValueError:
            return text
    return text


def settings(node: yaml.Node | None, document: Document) -> dict[str, Setting]:
    """The scalars of a mapping."""
    found: dict[str, Setting] = {}
    for key, value in nodes.entries(node).items():
        one = setting(value, document)
        if one is not None:
            found[key] = one
    return found


def number(found: Setting | None) -> Setting | None:
    """A setting that should be a number, where it is written as a text (`"8"`)."""
    if found is not None and found.known and isinstance(found.value, str):
        text = found.value.strip()
        if _INTEGER.match(text) and len(text) < 19:
            return Setting(int(text), found.place)
    return found


def in_bytes(found: Setting | None, *, compose: bool = False) -> Setting | None:
    """An amount of memory in bytes; what is not one stays, and is not known.

    Kubernetes counts `M` as 10^6 and `Mi` as 2^20 (API reference, Quantity), Compose `m` as 2^20
    (compose-spec, Byte values).
    """
    if found is None or not found.known:
        return found
    count = byte_count(str(found.value), compose=compose)
    return Setting(found.value if count is None else count, found.place, known=count is not None)


def byte_count(text: str, *, compose: bool = False) -> int | None:
    """How many bytes an amount is; None for what is none."""
    match = _QUANTITY.match(text.strip())
    if match is None or len(text) > 30:
        return None
    number, unit = float(match["number"]), match["unit"]
    if compose:
        power = _COMPOSE.get(unit.lower())
        return None if power is None else int(number * 2**power)
    if unit in _BINARY:
        return int(number * 2 ** _BINARY[unit])
    if unit in _DECIMAL:
        return int(number * 10 ** _DECIMAL[unit])
    if unit[:1] == "e" and unit[1:].lstrip("+-").isdigit() and len(unit) <= 4:
        return int(number * 10 ** min(int(unit[1:]), 18))
    return None


def in_seconds(found: Setting | None) -> Setting | None:
    """A duration of Compose (`1m30s`) in seconds; what is not one stays, and is not known."""
    if found is None or not found.known or isinstance(found.value, (int, float)):
        return found
    text = str(found.value).strip()
    parts = list(_DURATION.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return Setting(found.value, found.place, known=False)
    total = sum((float(part["number"]) * _SECONDS[part["unit"]] for part in parts), 0.0)
    return Setting(int(total) if total.is_integer() else total, found.place)


def labels(node: yaml.Node | None) -> Mapping[str, str]:
    """A mapping of texts."""
    found = {key: nodes.text(value) for key, value in nodes.entries(node).items()}
    return {key: value for key, value in found.items() if value is not None}


def known(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Those that nothing fills in."""
    return {key: value for key, value in texts.items() if value and not _OPEN.search(value)}
