"""Evaluator of the expressions of a Python program. Nothing is executed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.fields import split
from speclaunch.deployments.sources.python_strings import ProgramPositions, StringPart, straight
from speclaunch.deployments.sources.python_values import (
    CONVERSIONS,
    FROM_OUTSIDE,
    MAX_PIECES,
    UNKNOWN,
    PythonList,
    PythonMaker,
    PythonTable,
    PythonText,
    PythonValue,
    compared,
    converted,
    copied,
    dotted,
    last_name,
    note_of,
    noted,
    number,
    path_of,
    plain,
    replaced,
    shown,
    under,
)
from speclaunch.deployments.sources.source_text import (
    DefaultOf,
    Document,
    SourceSpan,
    SourceText,
    WordPiece,
)

_MAX_DEPTH = 40
_FORMAT = lazy(r"(?P<literal>\{\{|\}\})|\{(?P<name>[^{}\n!:]*)(?P<how>[^{}\n]*)\}")
_PERCENT = lazy(r"(?P<literal>%%)|%(?:\((?P<name>[^)\n]*)\))?(?P<how>[-#0 +\d.]*[a-zA-Z])")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], int | float]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MAX_NUMBER = 1 << 60
_OPERATOR = lazy(r"[|&;]|[0-9]?[<>]")
"""Pattern of the start of a word that ends a shell command's arguments."""
_ENVIRONMENT = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})
_SAME = frozenset(
    {"int", "float", "dedent", "strip", "rstrip", "lstrip", "format", "cleandoc", "str", "Path"}
)
"""Functions and methods that do not change the meaning of a command."""


