"""Fixes as edits of keys in recipes and `--config` files, or keywords of `sglang.Engine(…)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from speclaunch.checks.edit.command_edits import env_ways
from speclaunch.checks.edit.edits import (
    Edit,
    EditablePlaces,
    FixTarget,
    NotFixableError,
    SourceLines,
    TargetArgument,
    Ways,
    combinations,
)
from speclaunch.checks.edit.yaml_edits import (
    Yaml,
    added_key,
    dumped,
    quoted_text,
    removed_key,
    set_value,
)
from speclaunch.core import Place
from speclaunch.deployments import Document, Invocation, InvocationKind, effective, nodes
from speclaunch.engine import Catalogue, canonical, current_name, parse_argv

_MOST_WAYS = 40


class ConfigKeys(EditablePlaces):
    """Keys of a `--config` file, or of a role of an srt-slurm recipe."""

    most_ways = 40

    def __init__(
        self, invocation: Invocation, target: FixTarget, catalogue: Catalogue, text: str
    ) -> None:
        self._invocation, self._source = invocation, text
        self._is_config = invocation.kind is InvocationKind.CONFIG
        if self._is_config and any(value is not None for value in target.env.values()):
            raise NotFixableError("a --config file sets no environment variables")
        self._found = found = Yaml(Document(text, invocation.place.path), SourceLines(text).end)
        read = effective(invocation, catalogue)
        parsed = parse_argv([word.text for word in read.words], catalogue, with_values=False)
        places = {canonical(item.dest): read.words[item.index].place for item in parsed.parsed}
        self._mappings = mappings = [
            node
            for root in nodes.load(found.document)
            for node in nodes.walk(root)
            if isinstance(node, yaml.MappingNode)
        ]
        own = _holding(mappings, places.values(), found.document)
        if own is None and not mappings:
            raise NotFixableError("the file contains no keys")
        self._own = own or mappings[0]
        off = {  # a false switch has no token
            canonical(known.dest): nodes.place(key, found.document)
            for key, _ in self._own.value
            if (known := catalogue.by_name(str(key.value).replace("-", "_"))) is not None
        }
        self._places = off | places

    def change(self, argument: TargetArgument) -> Ways | None:
        key, value = _in_config(argument)
        place = self._places.get(argument.name)
        if place is None:
            return [[]] if value is None else None
        mapping = _holding(self._mappings, [place], self._found.document)
        if mapping is None:
            raise NotFixableError(f"{key} is not set in this file")
        document = self._found.document
        pair = next(item for item in mapping.value if nodes.place(item[0], document) == place)
        if value is None:
            return [removed_key(self._found, mapping, pair[0])]
        return [set_value(self._found, pair[0], pair[1], value)]

    def finish(self, new: Sequence[TargetArgument]) -> Iterator[Ways]:
        underscored = any("_" in str(key.value) for key, _ in self._own.value)
        values = {}
        for key, value in map(_in_config, new):
            values[key.replace("-", "_") if underscored else key] = str(value)
        if values:
            yield [added_key(self._found, self._own, values)]

    def set_variable(self, name: str, value: str | None) -> Ways:
        return [[]] if self._is_config else env_ways(self._invocation, name, value, self._source)


def _holding(
    mappings: Iterable[yaml.MappingNode], places: Iterable[Place | None], document: Document
) -> yaml.MappingNode | None:
    """Return the mapping with most of the keys at these places, the innermost on a tie, or None."""
    targets = set(places)
    best: tuple[int, yaml.MappingNode | None] = (0, None)
    for mapping in mappings:
        count = sum(nodes.place(key, document) in targets for key, _ in mapping.value)
        if count and count >= best[0]:
            best = (count, mapping)
    return best[1]


def _in_config(argument: TargetArgument) -> tuple[str, str | None]:
    """Return the argument's key, and its value as YAML (None: the key is to be removed)."""
    if argument.is_removed:
        return argument.own.replace("_", "-"), None
    flag, *values = argument.words
    key, equals, tail = flag.removeprefix("--").partition("=")
    if equals:
        values = [tail]
    if not values:
        return key, "true"
    natural = [_natural(text) for text in values]
    listed = isinstance(argument.value, list | tuple) or len(values) > 1
    return key, dumped(natural) if listed else dumped(natural[0])


def _natural(text: str) -> Any:
    value = yaml.safe_load(text) if text.strip() else text
    return value if isinstance(value, int | float) and str(value) == text else text


