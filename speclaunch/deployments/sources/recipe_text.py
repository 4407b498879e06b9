"""Write a recipe as YAML, with speclaunch's group options for the values that they set.

`value_of` converts a script's word. Variables become OmegaConf's `${oc.env:…}`, or speclaunch's
`${env_or:…}` if the default also applies to an empty variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from msgspec import Struct

from speclaunch.core import conf_dir, lazy, single_line
from speclaunch.deployments.sources.interface import Default, Word

_PACKAGE = lazy(r"^#\s*@package\s+(\S+)", re.MULTILINE)
OPEN = "???"
"""OmegaConf's marker for a mandatory value."""
_OPEN = lazy(r"\?\?\?(?=\s|$)")
_ARGS_GROUPS = ("model", "speculation", "serving")
"""Groups whose options set server arguments (`# @package args`)."""
_BASE = {"serving": "local", "engine": "default"}
"""Options that `base` chooses for groups that a recipe does not name."""


class RecipeLine(Struct, frozen=True):
    """Value of a recipe, and the comment after it."""

    value: Any
    comment: str | None = None


def recipe_text(
    *,
    header: Sequence[str],
    description: str,
    args: Mapping[str, RecipeLine],
    env: Mapping[str, RecipeLine],
    version: str | None = None,
    hardware: RecipeLine | None = None,
) -> str:
    """Return a complete recipe, without values that its group options already set.

    `hardware`: the value of `hardware.name`.
    """
    plain_args = {name: line.value for name, line in args.items()}
    plain_env = {name: line.value for name, line in env.items()}
    defaults = ["base"]
    inherited: dict[str, Any] = dict(group_option("serving", _BASE["serving"]))
    for group in _ARGS_GROUPS:
        option = _fitting(group, plain_args)
        if option and option != _BASE.get(group):
            override = "override " if group in _BASE else ""
            defaults.append(f"{override}{group}: {option}")
            inherited |= group_option(group, option)
    engine = _fitting("engine", plain_env)
    inherited_env: Mapping[str, Any] = {}
    if engine and engine != _BASE["engine"]:
        defaults.append(f"override engine: {engine}")
        inherited_env = group_option("engine", engine)
    changed = {n for n, line in args.items() if not _same(inherited.get(n), line.value)}
    own_args = {n: line for n, line in args.items() if line.comment or n in changed}
    own_env = {n: line for n, line in env.items() if not _same(inherited_env.get(n), line.value)}
    parts = [*(f"# {single_line(text)}".rstrip() for text in header), "defaults:"]
    parts += [f"  - {item}" for item in [*defaults, "_self_"]]
    parts += ["", f"description: {scalar(description)}"]
    if version or own_env:
        parts += ["", "engine:"]
        parts += [f"  version: {scalar(version)}"] if version else []
        parts += ["  env:", *_lines(own_env, "    ")] if own_env else []
    if hardware is not None:
        parts += ["", "hardware:", *_lines({"name": hardware}, "  ")]
    parts += ["", "args:", *_lines(own_args, "  ")] if own_args else ["", "args: {}"]
    return "\n".join(parts) + "\n"


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes strings that only OmegaConf reads as numbers (`1e3`)."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+\Z"),
    list("-+0123456789"),
)


