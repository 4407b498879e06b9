"""Renders server arguments as the command line of one engine version.

`${oc.env:API_KEY}` in a recipe stands for the variable's value. If the variable is unset, a launch
fails; everything else treats the value as unknown. Commands to paste always refer to the variable
instead of showing or inventing a value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Self

from msgspec import Struct

from speclaunch.core import holds_secret, is_secret_variable
from speclaunch.engine.releases.catalogue import Argument, ArgumentKind, Catalogue, history, name_of
from speclaunch.engine.releases.nearest import nearest
from speclaunch.engine.releases.renames import (
    REMOVALS,
    canonical,
    conversion,
    dead_variable,
    other_names,
)

_SPECIAL = frozenset('\\"$`')


class VariableReference(Struct, frozen=True):
    """A reference to a variable in a value: `${NAME}`, `${NAME-default}` or, if `filled`,
    `${NAME:-default}`."""

    name: str
    default: Template | None = None
    filled: bool = False
    """True if the default also replaces an empty variable."""


Template = tuple["str | VariableReference", ...]
"""A value's parts: literal texts and variable references."""


class FromEnvironment(str):
    """A string that comes, fully or partly, from environment variables.

    Its `str` value shows an unset variable as a reference.
    """

    __slots__ = ("template", "unset")
    template: Template
    unset: tuple[str, ...]
    """Unset variables that the value needs; empty if the value is known."""

    def __new__(cls, text: str, template: Template, unset: tuple[str, ...] = ()) -> Self:
        """Create a string with the value `text`, written as `template` in the recipe."""
        made = super().__new__(cls, text)
        made.template, made.unset = template, unset
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, Template, tuple[str, ...]]]:
        """Preserve the type in copies and pickles."""
        return type(self), (str(self), self.template, self.unset)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of all variables, including those in default values."""
        return tuple(_names(self.template))

    @property
    def literal(self) -> str:
        """The literal text, including that of default values."""
        return _literal(self.template)

    def shell(self, *, defaults: bool = True) -> str:
        """Return the value quoted for a shell, with references to the variables.

        A required variable stops the shell if it is unset (`:?`). Without `defaults` every variable
        is required, and no default is shown (it may be a secret).
        """
        return f'"{_quoted(self.template, defaults=defaults)}"'


def unset_in(value: Any) -> tuple[str, ...]:
    """Return the unset variables that a value, or any part of a list or mapping, needs."""
    if isinstance(value, FromEnvironment):
        return value.unset
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(name for item in value for name in unset_in(item)))
    return ()


def dumped(value: Any) -> str:
    """Return a list or mapping as JSON that preserves references to environment variables."""
    found: list[FromEnvironment] = []

    def marked(item: Any) -> Any:
        if isinstance(item, FromEnvironment):
            found.append(item)
            return f"\ue000{len(found) - 1}\ue000"
        if isinstance(item, dict):
            return {key: marked(inner) for key, inner in item.items()}
        return [marked(inner) for inner in item] if isinstance(item, list) else item

    text = json.dumps(marked(value), ensure_ascii=False) if from_environment(value) else ""
    if not found:
        return json.dumps(value)
    template: list[str | VariableReference] = []
    for index, part in enumerate(re.split("\ue000", text)):
        template.extend(found[int(part)].template if index % 2 else (part,))
    return FromEnvironment(json.dumps(value), tuple(template), unset_in(value))


def from_environment(value: Any) -> bool:
    """True if any part of a value comes from the environment."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(from_environment(item) for item in value)
    return isinstance(value, FromEnvironment)


def _names(template: Template) -> list[str]:
    found: list[str] = []
    for part in template:
        if isinstance(part, VariableReference):
            found += [part.name, *_names(part.default or ())]
    return list(dict.fromkeys(found))


def _literal(template: Template) -> str:
    return "".join(
        part if isinstance(part, str) else _literal(part.default or ()) for part in template
    )


def _quoted(template: Template, *, defaults: bool) -> str:
    parts: list[str] = []
    for part in template:
        if isinstance(part, str):
            parts.append("".join(f"\\{char}" if char in _SPECIAL else char for char in part))
        elif part.default is None or not defaults:
            parts.append(f"${{{part.name}:?}}")
        else:
            sign = ":-" if part.filled else "-"
            parts.append(f"${{{part.name}{sign}{_quoted(part.default, defaults=True)}}}")
    return "".join(parts)