def recipe_ways(
    target: FixTarget,
    composed: Mapping[str, Any],
    env: Mapping[str, str | None],
    catalogue: Catalogue,
    document: Document,
    end: str,
    role: str | None = None,
) -> Iterator[list[Edit]]:
    """Yield alternative edits of a recipe's own file that reach the target. Raises NotFixableError.

    `composed`, `env`: the recipe's arguments and variables, with those of its groups. A group's
    value is overridden in the recipe, because other recipes use the group. `role`: only this role
    is changed, by overriding the shared part.
    """
    found = Yaml(document, end)
    root = _root(found, role)
    sections = {key.value: (key, value) for key, value in root.value}
    names = {canonical(name): name for name, value in composed.items() if value is not None}
    args = {
        names.get(name) or current_name(name, catalogue) or argument.own: (
            None if argument.is_removed and argument.value is None else dumped(argument.value)
        )
        for name, argument in target.arguments.items()
        if name in names or not argument.is_removed
    }
    variables = {
        name: None if value is None else quoted_text(value)
        for name, value in target.env.items()
        if value is not None or env.get(name) is not None
    }
    own = _sections(found, root, sections.get("args"), ("args",), args)
    # a new section goes after the additions to the last section
    steps, later = (own, []) if "args" in sections else ([], own)
    if variables and "engine" not in sections:
        later += _sections(found, root, None, ("engine", "env"), variables)
    elif variables:
        steps += _variables(found, sections["engine"], variables)
    yield from combinations([*steps, *later], _MOST_WAYS)


def _root(found: Yaml, role: str | None) -> yaml.MappingNode:
    root = found.root()
    for key in () if role is None else ("roles", role):
        pairs = root.value if isinstance(root, yaml.MappingNode) else ()
        root = next((value for name, value in pairs if name.value == key), None)
    if role is not None and not (isinstance(root, yaml.MappingNode) and root.value):
        raise NotFixableError(f"the role {role} is not written as `key: value` lines in this file")
    if not isinstance(root, yaml.MappingNode) or (root.flow_style and role is None):
        raise NotFixableError("the recipe is not written as `key: value` lines")
    return root


def _variables(
    found: Yaml, engine: tuple[yaml.Node, yaml.Node], variables: Mapping[str, str | None]
) -> list[Ways]:
    """Return alternative edits for each change to a recipe's `engine.env`."""
    key, inner = engine
    pairs = inner.value if isinstance(inner, yaml.MappingNode) else ()
    section = next((pair for pair in pairs if pair[0].value == "env"), None)
    if section is not None and isinstance(inner, yaml.MappingNode):
        return _sections(found, inner, section, ("engine", "env"), variables)
    if isinstance(inner, yaml.MappingNode) and inner.value:
        return [[_new_section(found, inner, ("env",), _null(variables))]]
    return [[set_value(found, key, inner, f"{{env: {{{_flow(_null(variables))}}}}}")]]


def _null(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: "null" if value is None else value for name, value in values.items()}


def _sections(
    found: Yaml,
    root: yaml.MappingNode,
    section: tuple[yaml.Node, yaml.Node] | None,
    path: tuple[str, ...],
    values: Mapping[str, str | None],
) -> list[Ways]:
    """Return alternative edits for each change to a section's keys; None removes a key."""
    if not values:
        return []
    if section is None:
        return [[_new_section(found, root, path, _null(values))]]
    key, mapping = section
    empty = isinstance(mapping, yaml.ScalarNode) and mapping.value in ("", "null", "~")
    if empty or (isinstance(mapping, yaml.MappingNode) and not mapping.value):
        return [[set_value(found, key, mapping, f"{{{_flow(_null(values))}}}")]]
    if not isinstance(mapping, yaml.MappingNode):
        raise NotFixableError(f"its {'.'.join(path)} is not written as `key: value` lines")
    steps: list[Ways] = []
    new: dict[str, str | None] = {}
    for name, value in values.items():
        pair = next((pair for pair in mapping.value if pair[0].value == name), None)
        if pair is None:
            new[name] = value
        elif value is not None:
            steps.append([set_value(found, pair[0], pair[1], value)])
        else:
            steps.append(_removals(found, mapping, pair))
    if new:
        steps.append([added_key(found, mapping, _null(new))])
    return steps


def _removals(found: Yaml, mapping: yaml.MappingNode, pair: tuple[yaml.Node, yaml.Node]) -> Ways:
    """Return alternative edits: remove a key, or set it to null in case a group sets it."""
    ways: Ways = []
    try:
        ways.append(removed_key(found, mapping, pair[0]))
        return [*ways, set_value(found, pair[0], pair[1], "null")]
    except NotFixableError:
        return ways or [set_value(found, pair[0], pair[1], "null")]


