"""Resolve the interpolations of a composed container, and report missing values.

Most recipes use an environment variable (`${oc.env:TP}`, `${oc.env:TP,8}`, `${env_or:TP,8}`), a
tiny model of the CPU engine (`${cpu_model:llama}`), or another value of the recipe
(`${args.tp_size}`). These are resolved here as in OmegaConf. OmegaConf is imported only for other
interpolations, and for values that cannot be resolved, because it has the error messages.

speclaunch adds `${env_or:NAME,default}`. Like bash's `${NAME:-default}`, its default also replaces
an empty variable. `oc.env` is like `${NAME-default}`.

OmegaConf refuses to resolve an unset variable. The container is therefore resolved twice with
replacements for both resolvers: once with the existing values, and once with a mark for every
variable, which shows how each value is written. Marks are private-use characters, which recipes do
not contain; `oc.decode` passes them through.

Source: omegaconf 2.3, grammar/OmegaConfGrammarLexer.g4 (texts and numbers), base.py
`_resolve_node_interpolation`; tests/deployments/recipe/test_simple_interpolation.py compares them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from speclaunch.core import InputError, Place, Problem, lazy, reads, speclaunch_home
from speclaunch.deployments.recipe.source import KeyPath, RecipeProvenance
from speclaunch.engine import CpuEngine, FromEnvironment, Template, VariableReference

_OPEN, _DEFAULT, _CLOSE, _FILLED = "\ue000", "\ue001", "\ue002", "\ue003"
_MARKS = lazy(f"[{_OPEN}{_DEFAULT}{_CLOSE}{_FILLED}]")
_UNSET = lazy(f"{_OPEN}([^{_OPEN}{_DEFAULT}{_CLOSE}{_FILLED}]*){_CLOSE}")
_RESOLVER = lazy(r"(?<!\\)((?:\\\\)*)\$\{\s*(oc\.env|oc\.decode|env_or)\s*:")
_NO_DEFAULT = object()


def uses_environment(raw: Any) -> bool:
    """True if an unresolved container refers to the environment."""
    return any("oc.env" in text or "env_or" in text for text in _texts(raw))


def resolved(raw: Mapping[Any, Any], resolve: Callable[[Any], Any]) -> dict[Any, Any]:
    """Return `raw` resolved by `resolve`; texts from the environment become FromEnvironment.

    Raises OmegaConf's errors, but not for unset variables.
    """
    values = resolve(_renamed(raw, "speclaunch_value"))
    written = resolve(_renamed(raw, "speclaunch_mark"))
    joined: dict[Any, Any] = _joined(values, written)
    return joined


def missing_in(raw: Any, key: str = "") -> set[str]:
    """Return the keys that are `???`, in OmegaConf's notation (`args.tp_size`, `args.sizes[0]`)."""
    if isinstance(raw, dict):
        prefix = f"{key}." if key else ""
        return {name for k, value in raw.items() for name in missing_in(value, f"{prefix}{k}")}
    if isinstance(raw, list):
        return {n for i, value in enumerate(raw) for n in missing_in(value, f"{key}[{i}]")}
    return {key} if raw == "???" else set()


def without_unset(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the values without those that need an unset variable."""
    return {
        key: without_unset(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if isinstance(value, dict) or next(unset_places(value), None) is None
    }


def restored(validated: Any, values: Any) -> Any:
    """Return `validated`, with each text that is a FromEnvironment in `values` restored."""
    if isinstance(values, FromEnvironment) and isinstance(validated, str):
        return FromEnvironment(validated, values.template, values.unset)
    if isinstance(values, dict) and isinstance(validated, dict):
        return {key: restored(value, values.get(key)) for key, value in validated.items()}
    if isinstance(values, list) and isinstance(validated, list) and len(values) == len(validated):
        return [restored(item, other) for item, other in zip(validated, values, strict=True)]
    return validated


def unset_places(values: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield the key path and the variable of each value that needs an unset variable."""
    if isinstance(values, FromEnvironment):
        for name in values.unset:
            yield path, name
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from unset_places(value, (*path, key))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from unset_places(value, (*path, index))


def _texts(raw: Any) -> Iterator[str]:
    waiting = [raw]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)


