"""Recipe values from environment variables.

`${oc.env:API_KEY}` is the variable's value. If the variable is unset, only a launch fails; for all
other purposes the value is unknown. Commands to paste always refer to the variable instead of
showing or inventing a value.
"""

from __future__ import annotations

import json
import re
from typing import Any, Self

from msgspec import Struct

_SPECIAL = frozenset('\\"$`')


class VariableReference(Struct, frozen=True):
    """A reference to a variable in a value: `${NAME}`, `${NAME-default}` or (`filled`)
    `${NAME:-default}`."""

    name: str
    default: Template | None = None
    filled: bool = False
    """True if the default also replaces an empty variable."""


Template = tuple["str | VariableReference", ...]
"""The parts of a value: texts, and the variables between them."""


class FromEnvironment(str):
    """A text that comes, fully or partly, from environment variables.

    As a `str` it is the value. An unset variable appears as its reference.
    """

    __slots__ = ("template", "unset")
    template: Template
    unset: tuple[str, ...]
    """Unset variables that the value needs; empty if the value is known."""

    def __new__(cls, text: str, template: Template, unset: tuple[str, ...] = ()) -> Self:
        """Create a text with the value `text`, which the recipe writes as `template`."""
        made = super().__new__(cls, text)
        made.template, made.unset = template, unset
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, Template, tuple[str, ...]]]:
        """Preserve the type when copied or pickled."""
        return type(self), (str(self), self.template, self.unset)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of all variables, including those in default values."""
        return tuple(_names(self.template))

    @property
    def literal(self) -> str:
        """The literal text around the variables, and their defaults."""
        return _literal(self.template)

    def shell(self, *, defaults: bool = True) -> str:
        """Return the value quoted for a shell, with references to the variables.

        A required variable stops the shell if it is unset (`:?`). Without `defaults` every variable
        is required, and no default is shown (it may be a secret).
        """
        return f'"{_quoted(self.template, defaults=defaults)}"'


def unset_in(value: Any) -> tuple[str, ...]:
    """Return the unset variables that a value needs, also within a list or mapping."""
    if isinstance(value, FromEnvironment):
        return value.unset
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(name for item in value for name in unset_in(item)))
    return ()


def dumped(value: Any) -> str:
    """Return a list or mapping as JSON that preserves which texts come from the environment."""
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
