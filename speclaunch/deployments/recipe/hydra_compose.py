"""Compose recipes with Hydra, explain its errors, and expand sweeps into jobs."""

from __future__ import annotations

import io
import itertools
import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from msgspec import Struct
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    Place,
    Problem,
    conf_dir,
    lazy,
    reads,
    recipes_dir,
)
from speclaunch.deployments.recipe.find_recipe import SUFFIX, no_recipe, recipe_dirs, recipe_names
from speclaunch.deployments.recipe.resolve_values import first_line, register_resolvers
from speclaunch.deployments.recipe.sections import (
    RECIPE,
    group_names,
    is_server_argument,
    role_paths,
    schema_paths,
)
from speclaunch.deployments.recipe.source import (
    Composed,
    KeyPath,
    RecipeProvenance,
    read_positions,
    read_source,
    yaml_problem,
)
from speclaunch.engine import suggest


class _CheckedSource(FileConfigSource):
    """Directory of configurations, each checked before Hydra reads it."""

    @staticmethod
    def scheme() -> str:
        return "speclaunch"

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path) / f"{config_path.removesuffix(SUFFIX)}{SUFFIX}"
        if reads.is_file(path):
            read_positions(path)
        held = reads.buffer(path)
        if held is None:
            return super().load_config(config_path)
        text = held.decode("utf-8")
        return ConfigResult(
            config=OmegaConf.load(io.StringIO(text)),
            path=f"{self.scheme()}://{self.path}",
            provider=self.provider,
            header=self._get_header_dict(text[:512]),
        )