MODULE = "sglang.launch_server"

_SECRET_ARGUMENTS = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password"})


class ArgumentProblem(Struct, frozen=True):
    """A recipe argument that cannot be rendered for an engine version, and the reason."""

    name: str
    message: str
    help: str | None = None


class RenderedArgument(Struct, frozen=True):
    """One server argument as an engine version spells it: `--flag` and its values."""

    name: str
    """The argument's name in the newest engine, for comparisons across versions."""
    flag: str
    values: tuple[str, ...]
    secret: bool = False
    recipe_name: str = ""
    unset: tuple[str, ...] = ()
    """Unset environment variables that the value needs; empty if the value is known."""
    dest: str = ""

    @property
    def tokens(self) -> tuple[str, ...]:
        if len(self.values) == 1 and self.values[0].startswith("-"):
            return (f"{self.flag}={self.values[0]}",)  # argparse would read it as a flag
        return (self.flag, *self.values)


class RenderedArgs(Struct, frozen=True):
    """All arguments of a deployment for one engine version, with notes on conversions."""

    version: str
    arguments: tuple[RenderedArgument, ...]
    env: Mapping[str, str | None]
    notes: tuple[str, ...] = ()
    problems: tuple[ArgumentProblem, ...] = ()

    @property
    def unset(self) -> frozenset[int]:
        """Positions of unknown values among the tokens of all arguments."""
        found: set[int] = set()
        at = 0
        for argument in self.arguments:
            count = len(argument.tokens)
            if argument.unset and argument.values:  # the flag itself is known
                found.update(range(at + min(1, count - 1), at + count))
            at += count
        return frozenset(found)

    def value(self, *names: str) -> str | None:
        """Return the first value of the argument with one of these canonical names; `true` for a
        switch, None if absent."""
        for argument in self.arguments:
            if argument.name in names:
                return argument.values[0] if argument.values else "true"
        return None


class _Renderer(Struct):
    catalogue: Catalogue
    arguments: list[RenderedArgument] = []
    notes: list[str] = []
    problems: list[ArgumentProblem] = []
    recipe_names: dict[str, str] = {}
    """Recipe names of the arguments rendered so far, by destination."""


def render_args(
    args: Mapping[str, Any], env: Mapping[str, str | None], catalogue: Catalogue
) -> RenderedArgs:
    """Render `args` for the engine version of `catalogue`.

    Renamed arguments get this version's name. Null means the engine's default and is omitted. An
    argument that cannot be rendered is reported as a problem, never dropped silently.
    """
    renderer = _Renderer(catalogue)
    for name, value in args.items():
        if value is not None:
            _render_argument(renderer, name, value)
    live: dict[str, str | None] = {}
    for name, text in env.items():
        dead = dead_variable(name, catalogue.version)
        if dead is None:
            live[name] = text
        else:
            renderer.notes.append(f"{name} is omitted: {dead.afterwards}")
    return RenderedArgs(
        catalogue.version,
        tuple(renderer.arguments),
        live,
        tuple(renderer.notes),
        tuple(renderer.problems),
    )


def is_secret_key(key: str) -> bool:
    """True if an override with this key (`args.api_key`, `++engine.env.HF_TOKEN`) sets a secret."""
    section, _, name = key.lstrip("+~").rpartition(".")
    if section.startswith("roles."):
        section = section.split(".", 2)[-1]
    return (section == "args" and is_secret_argument(name)) or (
        section == "engine.env" and is_secret_variable(name)
    )


def is_secret_argument(name: str) -> bool:
    """True if the value of this server argument must not be shown."""
    return canonical(name_of(name)) in _SECRET_ARGUMENTS


def is_written_secret(text: object) -> bool:
    """True if a text contains a literal secret, as opposed to a secret from a variable."""
    if isinstance(text, FromEnvironment):
        text = "".join(part for part in text.template if isinstance(part, str))
    return holds_secret(text)


def is_secret_text(text: object) -> bool:
    """True if a text contains a secret, or comes from a variable whose value must not be shown."""
    if isinstance(text, FromEnvironment) and any(map(is_secret_variable, text.variables)):
        return True
    return holds_secret(text)


