"""From a composed container to plain values: interpolations and missing values.

Most recipes take a variable of the environment (`${oc.env:TP}`, `${oc.env:TP,8}`,
`${env_or:TP,8}`), a tiny model of the CPU engine (`${cpu_model:llama}`), or another value of the
recipe (`${args.tp_size}`); these are resolved here, as OmegaConf does. OmegaConf is imported only
for anything else, and for what cannot be resolved: it has the messages.

Source: omegaconf 2.3, grammar/OmegaConfGrammarLexer.g4 (texts and numbers), base.py
`_resolve_node_interpolation`; tests/recipe/test_simple_interpolation.py compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from speclaunch import reads
from speclaunch.cpu.environment import CpuEngine
from speclaunch.errors import InputError, Place, Problem
from speclaunch.home import speclaunch_home
from speclaunch.patterns import lazy
from speclaunch.recipe.hydra_errors import first_line
from speclaunch.recipe.interpolation import (
    RESOLVERS,
    is_marked,
    missing_in,
    resolved,
    uses_environment,
)
from speclaunch.recipe.source import RecipeProvenance

_MISSING = "???"
_ODD = frozenset({"null", "none", "true", "false", "inf", "nan", "infinity", "e"})
"""Words that are no texts to OmegaConf, or may not be."""
_Resolver = Callable[..., Any]
_COMPUTED = lazy(r"\$\{[\w.\s]*\$\{")
"""A name that is itself looked up may be that of any resolver, `oc.env` included."""


class _NotSimpleError(Exception):
    """There is something in a container that is left to OmegaConf."""


def resolve_values(raw: Any, provenance: RecipeProvenance, shown: str) -> dict[str, Any]:
    """The values of a container as it is composed (interpolations and `???` as they are written).

    Raises InputError for an interpolation that leads nowhere, and for each value that is missing.
    """
    if not isinstance(raw, dict):
        raise InputError(Problem("a recipe is a YAML mapping", Place(shown)))
    if any("${" in text or text == _MISSING for text in _texts(raw)):
        if any(_COMPUTED.search(text) for text in _texts(raw)):
            reads.unrepeatable()
        raw = _resolved_values(raw, provenance, shown)
    return {str(key): value for key, value in raw.items()}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _resolved_values(
    raw: dict[Any, Any], provenance: RecipeProvenance, shown: str
) -> dict[Any, Any]:
    try:
        return _simply(raw)
    except (_NotSimpleError, RecursionError):
        return _by_omegaconf(raw, provenance, shown)


def _simply(raw: dict[Any, Any]) -> dict[Any, Any]:
    def resolve(container: Any) -> Any:
        return _resolved_simply(container, _SIMPLE)

    found: dict[Any, Any] = resolved(raw, resolve) if uses_environment(raw) else resolve(raw)
    return found


def _by_omegaconf(raw: dict[Any, Any], provenance: RecipeProvenance, shown: str) -> dict[Any, Any]:
    from omegaconf import OmegaConf  # noqa: PLC0415
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    register_resolvers()
    try:
        if uses_environment(raw):
            values: Any = resolved(raw, resolve)
            missing = missing_in(raw)
        else:
            config = OmegaConf.create(raw)
            OmegaConf.set_struct(config, True)
            values = OmegaConf.to_container(config, resolve=True)
            missing = OmegaConf.missing_keys(config)
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        path = tuple(re.split(r"[.\[\]]+", key.rstrip("]")))
        raise InputError(
            Problem(first_line(error), provenance.find(path) or Place(shown))
        ) from error
    except RecursionError as error:
        raise InputError(Problem("values refer to each other in a cycle", Place(shown))) from error
    if missing:
        raise InputError(
            Problem(
                f"{key} has no value yet",
                provenance.find(tuple(key.split("."))) or Place(shown),
                f"set it: {key}=…",
            )
            for key in sorted(missing)
        )
    found: dict[Any, Any] = values
    return found


def _cpu_model(name: object) -> str:
    return str(CpuEngine(speclaunch_home()).model(str(name)))


_SIMPLE = {**RESOLVERS, "cpu_model": _cpu_model}
"""Without `oc.env`, which `resolved` writes as one of these."""


def register_resolvers() -> None:
    """`${cpu_model:cycle}` is the directory of a tiny model of the CPU engine."""
    from omegaconf import OmegaConf  # noqa: PLC0415

    if not OmegaConf.has_resolver("cpu_model"):
        OmegaConf.register_new_resolver("cpu_model", _cpu_model)
        for name, resolver in RESOLVERS.items():
            OmegaConf.register_new_resolver(name, resolver)
        OmegaConf.register_new_resolver("speclaunch_decode", _decode)


def resolve(raw: Any) -> Any:
    """A container with its interpolations resolved. Raises OmegaConf's own errors."""
    from omegaconf import OmegaConf  # noqa: PLC0415

    return OmegaConf.to_container(OmegaConf.create(raw), resolve=True)