def hydra_compose(
    path: Path, shown: str, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> Composed:
    """Compose the recipe at `path` with Hydra `overrides`.

    Raises InputError with all problems found.
    """
    reads.mark_uncacheable()  # Hydra reads files itself
    register_resolvers()
    read_positions(path, shown)  # report syntax and size errors of the recipe itself, with a place
    loader = _loader(path.parent, config_dirs)
    parsed = _parse_overrides(overrides)
    lines = [_opened(override) for override in parsed]
    try:
        config, defaults, repository = _load(loader, path.stem, lines)
    except HydraException as error:
        text = str(error) or str(error.__cause__ or type(error).__name__)
        if isinstance(error, MissingConfigException) and error.missing_cfg_file:
            options = sorted(error.options or ())
            named = error.missing_cfg_file
            found = [_missing_option(text, named, options, overrides, path, shown)]
        else:
            found = [_refused(text, overrides, path, shown)]
        if isinstance(error, MissingConfigException):
            found += _missing_options(path, shown, _folders(path.parent, config_dirs))
            found.sort(key=lambda problem: problem.place.line if problem.place is not None else 0)
        raise InputError(dict.fromkeys(found)) from error
    except OmegaConfBaseException as error:
        raise InputError(first_line(error), Place(shown)) from error
    except yaml.YAMLError as error:  # rejected only by OmegaConf: a duplicate key, a tag
        mark = getattr(error, "problem_mark", None)
        name = shown if mark is None else mark.name
        own = Path(name).resolve() == path.resolve()
        raise InputError(yaml_problem(error, shown if own else name)) from error
    except RecursionError as error:
        help_ = "remove the cycle from the `defaults` lists"
        raise InputError("the recipe includes itself", Place(shown), help_) from error
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        # raised by Hydra for an invalid group choice (`model=null`)
        raise InputError(_odd_choice(error, overrides, shown)) from error
    provenance, files = _provenance(defaults, repository, parsed, path, shown)
    return Composed(OmegaConf.to_container(config, resolve=False), provenance, files)


def _loader(recipe_dir: Path, config_dirs: Sequence[Path]) -> ConfigLoaderImpl:
    Plugins.instance()  # registers Hydra's own sources
    SourcesRegistry.instance().register(_CheckedSource)
    search = ConfigSearchPathImpl()
    for number, directory in enumerate(_folders(recipe_dir, config_dirs)):
        provider = "main" if number == 0 else "speclaunch"
        search.append(provider, f"{_CheckedSource.scheme()}://{directory}")
    search.append("schema", "structured://")
    return ConfigLoaderImpl(search)


def _folders(recipe_dir: Path, config_dirs: Sequence[Path]) -> tuple[Path, ...]:
    """Return the directories of recipes and groups, in search order."""
    found = (recipe_dir, *recipe_dirs(config_dirs), conf_dir())
    return tuple(dict.fromkeys(path.resolve() for path in found))


def _parse_overrides(overrides: Sequence[str]) -> list[Override]:
    parser = OverridesParser.create()
    parsed: list[Override] = []
    problems: list[Problem] = []
    for text in overrides:
        place = Place(COMMAND_LINE, text=text)
        try:
            override = parser.parse_override(text)
        except (OverrideParseException, HydraException) as error:
            message = str(error).splitlines()
            reason = message[1] if len(message) > 1 else message[0]
            problem = f"cannot read the override {text!r}: {reason.split(' expecting')[0]}"
            key, _, value = text.partition("=")
            quoted = f"quote special characters, for the shell and for Hydra: {key}=\"'{value}'\""
            help_ = quoted if value else "an override has the form key=value"
            problems.append(Problem(problem, place, help_))
            continue
        if re.match(r"hydra(?:[./]|\Z)", override.key_or_group):
            problems.append(
                Problem("Hydra itself cannot be configured here", place, "remove the override")
            )
        elif override.is_sweep_override():
            help_ = f"write a list as {override.key_or_group}=[a,b]"
            problems.append(
                Problem(f"{text!r} sets several values for one deployment", place, help_)
            )
        else:
            parsed.append(override)
    problems += _repeated(parsed)
    if problems:
        raise InputError(problems)
    return parsed


_OPEN = ("args.", "engine.env.", "router.args.")
"""Prefixes of argument, variable and router keys, which are valid even if no file sets them."""


def _opened(override: Override) -> str:
    """Return the override's text, with `++` added if it has no prefix and its key is valid.

    Without a prefix, Hydra rejects a key that no file has.
    """
    line, key = override.input_line or "", override.key_or_group
    if override.is_add() or override.is_force_add() or override.is_delete():
        return line
    of_role = key.split(".", 2)[2:] if key.startswith("roles.") else None
    known = (
        key in ("name", "description", "args", "router")
        or key.startswith(_OPEN)
        or ("." in key and key in schema_paths())
        or of_role == []
        or (of_role is not None and (of_role[0].startswith(_OPEN) or of_role[0] in role_paths()))
    )
    return f"++{line}" if known else line


def _load(
    loader: ConfigLoaderImpl, name: str, overrides: list[str]
) -> tuple[DictConfig, list[ResultDefault], CachingConfigRepository]:
    # A recipe without `_self_` is merged after its base, as users expect.
    warnings.filterwarnings("ignore", ".*Defaults list is missing `_self_`", UserWarning)
    parsed, repository = loader._parse_overrides_and_create_caching_repo(name, overrides)
    defaults = create_defaults_list(
        repo=repository,
        config_name=name,
        overrides_list=parsed,
        prepend_hydra=False,
        skip_missing=False,
    )
    config = loader._compose_config_from_defaults_list(defaults=defaults.defaults, repo=repository)
    OmegaConf.set_struct(config, True)
    loader._apply_overrides_to_config(defaults.config_overrides, config)
    loader.validate_sweep_overrides_legal(parsed, RunMode.RUN, from_shell=True)
    return config, list(defaults.defaults), repository


def _provenance(
    defaults: Sequence[ResultDefault],
    repository: CachingConfigRepository,
    overrides: Sequence[Override],
    recipe: Path,
    shown: str,
) -> tuple[RecipeProvenance, tuple[Path, ...]]:
    places: dict[KeyPath, Place] = {}
    files: list[Path] = []
    for default in defaults:
        path = _file_of(default, repository)
        if path is None:
            continue
        files.append(path)
        package = tuple(default.package.split(".")) if default.package else ()
        for key, place in read_positions(path, shown if path == recipe else None).items():
            if key[0] != "defaults":
                places[package + key] = place
    for override in overrides:
        key = tuple(override.key_or_group.split("."))
        places[key] = Place(COMMAND_LINE, text=override.input_line)
    return RecipeProvenance(places), tuple(dict.fromkeys(files))


def _file_of(default: ResultDefault, repository: CachingConfigRepository) -> Path | None:
    if default.config_path is None:
        return None
    for source in repository.get_sources():
        if isinstance(source, _CheckedSource):
            path = Path(source.path) / f"{default.config_path}{SUFFIX}"
            if path.is_file():
                return path
    return None


_NAMED = lazy(r"Multiple values for (\w+)|(\w+) appears more than|'(?:override )?([\w/]+)[@:\w]*'")


def _refused(text: str, overrides: Sequence[str], path: Path, shown: str) -> Problem:
    for override in overrides:
        key = override.lstrip("+~").split("=")[0].split("@")[0]
        if f"'{key}'" in text or override.lstrip("+~") in text:
            return _bad_override(text, override, key)
    if "Cannot merge DictConfig with" in text:
        return _not_a_mapping(text, path, shown)
    where = None
    if named := _NAMED.search(text):
        where = _place_of_default(path.stem, next(filter(None, named.groups())), path, shown)
    return Problem(first_line(text), where or Place(shown))


_SECTIONS = (
    *("args", "engine", "hardware", "launch", "serving", "recovery"),
    *("roles", "router", "deploy"),
)


def _not_a_mapping(text: str, path: Path, shown: str) -> Problem:
    positions = read_positions(path, shown)
    sections = {key[0] for key in positions if len(key) > 1 and isinstance(key[1], str)}
    for name in _SECTIONS:
        if (name,) in positions and name not in sections:
            place = positions[(name,)]
            return Problem(f"{name}: expected `key: value` lines below it", place)
    return Problem(first_line(text), Place(shown))


def _bad_override(text: str, override: str, key: str) -> Problem:
    place = Place(COMMAND_LINE, text=override)
    if text.startswith("Could not append"):
        return Problem(f"{key} already exists", place, f"replace it: {override.lstrip('+')}")
    if not text.startswith("Could not override"):
        return Problem(first_line(text), place)
    if key in group_names():
        return Problem(f"this recipe has no `{key}` to replace", place, f"add it: +{override}")
    role, own, known = _in_a_role(key)
    name = key.rpartition(".")[2]
    if is_server_argument(name) and own not in known:
        line = override[override.index(name) :]
        hint: str | None = f"set server arguments under `args`: {role}args.{line}"
    elif role:
        hint = suggest(key, [f"{role}{name}" for name in sorted(known)])
    else:
        hint = suggest(key, [*known, *group_names(), RECIPE])
    return Problem(f"unknown key {key!r}", place, hint)


def _in_a_role(key: str) -> tuple[str, str, frozenset[str]]:
    """Return a key's prefix (`roles.NAME.` or empty), its remainder, and all valid remainders."""
    parts = key.split(".", 2)
    if len(parts) < 3 or parts[0] != "roles":
        return "", key, schema_paths()
    return f"{parts[0]}.{parts[1]}.", parts[2], role_paths()


def _repeated(overrides: Sequence[Override]) -> list[Problem]:
    """Return problems for keys set twice to different values; Hydra silently uses the last."""
    before: dict[str, Override] = {}
    problems: list[Problem] = []
    for override in overrides:
        key = "@".join(filter(None, (override.key_or_group, override.package)))
        line = override.input_line or ""
        first = before.get(key)
        before[key] = override
        if first is None or first.is_delete() or override.is_delete() or override.is_force_add():
            continue
        if override.value() == first.value():
            continue
        message = f"{key} is set twice: {first.input_line} and {line}"
        both = f"keep one, or replace the first: ++{line.lstrip('+')}"
        help_ = both if "." in key else "keep one"
        problems.append(Problem(message, Place(COMMAND_LINE, text=line), help_))
    return problems


def _odd_choice(error: Exception, overrides: Sequence[str], shown: str) -> Problem:
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in group_names() or not key:
            place = Place(COMMAND_LINE, text=override)
            return Problem(f"{value!r} is not an option of `{key}`", place)
    return Problem(f"Hydra cannot compose the recipe: {first_line(error)}", Place(shown))


def _missing_option(
    text: str,
    missing: str,
    options: Sequence[str],
    overrides: Sequence[str],
    path: Path,
    shown: str,
) -> Problem:
    """Return the problem of a missing configuration; `missing` is `GROUP/OPTION` or a name."""
    group, _, option = missing.rpartition("/")
    where = Place(shown)
    for override in overrides:
        if override.lstrip("+").split("=")[0].split("@")[0] == group:
            where = Place(COMMAND_LINE, text=override)
    named = re.match(r"In '([^']+)'", text)
    if where.path != COMMAND_LINE and named:
        where = _place_of_default(named[1], group, path, shown) or where
    if not group:
        own = [path.stem for path in recipes_dir().glob(f"*{SUFFIX}")]
        return Problem(f"unknown configuration {option!r}", where, suggest(option, own))
    return _no_option(group, option, options, where)


def _no_option(group: str, option: str, options: Sequence[str], where: Place) -> Problem:
    if not options:
        return Problem(f"unknown group {group!r}", where, suggest(group, group_names()))
    near = suggest(option, options)
    listing = f"options of `{group}`: {', '.join(options)}"
    return Problem(
        f"{group!r} has no option {option!r}", where, f"{near} {listing}" if near else listing
    )


def _missing_options(path: Path, shown: str, folders: Sequence[Path]) -> list[Problem]:
    """Return problems for all missing group options in a recipe's own `defaults`.

    `folders`: the directories to search. Hydra itself reports only the first missing option.
    """
    source = read_source(path, shown)
    items = source.values.get("defaults")
    problems: list[Problem] = []
    for number, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict) or len(item) != 1:
            continue
        ((key, option),) = item.items()
        group = _group(str(key))
        if not isinstance(option, str) or str(key).startswith("optional ") or "$" in option:
            continue
        held = sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})
        place = source.positions.get(("defaults", number, key), Place(shown))
        if option.removesuffix(SUFFIX) not in held and "/" not in option:
            problems.append(_no_option(group, option, held, place))
    return problems


