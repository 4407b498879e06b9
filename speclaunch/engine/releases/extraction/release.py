"""Reads the arguments and variables of one SGLang release from its source.

:func:`extract` reads an installed package directory or a wheel as text, on any machine::

    release = extract(Path("sglang-0.5.23-….whl"))
    release.version                              # "0.5.23"
    release.arguments["--speculative-num-steps"].default

The result includes the source line and help text of every argument. The shipped catalogue
(:mod:`speclaunch.engine.releases.catalogue`) omits both.

A name is read if code outside its declaration loads it as an attribute or contains it as a string
constant. The test is deliberately generous, because "nothing reads it" is reported to users as a
fact.

Two uses do not count as reads: a value stored only in a field that nothing loads (see
:func:`_dead_locals`), and a variable read only to report its removal. An undeclared variable is
found by its name alone, in any string or as an attribute of ``envs``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from speclaunch.core import lazy
from speclaunch.engine.releases.argument import (
    Argument,
    ArgumentKind,
    EngineVariable,
    Record,
    encode_argument,
    encode_variable,
)
from speclaunch.engine.releases.extraction.declared import SERVER_ARGS, ArgumentReader, Declared
from speclaunch.engine.releases.extraction.evaluate import SourceEvaluator
from speclaunch.engine.releases.extraction.source import (
    SUPPRESS,
    ClassValue,
    EnumMember,
    ExpressionScope,
    ExtractError,
    Instance,
    OpaqueValue,
    PackageSource,
    assignments,
)

#: File that declares the descriptors, from 0.5.3 on.
ENVIRON = "sglang/srt/environ.py"

_OURS = lazy(r"^(SGLANG|SGL)_[A-Z0-9_]+$")
_SPECULATIVE = lazy(r"SPEC(_|$|ULATIVE)|NGRAM|EAGLE|DFLASH|DSPARK|DRAFT|MTP|VERIFY|ACC_LEN")
_SPECULATIVE_FILE = lazy(r"/speculative/|speculative|eagle|ngram|dflash|dspark")
_SCALARS: dict[str, type] = {"int": int, "float": float, "bool": bool}


class DeclaredVariable(Struct, frozen=True):
    """One environment variable, as declared or as first read by the code.

    ``dynamic``: the default depends on the machine, and ``default`` is None.
    """

    name: str
    type: str
    default: Any
    src: str
    deprecated: bool = False
    replacement: str | None = None
    dynamic: bool = False


def is_ours(name: str) -> bool:
    """True if an environment variable of this name belongs to the engine."""
    return bool(_OURS.match(name)) or (name.isupper() and bool(_SPECULATIVE.search(name)))


def names_speculation(name: str) -> bool:
    """True if the name alone shows that a variable controls speculation."""
    return bool(_SPECULATIVE.search(name))


def is_speculative_file(file: str) -> bool:
    """True if a file's path shows that it implements speculation."""
    return bool(_SPECULATIVE_FILE.search(file))


def declared_variables(evaluator: SourceEvaluator) -> Iterator[DeclaredVariable]:
    """Yield the variables that ``class Envs`` and the registry of deprecated names declare."""
    tree = evaluator.source.tree(ENVIRON)
    for node in [] if tree is None else tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Envs":
            yield from _descriptors(evaluator, ClassValue(ENVIRON, node))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            yield from _retired(evaluator, node.value)


def _descriptors(evaluator: SourceEvaluator, owner: ClassValue) -> Iterator[DeclaredVariable]:
    scope = ExpressionScope(ENVIRON, owner=owner)
    for name, node in assignments(owner).items():
        made = evaluator.value(node, scope)
        if not (isinstance(made, Instance) and made.of.name.startswith("Env") and is_ours(name)):
            continue
        keywords = dict(made.keywords)
        default = made.arguments[0] if made.arguments else keywords.get("default")
        default = default.value if isinstance(default, EnumMember) else default
        dynamic = not _is_plain(default)
        src = f"{ENVIRON}:{node.lineno}"
        kind = made.of.name.removeprefix("Env").removesuffix("WithAlias").lower()
        yield DeclaredVariable(name, kind, None if dynamic else default, src, dynamic=dynamic)
        old = keywords.get("deprecated_name") or (
            made.arguments[1] if "Alias" in made.of.name and len(made.arguments) > 1 else None
        )
        if isinstance(old, str):
            yield DeclaredVariable(old, kind, None, src, deprecated=True, replacement=name)


