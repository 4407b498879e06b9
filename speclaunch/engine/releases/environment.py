"""Values that a recipe takes from the environment, and what is known of them.

`${oc.env:API_KEY}` is the value of a variable where it is set.  Where it is not, only a launch
needs it: for everything else it is an unknown value.  Either way the text remembers the variable,
so that a command to paste can name it instead of showing or inventing a value.
"""

from __future__ import annotations

import json
import re
from typing import Any, Self

from msgspec import Struct

_SPECIAL = frozenset('\\"$`')


class VariableReference(Struct, frozen=True):
    """`${NAME}`, `${NAME-default}` or, with `filled`, `${NAME:-default}` inside of a value."""

    name: str
    default: Template | None = None
    filled: bool = False
    """The default holds for an empty variable, too."""


Template = tuple["str | VariableReference", ...]
"""A value as it is written: texts, and the variables between them."""


class FromEnvironment(str):
    """A text that stands, wholly or in part, in environment variables.

    As a `str` it is the value; a variable that is not set stands in it as it is written.
    """

    __slots__ = ("template", "unset")
    template: Template
    unset: tuple[str, ...]
    """The variables that it needs and that are not set; empty: the value is known."""

    def __new__(cls, text: str, template: Template, unset: tuple[str, ...] = ()) -> Self:
        """`text` is the value, `template` how it is written."""
        made = super().__new__(cls, text)
        made.template, made.unset = template, unset
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, Template, tuple[str, ...]]]:
        """So that a copy still is one."""
        return type(self), (str(self), self.template, self.unset)

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of all variables, those of defaults too."""
        return tuple(_names(self.template))

    @property
    def literal(self) -> str:
        """What of it stands in the recipe: the text around variables, and their defaults."""
        return _literal(self.template)

    def shell(self, *, defaults: bool = True) -> str:
        """The value as a word for a shell, with the variables by their own names.

        A variable that has to be set stops the shell (`:?`).  Without `defaults` every variable
        has to be, and no default is shown (it may be a secret).
        """
        return f'"{_quoted(self.template, defaults=defaults)}"'


def unset_in(value: Any) -> tuple[str, ...]:
    """The variables that a value (a list, a mapping) needs and that are not set."""
    if isinstance(value, FromEnvironment):
        return value.unset
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(name for item in value for name in unset_in(item)))
    return ()


def dumped(value: Any) -> str:
    """A list or a mapping as JSON that remembers which of its texts stand in the environment."""
    found: list[FromEnvironment] = []

    def marked(item: Any) -> Any:
        if isinstance(item, FromEnvironment):
            found.append(item)
            return f"\ue000{len(found) - 1}\ue000"
        if isinstance(item, dict):
            return {key: marked(one) for key, one in item.items()}
        return [marked(one) for one in item] if isinstance(item, list) else item

    text = json.dumps(marked(value), ensure_ascii=False) if from_environment(value) else ""
    if not found:
        return json.dumps(value)
    template: list[str | VariableReference] = []
    for index, part in enumerate(re.split("\ue000", text)):
        template.extend(found[int(part)].template if index % 2 else (part,))
    return FromEnvironment(json.dumps(value), tuple(template), unset_in(value))


def from_environment(value: Any) -> bool:
    """Whether anything in a value stands in the environment."""
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
