"""Calls that start a server by themselves: SGLang's own, and those of Chutes."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from speclaunch.errors import Place
from speclaunch.importer.interface import Dropped, Invocation, InvocationKind, Word
from speclaunch.importer.python_scope import Called
from speclaunch.importer.python_strings import Positions, dotted
from speclaunch.importer.python_values import Known, Listing, Table, Text
from speclaunch.importer.source_text import Document
from speclaunch.importer.splitting import split

_ENGINES = frozenset({"Engine", "RayEngine", "ServerArgs", "Runtime"})
_DIFFUSION = "sglang.multimodal_gen"
"""A package with a `ServerArgs` of its own."""
_OF_THE_ENGINE = frozenset({"placement_group", "stat_loggers", "custom_sigquit_handler"})
"""What `RayEngine` takes itself (srt/ray/engine.py), and fields of `ServerArgs` without a flag."""
_PACKAGES = frozenset({"sgl", "sglang"})
_OFF = ("None", "False")
MORE = "the program may add more"


class Calls:
    """Reads the calls of one program."""

    def __init__(self, tree: ast.Module, document: Document, positions: Positions) -> None:
        self._document = document
        self._positions = positions
        self._imported = _imported(tree)

    def invocation(self, name: str, call: Called) -> Invocation | None:
        """The server that a call of this name starts; None for any other call."""
        where = self._place(call.node.func)
        if self._is_sglangs(call.node.func):
            return self._engine(call)
        if name == "prepare_server_args" and call.args and isinstance(call.args[0], Listing):
            words = tuple(one.field().word() for one in call.args[0].items)
            return Invocation(InvocationKind.LAUNCH_SERVER, words, where)
        if name.startswith("popen_launch") and (call.args or "model" in call.entries):
            return self._popen(call)
        if name == "build_sglang_chute":
            return self._chute(call)
        return None

    def _place(self, node: ast.AST) -> Place:
        start, end = self._positions.span(node)
        return self._document.place(start, max(end - start, 1))

    def _is_sglangs(self, function: ast.AST) -> bool:
        name = dotted(function) or ""
        if "." not in name:
            return name in self._imported
        module, _, last = name.rpartition(".")
        return last in _ENGINES and module.partition(".")[0] in _PACKAGES | self._imported

    def _engine(self, call: Called) -> Invocation | None:
        words: list[Word] = []
        dropped: list[Dropped] = []
        given = list(call.entries.items())
        if not given or "server_args" in call.entries:
            return None  # the arguments are made elsewhere
        for name, (key, value) in given:
            at = key.field().word().place
            flag = Word(f"--{name.replace('_', '-')}", at)
            if name in _OF_THE_ENGINE:
                dropped.append(Dropped(name, at, "it is not an argument of the server"))
                continue
            if isinstance(value, Text) and _is_off(value):
                why = "a field that is false or None is left at its default"
                dropped.append(Dropped(f"{name}={value.text}", at, why))
                continue
            words += [flag, *self._given(value, flag)]
        words = [*(one.field().word() for one in call.rest), *words]
        where = self._place(call.node.func)
        return Invocation(InvocationKind.ENGINE, tuple(words), where, dropped=tuple(dropped))

    def _given(self, value: Known, flag: Word) -> list[Word]:
        if isinstance(value, Listing):
            value.consumed = True
            return [one.field().word() for one in value.items]
        if isinstance(value, Table):
            return [Word("{…}", flag.place, evaluated=False, why="a dictionary is not read")]
        if value.constant is True and not value.is_text:
            return []
        return [value.field().word()]

    def _popen(self, call: Called) -> Invocation | None:
        """SGLang's own tests: `popen_launch_server(model, url, timeout=…, other_args=[…])`."""
        model = call.args[0] if call.args else call.entries["model"][1]
        others = call.entries.get("other_args")
        given = others[1] if others is not None else call.args[4] if len(call.args) > 4 else None
        where = self._place(call.node.func)
        words: list[Word] = []
        if isinstance(model, Text):
            word = model.field().word()
            words += [Word("--model-path", word.used_at or word.place), word]
        if isinstance(given, Listing):
            given.consumed = True
            words += [one.field().word() for one in given.items]
        elif given is not None:
            words = [Word("*", where, evaluated=False, why=MORE), *words]
        return Invocation(
            InvocationKind.LAUNCH_SERVER, tuple(words), where, env=_table(call.entries.get("env"))
        )

    def _chute(self, call: Called) -> Invocation:
        """Chutes: its template adds the model to `engine_args`."""
        where = self._place(call.node.func)
        words: list[Word] = []
        model = call.entries.get("model_name")
        if model is not None and isinstance(model[1], Text):
            words += [Word("--model-path", model[0].field().word().place)]
            words += [model[1].field().word()]
        arguments = call.entries.get("engine_args")
        if arguments is not None:
            value = arguments[1]
            if isinstance(value, Listing):
                value.consumed = True
                words += [one.field().word() for one in value.items]
            elif isinstance(value, Text) and not value.unknown:
                words += self._split(value)
            else:
                words = [Word("*", where, evaluated=False, why=MORE), *words]
        return Invocation(InvocationKind.LAUNCH_SERVER, tuple(words), where)

    def _split(self, value: Text) -> list[Word]:
        return [one.word() for one in split(value.pieces)]


def _is_off(value: Text) -> bool:
    """Whether it is `None` or `False`."""
    return not value.is_text and not value.unknown and value.text in _OFF


def _table(given: tuple[Text, Known] | None) -> Mapping[str, Word]:
    if given is None or not isinstance(given[1], Table):
        return {}
    entries = given[1].entries.items()
    return {name: one.field().word() for name, (_, one) in entries if isinstance(one, Text)}


def _imported(tree: ast.Module) -> set[str]:
    """The names that SGLang's own things have here."""
    names: set[str] = set()
    for node in ast.walk(tree):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and module.split(".")[0] == "sglang":
            if module.startswith(_DIFFUSION):
                continue
            names |= {one.asname or one.name for one in node.names if one.name in _ENGINES}
        elif isinstance(node, ast.Import):
            names |= {
                one.asname
                for one in node.names
                if one.asname and one.name.split(".")[0] == "sglang"
            }
    return names
