"""Read recipes' YAML files within limits, with the places of keys and of composed values."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from yaml.constructor import SafeConstructor

from speclaunch.core import (
    InputError,
    Place,
    Problem,
    TooLargeError,
    from_here,
    lazy,
    reads,
    reason,
)

MAX_NODES = 50_000
MAX_DEPTH = 60
_MAX_EVENTS = 2 * MAX_NODES
ODD = lazy("[\t\x85\u2028\u2029\ufeff]")
"""Characters that the C parser reads differently from the Python parser, which OmegaConf uses."""
_OTHER_BREAKS = lazy("[\t\r\x85\u2028\u2029\ufeff]")
_INDICATORS = (",", ":", "-", "?", "[", "{", "\n")
_TAG = "tag:yaml.org,2002:"
_EXPONENT = lazy(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z", re.ASCII)
_MAY_BE_EXPONENT = lazy(r"[-+]?[.0-9][0-9_.:]*[eE][-+0-9_]*\Z", re.ASCII)
_CONSTRUCTOR = SafeConstructor()

try:  # the C loader is about ten times faster
    from yaml import CSafeLoader as Loader
except ImportError:  # pragma: no cover - PyYAML built without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]


class BoundsError(yaml.MarkedYAMLError):
    """Text that exceeds the limit on depth or number of values."""


def events(text: str) -> Iterator[yaml.Event]:
    """Yield the parser's events. Raises yaml.YAMLError, or BoundsError beyond a limit."""
    depth = 0
    for count, event in enumerate(_parse(text)):
        if count > _MAX_EVENTS:
            raise BoundsError(problem=f"more than {MAX_NODES} values")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        yield event


