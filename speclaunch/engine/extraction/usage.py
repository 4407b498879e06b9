"""Who reads what: the arguments and variables that some code of the server still looks at.

A read is an attribute load of the name, or the name as a string constant, anywhere but in its
own declaration.  It is deliberately generous: a name counts as unread only when nothing that
could be a read is left, because "nothing reads it" is told to a user as a fact.  Two things do
not count: a value that only ends in a field which nothing loads (see :func:`_dead_locals`), and
a variable that is looked at only to say that it has been removed.  A variable that nothing declares
counts by its name alone, wherever that stands in a string or behind some ``envs``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import field

from speclaunch.engine.extraction.evaluate import SourceEvaluator
from speclaunch.engine.extraction.parser import SERVER_ARGS
from speclaunch.engine.extraction.variables import (
    ENVIRON,
    DeclaredVariable,
    declared_variables,
    is_speculative_file,
    names_speculation,
    read_variables,
)
from speclaunch.patterns import lazy
from speclaunch.record import record

_WORD = lazy(r"\w+")
_ENVIRONMENT = lazy(r"\benviron[.\[]|\bgetenv\b|\bget_(bool|int)_env_var\b|_deprecated_env")
_GONE = lazy(
    r"\b(deprecated|removed|no longer|no effect|ignored|renamed|instead|obsolete|not supported)\b",
    re.IGNORECASE,
)
_NAME = lazy(r"(SGLANG|SGL)_[A-Z0-9_]*[A-Z0-9]")
_NATIVE_NAME = lazy(r'"((?:SGLANG|SGL)_[A-Z0-9_]*[A-Z0-9])"')
_WRITES = frozenset({"set", "clear", "override", "setdefault", "pop", "unset"})
_CARRIER = ("PortArgs", "init_new")


@record(frozen=False)
class Usage:
    """What a scan of the server's files found."""

    read: set[str] = field(default_factory=set)
    variables: dict[str, DeclaredVariable] = field(default_factory=dict)
    speculative: set[str] = field(default_factory=set)


def scan(evaluator: SourceEvaluator, names: Iterable[str]) -> Usage:
    """Which of ``names`` (destinations) are read, and every variable with its readers."""
    source = evaluator.source
    texts = {file: source.read(file) or "" for file in source.server_files()}
    words = {file: frozenset(_WORD.findall(text)) for file, text in texts.items()}
    usage = Usage()
    for variable in declared_variables(evaluator):
        usage.variables.setdefault(variable.name, variable)
    carried = _fields_of_carrier(evaluator)
    loaded = _loaded(evaluator, words, carried)
    pending = set(names)
    for file, text in texts.items():
        unread = usage.variables.keys() - usage.read
        unread |= {word for word in words[file] if _NAME.fullmatch(word)} - usage.read
        direct = bool(_ENVIRONMENT.search(text))
        environment = (
            direct
            or bool(unread & words[file])
            or (is_speculative_file(file) and "envs" in words[file])
        )
        if not environment and not pending & words[file]:
            continue
        tree = source.parse(file, text)
        if environment:
            _scan_variables(evaluator, file, tree, usage, direct=direct)
        if pending & words[file]:
            skipped = _dead_locals(tree, carried - loaded) if file == SERVER_ARGS else frozenset()
            found = _reads(tree, skipped) & pending
            usage.read |= found
            pending -= found
    for file in source.native_files():
        for name in _NATIVE_NAME.findall(source.read(file) or ""):
            usage.variables.setdefault(name, _named(name, file))
            usage.read.add(name)
    for variable in usage.variables.values():
        # An old name that is forwarded to a new one works as long as the new one does.
        if variable.deprecated and variable.replacement in usage.read:
            usage.read.add(variable.name)
    usage.speculative |= {name for name in usage.variables if names_speculation(name)}
    return usage


def _scan_variables(
    evaluator: SourceEvaluator, file: str, tree: ast.Module, usage: Usage, *, direct: bool
) -> None:
    """Add what one file reads; ``direct``: it may look variables up without a descriptor."""
    nodes = list(ast.walk(tree))
    found: set[str] = set()
    notices = set(_notices(nodes))
    if direct:
        for variable, call in read_variables(evaluator, file, nodes):
            known = usage.variables.get(variable.name)
            if known is None or _is_only_named(known):
                usage.variables[variable.name] = variable
            if call not in notices and not variable.deprecated:
                found.add(variable.name)
    if file == ENVIRON:
        for old, new, line in _renames(nodes):
            made = DeclaredVariable(old, "str", None, f"{file}:{line}", True, new)
            usage.variables.setdefault(old, made)
    written: set[ast.AST] = set()
    for node in nodes:  # a parent comes before its children
        written.update(_written(node))
        if node in written or node in notices:
            continue
        name = _name_in(node, declares=file == ENVIRON)
        if name is not None:
            where = f"{file}:{getattr(node, 'lineno', 1)}"
            usage.variables.setdefault(name, _named(name, where))
            found.add(name)
    usage.read |= found
    if is_speculative_file(file):
        usage.speculative |= found