def scalar(value: Any) -> str:
    """Return a value as one line of YAML that OmegaConf reads back unchanged."""
    text: str = yaml.dump(
        _escaped(value),
        Dumper=_Dumper,
        default_flow_style=True,
        width=1 << 30,
        allow_unicode=True,
        sort_keys=False,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _escaped(value: Any) -> Any:
    """Return a value with `${…}` escaped, so OmegaConf does not interpolate it."""
    if isinstance(value, Interpolation):
        return str(value)
    if isinstance(value, str):
        return value.replace("${", "\\${")
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return value


class Interpolation(str):
    """String whose `${…}` is an OmegaConf interpolation."""

    __slots__ = ()


def options_with(group: str, key: str, value: Any) -> Mapping[str, Any]:
    """Return the merged settings of a shipped group's options that set `key` to `value`."""
    found: dict[str, Any] = {}
    for name in _options(group):
        values = group_option(group, name)
        if _same(values.get(key), value):
            found |= values
    return found


def _lines(lines: Mapping[str, RecipeLine], indent: str) -> Iterable[str]:
    for name, line in lines.items():
        comment = f"  # {single_line(line.comment)}" if line.comment else ""
        yield f"{indent}{name}: {scalar(line.value)}{comment}"


def _fitting(group: str, values: Mapping[str, Any]) -> str | None:
    """Return the largest group option whose settings are all in `values`, or None."""
    best: tuple[int, str] | None = None
    for name in _options(group):
        settings = group_option(group, name)
        held = (key in values and _same(values[key], value) for key, value in settings.items())
        if settings and all(held):
            best = max(best or (0, ""), (len(settings), name))
    return best[1] if best else None


def _same(value: Any, other: Any) -> bool:
    """True if the values are equal; 1 does not equal true."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


@cache
def _options(group: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (conf_dir() / group).glob("*.yaml")))


@cache
def group_option(group: str, name: str) -> Mapping[str, Any]:
    """Return an option's server arguments, or environment variables for `engine`.

    Empty for an option with any other setting, because selecting the option would add that setting.
    """
    text = (conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")
    package = _PACKAGE.search(text)
    data: dict[str, Any] = yaml.safe_load(text) or {}
    values: dict[str, Any] = {}
    for base in data.pop("defaults", []):
        if base != "_self_":
            values |= group_option(group, base)
    if group != "engine":
        return values | data if package and package[1] == "args" else {}
    if any(value is not None for key, value in data.items() if key != "env"):
        return {}
    return values | {key: str(value) for key, value in (data.get("env") or {}).items()}


def filled_in(text: str) -> str:
    """Return a text with each `???` replaced by an unset, and thus unknown, variable."""
    return _OPEN.sub("${oc.env:SPECLAUNCH_OPEN}", text)


_VARIABLE = lazy(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|\{([A-Za-z_]\w*)(:?)-|\(([A-Z_][A-Z0-9_]*)\))",
    re.ASCII,
)
"""Pattern of `$A`, `${A}`, the beginning of `${A:-…}`, and Kubernetes' `$(A)`."""
_BARE = lazy(r"(?!(?:null|true|false|nan|inf)\Z)[A-Za-z_/.][\w./@-]*", re.IGNORECASE | re.ASCII)
_MAX_DEPTH = 8
_RESOLVERS = ("${oc.env:", "${env_or:")


def value_of(word: Word, start: int = 0) -> RecipeLine:
    """Return the recipe value, with its comment, for a word's text from `start` on.

    Placeholders, and values that require running the script, become `???`.
    """
    if word.placeholder:
        return RecipeLine(OPEN, f"fill in `{word.text[start:]}`")
    if word.evaluated:
        defaults = [default for default in word.defaults if default.start >= start]
        value = _with_defaults(word.text, start, len(word.text), defaults)
        return RecipeLine(value, None if defaults else word.why)
    found = None if word.inside else _from_environment(word.text[start:])
    if found is None:
        return RecipeLine(OPEN, word.why or f"`{word.text[start:]}` is not evaluated")
    return RecipeLine(found)


def _with_defaults(text: str, start: int, end: int, defaults: Sequence[Default]) -> str:
    if not defaults:
        return text[start:end]
    parts: list[str] = []
    for default_ in defaults:
        inner = _with_defaults(text, default_.start, default_.end, default_.inner)
        nested = isinstance(inner, Interpolation)
        default = f'"{inner}"' if nested else _quoted(inner)
        parts.append(text[start : default_.start].replace("${", "\\${"))
        parts.append(_variable(default_.name, default, default_.filled))
        start = default_.end
    return Interpolation("".join([*parts, text[start:end].replace("${", "\\${")]))


def _from_environment(text: str, depth: int = 0) -> str | None:
    """Return a text with its variables as interpolations; None if it requires running a command."""
    parts: list[str] = []
    at = 0
    while found := _VARIABLE.search(text, at):
        parts.append(text[at : found.start()])
        at = found.end()
        name = found[1] or found[2] or found[3] or found[5]
        if not _BARE.fullmatch(name):  # OmegaConf reads `null` as a value
            return None
        if found[3] is None:
            parts.append(_variable(name))
            continue
        end = closing(text, at)
        inner = _from_environment(text[at:end], depth + 1) if end and depth < _MAX_DEPTH else None
        nested = isinstance(inner, Interpolation)
        if end is None or inner is None or (nested and any(c in text[at:end] for c in '"\\')):
            return None
        default = f'"{inner}"' if nested else _quoted(inner)
        parts.append(_variable(found[3], default, bool(found[4])))
        at = end + 1
    rest = [part for part in parts if not part.startswith(_RESOLVERS)]
    rest.append(text[at:])
    if any(char in piece for piece in rest for char in "$`"):
        return None
    joined = "".join([*parts, text[at:]])
    return Interpolation(joined) if any(resolver in joined for resolver in _RESOLVERS) else joined


def closing(text: str, at: int) -> int | None:
    """Return the offset of the `}` that closes the `${` before `at`; None if not closed."""
    depth = 1
    for index in range(at, len(text)):
        depth += (text[index] == "{" and text[index - 1] == "$") - (text[index] == "}")
        if depth == 0:
            return index
    return None


def _variable(name: str, default: str | None = None, filled: bool = False) -> str:
    if default is None:
        return f"${{oc.env:{name}}}"
    return f"${{{'env_or' if filled else 'oc.env'}:{name},{default}}}"


def _quoted(text: str) -> str:
    """Quote a string in OmegaConf's grammar, so that 0.80 and true remain strings."""
    if _BARE.fullmatch(text):
        return text
    body = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return f"'{body}'"
