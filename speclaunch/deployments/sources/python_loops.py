"""Functions, options, loops and branches of a Python program: what they change, and elements."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from msgspec.structs import replace

from speclaunch.deployments.sources.python_evaluator import PythonEvaluator
from speclaunch.deployments.sources.python_values import (
    CHANGES,
    PythonList,
    PythonTable,
    PythonText,
    PythonValue,
    dotted,
    last_name,
    note_of,
)

_MAX_ELEMENTS, _MAX_NODES = 200, 20_000
_READERS = frozenset({"update", "isinstance", "get", "items", "int", "lower", "upper"})
"""Further functions that start nothing."""
_LOADERS = frozenset({"open", "Path", "load", "loads", "safe_load", "read", "read_text", "print"})
"""Functions that read a file, and what programs print about it."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NESTED = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
MAX_STARTS = 16
"""Maximum number of times that a loop's body is read if it may start a server."""
_ACTIONS = frozenset({"action", "callback", "count", "flag_value", "is_flag", "multiple"})
"""Keywords of an option whose value is not its default's text."""
COPIES = frozenset({"replace", "_replace", "evolve", "model_copy"})
"""Functions and methods that copy an object with other values."""
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
Change = tuple[str, str | None]
"""Variable with a value that a function changes, and the changed key: see `spoil`."""
LoopElement = PythonText | PythonList | PythonTable | tuple["LoopElement", ...]


def loop_elements(evaluator: PythonEvaluator, node: ast.expr) -> tuple[list[LoopElement], bool]:
    """Return the known elements of an iterable; False if there may be others."""
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr="items"), args=[]):
            table = evaluator.value(held)
            if isinstance(table, PythonTable):
                return list(table.entries.values()), not table.rest
        case ast.Call(func=ast.Name(id="range"), args=args):
            return _numbers(evaluator, node, [evaluator.value(argument) for argument in args])
        case ast.Call(func=ast.Name(id="enumerate"), args=[held], keywords=[]):
            inner, complete = loop_elements(evaluator, held)
            numbered = (_number(evaluator, node, index) for index in range(len(inner)))
            return list(zip(numbered, inner, strict=True)), complete
        case ast.Call(func=ast.Name(id="zip"), args=args, keywords=[]) if args:
            columns = [loop_elements(evaluator, argument) for argument in args]
            rows = list(zip(*(inner for inner, _ in columns), strict=False))
            return list(rows), all(complete for _, complete in columns)
        case _:
            return _of_value(evaluator.value(node))
    return [], False


def _of_value(found: PythonValue) -> tuple[list[LoopElement], bool]:
    if isinstance(found, PythonTable):
        return [key for key, _ in found.entries.values()], not found.rest
    if not isinstance(found, PythonList):
        return [], False
    elements = found.elements()
    return [*(elements or [])], elements is not None


def _numbers(
    evaluator: PythonEvaluator, node: ast.AST, limits: Sequence[PythonValue]
) -> tuple[list[LoopElement], bool]:
    numbers = [found.constant for found in limits if isinstance(found, PythonText)]
    known = [number for number in numbers if type(number) is int]
    if len(known) != len(limits) or len(known) not in (1, 2, 3) or 0 in known[2:]:
        return [], False
    found = range(*known)[: _MAX_ELEMENTS + 1]
    return [_number(evaluator, node, number) for number in found], True


def _number(evaluator: PythonEvaluator, node: ast.AST, number: int) -> PythonText:
    return replace(evaluator.label(node, str(number)), constant=number, is_text=False)


def assigned(target: ast.expr, value: LoopElement) -> dict[str, PythonValue | None]:
    """Return the names that assigning `value` to `target` sets; None for unknown values."""
    if isinstance(target, (ast.Tuple, ast.List)):
        parts = value if isinstance(value, tuple) else _of_value(value)[0]
        parts = () if isinstance(value, PythonTable) else parts
        found: dict[str, PythonValue | None] = {}
        if len(parts) == len(target.elts):
            for element, part in zip(target.elts, parts, strict=True):
                found |= assigned(element, part)
        return dict.fromkeys(filter(None, map(dotted, ast.walk(target)))) | found
    name = dotted(target)
    return {} if name is None else {name: None if isinstance(value, tuple) else value}


def comprehension(
    node: ast.ListComp | ast.GeneratorExp,
    names: Mapping[str, PythonValue | None],
    evaluator: Callable[[Mapping[str, PythonValue | None]], PythonEvaluator],
) -> PythonList | None:
    """Return the list that a comprehension over known elements makes; None if unknown."""
    found = PythonList()

    def add(names: Mapping[str, PythonValue | None], clauses: Sequence[ast.comprehension]) -> bool:
        own = evaluator(names)
        if not clauses:
            found.values.append(value := own.value(node.elt))
            found.items.append(value if isinstance(value, PythonText) else own.unknown(node))
            return len(found.items) <= _MAX_ELEMENTS
        elements, complete = loop_elements(own, clauses[0].iter)
        for element in elements if complete else ():
            values = assigned(clauses[0].target, element)
            seen = {**names, **values}
            tests = evaluator(seen)
            results = [tests.decided(test) for test in clauses[0].ifs]
            if None in results or (all(results) and not add(seen, clauses[1:])):
                return False
        return complete

    return found if add(names, node.generators) else None


