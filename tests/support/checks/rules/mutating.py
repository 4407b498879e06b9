"""Changes one thing in a module of rules, and asks the rules' cases whether they notice.

What is changed, one at a time: a condition is negated; a comparison turned around or its limit
moved; `and` made `or`; an operand of either, a `not`, a row of a table dropped; a number made one
more or one less; a version bound dropped, or moved to the held release next to it. The changed
statement and all that depend on it, in any module, are executed anew; the cases of the rules among
them are asked. A mutant is stored under the code of its rule, or under its module if several rules
depend on it.

A line that no case can tell from its mutant ends with `# same either way: why`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import speclaunch.checks.rules
from speclaunch.checks.rules import interface
from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.registry import by_code, import_checks
from speclaunch.checks.rules.table import RULES
from speclaunch.engine.plan.plan import Plan
from tests.support import TESTS
from tests.support.checks.rules.edits import edits
from tests.support.checks.rules.harness import CASES, complaint, load_cases, plans_of

EXEMPT = "# same either way:"
_DECORATORS = ("rule", "rule_across", "rule_of_roles")
PACKAGE = "speclaunch.checks.rules"
STORED = TESTS / "checks" / "rules" / "mutants.json"
ROOT = Path(speclaunch.checks.rules.__path__[0])
_MACHINERY = {
    "examine",
    "interface",
    "messages",
    "registry",
}
"""Modules with their own tests. The table is a module of rows."""
TABLE = f"{PACKAGE}.table"
_SECONDS = 5.0
"""A mutant that takes longer never ends: that is noticed."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module: `line` as it is written, and `what` happens to it there."""

    module: str
    statement: int
    group: str
    """The code of the rule that it is part of; the module, if it is part of several."""
    number: int
    end: int
    line: str
    what: str
    nth: int
    """Its number among those of its group with the same line and the same change."""
    exempt: str
    """Why no case can notice, by the mark in its line; empty: one must."""
    edit: tuple[Any, str, Any] = field(repr=False, compare=False)
    """Node, field, new value."""

    @property
    def key(self) -> str:
        """The same within its group until its line is written anew, wherever that moves to."""
        nth = f" #{self.nth}" if self.nth else ""
        return f"{self.line} | {self.what}{nth}"


@dataclass(frozen=True)
class Source:
    """A module, its tree, and its mutants."""

    module: str
    tree: ast.Module
    mutants: tuple[Mutant, ...]


Statement = tuple[str, int]
"""A module, and the number of a statement at its top."""


@cache
def modules() -> tuple[str, ...]:
    """All modules of rules, and those that they share; each after what it imports."""
    found = {
        ".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts))
        for path in ROOT.rglob("*.py")
        if path.stem not in {"__init__", *_MACHINERY}
    }
    done: list[str] = []

    def add(name: str) -> None:
        if name not in done:
            for needed in sorted(_imports(name) & found):
                add(needed)
            done.append(name)

    for name in sorted(found):
        add(name)
    return tuple(done)