def _retired(evaluator: SourceEvaluator, node: ast.Dict) -> Iterator[DeclaredVariable]:
    for key, value in zip(node.keys, node.values, strict=True):
        made = evaluator.value(value, ExpressionScope(ENVIRON))
        if (
            isinstance(key, ast.Constant)
            and isinstance(made, Instance)
            and made.of.name == "_DeprecatedEnv"
        ):
            keywords = dict(made.keywords)
            new = made.arguments[0] if made.arguments else keywords.get("replacement")
            flag = re.search(r"--[a-z0-9-]+", str(keywords.get("note") or ""))
            new = new if isinstance(new, str) else (flag[0] if flag else None)
            src = f"{ENVIRON}:{key.lineno}"
            yield DeclaredVariable(str(key.value), "str", None, src, True, new)


def read_variables(
    evaluator: SourceEvaluator, file: str, nodes: Iterable[ast.AST]
) -> Iterator[tuple[DeclaredVariable, ast.Call]]:
    """Yield each variable that a file reads by name, and the call that reads it."""
    scope = ExpressionScope(file)
    wrapped: dict[ast.AST, str] = {}
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func).rpartition(".")[2] if _short(node.func) else ""
        if function in _SCALARS and node.args:
            wrapped[node.args[0]] = function
        if function in ("_print_deprecated_env", "_warn_deprecated_env_to_cli_flag"):
            yield from _old_style(evaluator, node, function, file)
        kind = _getter(node, function)
        if kind is None or not node.args:
            continue
        name = evaluator.value(node.args[0], scope)
        if not isinstance(name, str) or not is_ours(name):
            continue
        default = _default_argument(evaluator, node, scope)
        kind = wrapped.get(node, kind)
        plain, dynamic = _parsed(kind, default)
        yield DeclaredVariable(name, kind, plain, f"{file}:{node.lineno}", dynamic=dynamic), node


def _old_style(
    evaluator: SourceEvaluator, node: ast.Call, function: str, file: str
) -> Iterator[tuple[DeclaredVariable, ast.Call]]:
    words = [evaluator.value(part, ExpressionScope(file)) for part in node.args]
    if function == "_print_deprecated_env" and len(words) > 1:
        old, new = words[1], words[0]
    else:
        flag = re.search(r"--[a-z0-9-]+", str(words[-1]))
        old, new = words[0], flag[0] if flag else None
    if isinstance(old, str):
        yield DeclaredVariable(old, "str", None, f"{file}:{node.lineno}", True, new), node


def _short(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _getter(node: ast.Call, function: str) -> str | None:
    if function in ("get_bool_env_var", "get_int_env_var"):
        return function.split("_")[1]
    if function == "getenv":
        return "str"
    if function == "get" and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Attribute | ast.Name) and ast.unparse(owner).endswith("environ"):
            return "str"
    return None


def _default_argument(evaluator: SourceEvaluator, node: ast.Call, scope: ExpressionScope) -> Any:
    defaults = [word.value for word in node.keywords if word.arg == "default"] or node.args[1:2]
    if defaults:
        return evaluator.value(defaults[0], scope)
    return {"get_bool_env_var": "false", "get_int_env_var": 0}.get(
        ast.unparse(node.func).rpartition(".")[2]
    )