def _parse(text: str) -> Iterator[yaml.Event]:
    """Yield the parser's events. Raises BoundsError at libyaml's own limit (1,000 levels)."""
    try:
        yield from yaml.parse(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        if "maximum nesting depth" not in str(error.problem):
            raise
        raise _too_deep(error.problem_mark) from None


def _too_deep(mark: Any) -> BoundsError:
    return BoundsError(problem=f"nested more than {MAX_DEPTH} levels deep", problem_mark=mark)


def compose_node(text: str) -> yaml.Node | None:
    """Return a document's root node; None if empty. Raises yaml.YAMLError, BoundsError."""
    _measure(text)
    node: yaml.Node | None = yaml.compose(text, Loader=Loader)
    return node


def compose_nodes(text: str) -> list[yaml.Node]:
    """Return the root nodes of all documents. Raises yaml.YAMLError, BoundsError."""
    _measure(text)
    return [node for node in yaml.compose_all(text, Loader=Loader) if node is not None]


def _measure(text: str) -> None:
    if is_small(text):
        return
    for _ in events(text):
        pass


def is_small(text: str) -> bool:
    """True if a text is certainly within the limits, checked without parsing.

    Each indicator adds at most three events: a node's start, its end, and an empty node.
    """
    if 3 * sum(map(text.count, _INDICATORS)) + 6 > _MAX_EVENTS:
        return False
    return depth_bound(text) <= MAX_DEPTH


def depth_bound(text: str) -> int:
    """Return an upper bound on the depth of a text, without parsing.

    Each bracket counts as one level. Each column at which a block can begin counts as two: for a
    mapping, and for a list inside it at the same column. Blocks begin after blanks, dashes and
    key indicators.
    """
    if _OTHER_BREAKS.search(text):  # `^` below only matches line feeds
        return MAX_DEPTH + 1
    margins = re.findall(r"^[ \-?:]*", text, re.MULTILINE)
    return text.count("[") + text.count("{") + 2 * (1 + max(map(len, margins), default=0))


class NotPlainError(Exception):
    """File that only OmegaConf can read."""


def plain_value(node: yaml.Node) -> Any:
    """Return the value of a node. Raises NotPlainError."""
    return _value(node, set())


def _value(node: yaml.Node, seen: set[int]) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if id(node) in seen:  # a repeated anchor
        raise NotPlainError
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
        return [_value(item, seen) for item in node.value]
    if not isinstance(node, yaml.MappingNode) or node.tag != f"{_TAG}map":
        raise NotPlainError
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag != f"{_TAG}str" or key.value in found:
            raise NotPlainError
        if _is_odd(key):
            raise NotPlainError
        found[key.value] = _value(value, seen)
    return found


_CONSTRUCTED: dict[str, Callable[[yaml.ScalarNode], Any]] = {
    "null": _CONSTRUCTOR.construct_yaml_null,
    "bool": _CONSTRUCTOR.construct_yaml_bool,
    "int": _CONSTRUCTOR.construct_yaml_int,
    "float": _CONSTRUCTOR.construct_yaml_float,
}


def _scalar(node: yaml.ScalarNode) -> Any:
    kind = node.tag.removeprefix(_TAG)
    construct = _CONSTRUCTED.get(kind)
    if construct is not None:
        try:
            return construct(node)
        except ValueError:  # `0x_` looks like a number
            raise NotPlainError from None
    if kind == "timestamp" and not node.style:
        return str(node.value)
    if kind != "str":
        raise NotPlainError
    if not _is_odd(node):
        return str(node.value)
    if not _EXPONENT.match(node.value):
        raise NotPlainError
    return float(node.value)


def _is_odd(node: yaml.ScalarNode) -> bool:
    """True if OmegaConf may read an unquoted text as a number."""
    return not node.style and _MAY_BE_EXPONENT.match(node.value) is not None


KeyPath = tuple[str | int, ...]
"""Keys that lead to a value, e.g. `("args", "cuda_graph_bs", 0)`."""

MAX_FILE_BYTES = 1 << 20
MAX_DIGITS = 1000
"""Maximum number of digits in a number. Python's limit is 4300."""
_LONG = lazy(rf"[0-9a-fA-F_:x]{{{MAX_DIGITS + 1}}}")
_NUMBER = "tag:yaml.org,2002:int"
_HEADER = 512
"""Number of characters that Hydra searches for a header."""
_BREAKS = lazy("[\r\x85\u2028\u2029]")
"""Line ends in YAML but not in an editor, where `\\r` ends a line only before a line feed."""
_HEADER_LINE = lazy(r"\s*#\s*@")


class RecipeProvenance(Struct, frozen=True):
    """Places at which a composed recipe's values are set."""

    places: Mapping[KeyPath, Place]

    def first_below(self, path: KeyPath) -> Place | None:
        """Return the first explicit place at or below `path`; None if there is none."""
        return next((p for key, p in self.places.items() if key[: len(path)] == path), None)

    def find(self, path: KeyPath) -> Place | None:
        """Return the place of `path` or of its nearest explicit parent; None if neither exists."""
        while path:
            place = self.places.get(path)
            if place is not None:
                return place
            path = path[:-1]
        return None


class SourceFile(Struct, frozen=True):
    """YAML file, parsed once: its values and their places."""

    path: Path
    values: Mapping[str, Any]
    """Values as read by OmegaConf; empty if the file is not plain."""
    positions: Mapping[KeyPath, Place]
    package: str | None
    """Package in the header (`# @package`); None if unset."""
    is_plain: bool
    """True if the file uses only common YAML features, so `values` is certain."""


def read_positions(path: Path, shown_as: str | None = None) -> dict[KeyPath, Place]:
    """Return the place of every key (and list item) in the YAML file `path`.

    Raises InputError for a file that is unreadable, is not YAML, or exceeds the limits on size and
    depth.
    """
    return dict(read_source(path, shown_as).positions)


def read_source(path: Path, shown_as: str | None = None) -> SourceFile:
    """Read the YAML file `path`. An unchanged file is not read again.

    Places use the path `shown_as`, or a path relative to the working directory. Raises InputError
    like `read_positions`.
    """
    held = reads.buffer(path)
    if held is not None:
        return _read(path, shown_as or str(path), (hash(held), len(held), -1, -1))
    try:
        found = path.stat()
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns)
    except OSError:
        stamp = (0, 0, 0, 0)
    return _read(path, shown_as or from_here(path), stamp)


@reads.cached(512)
def _read(path: Path, shown: str, _stamp: tuple[int, ...]) -> SourceFile:
    text = _text(path, shown)
    root = _compose(text, shown)
    lines = _lines(text)
    if root is None:
        return SourceFile(path, {}, {}, *_header(text))
    if not isinstance(root, yaml.MappingNode):
        message = "expected `key: value` lines at the top level"
        help_ = "write a YAML mapping; see `speclaunch recipes ls` for examples"
        raise InputError(message, _place(root, shown, lines), help_)
    _check_defaults(root, shown, lines)
    if _LONG.search(text):
        _check_numbers(root, shown, lines)
    positions: dict[KeyPath, Place] = {}
    for key_path, node in _walk(root, (), 0):
        positions[key_path] = _place(node, shown, lines)
        if len(positions) > MAX_NODES:
            raise InputError(f"more than {MAX_NODES} values", Place(shown))
    package, is_plain = _header(text)
    try:
        values = plain_value(root) if is_plain else {}
    except NotPlainError:
        values, is_plain = {}, False
    return SourceFile(path, values, positions, package, is_plain)


def _header(text: str) -> tuple[str | None, bool]:
    """Return a header's package (None if unset), and True if the file may be plain.

    Reads the header as Hydra's `ConfigSource._get_header_dict` does.
    """
    package = None
    for line in text[:_HEADER].splitlines():
        stripped = line.strip()
        if not stripped:
            continue
        if not _HEADER_LINE.match(stripped):
            break
        words = stripped.lstrip("#").split()
        if len(words) != 2 or words[0] != "@package" or package is not None:
            return None, False
        package = words[1]
    return package, not ODD.search(text)


