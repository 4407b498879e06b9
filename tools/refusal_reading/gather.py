"""Reads releases into rows, and puts what they share into one."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from refusal_reading.reader import Reader, Row
from refusal_reading.sources import Release
from refusal_reading.store import LEAVES, Store
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.refusals import ConditionEvaluator
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.renames import canonical

Key = tuple[int, int, str, str, str]
"""Condition, message, exception, file, function."""


@dataclass
class Gathered:
    """The rows of several releases, over one store."""

    store: Store = field(default_factory=Store)
    versions: list[str] = field(default_factory=list)
    rows: dict[Key, list[tuple[str, int]]] = field(default_factory=dict)
    """By what they say: the releases that have them, with the line."""
    by: dict[Key, set[str]] = field(default_factory=dict)
    """The arguments and variables of which one must be written for a row to hold."""
    unread: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By release: what could not be read."""


def raw_fields(version: str, reader: Reader, store: Store) -> Any:
    """Gives the node of a field as it was asked for: the argument, else the field's default."""
    catalogue = load(version)
    dests = {one.dest: canonical(one.dest) for one in catalogue.arguments.values()}
    held = Counter(dests.values())

    def raw(name: str) -> int:
        known = dests.get(name) or (name if name in held else None)
        if known is not None:
            one = held[known] == 1
            return store.leaf("f", known) if one else store.unknown("two arguments of one name")
        declared = reader.field_names().get(name)
        value = getattr(declared, "value", None)
        if isinstance(value, ast.Constant):
            return store.const(value.value)
        return store.unknown("a field that is no argument")

    return raw


def read(version: str, folder: Path, store: Store) -> Reader:
    """Everything that one release refuses."""
    reader = Reader(Release(version, folder), store, None)
    reader.raw = raw_fields(version, reader, store)
    reader.read()
    return reader


def combined(rows: Sequence[Row], store: Store) -> list[Row]:
    """One row a place and message: reached on several ways, its conditions are alternatives."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row.place, row.line, row.message), []).append(row)
    return [
        Row(
            one[0].place,
            one[0].line,
            one[0].end,
            one[0].exception,
            one[0].message,
            store.disjunction([row.condition for row in one]),
            one[0].function,
        )
        for one in found.values()
    ]


def add(gathered: Gathered, version: str, folder: Path) -> None:
    """Read a release, and add its rows."""
    store = Store()
    reader = read(version, folder, store)
    gathered.versions.append(version)
    target = gathered.store
    moved = Moved(store, target)
    plan = Plan(from_words(("--model-path", "m"), {}, load(version)), Facts(None, None, None))
    evaluator = ConditionEvaluator(target.nodes, plan)
    kept: set[tuple[str, int]] = set()
    for row in combined(reader.rows, store):
        condition = moved(row.condition)
        if moved.never(condition, True) or evaluator.holds(condition):
            continue
        key = (condition, moved(row.message), row.exception, row.place, row.function)
        gathered.rows.setdefault(key, []).append((version, row.line))
        gathered.by.setdefault(key, set()).update(triggers(target, evaluator, condition))
        kept.add((row.place, row.line))
    places = dict.fromkeys((row.place, row.line) for row in reader.rows)
    gathered.unread[version] = {
        "kept": len(kept),
        "reached": len(places),
        "raising": raising(reader),
        "left": [f"{place}:{line}" for place, line in places if (place, line) not in kept],
        "reasons": dict(reader.unread.most_common(25)),
    }


def raising(reader: Reader) -> int:
    """How many statements raise in the modules that validate."""
    package = reader.release.package / "srt"
    files = [package / "server_args.py", *sorted((package / "arg_groups").rglob("*.py"))]
    found = 0
    for file in files:
        if file.is_file():
            tree = ast.parse(file.read_text(encoding="utf-8"))
            found += sum(isinstance(one, ast.Raise | ast.Assert) for one in ast.walk(tree))
    return found


def leaves(store: Store, node: int) -> set[str]:
    """The arguments and variables of an expression."""
    nodes = (store.nodes[one] for one in store.reached(node))
    return {one[1] for one in nodes if one[0] in ("f", "e")}


def triggers(store: Store, evaluator: ConditionEvaluator, condition: int) -> set[str]:
    """Of which arguments one must be written for a condition to hold; `*`: nobody can say.

    The evaluator is that of a plan in which nothing is written or known.
    """
    found = _Needs(store, evaluator).of(condition, True)
    return {"*"} if found is None else found


class _Needs:
    """Which arguments have to be another's value for a condition to be another one."""

    def __init__(self, store: Store, evaluator: ConditionEvaluator) -> None:
        self.store = store
        self.evaluator = evaluator
        self._found: dict[tuple[int, bool], set[str] | None] = {}

    def of(self, node: int, wanted: bool) -> set[str] | None:
        """Of these one has to be written; None: it may be as wanted already."""
        key = (node, wanted)
        if key not in self._found:
            known = self.evaluator.holds(node)
            self._found[key] = None if known in (None, wanted) else self._of(node, wanted)
        return self._found[key]

    def _of(self, node: int, wanted: bool) -> set[str] | None:
        op, *args = self.store.nodes[node]
        if op == "not":
            return self.of(args[0], not wanted)
        if op in ("and", "or"):
            parts = [self.of(one, wanted) for one in args]
            needed = [one for one in parts if one is not None]
            if (op == "and") is wanted:  # each of them, so the smallest tells
                return min(needed, key=lambda names: (len(names), sorted(names)), default=None)
            return set().union(*needed) if len(needed) == len(parts) else None
        if op == "?":
            condition = self.evaluator.holds(args[0])
            if condition is None:
                ways = [self.of(args[1], wanted), self.of(args[2], wanted)]
            else:
                branch = args[1] if condition else args[2]
                ways = [self.of(args[0], not condition), self.of(branch, wanted)]
            needed = [one for one in ways if one is not None]
            return set().union(*needed) if len(needed) == 2 else None
        return leaves(self.store, node)