def _parsed(kind: str, default: Any) -> tuple[Any, bool]:
    """Return ``default`` as type ``kind`` and False; None and True if it is unknown."""
    if not _is_plain(default):
        return None, True
    if isinstance(default, str) and kind in _SCALARS:
        if kind == "bool":
            return default.lower() in ("true", "1"), False
        try:
            return _SCALARS[kind](default), False
        except ValueError:
            return default, False
    return default, False


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or (
        isinstance(value, str | int | float) and not isinstance(value, OpaqueValue)
    )


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


class Usage(Struct):
    """Names that server code reads, all variables, and the variables that control speculation."""

    read: set[str] = field(default_factory=set)
    variables: dict[str, DeclaredVariable] = field(default_factory=dict)
    speculative: set[str] = field(default_factory=set)


def scan(evaluator: SourceEvaluator, names: Iterable[str]) -> Usage:
    """Return all variables, and which of them and of ``names`` (destinations) server code reads."""
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
        # An old name that is forwarded to a new name works as long as the new name does.
        if variable.deprecated and variable.replacement in usage.read:
            usage.read.add(variable.name)
    usage.speculative |= {name for name in usage.variables if names_speculation(name)}
    return usage


def _scan_variables(
    evaluator: SourceEvaluator, file: str, tree: ast.Module, usage: Usage, *, direct: bool
) -> None:
    """Add a file's reads to ``usage``. ``direct``: the file may look up variables other than
    through ``envs``."""
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
    for node in nodes:  # a parent precedes its children
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
    """Yield (old name, new name, line) of the entries in tables that rename variables."""
    for node in nodes:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                pair = [getattr(part, "value", None) for part in (key, value)]
                old, new = (p if isinstance(p, str) and _NAME.fullmatch(p) else None for p in pair)
                if old and new:
                    yield old, new, node.lineno


def _named(name: str, src: str) -> DeclaredVariable:
    """Return a variable about which only the name is known."""
    return DeclaredVariable(name, "str", None, src, dynamic=True)


def _is_only_named(variable: DeclaredVariable) -> bool:
    return variable.dynamic and variable.type == "str" and not variable.deprecated


def _written(node: ast.AST) -> Iterator[ast.AST]:
    """Yield docstrings, and child nodes that name a variable only to change it."""
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
    """Return the variable that `node` names: as `envs.NAME` or, unless `declares`, as a string."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id.endswith("envs") and _NAME.fullmatch(node.attr) else None
    if declares or not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    return node.value if _NAME.fullmatch(node.value) else None


def _notices(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield every node in the condition and body of an ``if`` that only reports a removal."""
    for node in nodes:
        if isinstance(node, ast.If) and not node.orelse and all(map(_is_message, node.body)):
            text = " ".join(ast.unparse(part) for part in node.body)
            if _GONE.search(text):
                yield from ast.walk(node.test)
                for part in node.body:
                    yield from ast.walk(part)