def _flow(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _new_section(
    found: Yaml, root: yaml.MappingNode, path: tuple[str, ...], values: Mapping[str, str]
) -> list[Edit]:
    if root.flow_style:
        head = "".join(f"{name}: {{" for name in path[1:])
        tail = "}" * (len(path) - 1)
        return added_key(found, root, {path[0]: f"{{{head}{_flow(values)}{tail}}}"})
    key, value = root.value[-1]
    indent = " " * root.value[0][0].start_mark.column
    lines = [f"{indent}{'  ' * depth}{name}:" for depth, name in enumerate(path)]
    lines += [f"{indent}{'  ' * len(path)}{name}: {value}" for name, value in values.items()]
    return [found.after(found.last_line(key, value), lines)]


class CallKeywords(EditablePlaces):
    """Keywords of `sglang.Engine(…)` in a Python program."""

    most_ways = 20

    def __init__(
        self, invocation: Invocation, target: FixTarget, catalogue: Catalogue, text: str
    ) -> None:
        env = target.env.items()
        names = [name for name, value in env if value is not None or name in invocation.env]
        if names:
            set_ = f"set or unset {', '.join(names)} at the start of the program"
            raise NotFixableError(f"a call sets no environment variables; {set_}")
        self._text = SourceLines(text)
        self._call = _call(self._text, invocation.place)
        texts = [word.text for word in invocation.words]
        opaque = {at for at, word in enumerate(invocation.words) if not word.evaluated}
        parsed = parse_argv(texts, catalogue, opaque=opaque, with_values=False)
        self._places = {
            canonical(item.dest): invocation.words[item.index].place for item in parsed.parsed
        }

    def change(self, argument: TargetArgument) -> Ways | None:
        place = self._places.get(argument.name)
        keyword = _keyword(self._text, self._call, place, argument.name, argument.own)
        if place is not None and keyword is None:
            raise NotFixableError(f"{argument.own} is not a keyword of the call")
        if keyword is None:
            return [[]] if argument.value is None or argument.is_removed else None
        if argument.value is None:
            return [[_removed(self._text, keyword)]]
        return [[_edit(self._text, keyword.value, repr(argument.value))]]

    def finish(self, new: Sequence[TargetArgument]) -> Iterator[Ways]:
        if new:
            written = [f"{argument.own}={argument.value!r}" for argument in new]
            yield [[edit] for edit in _added(self._text, self._call, written)]

    def set_variable(self, name: str, value: str | None) -> Ways:  # noqa: ARG002
        """Return an alternative without edits: a call of `sglang.Engine` sets no variables."""
        return [[]]


def _call(text: SourceLines, place: Place) -> ast.Call:
    try:
        tree = ast.parse("\n".join(text.lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotFixableError("the file is not a Python program") from error
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or node.lineno != place.line:
            continue
        if _column(text, node.lineno, node.col_offset) == place.column:
            return node
    raise NotFixableError("its call cannot be located")


def _column(text: SourceLines, line: int, offset: int) -> int:
    """Convert Python's offset in UTF-8 bytes to a column in characters (from 1)."""
    return len(text.line(line).encode()[:offset].decode(errors="replace")) + 1


def _keyword(
    text: SourceLines, call: ast.Call, place: Place | None, name: str, own: str
) -> ast.keyword | None:
    for keyword in call.keywords:
        if place is not None:
            at = (keyword.lineno, _column(text, keyword.lineno, keyword.col_offset))
            if at == (place.line, place.column):
                return keyword
        elif keyword.arg is not None and (keyword.arg == own or canonical(keyword.arg) == name):
            return keyword  # a switch that is off
    return None


def _edit(text: SourceLines, node: ast.expr | ast.keyword, new: str) -> Edit:
    if node.end_lineno != node.lineno or node.end_col_offset is None:
        raise NotFixableError("its value spans several lines")
    start = _column(text, node.lineno, node.col_offset)
    end = _column(text, node.lineno, node.end_col_offset)
    return Edit(node.lineno, start, end - start, new)


def _removed(text: SourceLines, keyword: ast.keyword) -> Edit:
    edit = _edit(text, keyword, "")
    line = text.line(edit.line)
    start, end = edit.column - 1, edit.column - 1 + edit.length
    behind = line[end:].lstrip()
    if behind.startswith(","):
        end = len(line) - len(behind) + 1
        rest = line[end:].lstrip()
        if not line[:start].strip() and (not rest or rest.startswith("#")):
            return Edit(edit.line, 1, len(line), "")
    elif (before := line[:start].rstrip()).endswith(","):
        start = len(before) - 1
    elif not line[:start].strip() and not behind:
        return Edit(edit.line, 1, len(line), "")
    return Edit(edit.line, start + 1, end - start, "")


def _added(text: SourceLines, call: ast.Call, new: list[str]) -> Iterator[Edit]:
    """Yield alternative edits that add arguments, first on new lines if the last begins a line."""
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not arguments:
        raise NotFixableError("its call has no arguments")
    last = max(arguments, key=lambda part: (part.end_lineno or 0, part.end_col_offset or 0))
    number = last.end_lineno or last.lineno
    end = _column(text, number, last.end_col_offset or 0)
    line = text.line(last.lineno)
    start = _column(text, last.lineno, last.col_offset) - 1
    if not line[:start].strip():
        lines = "".join(f",{text.end}{line[:start]}{keyword}" for keyword in new)
        yield Edit(number, end, 0, lines)
    yield Edit(number, end, 0, "".join(f", {keyword}" for keyword in new))