def _renames(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str, int]]:
    """Old and new name, and the line, of tables by which old variables are copied to new ones."""
    for node in nodes:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                pair = [getattr(part, "value", None) for part in (key, value)]
                old, new = (p if isinstance(p, str) and _NAME.fullmatch(p) else None for p in pair)
                if old and new:
                    yield old, new, node.lineno


def _named(name: str, src: str) -> DeclaredVariable:
    """A variable of which no more is known than that its name stands there."""
    return DeclaredVariable(name, "str", None, src, dynamic=True)


def _is_only_named(variable: DeclaredVariable) -> bool:
    """Whether nothing but the name of a variable was seen: what reads it typed says more."""
    return variable.dynamic and variable.type == "str" and not variable.deprecated


def _written(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that name a variable only to set it, or say that it is set."""
    if isinstance(node, ast.Attribute) and node.attr in _WRITES:
        yield node.value
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        yield from ast.walk(node.slice)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _WRITES and node.args:
            yield node.args[0]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value  # a docstring


def _name_in(node: ast.AST, *, declares: bool) -> str | None:
    """The variable that a node looks up: `envs.NAME`, or its name as a string."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id.endswith("envs") and _NAME.fullmatch(node.attr) else None
    if declares or not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    return node.value if _NAME.fullmatch(node.value) else None


def _notices(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node in the test of an ``if`` that only says that something is gone."""
    for node in nodes:
        if isinstance(node, ast.If) and not node.orelse and all(map(_is_message, node.body)):
            said = " ".join(ast.unparse(part) for part in node.body)
            if _GONE.search(said):
                yield from ast.walk(node.test)
                for part in node.body:
                    yield from ast.walk(part)


def _is_message(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    words = ast.unparse(node.value.func).split(".")
    return words[0] in ("logger", "logging", "warnings", "print", "print_deprecated_warning")


def _reads(tree: ast.Module, skipped: frozenset[ast.AST]) -> set[str]:
    """Every name that is loaded as an attribute or named in a string, declarations left out."""
    found: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef(name="add_cli_args"):
                continue
            case ast.Assign(targets=[ast.Name(id=name)]) if "FIELD_ORDER" in name:
                continue
            case ast.AnnAssign(target=ast.Name(id=name)) if "FIELD_ORDER" in name:
                continue
            case ast.Attribute(attr=name, ctx=ast.Load()):
                found.add(name)
            case ast.Constant(value=str() as name):
                found.add(name)
            case _:
                pass
        if node not in skipped:
            todo.extend(ast.iter_child_nodes(node))
    return found


def _fields_of_carrier(evaluator: SourceEvaluator) -> frozenset[str]:
    """The fields of the record that carries ports and endpoints to the engine's processes."""
    tree = evaluator.source.tree(SERVER_ARGS)
    for node in [] if tree is None else tree.body:
        if isinstance(node, ast.ClassDef) and node.name == _CARRIER[0]:
            return frozenset(
                part.target.id
                for part in node.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            )
    return frozenset()


def _loaded(
    evaluator: SourceEvaluator, words: dict[str, frozenset[str]], names: frozenset[str]
) -> frozenset[str]:
    """Which of ``names`` some file loads as an attribute."""
    found: set[str] = set()
    for file, known in words.items():
        if (names - found) & known:
            for node in ast.walk(evaluator.source.parse(file, evaluator.source.read(file) or "")):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
    return names & found


def _dead_locals(tree: ast.Module, dead: frozenset[str]) -> frozenset[ast.AST]:
    """The statements that only compute a carrier field which nothing loads.

    ``--decoupled-spec-*`` (0.5.15 on) are so: ``PortArgs.init_new`` packs them into
    ``decoupled_spec_ipc_config``, and no code ever looks at that field.
    """
    skipped: set[ast.AST] = set()
    for owner in tree.body:
        if not (isinstance(owner, ast.ClassDef) and owner.name == _CARRIER[0]):
            continue
        for function in owner.body:
            if isinstance(function, ast.FunctionDef) and function.name == _CARRIER[1]:
                doomed = {
                    word.value.id
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call)
                    for word in node.keywords
                    if word.arg in dead and isinstance(word.value, ast.Name)
                }
                skipped.update(node for node in function.body if _only_binds(node, doomed))
    return frozenset(skipped)


def _only_binds(node: ast.stmt, names: set[str]) -> bool:
    bound = {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    returns = any(isinstance(part, ast.Return) for part in ast.walk(node))
    return bool(bound) and bound <= names and not returns