def _is_message(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    words = ast.unparse(node.value.func).split(".")
    return words[0] in ("logger", "logging", "warnings", "print", "print_deprecated_warning")


def _reads(tree: ast.Module, skipped: frozenset[ast.AST]) -> set[str]:
    """Return the names that are loaded as attributes or are strings, except in declarations."""
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
    """Return the fields of the record that passes ports and endpoints to the engine's processes."""
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
    """Return those of ``names`` that files in ``words`` load as attributes."""
    found: set[str] = set()
    for file, known in words.items():
        if (names - found) & known:
            for node in ast.walk(evaluator.source.parse(file, evaluator.source.read(file) or "")):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
    return names & found


def _dead_locals(tree: ast.Module, dead: frozenset[str]) -> frozenset[ast.AST]:
    """Return the statements that only compute a field in ``dead``, which nothing loads.

    For example, ``PortArgs.init_new`` packs the ``--decoupled-spec-*`` flags (from 0.5.15) into
    ``decoupled_spec_ipc_config``, and no code reads that field.
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


__all__ = ["Declared", "DeclaredVariable", "ExtractError", "Release", "extract"]


class Release(Struct, frozen=True):
    """One release: its arguments by primary flag, its variables by name, and how its code uses
    them.

    ``read`` contains the argument destinations and variable names that server code reads;
    ``speculative``, the variables that control speculation.
    """

    version: str
    arguments: Mapping[str, Declared]
    variables: Mapping[str, DeclaredVariable]
    read: frozenset[str]
    speculative: frozenset[str]


def extract(path: Path, *, usage: bool = True, version: str | None = None) -> Release:
    """Return the release in ``path`` (a ``sglang`` directory, its parent, or a wheel).

    ``usage=False`` skips the search for code that reads each name, which is most of the work. Every
    argument then counts as read and there are no variables. ``version`` is used if the package does
    not state its version. Raises :class:`ExtractError` if a file can't be parsed or no arguments
    are found.
    """
    with PackageSource(path) as source:
        reader = ArgumentReader(source)
        arguments = {made.flag: made for made in reader.read()}
        names = {made.dest for made in arguments.values()}
        found = scan(reader, names) if usage else Usage(read=set(names))
        return Release(
            version=source.version(version),
            arguments=MappingProxyType(arguments),
            variables=MappingProxyType(dict(sorted(found.variables.items()))),
            read=frozenset(found.read),
            speculative=frozenset(found.speculative),
        )


def catalogue_records(release: Release) -> tuple[dict[str, Record], dict[str, Record]]:
    """Return the records of a release: arguments by primary flag and variables by name."""
    arguments = {
        flag: encode_argument(argument_of(declared, read=declared.dest in release.read))
        for flag, declared in sorted(release.arguments.items())
    }
    variables = {
        name: encode_variable(
            EngineVariable(
                name,
                declared.type,
                _plain(declared.default),
                declared.dynamic,
                name in release.read,
                name in release.speculative,
                declared.deprecated,
                declared.replacement,
            )
        )
        for name, declared in sorted(release.variables.items())
    }
    return arguments, variables


_IMPLIED = (ArgumentKind.FLAG, ArgumentKind.FLAG_OFF, ArgumentKind.BOOLEAN)


def argument_of(declared: Declared, *, read: bool = True) -> Argument:
    """Return the argument that a declaration defines."""
    kind = kind_of(declared)
    default = None if declared.default == SUPPRESS else _plain(declared.default)
    return Argument(
        flag=declared.flag,
        dest=declared.dest,
        kind=kind,
        type=declared.type,
        default=default,
        choices=None
        if declared.choices is None
        else tuple(_plain(choice) for choice in declared.choices),
        nargs=None if declared.nargs == 0 else declared.nargs,
        const=None if kind in _IMPLIED else _plain(declared.const),
        aliases=declared.aliases,
        deprecated=declared.deprecated,
        replacement=declared.replacement,
        required=declared.required,
        read=read,
    )


def kind_of(declared: Declared) -> ArgumentKind:  # noqa: PLR0911
    """Return the command-line form of a declared argument."""
    if declared.refused:
        return ArgumentKind.REFUSED
    if declared.action == "BooleanOptionalAction":
        return ArgumentKind.BOOLEAN
    if declared.nargs == 0:
        if not declared.stores:
            return ArgumentKind.IGNORED
        if declared.const is True:
            return ArgumentKind.FLAG
        return ArgumentKind.FLAG_OFF if declared.const is False else ArgumentKind.CONSTANT
    if declared.nargs == "?":
        return ArgumentKind.OPTIONAL_VALUE
    several = declared.nargs is not None or declared.action in ("append", "extend")
    return ArgumentKind.LIST if several else ArgumentKind.VALUE


def _plain(value: Any) -> Any:
    """Return a value as JSON data; None if it can't be determined statically."""
    if isinstance(value, OpaqueValue):
        return None
    if isinstance(value, EnumMember):
        return _plain(value.value)
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | dict) else str(value)