class Moved:
    """Expressions of one store in another, where all that is unknown is one."""

    def __init__(self, source: Store, target: Store) -> None:
        self.source = source
        self.target = target
        self._ids: dict[int, int] = {}
        self._never: dict[tuple[int, bool], bool] = {}
        self.unknown = target.unknown("")

    def __call__(self, node: int) -> int:
        """The number of the same expression in the other store."""
        for one in sorted(self.source.reached(node)):
            if one not in self._ids:
                self._ids[one] = self._moved(self.source.nodes[one])
        return self._ids[node]

    def _moved(self, node: tuple[Any, ...]) -> int:
        if node[0] in ("u", "m"):
            return self.unknown
        if node[0] in LEAVES:
            return self.target.leaf(*node)
        args = [self._ids[one] for one in node[1:]]
        if node[0] == "?":
            lost = self.unknown
            if args[1:] == [lost, lost] or (args[0] == lost and lost in args[1:]):
                return lost
            if args[0] == lost and all(self.target.is_const(one) for one in args[1:]):
                return lost
        if node[0] in ("and", "or"):
            args = list(dict.fromkeys(args))
            if all(one == self.unknown for one in args):
                return self.unknown
        return self.target.make(node[0], *args)

    def never(self, node: int, value: bool) -> bool:
        """Whether a condition can't be told to be true (or false), whatever is known."""
        key = (node, value)
        if key not in self._never:
            self._never[key] = self._is_never(self.target.nodes[node], value)
        return self._never[key]

    def _is_never(self, node: tuple[Any, ...], value: bool) -> bool:
        if node[0] == "u":
            return True
        if node[0] == "k":
            return bool(node[1]) is not value
        if node[0] in ("and", "or"):
            quantifier = any if (node[0] == "and") is value else all
            return quantifier(self.never(one, value) for one in node[1:])
        if node[0] == "not":
            return self.never(node[1], not value)
        if node[0] == "?":
            then = self.never(node[1], True) or self.never(node[2], value)
            other = self.never(node[1], False) or self.never(node[3], value)
            return then and other and (self.never(node[2], value) or self.never(node[3], value))
        return False


def encode(gathered: Gathered) -> str:
    """The text of the product's file: only what its rows are made of, numbered anew."""
    store = gathered.store
    used: set[int] = set()
    for condition, message, *_ in gathered.rows:
        used |= store.reached(condition) | store.reached(message)
    numbers = {old: new for new, old in enumerate(sorted(used))}
    nodes = []
    for old in sorted(used):
        node = store.nodes[old]
        leaf = node[0] in LEAVES
        text = ["u"] if node[0] == "u" else list(node) if leaf else None
        nodes.append(text or [node[0], *(numbers[one] for one in node[1:])])
    versions = sorted(gathered.versions, key=Version)
    index = {version: place for place, version in enumerate(versions)}
    rows = []
    for key, places in gathered.rows.items():
        condition, message, exception, place, function = key
        lines = sorted([index[version], line] for version, line in places)
        by = sorted(gathered.by[key])
        rows.append([numbers[condition], numbers[message], exception, place, function, lines, by])
    rows.sort(key=lambda row: (row[3], row[4], row[5], row[0]))
    index_lines = [
        f"{_dump(version)}:{_dump(_index(rows, place))}" for version, place in index.items()
    ]
    parts = {
        "index": "{\n" + ",\n".join(index_lines) + "\n}",
        "nodes": "[\n" + ",\n".join(map(_dump, nodes)) + "\n]",
        "rows": "[\n" + ",\n".join(map(_dump, rows)) + "\n]",
    }
    body = ",\n".join(f'"{name}":{text}' for name, text in parts.items())
    return f'{{"versions":{_dump(versions)},\n"sizes":{_dump([len(nodes), len(rows)])},\n{body}}}\n'


def _index(rows: Sequence[Any], version: int) -> dict[str, list[int]]:
    """The rows of a release by the arguments of which one must be written."""
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        if any(place == version for place, _ in row[5]):
            for name in row[6]:
                found.setdefault(name, []).append(number)
    return dict(sorted(found.items()))


def decode(text: str) -> Gathered:
    """What `encode` wrote."""
    data = json.loads(text)
    found = Gathered(versions=list(data["versions"]))
    numbers: list[int] = []
    for op, *args in data["nodes"]:
        if op == "u":
            numbers.append(found.store.unknown(""))
        elif op in LEAVES:
            numbers.append(found.store.leaf(op, *args))
        else:
            numbers.append(found.store.leaf(op, *(numbers[one] for one in args)))
    for condition, message, exception, place, function, lines, by in data["rows"]:
        key = (numbers[condition], numbers[message], exception, place, function)
        found.rows[key] = [(found.versions[version], line) for version, line in lines]
        found.by[key] = set(by)
    return found


def remove(gathered: Gathered, version: str) -> None:
    """Take a release out."""
    for key, places in list(gathered.rows.items()):
        gathered.rows[key] = [one for one in places if one[0] != version]
        if not gathered.rows[key]:
            del gathered.rows[key], gathered.by[key]
    gathered.versions = [one for one in gathered.versions if one != version]
    gathered.unread.pop(version, None)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


__all__ = ["Gathered", "Row", "add", "decode", "encode", "read", "remove"]
