"""Recipe with a new setting: its text is edited in place, verified, and annotated with evidence.

Edits and verification are those of `lint --fix`: the composed recipe has the new arguments and is
otherwise unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from msgspec import Struct

from speclaunch.checks import (
    Edit,
    Fix,
    Insertion,
    NotFixableError,
    apply,
    composed,
    data_of,
    fixed_recipe,
    lines_of,
)
from speclaunch.core import InputError, Problem, reads, recipes_dir
from speclaunch.deployments import split_recipe
from speclaunch.engine import load as load_catalogue
from speclaunch.measure.tune.space import DraftSetting

_OURS = re.compile(r"\s*# tuned \d{4}-\d\d-\d\d: ")
"""Pattern of a comment from an earlier tuning."""


class Tuned(Struct, frozen=True):
    """Text of a recipe file before and after."""

    path: Path
    before: str
    after: str


def require_own(path: Path, words: Sequence[str]) -> None:
    """Raise InputError for a shipped recipe, which is never edited."""
    if path.is_relative_to(recipes_dir().resolve()):
        name, _ = split_recipe(words)
        raise InputError(
            Problem(
                f"--write: {name} is shipped with speclaunch and cannot be edited",
                help=f"--output-file {path.stem}_tuned.yaml writes your own recipe",
            )
        )


def tuned(
    path: Path,
    setting: DraftSetting,
    version: str,
    evidence: str,
    config_dirs: Sequence[Path] = (),
) -> Tuned:
    """Return the recipe with a setting. Raises InputError if its text cannot be edited."""
    before = reads.read_text(path)
    fix = Fix("", setting.arguments)
    try:
        made = fixed_recipe(before, str(path), path, fix, load_catalogue(version), config_dirs)
    except NotFixableError as error:
        raise InputError(
            Problem(f"{path} cannot be edited: {error}", help="use overrides instead")
        ) from None
    return Tuned(path, before, _with_evidence(before, made, evidence))


def elsewhere(change: Tuned, target: Path, config_dirs: Sequence[Path] = ()) -> str:
    """Return the tuned text for a different file, possibly in another folder.

    Raises InputError if the text would compose to different arguments there.
    """
    text = change.after.replace(f"recipe={change.path.stem}", f"recipe={target}")
    here = composed(change.after, str(change.path), change.path, config_dirs).values
    there = composed(text, str(target), target, config_dirs).values
    if here.get("args") != there.get("args"):
        raise InputError(
            Problem(
                f"{target}: its arguments would differ from those in {change.path.parent}",
                help=f"write it next to {change.path}",
            )
        )
    return text


def _with_evidence(before: str, made: str, evidence: str) -> str:
    """Return the text with an evidence comment above the first changed line.

    The comment replaces an earlier one, and is omitted if it would change the data.
    """
    old, new = lines_of(before), lines_of(made)
    pairs = zip(old, new, strict=False)
    first = next(
        (number for number, (old_line, new_line) in enumerate(pairs, 1) if old_line != new_line),
        len(old) + 1,
    )
    comment = f"# tuned {evidence}"
    above = new[first - 2] if first >= 2 else ""
    if _OURS.match(above):
        column = len(above) - len(above.lstrip()) + 1
        text = above.strip()
        changed = apply(made, [Edit(first - 1, column, len(text), comment)])
    else:
        changed = apply(made, [Insertion(first, comment)])
    try:
        same = data_of(changed) == data_of(made)
    except yaml.YAMLError:
        same = False
    return changed if same else made
