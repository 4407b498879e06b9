"""What a recipe takes from the environment: `${oc.env:NAME}` and `${oc.env:NAME,default}`.

`${env_or:NAME,default}` is ours: bash's `${NAME:-default}`, whose default holds for an empty
variable, too.  `oc.env` is `${NAME-default}`.

OmegaConf refuses to compose where such a variable is not set.  We compose twice with resolvers of
our own in the place of both: once with the values that there are, once with a mark for every
variable, which shows how each value is written.  Marks are characters for private use, which no
recipe has a reason to hold; `oc.decode` lets them through.  OmegaConf itself is only spoken to by
`compose.py`, which registers RESOLVERS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from speclaunch import reads
from speclaunch.engine.environment import FromEnvironment, Template, VariableReference
from speclaunch.patterns import lazy
from speclaunch.recipe.source import KeyPath

_OPEN, _DEFAULT, _CLOSE, _FILLED = "\ue000", "\ue001", "\ue002", "\ue003"
_MARKS = lazy(f"[{_OPEN}{_DEFAULT}{_CLOSE}{_FILLED}]")
_UNSET = lazy(f"{_OPEN}([^{_OPEN}{_DEFAULT}{_CLOSE}{_FILLED}]*){_CLOSE}")
_RESOLVER = lazy(r"(?<!\\)((?:\\\\)*)\$\{\s*(oc\.env|oc\.decode|env_or)\s*:")
_NO_DEFAULT = object()


def uses_environment(raw: Any) -> bool:
    """Whether a container as it is written (not resolved) takes anything from the environment."""
    return any("oc.env" in text or "env_or" in text for text in _texts(raw))


def resolved(raw: Mapping[Any, Any], resolve: Callable[[Any], Any]) -> dict[Any, Any]:
    """A container as it is written, resolved by OmegaConf (`resolve`); what comes out of the
    environment is marked as FromEnvironment.

    Raises OmegaConf's own errors for everything else that cannot be resolved.
    """
    values = resolve(_renamed(raw, "speclaunch_value"))
    written = resolve(_renamed(raw, "speclaunch_mark"))
    joined: dict[Any, Any] = _joined(values, written)
    return joined


def missing_in(raw: Any, key: str = "") -> set[str]:
    """The keys that are `???`, as OmegaConf writes them (`args.tp_size`, `args.sizes[0]`)."""
    if isinstance(raw, dict):
        prefix = f"{key}." if key else ""
        return {name for k, value in raw.items() for name in missing_in(value, f"{prefix}{k}")}
    if isinstance(raw, list):
        return {n for i, value in enumerate(raw) for n in missing_in(value, f"{key}[{i}]")}
    return {key} if raw == "???" else set()


def without_unset(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same values without those that need a variable which is not set: the defaults count."""
    return {
        key: without_unset(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if isinstance(value, dict) or not _needs(value)
    }


def restored(validated: Any, values: Any) -> Any:
    """What a schema has validated, its texts again marked as FromEnvironment."""
    if isinstance(values, FromEnvironment) and isinstance(validated, str):
        return FromEnvironment(validated, values.template, values.unset)
    if isinstance(values, dict) and isinstance(validated, dict):
        return {key: restored(value, values.get(key)) for key, value in validated.items()}
    if isinstance(values, list) and isinstance(validated, list) and len(values) == len(validated):
        return [restored(one, other) for one, other in zip(validated, values, strict=True)]
    return validated


def unset_places(values: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every value that needs a variable which is not set: its keys, and the variable."""
    if isinstance(values, FromEnvironment):
        for name in values.unset:
            yield path, name
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from unset_places(value, (*path, key))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from unset_places(value, (*path, index))


def _needs(value: Any) -> bool:
    return next(unset_places(value), None) is not None


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
        names = {
            "oc.env": resolver,
            "env_or": f"{resolver}_or",
            "oc.decode": "speclaunch_decode",
        }
        return _RESOLVER.sub(lambda found: f"{found[1]}${{{names[found[2]]}:", raw)
    if isinstance(raw, dict):
        return {key: _renamed(value, resolver) for key, value in raw.items()}
    if isinstance(raw, list):
        return [_renamed(value, resolver) for value in raw]
    return raw


def _value(name: str, default: Any = _NO_DEFAULT) -> Any:
    """What `oc.env` gives; a mark where it would fail."""
    found = reads.variable(name)
    if found is not None:
        return found
    if default is _NO_DEFAULT:
        return f"{_OPEN}{name}{_CLOSE}"
    return None if default is None else str(default)


def _mark(name: str, default: Any = _NO_DEFAULT) -> str:
    """The variable itself."""
    if default is _NO_DEFAULT or default is None:
        return f"{_OPEN}{name}{_CLOSE}"
    return f"{_OPEN}{name}{_DEFAULT}{default}{_CLOSE}"


def env_or(name: str, default: Any) -> Any:
    """What `env_or` gives: the variable, the default where it is not set or empty."""
    return reads.variable(name) or (None if default is None else str(default))


def _mark_or(name: str, default: Any) -> str:
    """The variable itself."""
    said = "" if default is None else default
    return f"{_OPEN}{name}{_FILLED}{said}{_CLOSE}"


RESOLVERS: Mapping[str, Callable[..., Any]] = {
    "env_or": env_or,
    "speclaunch_value": _value,
    "speclaunch_value_or": env_or,
    "speclaunch_mark": _mark,
    "speclaunch_mark_or": _mark_or,
}
"""`env_or`, and what stands in the place of it and of `oc.env`; `speclaunch_decode` in that of
`oc.decode`."""


def is_marked(text: str) -> bool:
    """Whether a text holds a variable that is not set."""
    return _MARKS.search(text) is not None


def _joined(value: Any, written: Any) -> Any:
    """Each value with how it is written."""
    if isinstance(value, dict) and isinstance(written, dict):
        return {key: _joined(one, written.get(key)) for key, one in value.items()}
    if isinstance(value, list) and isinstance(written, list) and len(value) == len(written):
        return [_joined(one, other) for one, other in zip(value, written, strict=True)]
    if not isinstance(value, str):
        return value
    unset = tuple(dict.fromkeys(_UNSET.findall(value)))
    if not (isinstance(written, str) and _MARKS.search(written)):
        return value
    text = _UNSET.sub(lambda found: f"${{oc.env:{found[1]}}}", value)
    return FromEnvironment(text, _template(written), unset)


def _template(written: str) -> Template:
    """The marks in a text as variables, defaults inside of defaults too."""
    parts, rest = _parse(written, 0, nested=False)
    return (*parts, written[rest:]) if rest < len(written) else parts


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