@cache
def _imports(module: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            found.add(str(node.module))
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@cache
def path_of(module: str) -> Path:
    """Where a module is written."""
    return ROOT.parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py")


@cache
def _text(module: str) -> str:
    return path_of(module).read_text()


@cache
def tree_of(module: str) -> ast.Module:
    """The tree of a module."""
    return ast.parse(_text(module))


def _definitions(module: str) -> Iterator[tuple[str, int]]:
    """The names that the statements at the top of a module define."""
    for number, node in enumerate(tree_of(module).body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, number
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id, number
            elif isinstance(part, ast.alias):
                yield part.asname or part.name, number


def _imported(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Module, name there and name here of what a statement imports from modules of rules."""
    for part in ast.walk(node):
        if isinstance(part, ast.ImportFrom) and part.module in modules():
            for alias in part.names:
                yield str(part.module), alias.name, alias.asname or alias.name


@cache
def _users() -> Mapping[Statement, frozenset[Statement]]:
    """The statements that use what a statement defines."""
    defines: dict[str, dict[str, set[int]]] = {}
    for module in modules():
        names = defines[module] = {}
        for name, number in _definitions(module):
            names.setdefault(name, set()).add(number)
    users: dict[Statement, set[Statement]] = {}
    for module in modules():
        for number, node in enumerate(tree_of(module).body):
            used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            sources = [(module, one) for name in used for one in defines[module].get(name, ())]
            for other, name, _ in _imported(node):
                sources += [(other, one) for one in defines[other].get(name, ())]
            for source in sources:
                if source != (module, number):
                    users.setdefault(source, set()).add((module, number))
    return {source: frozenset(found) for source, found in users.items()}


@cache
def dependents(statement: Statement) -> tuple[Statement, ...]:
    """A statement and all that depend on it, in the order in which they are executed."""
    found, new = {statement}, [statement]
    while new:
        for user in _users().get(new.pop(), ()):
            if user not in found:
                found.add(user)
                new.append(user)
    return tuple(sorted(found, key=lambda one: (modules().index(one[0]), one[1])))


@cache
def _registered(statement: Statement) -> tuple[str, ...]:
    """The codes of the rules whose checks a statement registers: of a loop, what is left."""
    module, number = statement
    node = tree_of(module).body[number]
    if isinstance(node, ast.For):
        body = range(len(tree_of(module).body))
        rest = {code for one in body if one != number for code in _registered((module, one))}
        codes = {rule.code for rule in RULES if f"{PACKAGE}.{rule.module}" == module}
        return tuple(sorted(codes - rest))
    calls = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return tuple(
        ast.literal_eval(call.args[0])
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func) in _DECORATORS
    )


@cache
def codes_of(statement: Statement) -> tuple[str, ...]:
    """The rules among the dependents of a statement."""
    return tuple(code for one in dependents(statement) for code in _registered(one))


def statements_of(rule: Rule, *, alone: bool) -> list[ast.stmt]:
    """The statements that a rule's check needs; `alone`: those that no other rule needs."""
    return [
        node
        for module in modules()
        for number, node in enumerate(tree_of(module).body)
        if rule.code in (codes := codes_of((module, number))) and (len(codes) == 1 or not alone)
    ]


def rows() -> list[ast.Call]:
    """The rows of the table, as they are written."""
    return [node for node in ast.walk(tree_of(TABLE)) if isinstance(node, ast.Call)]


def row_of(line: int) -> ast.Call:
    """The row of the table at a line."""
    return next(row for row in rows() if row.lineno <= line <= (row.end_lineno or 0))


@cache
def source(module: str) -> Source:
    """A module with all its mutants."""
    tree = tree_of(module)
    lines = _text(module).splitlines()
    statements = {
        id(part): number for number, node in enumerate(tree.body) for part in ast.walk(node)
    }
    seen: dict[tuple[str, str, str], int] = {}
    mutants = []
    for node, what, edit in edits(tree):
        if module == TABLE and isinstance(node, ast.Call):
            continue  # a rule without its row: its cases are there
        line = lines[node.lineno - 1].strip()
        number = statements[id(node)]
        group = _group(module, number, node.lineno)
        shown = line.partition(EXEMPT)[0].strip().removesuffix("#").strip()
        nth = seen[group, shown, what] = seen.get((group, shown, what), -1) + 1
        marks = [text for text in lines[node.lineno - 1 : node.end_lineno] if EXEMPT in text]
        why = marks[0].partition(EXEMPT)[2].strip() if marks else ""
        found = (node.lineno, node.end_lineno, shown, what, nth, why, edit)
        mutants.append(Mutant(module, number, group, *found))
    return Source(module, tree, tuple(mutants))


def _group(module: str, number: int, line: int) -> str:
    if module == TABLE:
        return str(ast.literal_eval(row_of(line).args[0]))
    codes = codes_of((module, number))
    return codes[0] if len(codes) == 1 else short(module)


def dumped(module: str) -> str:
    """The tree of a module as it is now."""
    return ast.dump(source(module).tree)


@contextlib.contextmanager
def changed(mutant: Mutant) -> Iterator[None]:
    """While the tree of a module has a mutant."""
    node, name, value = mutant.edit
    old = getattr(node, name)
    if name == "__dict__":
        old, value = dict(old), {**old, **value}
    setattr(node, name, value)
    try:
        yield
    finally:
        setattr(node, name, old)


@contextlib.contextmanager
def _in_place_of(held: Mapping[str, ModuleType]) -> Iterator[None]:
    """While statements are executed anew, and checks run, they import these."""
    before = {name: importlib.import_module(name) for name in held}
    checks, compared = dict(interface.CHECKS), dict(interface.COMPARED)
    for name, module in held.items():
        _place(name, module)
    try:
        yield
    finally:
        for name, module in before.items():
            _place(name, module)
        interface.CHECKS.update(checks)
        interface.COMPARED.update(compared)


def _place(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)


def _copy(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(importlib.import_module(name).__dict__)
    return module


def _execute(statement: Statement, held: Mapping[str, ModuleType]) -> None:
    module, number = statement
    node = tree_of(module).body[number]
    code = ast.fix_missing_locations(ast.Module([node], []))
    exec(compile(code, str(path_of(module)), "exec"), held[module].__dict__)


def noticed(mutant: Mutant) -> str:
    """The case that notices a mutant (`SPL201 fail_beta_spec`); empty: none does."""
    try:
        with _time_limit(), changed(mutant):
            return _noticed_row(mutant) if mutant.module == TABLE else _noticed(mutant)
    except _TooSlow:
        return "it does not end"


def _noticed_row(mutant: Mutant) -> str:
    table = importlib.import_module(TABLE)
    row = ast.fix_missing_locations(ast.Expression(row_of(mutant.number)))
    return first_complaint(eval(compile(row, "table.py", "eval"), vars(table)))


def _noticed(mutant: Mutant) -> str:
    statements = dependents((mutant.module, mutant.statement))
    held = {module: _copy(module) for module, _ in statements}
    import_checks()
    with _in_place_of(held):
        codes = {code for statement in statements for code in _registered(statement)}
        for code in codes:
            del interface.CHECKS[code]
        for statement in statements:
            try:
                _execute(statement, held)
            except _TooSlow:
                raise
            except Exception:
                return "it cannot be imported"
        if not codes <= interface.CHECKS.keys():
            return "a rule is gone, whose cases are there"
        for code in sorted(codes):
            rule = by_code(code)
            assert rule is not None
            if found := first_complaint(rule):
                return found
    return ""


def first_complaint(rule: Rule) -> str:
    """The first case that a rule does not fit; empty: it fits all of them."""
    path = CASES / f"{rule.code}.yaml"
    if not path.exists():
        return f"{rule.code} has no cases"
    for case in load_cases(path):
        try:
            wrong = complaint(rule, case, _plans(case.code, case.name))
        except _TooSlow:
            raise
        except Exception:  # a mutant may stumble: that is seen, too
            return f"{rule.code} {case.name}"
        if wrong is not None:
            return f"{rule.code} {case.name}"
    return ""


@cache
def _plans(code: str, name: str) -> list[Plan]:
    (case,) = (case for case in load_cases(CASES / f"{code}.yaml") if case.name == name)
    return plans_of(case)


class _TooSlow(BaseException):
    pass


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    timer = signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, *timer)
        signal.signal(signal.SIGPROF, before)


def short(module: str) -> str:
    """A module's name as it is stored."""
    return module.removeprefix(f"{PACKAGE}.")


@cache
def unnoticed(module: str) -> tuple[Mutant, ...]:
    """The mutants of a module that no case notices."""
    return tuple(mutant for mutant in source(module).mutants if not noticed(mutant))


def survivors(module: str) -> list[tuple[str, str]]:
    """Group and key of those whose line does not say why."""
    return [(mutant.group, mutant.key) for mutant in unnoticed(module) if not mutant.exempt]


def stored() -> dict[str, dict[str, str]]:
    """The survivors that are known, by rule or module, each with why no case can tell; empty: open."""
    found: dict[str, dict[str, str]] = json.loads(STORED.read_text())
    return found


def store(found: Mapping[str, Mapping[str, str]]) -> None:
    """Write them."""
    STORED.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