def _check_defaults(root: yaml.MappingNode, shown: str, lines: Sequence[int] | None) -> None:
    """Raise InputError unless a defaults list contains only names and `group: option` items.

    Hydra crashes on anything else.
    """
    for key, value in root.value:
        if not (isinstance(key, yaml.ScalarNode) and key.value == "defaults"):
            continue
        items = value.value if isinstance(value, yaml.SequenceNode) else [None]
        for item in items:
            name = isinstance(item, yaml.ScalarNode)
            choice = isinstance(item, yaml.MappingNode) and len(item.value) == 1
            if not (name or choice):
                what = "an item of a defaults list must be like `- base` or `- model: llama31_8b`"
                place = _place(item if isinstance(item, yaml.Node) else key, shown, lines)
                raise InputError(what, place)


def _text(path: Path, shown: str) -> str:
    try:
        return reads.read_text(path, MAX_FILE_BYTES)
    except TooLargeError as error:
        what = f"cannot read {shown}: {error.strerror}, the limit of a recipe"
        raise InputError(what) from None
    except OSError as error:
        raise InputError(f"cannot read {shown}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} is not UTF-8 text (byte {error.start})") from error


def _compose(text: str, shown: str) -> yaml.Node | None:
    try:
        return compose_node(text)
    except yaml.YAMLError as error:
        raise InputError(yaml_problem(error, shown, text)) from error


def yaml_problem(error: yaml.YAMLError, shown: str, text: str = "") -> Problem:
    """Return a YAML syntax error (in `text`) as a problem with its place."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = Place(shown, *_line_and_column(mark, _lines(text))) if mark else Place(shown)
    if text and place.line > text.count("\n") + 1:  # after a last line without a line end
        last = text.rpartition("\n")[2]
        place = Place(shown, text.count("\n") + 1, len(last) + 1)
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    if isinstance(error, BoundsError):
        return Problem(what, Place(shown, place.line))
    context = getattr(error, "context", None)
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    hint = "YAML is indented with spaces, not tabs" if "\t" in line else None
    return Problem(f"not valid YAML: {f'{context}, ' if context else ''}{what}", place, hint)


def _walk(node: yaml.Node, prefix: KeyPath, depth: int) -> Iterator[tuple[KeyPath, yaml.Node]]:
    if depth > MAX_DEPTH:  # also ends a recursive alias
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                # Like OmegaConf, read `a.b:` as one key named "a.b".
                here = (*prefix, key.value)
                yield here, key
                yield from _walk(value, here, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            here = (*prefix, index)
            yield here, item
            yield from _walk(item, here, depth + 1)


def _check_numbers(root: yaml.Node, shown: str, lines: Sequence[int] | None) -> None:
    seen: set[int] = set()
    left = [root]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            left += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            left += node.value
        elif node.tag == _NUMBER and len(node.value) > MAX_DIGITS:
            text = f"a number has more than {MAX_DIGITS} digits"
            raise InputError(text, _place(node, shown, lines))


def _place(node: yaml.Node, shown: str, lines: Sequence[int] | None) -> Place:
    start, end = node.start_mark, node.end_mark
    length = end.column - start.column if end.line == start.line else 1
    return Place(shown, *_line_and_column(start, lines), max(length, 1))


def _lines(text: str) -> Sequence[int] | None:
    """Return the line starts if YAML sees line ends other than line feeds, else None."""
    if not _BREAKS.search(text):
        return None
    return [0, *(found.end() for found in re.finditer("\n", text))]


def _line_and_column(mark: Any, lines: Sequence[int] | None) -> tuple[int, int]:
    """Return the line and column, both 1-based, as in an editor."""
    if lines is None:
        return mark.line + 1, mark.column + 1
    line = bisect_right(lines, mark.index)
    return line, mark.index - lines[line - 1] + 1


class Composed(Struct, frozen=True):
    """Recipe merged over its groups, with unresolved interpolations."""

    raw: Any
    provenance: RecipeProvenance
    files: tuple[Path, ...]
    """Files that the recipe was composed from, in merge order."""


class Composition(Struct, frozen=True):
    """Composed recipe: plain values, their places, and its files.

    A value from the environment is a FromEnvironment.
    """

    name: str
    path: Path
    values: dict[str, Any]
    provenance: RecipeProvenance
    files: tuple[Path, ...]


def exists(values: object, path: KeyPath) -> bool:
    """True if `path` leads to a value."""
    for part in path:
        try:
            values = values[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def copied(value: Any) -> Any:
    """Return an independent copy of mappings and lists (ten times as fast as `copy.deepcopy`)."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value
