"""Expand a sweep (`recipe=a,b args.x=1,3 speculation=glob(eagle*)`) into jobs.

The grammar is Hydra's: choices, `choice(…)`, `range(…)`, `glob(…)`, `sort`, `shuffle`. Hydra's own
settings (`hydra/launcher=joblib`, `hydra.launcher.n_jobs=2`) select how the jobs run.

Source: hydra-core 1.3, hydra/core/override_parser/types.py (`Override.sweep_string_iterator`), and
hydra/_internal/core_plugins/basic_sweeper.py, `split_arguments` (the product; the last key varies
first).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException
from msgspec import Struct

from speclaunch.core import COMMAND_LINE, InputError, Place, Problem, conf_dir
from speclaunch.deployments.recipe.find_recipe import SUFFIX, no_recipe, recipe_dirs, recipe_names
from speclaunch.deployments.recipe.sections import RECIPE

MOST_JOBS = 2000
"""Maximum number of jobs in one sweep. More jobs are a typo (`range(0,1000000)`)."""
_LAUNCHER = "hydra/launcher"
_OURS = ("hydra/sweeper", "hydra.sweeper", "hydra.mode", "hydra.sweep.")
"""Hydra settings that a sweep sets itself."""


class SweepJob(Struct, frozen=True):
    """One combination of a sweep: a recipe and its overrides."""

    recipe: str
    overrides: tuple[str, ...]
    varied: tuple[str, ...]
    """Overrides that differ between the jobs, excluding the recipe."""


class SweepWords(Struct, frozen=True):
    """Parsed command line of a sweep."""

    jobs: tuple[SweepJob, ...]
    launcher: str
    """Name of Hydra's launcher: `basic` by default."""
    hydra: tuple[str, ...]
    """Overrides of Hydra itself, including the launcher."""


def sweep_words(words: Sequence[str], config_dirs: Sequence[Path] = ()) -> SweepWords:
    """Parse the overrides of a sweep. Raises InputError with all problems."""
    parser, options = OverridesParser.create(), _Options(config_dirs)
    problems: list[Problem] = []
    axes: dict[str, list[str]] = {}
    hydra: list[str] = []
    launcher = "basic"
    for word in _with_recipe(words):
        place = Place(COMMAND_LINE, text=word)
        try:
            override = parser.parse_override(word)
            override.config_loader = options  # type: ignore[assignment]
            expanded = _expand(override, word)
        except HydraException as error:
            lines = str(error).splitlines() or ["it is not an override"]
            reason = lines[1 if len(lines) > 1 else 0].split(" expecting")[0]
            problems.append(Problem(f"cannot read the override {word!r}: {reason}", place))
            continue
        key = override.get_key_element()
        if override.is_hydra_override():
            if len(expanded) != 1 or override.key_or_group.startswith(_OURS):
                launcher_help = "a sweep can only set `hydra/launcher` and `hydra.launcher.…`"
                problems.append(Problem(f"{key} cannot be configured here", place, launcher_help))
            elif override.key_or_group == _LAUNCHER:
                launcher = str(override.value())
            hydra.append(word)
        elif key in axes:
            problems.append(
                Problem(f"{key} is set twice", place, "combine its values in one override")
            )
        else:
            axes[key] = expanded
            if not expanded:
                problems.append(Problem(f"{word}: nothing matches", place))
    if (RECIPE not in axes or f"{RECIPE}=" in words) and not problems:
        problems.append(no_recipe(words, "speclaunch -m recipe=NAME,NAME key=VALUE,VALUE"))
    jobs = math.prod(len(values) for values in axes.values())
    if jobs > MOST_JOBS:
        problems.append(Problem(f"{jobs:,} jobs; a sweep has at most {MOST_JOBS:,}"))
    if problems:
        raise InputError(problems)
    return SweepWords(tuple(_jobs(axes)), launcher, tuple(hydra))


def _with_recipe(words: Sequence[str]) -> list[str]:
    """Return the overrides, with `recipe=` added before a recipe's name or path."""
    return [
        word if "=" in word or word.startswith(("~", "hydra")) else f"{RECIPE}={word}"
        for word in words
    ]


def _expand(override: Override, word: str) -> list[str]:
    """Return the overrides that an override becomes, one for each job."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.value()}" if key == RECIPE else word]
    if not override.is_discrete_sweep():
        raise HydraException("an interval has infinitely many values; write a range or a choice")
    if override.is_range_sweep():
        steps = cast(RangeSweep, override.value()).range()
        if isinstance(steps, range) and len(steps) > MOST_JOBS:
            raise HydraException(f"a range of {len(steps):,} values")
    values = itertools.islice(override.sweep_string_iterator(), MOST_JOBS + 1)
    return [f"{key}={value}" for value in values]


def _jobs(axes: dict[str, list[str]]) -> list[SweepJob]:
    keys = [key for key in axes if key != RECIPE]
    varied = {key for key in keys if len(axes[key]) > 1}
    found = []
    for named in axes[RECIPE]:
        for chosen in itertools.product(*(axes[key] for key in keys)):
            pairs = zip(keys, chosen, strict=True)
            found.append(
                SweepJob(
                    named.removeprefix(f"{RECIPE}="),
                    chosen,
                    tuple(word for key, word in pairs if key in varied),
                )
            )
    return found


class _Options:
    """Names that `glob(…)` matches: recipe names or a group's options."""

    def __init__(self, config_dirs: Sequence[Path]) -> None:
        self._dirs = tuple(config_dirs)

    def get_group_options(self, group: str, results_filter: object = None) -> list[str]:  # noqa: ARG002 - passed by Hydra
        """Return the names, sorted."""
        if group == RECIPE:
            return sorted(recipe_names(self._dirs))
        folders = [directory / group for directory in (*recipe_dirs(self._dirs), conf_dir())]
        return sorted({path.stem for folder in folders for path in folder.glob(f"*{SUFFIX}")})