def _render_argument(renderer: _Renderer, name: str, value: Any) -> None:
    argument = _known(renderer, name, value)
    if argument is None:
        renderer.problems.append(_unknown(name, renderer.catalogue))
        return
    renderer.notes += _remarks(name, argument, renderer.catalogue.version)
    before = renderer.recipe_names.setdefault(argument.dest, name)
    if before != name:
        renderer.problems.append(
            ArgumentProblem(name, f"`{name}` and `{before}` are the same argument", "remove one")
        )
        return
    try:
        tokens = _tokens(argument, value)
    except ValueError as error:
        renderer.problems.append(ArgumentProblem(name, f"{name}: {error}"))
        return
    if tokens is not None:
        flag, *values = tokens
        secret = is_secret_argument(argument.dest) or any(map(is_written_secret, values))
        unset = unset_in(value)
        if unset and not values:
            renderer.notes.append(f"{name} depends on unset variables: {', '.join(unset)}")
        renderer.arguments.append(
            RenderedArgument(
                canonical(argument.dest),
                flag,
                tuple(values),
                secret,
                name,
                unset=unset,
                dest=argument.dest,
            )
        )


def _remarks(name: str, argument: Argument, version: str) -> list[str]:
    remarks = []
    if argument.deprecated:
        instead = f"; use {argument.replacement}" if argument.replacement else ""
        remarks.append(f"{name} is deprecated in SGLang {version}{instead}")
    if not argument.read or argument.kind is ArgumentKind.IGNORED:
        remarks.append(f"SGLang {version} accepts {name}, but ignores it")
    return remarks


def _known(renderer: _Renderer, name: str, value: Any) -> Argument | None:
    """Return the argument with this name or its current name; None if the version has neither.

    A deprecated name is used if only it accepts the value (0.5.17, server_args.py:8307: the alias
    of `--mamba-radix-cache-strategy` has no choices).
    """
    found = renderer.catalogue.by_name(name)
    if found is not None and not found.deprecated:
        return found
    for other in other_names(name):
        current = renderer.catalogue.by_name(other)
        if current is not None and (found is None or not current.deprecated):
            if found is not None and _offers(found, value) and not _offers(current, value):
                return found
            renderer.notes.append(
                f"{name} is called {other} in SGLang {renderer.catalogue.version}"
            )
            return current
    return found


def _offers(argument: Argument, value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    known = {str(choice) for choice in argument.choices or ()}
    return not known or all(str(item) in known for item in values)


def _unknown(name: str, catalogue: Catalogue) -> ArgumentProblem:
    past = history(name)
    version = catalogue.version
    message = f"SGLang {version} has no server argument `{name}`"
    if past is not None:
        first, last = past
        return ArgumentProblem(
            name, message, f"it exists from {first} to {last}{_replacement_hint(name)}"
        )
    close = nearest(name_of(name), catalogue.names)
    hint = f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else None
    return ArgumentProblem(name, message, hint)


def _replacement_hint(name: str) -> str:
    became = conversion(name_of(name))
    if became is not None:
        return f"; write {became.new}: {became.value}"
    reason = REMOVALS.get(name_of(name))
    return f"; {reason}" if reason else ""


def _tokens(argument: Argument, value: Any) -> list[str] | None:
    """Return the flag and its values; None if omitting the flag has the same effect."""
    flag, kind = argument.flag, argument.kind
    if kind is ArgumentKind.REFUSED:
        advice = f"use {argument.replacement}" if argument.replacement else "it was removed"
        raise ValueError(f"this version refuses it ({advice})")
    if not kind.takes_value:
        if unset_in(value):
            return [flag]
        if not isinstance(value, bool):
            raise ValueError(f"it is a switch: set true or false, not {value!r}")
        if kind is ArgumentKind.BOOLEAN:
            return [flag if value else f"--no-{flag.removeprefix('--')}"]
        return [flag] if value else None
    if kind is ArgumentKind.OPTIONAL_VALUE and value is True:
        return [flag]
    if kind is ArgumentKind.LIST:
        items = value if isinstance(value, list) else [value]
        if not items and argument.nargs != "*":
            raise ValueError("the list is empty; set null for the engine's default")
        return [flag, *(_text(item) for item in items)]
    return [flag, _text(value)]


def _text(value: Any) -> str:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("the value contains a NUL character")
        return value
    if isinstance(value, dict | list):
        return dumped(value)
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)  # NaN: valid for both float() and json.loads()
    return str(value)
