"""What a recipe is called that is made of a file."""

from __future__ import annotations

import re


def recipe_name(stem: str, number: int | None = None) -> str:
    """A file's stem as a recipe's name; the number tells several commands of a file apart."""
    name = re.sub(r"\W+", "_", stem).strip("_").lower() or "imported"
    return name if number is None else f"{name}_{number}"