class PythonEvaluator:
    """Evaluator of expressions; `names` contains the values of variables, None if unknown."""

    def __init__(
        self,
        document: Document,
        positions: ProgramPositions,
        names: Mapping[str, PythonValue | None],
        made_by: Callable[[PythonMaker, int], PythonValue | None],
    ) -> None:
        self.document = document
        self.positions = positions
        self._names = names
        self._made_by = made_by

    def value(self, node: ast.expr, depth: int = 0) -> PythonValue:  # noqa: PLR0911, PLR0912
        self.document.spend()
        if depth > _MAX_DEPTH:
            return self.unknown(node)
        match node:
            case ast.Constant() if isinstance(node.value, str):
                return self._string(node, [node.value], depth)
            case ast.Constant():
                return PythonText((self._piece(node, str(node.value)),), node.value, is_text=False)
            case ast.JoinedStr():
                return self._string(node, [_constant(part) for part in node.values], depth)
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case ast.List() | ast.Tuple():
                return self._listing(node, depth)
            case ast.Dict():
                return self._table(node, depth)
            case ast.BinOp():
                return self._sum(node, depth)
            case ast.IfExp():
                return self._either(node, depth)
            case ast.BoolOp():
                return self._first(node, depth)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                sign = ast.copy_location(ast.Constant(-1), node)
                product = ast.copy_location(ast.BinOp(sign, ast.Mult(), operand), node)
                return self._sum(product, depth)
            case ast.Call():
                return self._call(node, depth)
            case ast.ListComp() | ast.GeneratorExp():
                made = self._made_by(node, depth)
                return self.unknown(node) if made is None else made
            case ast.Subscript():
                return self._item(node, node.value, node.slice, depth)
        return self.unknown(node)

    def unknown(self, node: ast.AST, why: str = "the program computes it") -> PythonText:
        """Return an unknown expression as its source text, with the reason."""
        start, end = self.positions.span(node)
        text = " ".join(self.document.text[start : min(end, start + 80)].split())
        source = SourceText(self.document, text, [start] * max(len(text), 1))
        piece = WordPiece(text, source, 0, quoted=True, unknown=why, inside=True)
        return PythonText((piece,), is_text=False)

    def several(self, node: ast.AST) -> PythonText:
        """Return a placeholder for any number of unknown words."""
        found = self.unknown(node)
        return replace(found, pieces=(replace(found.pieces[0], text=f"*{found.text}"),))

    def words(self, found: PythonValue, node: ast.AST) -> list[PythonText]:
        """Return the items of a list, or the words of a string, split as a shell would."""
        if isinstance(found, PythonList):
            self.document.spend(len(found.items))
            return found.consume()
        if isinstance(found, PythonTable) or found.unknown:
            return [self.several(node)]
        self.document.spend(len(found.pieces) + len(found.text) // 20)
        return [PythonText(field.pieces) for field in split(found.pieces)]

    def _piece(self, node: ast.AST, text: str) -> WordPiece:
        start, _ = self.positions.span(node)
        return WordPiece(text, SourceText(self.document, text, start), 0, quoted=True)

    def _string(self, node: ast.expr, expected: list[str | None], depth: int) -> PythonText:
        """Return a string; `expected` contains the text of each part, None for a field."""
        parts = self.positions.parts(node)
        actual = "".join("\0" if part.is_field else part.text for part in parts)
        if actual != "".join("\0" if text is None else text for text in expected):
            if None in expected:
                return self.unknown(node)
            value = "".join(text or "" for text in expected)
            start, _ = self.positions.span(node)
            source = SourceText(self.document, value, [start] * max(len(value), 1))
            return PythonText((WordPiece(value, source, 0, quoted=True, exact=False),))
        values = [v for v in getattr(node, "values", []) if isinstance(v, ast.FormattedValue)]
        pieces: list[WordPiece] = []
        for part in parts[:MAX_PIECES]:
            self.document.spend(1 + len(part.where) // 20)
            if part.is_field:
                pieces += self._field(values.pop(0) if values else None, part, depth)
            else:
                source = SourceText(self.document, part.text, straight(part.where))
                pieces.append(WordPiece(part.text, source, 0, quoted=True))
        pieces = pieces or [self._piece(node, "")]
        self.document.spend(len(pieces))
        return PythonText(tuple(pieces[:MAX_PIECES]))

    def _field(
        self, node: ast.FormattedValue | None, part: StringPart, depth: int
    ) -> list[WordPiece]:
        spec = [_constant(text) for text in getattr(node and node.format_spec, "values", ())]
        if node is not None and None not in spec:
            kind = "!" + chr(node.conversion) if node.conversion > 0 else ""
            texts = ":".join([kind, *filter(None, spec)])
            known = shown(self.value(node.value, depth + 1), f"{{{texts}}}")
            if known is not None:
                return list(known)
        source = SourceText(self.document, part.text, part.where[0])
        why = "the program fills it in"
        return [WordPiece(part.text, source, 0, quoted=True, unknown=why, inside=True)]

    def _name(self, node: ast.Name | ast.Attribute) -> PythonValue:
        found = self._held(node)
        if found is None:
            return self.unknown(node)
        if isinstance(found, PythonText):
            if found.constant is None and not found.is_text and found.text == "None":
                return self.unknown(node, "it is None until the program sets it")
            start, end = self.positions.span(node)
            return replace(found, used=SourceSpan(self.document.source(), start, end))
        return found

    def looked_up(self, node: ast.Call, held: ast.expr, depth: int = 0) -> PythonValue:
        """Return `table.get(key, default)` or `.pop(…)`; for unknown tables, an assumption."""
        table, key = self.value(held, depth + 1), self.value(node.args[0], depth + 1)
        default = self.value(node.args[1], depth + 1) if len(node.args) > 1 else None
        name, found = plain(key), None
        if isinstance(table, PythonTable) and isinstance(name, str):
            is_missing = name not in table.entries and not table.rest
            found = default if is_missing else table.item(name)
        elif isinstance(table, PythonText) and table.unknown and plain(default) is not None:
            is_key = isinstance(name, str) and name.replace("-", "_").isidentifier()
            if is_key and isinstance(default, PythonText) and name not in self.positions.set_keys:
                found = noted(default, f"the default of `{name}`{FROM_OUTSIDE}outside the program")
        note = note_of(key) if isinstance(found, PythonText) else None
        return self.unknown(node) if found is None else noted(found, note)

    def _item(self, node: ast.expr, held: ast.expr, at: ast.expr, depth: int) -> PythonValue:
        """Return `table[key]`."""
        table, key = self.value(held, depth + 1), self.value(at, depth + 1)
        if isinstance(table, PythonList):
            return self._part(node, table, at)
        if not isinstance(table, PythonTable) or not isinstance(key, PythonText) or key.unknown:
            return self.unknown(node)
        found = table.item(key.text)
        note = note_of(key) if isinstance(found, PythonText) else None
        return self.unknown(node) if found is None else noted(found, note)

    def _held(self, node: ast.Name | ast.Attribute) -> PythonValue | None:
        name = dotted(node)
        if isinstance(node, ast.Attribute) and name not in self._names:
            held = self.value(node.value)
            return held.item(node.attr) if isinstance(held, PythonTable) else None
        found = self._names.get(name or "")
        size = len(getattr(found, "items", ())) + len(getattr(found, "entries", ()))
        self.document.spend(size // 4)
        return found

    def _part(self, node: ast.expr, listing: PythonList, at: ast.expr) -> PythonValue:
        """Return `listing[2]` or `listing[:-1]`; unknown unless the limits are literal."""
        elements, is_slice = listing.elements(), isinstance(at, ast.Slice)
        listing.consumed = listing.consumed or is_slice
        with suppress(ValueError, TypeError, IndexError):
            limits = [at.lower, at.upper, at.step] if isinstance(at, ast.Slice) else [at]
            known: list[Any] = [limit and ast.literal_eval(limit) for limit in limits]
            if elements is not None and is_slice:
                part = slice(*known)
                return PythonList(listing.items[part], values=elements[part])
            if elements is not None:
                return elements[int(known[0])]
        return PythonList([self.several(node)]) if is_slice else self.unknown(node)

    def _listing(self, node: ast.List | ast.Tuple, depth: int) -> PythonList:
        found = PythonList()
        for element in node.elts:
            if isinstance(element, ast.Starred):
                found.items += self.words(self.value(element.value, depth + 1), element.value)
            else:
                found.values.append(value := self.value(element, depth + 1))
                known = value if isinstance(value, PythonText) else self.unknown(element)
                found.items.append(known)
        return found

    def _table(self, node: ast.Dict, depth: int) -> PythonTable:
        found = PythonTable()
        for key, value in zip(node.keys, node.values, strict=True):
            known = self.value(value, depth + 1)
            name = self.value(key, depth + 1) if key is not None else None
            if isinstance(name, PythonText) and name.is_text and name.is_known:
                found.entries[name.text] = (name, known)
            elif key is None and isinstance(known, PythonTable):
                found.entries |= known.entries
                found.rest += known.rest
            else:
                found.rest.append(self.several(value))
        return found

    def _sum(self, node: ast.BinOp, depth: int) -> PythonValue:
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        is_sum = isinstance(node.op, ast.Add)
        if isinstance(node.op, ast.Mod) and isinstance(left, PythonText) and left.is_text:
            return self._percent(node, left, depth)
        if isinstance(node.op, ast.Div):
            return path_of([left, right]) or self._number(node, left, right)
        if is_sum and (isinstance(left, PythonList) or isinstance(right, PythonList)):
            items, more = self.words(left, node.left), self.words(right, node.right)
            if isinstance(right, PythonText):  # the list was joined: a shell reads the text
                more = list(takewhile(lambda item: not _OPERATOR.match(item.text), more))
            return PythonList(items + more)
        match left, right:
            case PythonText() as first, PythonText() as other if first.is_text or other.is_text:
                self.document.spend(1 + len(other.pieces) + len(first.pieces) // 10)
                added = PythonText((*first.pieces, *other.pieces)[:MAX_PIECES])
                return added if is_sum else self.unknown(node)
        return self._number(node, left, right)

    def _number(self, node: ast.BinOp, left: PythonValue, right: PythonValue) -> PythonText:
        calculate = _ARITHMETIC.get(type(node.op))
        constants: list[Any] = [getattr(side, "constant", None) for side in (left, right)]
        first, other = constants
        if calculate is None or not {type(first), type(other)} <= {int, float}:
            return self.unknown(node)
        is_large = isinstance(node.op, (ast.LShift, ast.Pow)) and other not in range(61)
        value = None
        with suppress(TypeError, ArithmeticError):
            value = None if is_large or abs(first) > _MAX_NUMBER else calculate(first, other)
        if value is None or abs(value) > _MAX_NUMBER:
            return self.unknown(node)
        start, end = self.positions.span(node)
        text, note = str(value), note_of(left) or note_of(right)
        source = SourceText(self.document, text, [start] * (len(text) - 1) + [max(end - 1, start)])
        piece = WordPiece(text, source, 0, quoted=True, note=note)
        return PythonText((piece,), value, is_text=False)

    def _either(self, node: ast.IfExp, depth: int) -> PythonValue:
        """Return the value that a known condition selects.

        `[…] if condition else []` is a conditional list, and `" …" if condition else ""` an unknown
        number of words; other values are unknown.
        """
        found = self.value(node.body, depth + 1)
        other = self.value(node.orelse, depth + 1)
        result, note = self.test(node.test, depth + 1)
        if result is not None:
            return noted(found if result else other, note)
        if isinstance(found, PythonList) and isinstance(other, PythonList):
            if found.items and other.items:
                return PythonList([self.several(node)])
            return PythonList([under(item, node.lineno) for item in found.items or other.items])
        texts = {getattr(value, "text", "-") for value in (found, other)}
        is_spaced = "" in texts and any(text != text.strip() for text in texts)
        return self.several(node) if is_spaced else self.unknown(node)

    def _first(self, node: ast.BoolOp, depth: int) -> PythonValue:
        """Return the operand that `a or b` or `a and b` selects, if the values decide it."""
        notes: list[str] = []
        for operand in node.values[:-1]:
            match operand:
                case ast.Call(args=[name]) if dotted(operand.func) in _ENVIRONMENT:
                    default = ast.Call(operand.func, [name, node.values[-1]], [])
                    is_last = isinstance(node.op, ast.Or) and operand is node.values[-2]
                    call = ast.copy_location(default, operand)
                    return self._environment(call, depth) if is_last else self.unknown(node)
            value, (result, _) = self.value(operand, depth + 1), self.test(operand, depth + 1)
            if result is None:
                return self.unknown(node)
            if result is isinstance(node.op, ast.Or):
                return value
            notes += filter(None, [note_of(self.operand(operand, depth + 1))])
        return noted(self.value(node.values[-1], depth + 1), notes[0] if notes else None)

    def decided(self, node: ast.expr) -> bool | None:
        """Return the result of a condition; None if it is unknown or depends on an assumption."""
        result, note = self.test(node)
        return None if note else result

    def test(self, node: ast.expr, depth: int = 0) -> tuple[bool | None, str | None]:
        """Return the result of a condition, None if unknown, and the assumption behind it."""
        results: list[bool | None] = []
        parts: list[ast.expr] = [node]
        ends = False
        match node:
            case _ if depth > _MAX_DEPTH:
                return None, None
            case ast.UnaryOp(op=ast.Not()):
                result, note = self.test(node.operand, depth + 1)
                return (None if result is None else not result), note
            case ast.BoolOp(values=values):
                found = [self.test(value, depth + 1) for value in values]
                ends = isinstance(node.op, ast.Or)
                deciding = [part for part in found if part[0] is ends] or found
                deciding = [part for part in deciding if part == (ends, None)] or deciding
                results, notes = [r for r, _ in deciding], [n for _, n in deciding]
            case _:
                if isinstance(node, ast.Compare):
                    parts = [node.left, *node.comparators]
                elif isinstance(node, ast.Call) and dotted(node.func) == "isinstance":
                    parts = node.args[:1]
                held = [self.operand(part, depth + 1) for part in parts]
                operands, notes = [*map(plain, held)], [*map(note_of, held)]
                if isinstance(node, ast.Compare):
                    triples = zip(node.ops, operands, operands[1:], strict=False)
                    results = [compared(*triple) for triple in triples]
                elif UNKNOWN in operands:
                    results = [None]
                elif isinstance(node, ast.Call) and len(parts) < len(node.args):
                    kinds = {
                        last_name(name) for name in getattr(node.args[1], "elts", node.args[1:])
                    }
                    results = [
                        not kinds.isdisjoint(kind.__name__ for kind in type(operands[0]).__mro__)
                    ]
                else:
                    results = [bool(operands[0])]
        result = ends if ends in results else None if None in results else not ends
        return result, next(filter(None, notes), None)

    def operand(self, node: ast.expr, depth: int = 0) -> PythonValue:
        """Return the value of a part of a condition or of an argument, which may be None."""
        found: PythonValue | None = None
        match node:
            case ast.Name() | ast.Attribute():
                found = self._held(node)
            case ast.Set(elts=elements):
                return self.value(ast.copy_location(ast.List(elements), node), depth)
            case ast.Call(func=ast.Attribute(value=held, attr="get"), args=[key]):
                table, name = plain(self.value(held, depth)), plain(self.value(key, depth))
                if isinstance(table, dict) and UNKNOWN not in (table, name) and name not in table:
                    return replace(self.label(node, "None"), is_text=False)
        return self.value(node, depth) if found is None else found

    def _extreme(self, node: ast.Call, depth: int) -> PythonValue:
        """Return the result of `max(…)` or `min(…)` of known numbers."""
        values = [self.value(argument, depth + 1) for argument in node.args]
        constants = [getattr(value, "constant", None) for value in values]
        numbers = [number for number in constants if isinstance(number, int | float)]
        if not numbers or len(numbers) < len(values):
            return self.unknown(node)
        pick = max(numbers) if last_name(node.func) == "max" else min(numbers)
        return noted(values[numbers.index(pick)], next(filter(None, map(note_of, values)), None))

    def _call(self, node: ast.Call, depth: int) -> PythonValue:  # noqa: PLR0911, PLR0912
        name = last_name(node.func)
        full_name = dotted(node.func) or ""
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if full_name in ("shlex.split", "list", "tuple", "sum") and len(node.args) == 1:
            found = self.value(node.args[0], depth + 1)
            is_words = isinstance(found, PythonList) or name == "split"
            return PythonList(self.words(found, node) if is_words else [self.several(node)])
        if name == "split" and inner is not None and not node.args and not node.keywords:
            return PythonList(self.words(self.value(inner, depth + 1), inner))
        if full_name == "os.path.join":
            return path_of([self.value(p, depth + 1) for p in node.args]) or self.unknown(node)
        if name == "join" and len(node.args) == 1:
            found = self.value(node.args[0], depth + 1)
            if not isinstance(found, PythonList):
                return self.unknown(node)
            between = self.value(inner, depth + 1) if inner is not None else None
            found.separator = None  # `shlex.join` keeps the words
            if isinstance(between, PythonText) and between.is_text and between.is_known:
                found.separator = between.text
            return found
        if name == "replace" and inner is not None and len(node.args) == 2:
            return replaced(node, self.value(inner, depth + 1)) or self.unknown(node)
        if name == "copy" and inner is not None and not node.args:
            return copied(self.value(inner, depth + 1))
        if full_name == "vars" and len(node.args) == 1:
            return self.value(node.args[0], depth + 1)
        if full_name in _ENVIRONMENT and node.args:
            return self._environment(node, depth)
        if full_name in ("max", "min") and not node.keywords:
            return self._extreme(node, depth)
        if full_name in ("bool", "len") and len(node.args) == 1:
            held = self.value(node.args[0], depth + 1)
            if name == "len" and dotted(node.args[0]) == "sys.argv":
                held = noted(PythonList([self.label(node, "")]), "the program has no arguments")
            is_true, note = self.test(node.args[0], depth + 1)
            parts = plain(held) if name == "len" else None
            known = is_true if name == "bool" else len(parts) if isinstance(parts, list) else None
            size = replace(self.label(node, str(known)), constant=known, is_text=False)
            return self.unknown(node) if known is None else noted(size, note or note_of(held))
        if name in CONVERSIONS and inner is not None and not node.args:
            found = self.value(inner, depth + 1)
            other = found if name in _SAME else self.unknown(node)
            return converted(found, name) or other
        if full_name == "dict":
            return self.dictionary(node, depth)
        if name in ("get", "pop") and inner is not None and 0 < len(node.args) < 3:
            if (own := f"@{id(node)}") in self._names:  # a later statement sees it removed
                return self._names[own] or self.unknown(node)
            return self.looked_up(node, inner, depth)
        if name in _SAME and inner is not None and name != "format" and not node.args:
            return self.value(inner, depth + 1)
        is_function = name not in CONVERSIONS and name != "format"
        if name in _SAME and is_function and len(node.args) == 1 and not node.keywords:
            found = self.value(node.args[0], depth + 1)
            if not isinstance(found, PythonText):
                return found
            if name in ("int", "float") and not found.unknown:
                return number(found, int if name == "int" else float) or self.unknown(node)
            return replace(found, constant=None, is_text=True)
        if name == "format" and inner is not None:
            return self._formatted(node, self.value(inner, depth + 1), depth)
        is_plain = not (node.args or node.keywords or f"@{id(node)}" in self._names)
        result = self._names.get(f"{full_name}()") if is_plain else None
        made = self._made_by(node, depth) if result is None else copied(result)
        if name == "parse_known_args" and isinstance(made, PythonTable):
            rest = PythonList([self.several(node)])
            return PythonList([self.unknown(node)] * 2, values=[made, rest])
        return self.unknown(node) if made is None else made

    def _environment(self, node: ast.Call, depth: int) -> PythonText:
        """Return an environment variable with a default, like a shell's `${NAME:-default}`."""
        name = self.value(node.args[0], depth + 1)
        default = self.value(node.args[1], depth + 1) if len(node.args) > 1 else None
        if not isinstance(name, PythonText) or not isinstance(default, PythonText):
            return self.unknown(node, "it comes from the environment")
        if (own := f"environ.{name.text}") in self._names:
            found = self._names[own]
            return found if isinstance(found, PythonText) else self.unknown(node)
        if default.text == "None" or not default.is_known:
            return self.unknown(node, "it comes from the environment")
        note = f"the default of `{name.text}`{FROM_OUTSIDE}the environment"
        start, _ = self.positions.span(node)
        pieces = tuple(
            replace(piece, note=note, default_of=(DefaultOf(name.text, False, start, index),))
            for index, piece in enumerate(default.pieces)
        )
        return replace(default, pieces=pieces)

    def keywords(self, node: ast.Call, depth: int = 0) -> PythonTable:
        found = PythonTable()
        for keyword in node.keywords:
            value = self.value(keyword.value, depth + 1)
            if keyword.arg is not None:
                found.entries[keyword.arg] = (self.label(keyword, keyword.arg), value)
            elif isinstance(value, PythonTable):
                found.entries |= value.entries
                found.rest += value.rest
            else:
                found.rest.append(self.several(keyword.value))
        return found

    def label(self, node: ast.AST, text: str) -> PythonText:
        """Return `text` as a literal, with the place of an expression."""
        return PythonText((self._piece(node, text),))

    def dictionary(self, node: ast.Call, depth: int = 0) -> PythonTable:
        """Return the dictionary of a call's arguments: `dict(…)`, `table.update(…)`."""
        table = self.keywords(node, depth)
        for held in (self.value(argument, depth + 1) for argument in node.args):
            table.entries = (held.entries if isinstance(held, PythonTable) else {}) | table.entries
            table.rest += held.rest if isinstance(held, PythonTable) else [self.several(node)]
        return table

    def _formatted(self, node: ast.Call, found: PythonValue, depth: int) -> PythonValue:
        """Return the result of `text.format(…)`."""
        table = self.keywords(node, depth)
        is_open = any(isinstance(argument, ast.Starred) for argument in node.args)
        args = [] if is_open else [self.value(argument, depth + 1) for argument in node.args]
        values = {str(index): value for index, value in enumerate(args)}
        values |= {name: value for name, (_, value) in table.entries.items()}
        return self._filled(node, found, _FORMAT, values)

    def _percent(self, node: ast.BinOp, found: PythonValue, depth: int) -> PythonValue:
        """Return the result of `text % values`."""
        elements = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        args = [self.value(element, depth + 1) for element in elements]
        values = {str(index): value for index, value in enumerate(args)}
        if isinstance(args[0], PythonTable):
            values = {name: value for name, (_, value) in args[0].entries.items()}
        return self._filled(node, found, _PERCENT, values)

    def _filled(
        self,
        node: ast.expr,
        found: PythonValue,
        marks: re.Pattern[str],
        values: Mapping[str, PythonValue],
    ) -> PythonText:
        """Return a text with its marks replaced by values; unknown ones are unknown parts."""
        if not isinstance(found, PythonText) or found.unknown:
            return self.unknown(node)
        pieces: list[WordPiece] = []
        number = 0
        for piece in found.pieces:
            at = 0
            for mark in marks.finditer(piece.text) if not piece.unknown else ():
                pieces.append(piece.slice(at, mark.start()))
                field = piece.slice(mark.start(), mark.end())
                at = mark.end()
                if mark["literal"]:
                    pieces.append(field.slice(0, 1))
                    continue
                value = values.get(mark["name"] or str(number))
                number += not mark["name"]
                sign, end = ("%", "") if field.text[0] == "%" else ("{", "}")
                known = value and shown(value, f"{sign}{mark['how']}{end}")
                open_ = replace(field, unknown="the program fills it in", inside=True)
                pieces += known or [open_]
            pieces.append(piece.slice(at, len(piece.text)))
        return replace(found, pieces=tuple(piece for piece in pieces if piece.text)[:MAX_PIECES])


def _constant(node: ast.expr) -> str | None:
    return str(node.value) if isinstance(node, ast.Constant) else None