def _may_leave(body: Sequence[ast.stmt]) -> bool:
    """True if a loop's body may end the loop early, or defines a function or class."""
    waiting: list[tuple[ast.AST, bool]] = [(node, False) for node in body]
    while waiting:
        node, is_inner = waiting.pop()
        if isinstance(node, (*NESTED, ast.Return)) or (
            isinstance(node, ast.Break) and not is_inner
        ):
            return True
        inside = is_inner or isinstance(node, _LOOPS)
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return False


def is_long(node: ast.For, elements: int, count: int, ignored: frozenset[str]) -> bool:
    """True if a loop is not repeated: it runs too often, `count` times in total, or may end."""
    only_adds = _called_names(node.body) <= ignored | _READERS
    size = sum(1 for _ in ast.walk(node)) * elements
    is_large = count > (_MAX_ELEMENTS if only_adds else MAX_STARTS) or size > _MAX_NODES
    return is_large or _may_leave(node.body)


def loads_file(body: Sequence[ast.stmt], values: Sequence[PythonValue | None]) -> bool:
    """True if a body only loads a data file: `values`, which it sets or returns, are known."""
    is_known = all(isinstance(value, (PythonTable, PythonList)) for value in values)
    return bool(values) and is_known and _called_names(body) <= _LOADERS


def _called_names(body: Sequence[ast.stmt]) -> set[str]:
    """Return the last names of the functions that a body calls."""
    calls = (call for part in body for call in ast.walk(part) if isinstance(call, ast.Call))
    return {last_name(call.func) for call in calls}