def _group(key: str) -> str:
    """Return the group named by a key in `defaults`."""
    return key.removeprefix("override ").strip("/ ").split("@")[0]


def _place_of_default(config: str, group: str, recipe: Path, shown: str) -> Place | None:
    """Return the place of `group`'s option in the defaults list of `config`; None if not found."""
    candidates = [recipe] if config == recipe.stem else []
    candidates += [recipe.parent / f"{config}{SUFFIX}", conf_dir() / f"{config}{SUFFIX}"]
    for path in filter(Path.is_file, candidates):
        for key, place in read_positions(path, shown if path == recipe else None).items():
            if key[0] == "defaults" and _group(str(key[-1])) == group:
                return place
    return None


MOST_JOBS = 2000
"""Maximum number of jobs in one sweep. A larger number is probably a typo (`range(0,1000000)`)."""
_LAUNCHER = "hydra/launcher"
_OURS = ("hydra/sweeper", "hydra.sweeper", "hydra.mode", "hydra.sweep.")
"""Prefixes of Hydra settings that a sweep sets itself."""


class SweepJob(Struct, frozen=True):
    """One job of a sweep: a recipe and its overrides."""

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
    """Parse the arguments of a sweep. Raises InputError with all problems."""
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
        message = f"{jobs:,} jobs; a sweep can have at most {MOST_JOBS:,}"
        problems.append(Problem(message, help="sweep over fewer values"))
    if problems:
        raise InputError(problems)
    return SweepWords(tuple(_jobs(axes)), launcher, tuple(hydra))