def _renamed(raw: Any, resolver: str) -> Any:
    if isinstance(raw, str):
        names = {"oc.env": resolver, "env_or": f"{resolver}_or", "oc.decode": "speclaunch_decode"}
        return _RESOLVER.sub(lambda found: f"{found[1]}${{{names[found[2]]}:", raw)
    if isinstance(raw, dict):
        return {key: _renamed(value, resolver) for key, value in raw.items()}
    if isinstance(raw, list):
        return [_renamed(value, resolver) for value in raw]
    return raw


def _variable_value(name: str, default: Any = _NO_DEFAULT) -> Any:
    """Return the result of `oc.env`, or a mark if it would fail."""
    found = reads.variable(name)
    if found is not None:
        return found
    if default is _NO_DEFAULT:
        return f"{_OPEN}{name}{_CLOSE}"
    return None if default is None else str(default)


def _mark(name: str, default: Any = _NO_DEFAULT) -> str:
    if default is _NO_DEFAULT or default is None:
        return f"{_OPEN}{name}{_CLOSE}"
    return f"{_OPEN}{name}{_DEFAULT}{default}{_CLOSE}"


def env_or(name: str, default: Any) -> Any:
    """Return an environment variable, or `default` if it is unset or empty."""
    return reads.variable(name) or (None if default is None else str(default))


def _mark_or(name: str, default: Any) -> str:
    """Return a mark whose default also replaces an empty variable."""
    text = "" if default is None else default
    return f"{_OPEN}{name}{_FILLED}{text}{_CLOSE}"


RESOLVERS: Mapping[str, Callable[..., Any]] = {
    "env_or": env_or,
    "speclaunch_value": _variable_value,
    "speclaunch_value_or": env_or,
    "speclaunch_mark": _mark,
    "speclaunch_mark_or": _mark_or,
}
"""Resolvers by name: `env_or`, and replacements for `env_or` and `oc.env`."""


