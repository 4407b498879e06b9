"""What a static evaluation can yield beside plain Python values."""

from __future__ import annotations

import ast
from dataclasses import field
from typing import Any

from speclaunch.record import record


@record
class OpaqueValue:
    """A value that can't be known without running the engine; ``text`` is its spelling."""

    text: str

    def __bool__(self) -> bool:
        """An unknown condition is taken as not met: no accelerator, no plugin, no variable set."""
        return False

    @property
    def name(self) -> str:
        """The last part of a dotted spelling: ``loads`` of ``json.loads``."""
        return self.text.rpartition(".")[2]


@record
class ClassValue:
    """A class of the package."""

    file: str
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.node.name


@record
class FunctionValue:
    """A function or method of the package; ``owner`` is the class that it belongs to."""

    file: str
    node: ast.FunctionDef
    owner: ClassValue | None = None

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.node.name


@record
class Instance:
    """An object made by calling a class of the package; ``arguments`` are the positional ones."""

    of: ClassValue
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()


@record
class EnumMember:
    """One member of an enumeration of the package."""

    name: str
    value: Any


@record
class BoundMethod:
    """A method looked up on a value and not called yet."""

    receiver: Any
    name: str


@record(frozen=False)
class ExpressionScope:
    """The names that an expression sees: its own, those of its class body, its module's."""

    file: str
    names: dict[str, Any] = field(default_factory=dict)
    owner: ClassValue | None = None


#: ``default=argparse.SUPPRESS``: the flag leaves its destination alone when it is not given.
SUPPRESS = "<SUPPRESS>"
