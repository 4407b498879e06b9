"""Directories that ship with speclaunch: recipes, Hydra groups, checkpoint facts, rule pages."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]

DOCS_URL = ""
"""The address of the published documentation, `https://…/`; empty if it is not published.

Set only here: `make docs` builds the site for it, and reports link to it.
"""
DOCS_URL_VARIABLE = "SPECLAUNCH_DOCS_URL"
"""Variable that overrides the address, for users who publish the documentation themselves."""


@cache
def _shipped(name: str) -> Path:
    """Return directory `name` inside the package (wheel) or next to it (checkout)."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def recipes_dir() -> Path:
    """Return the directory of complete recipes, one Hydra primary config per file."""
    return _shipped("recipes")


def conf_dir() -> Path:
    """Return the directory of the Hydra groups that recipes are composed from."""
    return _shipped("conf")


def models_dir() -> Path:
    """Return the checkpoint index's directory, one JSON file per checkpoint (`org/name.json`)."""
    return _shipped("models")


def rule_pages_dir() -> Path:
    """Return the directory of the rule pages, one Markdown file per rule code."""
    return _shipped("docs/rules")


def docs_url() -> str | None:
    """Return the published documentation's address, ending with a slash; None if not published."""
    base = os.environ.get(DOCS_URL_VARIABLE) or DOCS_URL
    if not base.startswith(("https://", "http://")) or any(
        character.isspace() for character in base
    ):
        return None
    return base if base.endswith("/") else f"{base}/"


def shipped() -> tuple[Path, ...]:
    """Return all directories of speclaunch: the package and those that ship with it."""
    return (_PACKAGE, recipes_dir(), conf_dir(), models_dir(), rule_pages_dir())
