"""Composes a recipe with Hydra: every feature, every mistake in its words, and overrides.

The only module that imports Hydra. Hydra's own `hydra/*` node is left out: we configure no job,
no logging and no sweeper, and it costs over half of a composition. For that we call three
methods of Hydra's config loader below its public `compose()`; hydra-core is pinned to 1.3 and
tests/recipe/test_compose.py compares the result with the public way.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import (
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from speclaunch import reads
from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem
from speclaunch.recipe.find_recipe import SUFFIX, recipe_dirs
from speclaunch.recipe.hydra_errors import (
    WrittenOverride,
    first_line,
    missing_option,
    missing_options,
    odd_choice,
    refused,
    repeated,
)
from speclaunch.recipe.names import role_paths, schema_paths
from speclaunch.recipe.resolve_values import register_resolvers
from speclaunch.recipe.source import (
    Composed,
    KeyPath,
    RecipeProvenance,
    read_positions,
    yaml_problem,
)
from speclaunch.resources import conf_dir


class _CheckedSource(FileConfigSource):
    """A directory of configurations, each checked before Hydra reads it."""

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

    Raises InputError with every problem that can be told apart.
    """
    reads.unrepeatable()  # Hydra looks at files by itself
    register_resolvers()
    read_positions(path, shown)  # the recipe itself: syntax and size, with a place
    loader = _loader(path.parent, config_dirs)
    parsed = _parse_overrides(overrides)
    lines = [_opened(override) for override in parsed]
    try:
        config, defaults, repository = _load(loader, path.stem, lines)
    except HydraException as error:
        first = _explained(error, overrides, path, shown)
        found = [first]
        if isinstance(error, MissingConfigException):
            found += missing_options(path, shown, _folders(path.parent, config_dirs))
            found.sort(key=lambda one: one.place.line if one.place is not None else 0)
        raise InputError(dict.fromkeys(found)) from error
    except OmegaConfBaseException as error:
        raise InputError(Problem(first_line(error), Place(shown))) from error
    except yaml.YAMLError as error:  # what only OmegaConf refuses: a key given twice, a tag
        mark = getattr(error, "problem_mark", None)
        name = shown if mark is None else mark.name
        own = Path(name).resolve() == path.resolve()
        raise InputError(yaml_problem(error, shown if own else name)) from error
    except RecursionError as error:
        raise InputError(Problem("the recipe includes itself", Place(shown))) from error
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        # Hydra's way to refuse an odd group choice (`model=null`)
        raise InputError(odd_choice(error, overrides, shown)) from error
    provenance, files = _provenance(defaults, repository, parsed, path, shown)
    return Composed(OmegaConf.to_container(config, resolve=False), provenance, files)


def _loader(recipe_dir: Path, config_dirs: Sequence[Path]) -> ConfigLoaderImpl:
    Plugins.instance()  # registers Hydra's own sources
    SourcesRegistry.instance().register(_CheckedSource)
    search = ConfigSearchPathImpl()
    for number, directory in enumerate(_folders(recipe_dir, config_dirs)):
        search.append(
            "main" if number == 0 else "speclaunch", f"{_CheckedSource.scheme()}://{directory}"
        )
    search.append("schema", "structured://")
    return ConfigLoaderImpl(search)


def _folders(recipe_dir: Path, config_dirs: Sequence[Path]) -> tuple[Path, ...]:
    """Where recipes and groups are looked for, in this order."""
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
            problems.append(
                Problem(
                    f"cannot read the override {text!r}: {reason.split(' expecting')[0]}",
                    place,
                    _quoted(text),
                )
            )
            continue
        if override.key_or_group == "hydra" or override.key_or_group.startswith(
            ("hydra.", "hydra/")
        ):
            problems.append(Problem("Hydra itself cannot be configured here", place))
        elif override.is_sweep_override():
            problems.append(
                Problem(
                    f"{text!r} sets several values for one deployment",
                    place,
                    f"a list is written {override.key_or_group}=[a,b]",
                )
            )
        else:
            parsed.append(override)
    problems += repeated(
        WrittenOverride(
            f"{one.key_or_group}@{one.package}" if one.package else one.key_or_group,
            one.input_line or "",
            one.value(),
            one.is_force_add() or one.is_delete(),
        )
        for one in parsed
    )
    if problems:
        raise InputError(problems)
    return parsed


def _quoted(text: str) -> str:
    key, equals, value = text.partition("=")
    if not equals or not value:
        return "an override is written key=value"
    return f"quote special characters, for the shell and for Hydra: {key}=\"'{value}'\""


_OPEN = ("args.", "engine.env.", "router.args.")
"""Keys below these are the engine's, and need not stand in any of our files."""


def _opened(override: Override) -> str:
    """Let `key=value` set any key that a recipe may have, written down in a file or not.

    Hydra refuses a plain override of a key that no file mentions.
    """
    line = override.input_line or ""
    plain = not (override.is_add() or override.is_force_add() or override.is_delete())
    key = override.key_or_group
    if plain and (key.startswith(_OPEN) or ("." in key and key in schema_paths())):
        return f"++{line}"
    if plain and key in ("name", "description", "args", "router"):
        return f"++{line}"
    if plain and key.startswith("roles.") and _is_of_role(key):
        return f"++{line}"
    return line


def _is_of_role(key: str) -> bool:
    """Whether a key below `roles` is one that a role may have: `roles.prefill.args.tp_size`."""
    own = key.split(".", 2)[2:]
    return not own or own[0].startswith(_OPEN) or own[0] in role_paths()


def _load(
    loader: ConfigLoaderImpl, name: str, overrides: list[str]
) -> tuple[DictConfig, list[ResultDefault], CachingConfigRepository]:
    # A recipe without `_self_` comes after what it builds on, as anybody would expect.
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


def _explained(error: HydraException, overrides: Sequence[str], path: Path, shown: str) -> Problem:
    text = str(error) or str(error.__cause__ or type(error).__name__)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        options = sorted(error.options or ())
        return missing_option(text, error.missing_cfg_file, options, overrides, path, shown)
    return refused(text, overrides, path, shown)
