"""Following ``ServerArgs.add_cli_args`` through everything that it hands its parser to."""

from __future__ import annotations

import ast
from typing import Any

from speclaunch.engine.extraction.declared import Declared, declare
from speclaunch.engine.extraction.evaluate import SourceEvaluator
from speclaunch.engine.extraction.fields import declared_fields, field_default
from speclaunch.engine.extraction.source import ExtractError, PackageSource
from speclaunch.engine.extraction.values import BoundMethod, ClassValue, FunctionValue, OpaqueValue

#: Where the server's arguments are declared, and the method that declares them.
SERVER_ARGS = "sglang/srt/server_args.py"
_METHOD = "add_cli_args"


class _Parser:
    """Stands in for the argument parser; groups of a parser are the parser itself."""


class ArgumentReader(SourceEvaluator):
    """An evaluator that knows what it means to be given a parser."""

    def __init__(self, source: PackageSource) -> None:
        super().__init__(source)
        self.declared: dict[str, Declared] = {}
        self._parser = _Parser()

    def read(self) -> list[Declared]:
        """Every argument of the server, in the order in which they are registered."""
        if self.source.tree(SERVER_ARGS) is None:
            raise ExtractError(f"{self.source.path}: no {SERVER_ARGS} in the package")
        found = self.global_name(SERVER_ARGS, "ServerArgs")
        # A later `ServerArgs = defstruct(…)` rebinds the name; the class statement is meant.
        owner = self._class_statement("ServerArgs") if found else None
        function = None if owner is None else self.method(owner, _METHOD)
        if owner is None or function is None:
            raise ExtractError(f"{self.source.path}: {SERVER_ARGS}: no ServerArgs.{_METHOD}")
        self._globals[(SERVER_ARGS, "ServerArgs")] = (owner,)
        self.run(function, [self._parser], {})
        if not self.declared:
            raise ExtractError(f"{self.source.path}: {SERVER_ARGS}: no arguments found")
        return list(self.declared.values())

    def _class_statement(self, name: str) -> ClassValue | None:
        tree = self.source.tree(SERVER_ARGS)
        for node in [] if tree is None else tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return ClassValue(SERVER_ARGS, node)
        return None

    def attribute(self, value: Any, name: str) -> Any:
        """``ServerArgs.name`` is the default of a field, wherever the field is declared."""
        if isinstance(value, _Parser):
            return BoundMethod(value, name)
        made = super().attribute(value, name)
        if (
            isinstance(value, ClassValue)
            and value.name == "ServerArgs"
            and isinstance(made, OpaqueValue)
        ):
            return field_default(self, value, name)
        return made

    def call(
        self, function: Any, positional: list[Any], keywords: dict[str, Any], src: str = ""
    ) -> Any:
        """Record what is done with the parser; evaluate everything else."""
        if isinstance(function, BoundMethod) and isinstance(function.receiver, _Parser):
            if function.name == "add_argument":
                return self._add(positional, keywords, src)
            if function.name in ("add_argument_group", "add_mutually_exclusive_group"):
                return function.receiver
        if isinstance(function, FunctionValue):
            if function.name == "add_cli_args_from_dataclass":
                return self._add_fields(positional, keywords)
            if function.name == "_declared_default" and positional:
                owner = self._class_statement("ServerArgs")
                return field_default(self, owner, positional[0]) if owner else OpaqueValue("?")
        return super().call(function, positional, keywords, src)

    def _add(self, names: list[Any], keywords: dict[str, Any], src: str) -> None:
        if names and all(isinstance(name, str) for name in names):
            made = declare(self, names, keywords, src)
            self.declared[made.flag] = made

    def _add_fields(self, positional: list[Any], keywords: dict[str, Any]) -> None:
        wanted = keywords.get("fields", positional[2] if len(positional) > 2 else None)
        owner = next((item for item in positional if isinstance(item, ClassValue)), None)
        if owner is None:
            return
        for made in declared_fields(self, owner):
            if wanted is None or made.dest in wanted:
                self.declared[made.flag] = made
