"""What an editor says about checking: the options of `lint`, as `initializationOptions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem, SpeclaunchError
from speclaunch.facts.declared_gpus import declare
from speclaunch.facts.engines import listed
from speclaunch.facts.project_settings import assumption
from speclaunch.home import expand_user
from speclaunch.lint.configuration import Configuration, LintSettings
from speclaunch.lint.file_codes import codes
from speclaunch.record import record

_TEXTS = ("engine", "hardware")
_LISTS = ("models", "config_dir", "assume", "select", "ignore")
_FLAGS = ("online",)


@record
class Settings:
    """As `lint` has them: see docs/reference/lint.md."""

    engine: str | None = None
    hardware: str | None = None
    models: tuple[str, ...] = ()
    config_dir: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    online: bool = False

    def configuration(self) -> Configuration:
        """What counts for each file: this, else what its repository says, as it is now.

        Raises SpeclaunchError for a value that is none.
        """
        for one in self.assume:
            assumption(one)
        if self.hardware is not None:
            declare(self.hardware)
        versions = listed(self.engine) if self.engine is not None else ()
        stated = LintSettings(
            tuple(dict.fromkeys(version.held for version in versions)),
            self.hardware,
            tuple(expand_user(one) for one in self.models),
            tuple(expand_user(one) for one in self.config_dir),
            self.assume,
            codes("select", self.select),
            codes("ignore", self.ignore),
            self.online,
        )
        return Configuration(stated)


def read_settings(said: Any) -> tuple[Settings, list[str]]:
    """The settings of an editor, and what is wrong with them: the rest counts."""
    if said is None:
        return Settings(), []
    if not isinstance(said, Mapping):
        return Settings(), ["initializationOptions: expected an object"]
    found: dict[str, Any] = {}
    problems = _read(said, found)
    for name in list(found):
        alone = Settings(**{name: found[name]})
        try:
            alone.configuration()
            for path in (*alone.models, *alone.config_dir):
                if not expand_user(path).is_dir():
                    raise InputError(Problem(f"{path}: no such directory"))
        except SpeclaunchError as error:
            problems += [f"{name}: {one.message}" for one in error.problems]
            del found[name]
    return Settings(**found), problems


def _read(said: Mapping[Any, Any], found: dict[str, Any]) -> list[str]:
    """Put what is of its type into `found`; what is wrong with the rest."""
    problems = []
    known = (*_TEXTS, *_LISTS, *_FLAGS)
    for key, value in said.items():
        name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(key)).lower().replace("-", "_")
        if name not in known:
            hint = suggest(name, known)
            problems.append(f"unknown option {key!r}{f': {hint}' if hint else ''}")
            continue
        if value is None:
            continue
        text = isinstance(value, str)
        several = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if name in _TEXTS and (text or several):
            found[name] = value if text else ",".join(value)
        elif name in _LISTS and (text or several):
            found[name] = (value,) if text else tuple(value)
        elif name in _FLAGS and isinstance(value, bool):
            found[name] = value
        else:
            kind = "true or false" if name in _FLAGS else "text" if name in _TEXTS else "a list"
            problems.append(f"{key}: expected {kind}")
    return problems
