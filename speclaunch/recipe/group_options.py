"""The groups that there are, and the options of each: a directory, and the files in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speclaunch.recipe.find_recipe import SUFFIX
from speclaunch.resources import conf_dir


def group_options(config_dirs: Sequence[Path] = ()) -> dict[str, list[str]]:
    """The options of each group, the user's own among ours; a group's name is its directory."""
    found: dict[str, set[str]] = {}
    for base in (*config_dirs, conf_dir()):
        for path in base.rglob(f"*{SUFFIX}"):
            group = path.parent.relative_to(base).as_posix()
            if group not in (".", "recipes") and not group.startswith("."):
                found.setdefault(group, set()).add(path.stem)
    return {group: sorted(found[group]) for group in sorted(found)}