def _with_recipe(words: Sequence[str]) -> list[str]:
    return [
        word if "=" in word or word.startswith(("~", "hydra")) else f"{RECIPE}={word}"
        for word in words
    ]


def _expand(override: Override, word: str) -> list[str]:
    """Return one override per value of a sweep override; any other override alone."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.value()}" if key == RECIPE else word]
    if not override.is_discrete_sweep():
        raise HydraException("an interval has infinitely many values; write a range or a choice")
    if override.is_range_sweep():
        steps = cast(RangeSweep, override.value()).range()
        if isinstance(steps, range) and len(steps) > MOST_JOBS:
            raise HydraException(f"the range has {len(steps):,} values, more than {MOST_JOBS:,}")
    values = itertools.islice(override.sweep_string_iterator(), MOST_JOBS + 1)
    return [f"{key}={value}" for value in values]


def _jobs(axes: dict[str, list[str]]) -> list[SweepJob]:
    keys = [key for key in axes if key != RECIPE]
    varied = {key for key in keys if len(axes[key]) > 1}
    found = []
    for named in axes[RECIPE]:
        for chosen in itertools.product(*(axes[key] for key in keys)):
            pairs = zip(keys, chosen, strict=True)
            own = tuple(word for key, word in pairs if key in varied)
            found.append(SweepJob(named.removeprefix(f"{RECIPE}="), chosen, own))
    return found


class _Options:
    """Names that `glob(…)` matches: recipe names or a group's options."""

    def __init__(self, config_dirs: Sequence[Path]) -> None:
        self._dirs = tuple(config_dirs)

    def get_group_options(self, group: str, results_filter: object = None) -> list[str]:  # noqa: ARG002 - passed by Hydra
        if group == RECIPE:
            return sorted(recipe_names(self._dirs))
        folders = [directory / group for directory in (*recipe_dirs(self._dirs), conf_dir())]
        return sorted({path.stem for folder in folders for path in folder.glob(f"*{SUFFIX}")})