def _joined(value: Any, written: Any) -> Any:
    """Return `value` with each text from the environment as a FromEnvironment.

    `written` is the same container resolved with marks for variables.
    """
    if isinstance(value, dict) and isinstance(written, dict):
        return {key: _joined(item, written.get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(written, list) and len(value) == len(written):
        return [_joined(item, other) for item, other in zip(value, written, strict=True)]
    if not isinstance(value, str):
        return value
    unset = tuple(dict.fromkeys(_UNSET.findall(value)))
    if not (isinstance(written, str) and _MARKS.search(written)):
        return value
    text = _UNSET.sub(lambda found: f"${{oc.env:{found[1]}}}", value)
    parts, rest = _parse(written, 0, nested=False)
    return FromEnvironment(text, (*parts, written[rest:]) if rest < len(written) else parts, unset)


def _parse(text: str, at: int, *, nested: bool) -> tuple[Template, int]:
    parts: list[str | VariableReference] = []
    while at < len(text):
        mark = _MARKS.search(text, at)
        end = mark.start() if mark else len(text)
        if end > at:
            parts.append(text[at:end])
        if mark is None or (mark[0] == _CLOSE and nested):
            return tuple(parts), end
        at = end + 1
        if mark[0] != _OPEN:
            continue
        stop = _MARKS.search(text, at)
        if stop is None:
            return tuple(parts), len(text)
        name, at, default = text[at : stop.start()], stop.end(), None
        if stop[0] in (_DEFAULT, _FILLED):
            default, at = _parse(text, at, nested=True)
            at += 1
        parts.append(VariableReference(name, default, stop[0] == _FILLED))
    return tuple(parts), at


_MISSING = "???"
_ODD = frozenset({"null", "none", "true", "false", "inf", "nan", "infinity", "e"})
"""Lower-case forms of words that OmegaConf may read as constants or numbers."""
_COMPUTED = lazy(r"\$\{[\w.\s]*\$\{")
"""Pattern of an interpolation whose name is computed; it may call any resolver, even `oc.env`."""


class _NotSimpleError(Exception):
    """Container that only OmegaConf can resolve."""


def resolve_values(raw: Any, provenance: RecipeProvenance, shown: str) -> dict[str, Any]:
    """Return a composed container's values with all interpolations resolved.

    Raises InputError for interpolations without a target and for missing values (`???`).
    """
    if not isinstance(raw, dict):
        raise InputError("a recipe must be a YAML mapping", Place(shown))
    if any("${" in text or text == _MISSING for text in _texts(raw)):
        if any(_COMPUTED.search(text) for text in _texts(raw)):
            reads.mark_uncacheable()
        try:
            raw = resolved(raw, _simply) if uses_environment(raw) else _simply(raw)
        except (_NotSimpleError, RecursionError):
            raw = _by_omegaconf(raw, provenance, shown)
    return {str(key): value for key, value in raw.items()}


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
        raise InputError(first_line(error), provenance.find(path) or Place(shown)) from error
    except RecursionError as error:
        help_ = "replace an interpolation of the cycle with a value"
        raise InputError("values refer to each other in a cycle", Place(shown), help_) from error
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
"""Resolvers except `oc.env`, which `resolved` replaces with one of these."""


def register_resolvers() -> None:
    """Register speclaunch's resolvers. `${cpu_model:cycle}` is a tiny model's directory."""
    from omegaconf import OmegaConf  # noqa: PLC0415

    # `${oc.env:NAME,}` has an empty default, as intended
    warnings.filterwarnings("ignore", "In the sequence", UserWarning)
    if not OmegaConf.has_resolver("cpu_model"):
        OmegaConf.register_new_resolver("cpu_model", _cpu_model)
        for name, resolver in RESOLVERS.items():
            OmegaConf.register_new_resolver(name, resolver)
        OmegaConf.register_new_resolver("speclaunch_decode", _decode)


def resolve(raw: Any) -> Any:
    """Return a container with its interpolations resolved. Raises OmegaConf's own errors."""
    from omegaconf import OmegaConf  # noqa: PLC0415

    return OmegaConf.to_container(OmegaConf.create(raw), resolve=True)


def _decode(text: str | None) -> Any:
    """Return the result of `oc.decode`. OmegaConf's version fails on a variable's mark."""
    if text is None or _MARKS.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return resolve({"value": f"${{oc.decode:'{escaped}'}}"})["value"]


@cache
def _pattern() -> re.Pattern[str]:
    """Return the pattern of `${name:WORD}`, `${name:WORD,default}` and `${a.b.c}`.

    The default must be a word that OmegaConf reads as text, or an integer in canonical form.
    """
    word = r"[A-Za-z_][A-Za-z0-9_-]*"
    default = r"(?:[A-Za-z_/][A-Za-z0-9_./-]*|0|[1-9][0-9]{0,17})"
    return re.compile(
        rf"\$\{{(?:(?P<resolver>[a-z_][a-z_.]*):(?P<word>{word})(?:,(?P<default>{default}))?"
        r"|(?P<key>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*))\}"
    )


def _simply(raw: Any) -> Any:
    """Return a copy of a container with its interpolations resolved.

    Raises _NotSimpleError if a value needs OmegaConf or is missing.
    """
    return _Resolving(raw).value(raw)


class _Resolving:
    def __init__(self, root: Any) -> None:
        self.root = root

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
            return self.of_match(found[0])
        parts: list[str] = []
        at = 0
        for match in found:
            inner = self.of_match(match)
            if not isinstance(inner, str | int) or isinstance(inner, bool):
                raise _NotSimpleError
            parts += (raw[at : match.start()], str(inner))
            at = match.end()
        return "".join((*parts, raw[at:]))

    def of_match(self, found: re.Match[str]) -> Any:
        name = found["resolver"]
        result = self.of_key(found["key"]) if name is None else self.of_resolver(found)
        if isinstance(result, str) and ("${" in result or result == _MISSING):
            raise _NotSimpleError
        return result

    def of_resolver(self, found: re.Match[str]) -> Any:
        resolver = _SIMPLE.get(found["resolver"])
        arguments = [text for text in (found["word"], found["default"]) if text is not None]
        if resolver is None or any(text.lower() in _ODD for text in arguments):
            raise _NotSimpleError
        try:
            return resolver(
                *(int(argument) if argument.isdecimal() else argument for argument in arguments)
            )
        except Exception as error:  # OmegaConf reports the error
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


def first_line(error: BaseException | str) -> str:
    """Return the first informative line of an OmegaConf message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if not line.endswith(":")), "") or type(error).__name__
    wrapped = re.fullmatch(r'\w+ raised while resolving interpolation: "?(.*?)"?', text)
    return wrapped[1] if wrapped else text