def _decode(text: str | None) -> Any:
    """OmegaConf's own `oc.decode`, which would trip over the mark of a variable."""
    if text is None or is_marked(text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return resolve({"value": f"${{oc.decode:'{escaped}'}}"})["value"]


def _resolved_simply(raw: Any, resolvers: Mapping[str, _Resolver]) -> Any:
    """A copy of a container with its interpolations resolved. Raises _NotSimpleError, for a value
    that is missing, too."""
    return _Resolving(raw, resolvers).value(raw)


@cache
def _pattern() -> re.Pattern[str]:
    """`${name:WORD}`, `${name:WORD,default}` and `${a.b.c}`; defaults that are texts to
    OmegaConf, or whole numbers that look the same when they are read and written again."""
    word = r"[A-Za-z_][A-Za-z0-9_-]*"
    default = r"(?:[A-Za-z_/][A-Za-z0-9_./-]*|0|[1-9][0-9]{0,17})"
    return re.compile(
        rf"\$\{{(?:(?P<resolver>[a-z_][a-z_.]*):(?P<word>{word})(?:,(?P<default>{default}))?"
        r"|(?P<key>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*))\}"
    )


class _Resolving:
    """One container that is being resolved."""

    def __init__(self, root: Any, resolvers: Mapping[str, _Resolver]) -> None:
        self.root = root
        self.resolvers = resolvers

    def value(self, raw: Any) -> Any:
        if isinstance(raw, dict):
            return {key: self.value(inner) for key, inner in raw.items()}
        if isinstance(raw, list):
            return [self.value(inner) for inner in raw]
        return self.text(raw) if isinstance(raw, str) else raw

    def text(self, raw: str) -> Any:
        if raw == _MISSING:
            raise _NotSimpleError
        if "${" not in raw:
            return raw
        found = list(_pattern().finditer(raw))
        if "\\" in raw or len(found) != raw.count("${"):
            raise _NotSimpleError
        if len(found) == 1 and found[0][0] == raw:
            return self.one(found[0])
        parts: list[str] = []
        at = 0
        for one in found:
            inner = self.one(one)
            if not isinstance(inner, str | int) or isinstance(inner, bool):
                raise _NotSimpleError
            parts += (raw[at : one.start()], str(inner))
            at = one.end()
        return "".join((*parts, raw[at:]))

    def one(self, found: re.Match[str]) -> Any:
        name = found["resolver"]
        result = self.of_key(found["key"]) if name is None else self.of_resolver(found)
        if isinstance(result, str) and ("${" in result or result == _MISSING):
            raise _NotSimpleError
        return result

    def of_resolver(self, found: re.Match[str]) -> Any:
        resolver = self.resolvers.get(found["resolver"])
        arguments = [text for text in (found["word"], found["default"]) if text is not None]
        if resolver is None or any(text.lower() in _ODD for text in arguments):
            raise _NotSimpleError
        try:
            return resolver(*(int(one) if one.isdecimal() else one for one in arguments))
        except Exception as error:  # OmegaConf says what is wrong with it
            raise _NotSimpleError from error

    def of_key(self, key: str) -> Any:
        value = self.root
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                raise _NotSimpleError
            value = value[part]
        if isinstance(value, dict | list) or value is None:
            raise _NotSimpleError
        return value
