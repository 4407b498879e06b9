"""Changes one thing in a rule's module, and asks the rules' cases whether they notice.

What is changed, one at a time: a condition is negated; a comparison turned around or its limit
moved; `and` made `or`; an operand of either, a `not`, a row of a table dropped; a number made one
more or one less; a version bound dropped, or moved to the held release next to it. Modules that
rules share are changed, too: then the cases of every rule that imports them are asked.

A line that no case can tell from its mutant ends with `# same either way: why`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import speclaunch.rules
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Rule
from speclaunch.rules.rule_files import rule_files
from tests.rules.edits import edits
from tests.rules.harness import CASES, complaint, load_cases, plans_of

EXEMPT = "# same either way:"
PACKAGE = "speclaunch.rules"
STORED = Path(__file__).parent / "mutants.json"
ROOT = Path(speclaunch.rules.__path__[0])
_MACHINERY = {
    "examine",
    "finding",
    "grounds",
    "interface",
    "messages",
    "pages",
    "registry",
    "rule_files",
    "runner",
    "secrets",
    "table",
}
"""Modules that no rule's cases are about: they have tests of their own."""
_SECONDS = 5.0
"""A mutant that takes longer never ends: that is noticed."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module: `line` as it is written, and `what` happens to it there."""

    module: str
    number: int
    end: int
    line: str
    what: str
    nth: int
    """Which one of those with the same line and the same change."""
    exempt: str
    """Why no case can notice, by the mark in its line; empty: one must."""
    edit: tuple[Any, str, Any] = field(repr=False, compare=False)
    """Node, field, new value."""

    @property
    def key(self) -> str:
        """The same within its module until its line is written anew, wherever that moves to."""
        nth = f" #{self.nth}" if self.nth else ""
        return f"{self.line} | {self.what}{nth}"


@dataclass(frozen=True)
class Source:
    """A module, its tree, and its mutants."""

    module: str
    tree: ast.Module
    mutants: tuple[Mutant, ...]


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
    for node in ast.walk(ast.parse(_text(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            found.add(str(node.module))
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@cache
def path_of(module: str) -> Path:
    """Where a module is written."""
    return ROOT.parent.joinpath(*module.split(".")[1:]).with_suffix(".py")


@cache
def _text(module: str) -> str:
    return path_of(module).read_text()


def dependents(module: str) -> tuple[str, ...]:
    """The module and all that import it, directly or not, in the order of their imports."""
    stale = {module}
    for name in modules():
        if _imports(name) & stale:
            stale.add(name)
    return tuple(name for name in modules() if name in stale)


@cache
def source(module: str) -> Source:
    """A module with all its mutants."""
    text = _text(module)
    tree = ast.parse(text)
    lines = text.splitlines()
    seen: dict[tuple[str, str], int] = {}
    mutants = []
    for node, what, edit in edits(tree):
        line = lines[node.lineno - 1].strip()
        nth = seen[line, what] = seen.get((line, what), -1) + 1
        marks = [text for text in lines[node.lineno - 1 : node.end_lineno] if EXEMPT in text]
        why = marks[0].partition(EXEMPT)[2].strip() if marks else ""
        shown = line.partition(EXEMPT)[0].strip()
        mutants.append(Mutant(module, node.lineno, node.end_lineno, shown, what, nth, why, edit))
    return Source(module, tree, tuple(mutants))


@cache
def _code(module: str) -> CodeType:
    return compile(_text(module), str(path_of(module)), "exec")


def dumped(module: str) -> str:
    """The tree of a module as it is now."""
    return ast.dump(source(module).tree)


@contextlib.contextmanager
def changed(mutant: Mutant) -> Iterator[CodeType]:
    """The code of a mutant; the tree of its module is as it was afterwards."""
    node, name, value = mutant.edit
    old = getattr(node, name)
    tree = source(mutant.module).tree
    if name == "__dict__":
        old, value = dict(old), {**old, **value}
    setattr(node, name, value)
    try:
        yield compile(ast.fix_missing_locations(tree), str(path_of(mutant.module)), "exec")
    finally:
        setattr(node, name, old)


@contextlib.contextmanager
def _in_place_of(held: Mapping[str, ModuleType]) -> Iterator[None]:
    """While modules are executed anew, they import these."""
    before = {name: sys.modules[name] for name in held}
    for name, module in held.items():
        _place(name, module)
    try:
        yield
    finally:
        for name, module in before.items():
            _place(name, module)


def _place(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)


def _execute(name: str, code: CodeType, held: Mapping[str, ModuleType]) -> ModuleType:
    importlib.import_module(name)
    module = ModuleType(name)
    module.__file__ = str(path_of(name))
    with _in_place_of({**held, name: module}):
        exec(code, module.__dict__)
    return module


def rules_of(module: ModuleType) -> tuple[Rule, ...]:
    """The rules that a module defines."""
    if "RULES" in module.__dict__:
        return tuple(module.RULES)
    return (module.RULE,) if "RULE" in module.__dict__ else ()


_RULE_MODULES = frozenset(file.module for file in rule_files())


def noticed(mutant: Mutant) -> str:
    """The case that notices a mutant (`SPL201 fail_beta_spec`); empty: none does."""
    try:
        with _time_limit():
            return _noticed(mutant)
    except _TooSlow:
        return "it does not end"


def _noticed(mutant: Mutant) -> str:
    with changed(mutant) as code:
        held: dict[str, ModuleType] = {}
        for name in dependents(mutant.module):
            try:
                held[name] = _execute(name, code if name == mutant.module else _code(name), held)
                rules = rules_of(held[name]) if name in _RULE_MODULES else ()
            except _TooSlow:
                raise
            except Exception:
                return "it cannot be imported"
            if name in _RULE_MODULES and _codes(rules) != _codes(rules_of(sys.modules[name])):
                return "a rule is gone, whose cases are there"
            with _in_place_of(held):  # for what a check imports when it is called
                for rule in rules:
                    if found := first_complaint(rule):
                        return found
    return ""


def _codes(rules: Sequence[Rule]) -> list[str]:
    return sorted(rule.code for rule in rules)


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


def survivors(module: str) -> list[str]:
    """The keys of those whose line does not say why."""
    return [mutant.key for mutant in unnoticed(module) if not mutant.exempt]


def stored() -> dict[str, dict[str, str]]:
    """The survivors that are known, by module, each with why no case can tell; empty: open."""
    found: dict[str, dict[str, str]] = json.loads(STORED.read_text())
    return found


def store(found: Mapping[str, Mapping[str, str]]) -> None:
    """Write them."""
    STORED.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