def carried(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that a body assigns; those of a loop change from pass to pass."""
    for node in (inner for part in body for inner in ast.walk(part)):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield dotted(node) or ""


@contextmanager
def without_defaults(
    names: dict[str, PythonValue | None], evaluator: PythonEvaluator, test: ast.expr | None
) -> Iterator[None]:
    """Inside the context, mark as unknown the defaults that a test excludes."""
    values = {
        name: evaluator.value(part)
        for part in (ast.walk(test) if test is not None else ())
        if isinstance(part, (ast.Name, ast.Attribute)) and (name := dotted(part))
    }
    before = {name: names.get(name) for name, value in values.items() if note_of(value)}
    added = before.keys() - names.keys()
    names |= dict.fromkeys(before)
    yield
    names |= {name: old for name, old in before.items() if names.get(name) is None}
    for name in added:
        if names[name] is None:
            del names[name]


def changes(node: AnyFunction) -> set[Change]:
    """Return the changes that a function makes to values that others see."""
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    hidden = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    hidden -= parameters(node) | global_names(node)
    return {change for change in map(_rooted, changed_parts(node)) if change[0] not in hidden}


def changed_parts(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the variables and the parts of values that a program or a function changes."""
    for part in ast.walk(tree):
        match part:
            case ast.Call(func=ast.Name(id="setattr"), args=[held, key, *_]):
                yield ast.Attribute(held, getattr(key, "value", ""))
            case ast.AugAssign(target=held):
                yield held
            case ast.Subscript() | ast.Attribute() if not isinstance(part.ctx, ast.Load):
                yield part
            case ast.Call(func=ast.Attribute(value=held, attr="pop"), args=[key, *_]):
                yield ast.Subscript(held, key)
            case ast.Call(func=ast.Attribute(value=held, attr=what)) if what in CHANGES:
                yield held


def altered(node: ast.Call, evaluator: PythonEvaluator, stored: set[str]) -> PythonTable | None:
    """Return the object of `replace(old, …)` or `old.model_copy(…)`; methods may set `stored`."""
    held = node.args[0] if node.args else getattr(node.func, "value", node.func)
    old, new = evaluator.value(held), evaluator.keywords(node)
    update = new.entries.pop("update", (None, new))[1]
    if not isinstance(old, PythonTable) or not isinstance(update, PythonTable):
        return None
    entries = (old.entries | update.entries).items()
    return PythonTable({n: e for n, e in entries if n not in stored}, old.rest + update.rest)


def set_attributes(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes that a program sets or changes for objects other than `self`."""
    for part in changed_parts(tree):
        yield from map(outside_name, ast.walk(part))
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and last_name(call.func) in COPIES:
            for keyword in call.keywords:
                yield keyword.arg or ""
                yield from (getattr(key, "value", "") for key in getattr(keyword.value, "keys", []))


def outside_name(node: ast.AST) -> str:
    """Return the name of an attribute of an object other than `self`; "" for other nodes."""
    name = node.attr if isinstance(node, ast.Attribute) else ""
    return "" if dotted(node) == f"self.{name}" else name


def is_parsing(node: ast.AST | None) -> bool:
    """True if an expression is a call of `parse_args` or `parse_known_args`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("parse_args", "parse_known_args")
    )


def declared_options(
    calls: Iterable[ast.AST], makers: Container[str]
) -> dict[str, ast.expr | None]:
    """Return the options of `argparse` or `click` calls with their defaults; None if unknown."""
    found: dict[str, ast.expr | None] = {}
    for call in calls:
        if isinstance(call, ast.Call) and last_name(call.func) == "set_defaults":
            found |= {keyword.arg: None for keyword in call.keywords if keyword.arg}
        if not isinstance(call, ast.Call) or (maker := last_name(call.func)) not in makers:
            continue
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        names = [part.value for part in call.args if isinstance(part, ast.Constant)]
        flags = [text for text in names if isinstance(text, str) and text[:1] != "-"]
        kind = keywords.get("type")
        is_optional = not flags or getattr(keywords.get("nargs"), "value", None) == "?"
        if is_click := maker != "add_argument":
            is_optional = maker == "option" or "default" in keywords
        flags += [text for text in names if isinstance(text, str) and text[:2] == "--"]
        name = keywords.get("dest") or next(map(ast.Constant, flags), None)
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            continue
        key = name.value.lstrip("-").partition("/")[0].replace("-", "_")
        unset = None if "required" in keywords else ast.copy_location(ast.Constant(None), call)
        default = keywords.get("default", unset) if is_optional else None
        kind = None if is_click and isinstance(kind, ast.Call) else kind  # such as `Choice([…])`
        if isinstance(default, ast.Constant) and isinstance(default.value, str) and kind:
            default = ast.copy_location(ast.Call(kind, [default], []), default)
        before = found.get(key)
        is_same = key not in found or (
            before is not None and default is not None and ast.dump(before) == ast.dump(default)
        )
        found[key] = default if is_same and keywords.keys().isdisjoint(_ACTIONS) else None
    return found


def only_reads(node: AnyFunction) -> bool:
    """True if a function only reads parts of its parameters, and changes nothing."""
    nodes = list(ast.walk(node))
    uses = Counter(part.id for part in nodes if isinstance(part, ast.Name))
    parts = (part.value for part in nodes if isinstance(part, (ast.Attribute, ast.Subscript)))
    uses -= Counter(part.id for part in parts if isinstance(part, ast.Name))
    return not changes(node) and uses.keys().isdisjoint(parameters(node))


def _rooted(node: ast.expr) -> Change:
    """Return the variable that contains a part of a value, and the part's first key."""
    key: object = None
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        key = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        node = node.value
    return dotted(node) or "", key if isinstance(key, str) and key else None


def parameters(node: AnyFunction) -> set[str]:
    """Return the names of a function's parameters."""
    return {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}


def extends(method: AnyFunction | ast.ClassDef) -> bool:
    """True if a method calls the method of its base class that it overrides."""
    calls = (dotted(call.func) for call in ast.walk(method) if isinstance(call, ast.Call))
    return f"super.{method.name}" in calls


def returns_at_end(node: AnyFunction) -> bool:
    """True if a function that is only cached ends with a `return`, in a `with` or `try` or not."""
    last = node.body[-1]
    while isinstance(last, (ast.With, ast.AsyncWith, ast.Try)):
        handlers = last.handlers if isinstance(last, ast.Try) else []
        if not all(ends(handler.body[-1]) for handler in handlers):
            return False
        last = last.body[-1]
    decorators = {last_name(getattr(part, "func", part)) for part in node.decorator_list}
    return isinstance(last, ast.Return) and decorators <= {"cache", "lru_cache"}


def ends(node: ast.stmt) -> bool:
    """True if a statement ends its function or the program."""
    call = node.value if isinstance(node, ast.Expr) else None
    is_exit = isinstance(call, ast.Call) and last_name(call.func) in ("exit", "_exit")
    return is_exit or isinstance(node, (ast.Return, ast.Raise))


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of an expression as Python evaluates them, except in nested functions."""
    waiting, found = [node], list[ast.AST]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, NESTED):
            found.append(part)
            waiting.extend(ast.iter_child_nodes(part))
    return reversed(found)


def global_names(tree: ast.AST) -> set[str]:
    """Return the names that functions declare as global, so that any call may change them."""
    found = (node.names for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)))
    return set(chain.from_iterable(found))


def assigned_once(tree: ast.Module) -> set[str]:
    """Return the names that the module assigns or defines once and no function assigns."""
    counts = dict.fromkeys(global_names(tree), 2)
    waiting: list[tuple[ast.AST, int]] = [(node, 1) for node in tree.body]
    while waiting:
        node, times = waiting.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            counts[node.name] = counts.get(node.name, 0) + times
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + times
        if isinstance(node, (ast.Name, *NESTED)):
            continue
        times = 2 if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) else times
        waiting.extend((child, times) for child in ast.iter_child_nodes(node))
    return {name for name, count in counts.items() if count == 1}
