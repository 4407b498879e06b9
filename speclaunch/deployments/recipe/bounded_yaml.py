"""Parse untrusted YAML: check its size before anything recurses or builds nodes.

Composing recurses in C: a file of fifty thousand brackets would crash the process. Reading events
does not recurse, but takes time quadratic in the depth.

Values of plain YAML (`plain_value`) match OmegaConf's loader (omegaconf/_utils.py,
`get_yaml_loader`): YAML 1.1 with three changes: `1e5` is a number, dates are texts, and a duplicate
key is rejected. Tags, merge keys, keys that are not texts and nodes used twice are left to
OmegaConf.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from speclaunch.core import lazy

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
    """The text exceeds the limit on depth or number of values."""


def events(text: str) -> Iterator[yaml.Event]:
    """Yield the parser's events. Raises yaml.YAMLError, and BoundsError at the limit."""
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
    """Yield the parser's events. libyaml 0.2.6 limits depth to 1,000 levels, and scans ahead."""
    try:
        yield from yaml.parse(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        if "maximum nesting depth" not in str(error.problem):
            raise
        raise _too_deep(error.problem_mark) from None


def _too_deep(mark: Any) -> BoundsError:
    return BoundsError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=mark)


def compose_node(text: str) -> yaml.Node | None:
    """Return the root node of one document. Raises yaml.YAMLError, BoundsError."""
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
    """Return an upper bound of the depth of a text, without parsing.

    Each bracket counts as one level. Each column at which a block can begin counts as two: for a
    mapping, and for a list inside it at the same column. Blocks begin after blanks, dashes and
    key indicators.
    """
    if _OTHER_BREAKS.search(text):  # `^` below only matches line feeds
        return MAX_DEPTH + 1
    margins = re.findall(r"^[ \-?:]*", text, re.MULTILINE)
    return text.count("[") + text.count("{") + 2 * (1 + max(map(len, margins), default=0))


class NotPlainError(Exception):
    """Only OmegaConf can read the file."""


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
    """True if an unquoted text may be a number to OmegaConf."""
    return not node.style and _MAY_BE_EXPONENT.match(node.value) is not None
