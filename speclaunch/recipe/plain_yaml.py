"""From YAML nodes to the values that OmegaConf's loader makes of them, for what all files use.

OmegaConf (omegaconf/_utils.py, `get_yaml_loader`) reads YAML 1.1 with three changes: `1e5` is a
number, dates are texts, and a key that stands twice is refused. Tags, merge keys, keys that are no
texts and nodes that are used twice are left to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from speclaunch.patterns import lazy

_TAG = "tag:yaml.org,2002:"
_EXPONENT = lazy(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z", re.ASCII)
_MAY_BE_EXPONENT = lazy(r"[-+]?[.0-9][0-9_.:]*[eE][-+0-9_]*\Z", re.ASCII)
_CONSTRUCTOR = SafeConstructor()


class NotPlainError(Exception):
    """There is something in a file that is left to OmegaConf."""


def plain_value(node: yaml.Node) -> Any:
    """The value of a node. Raises NotPlainError."""
    return _value(node, set())


def _value(node: yaml.Node, seen: set[int]) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if id(node) in seen:  # an anchor that is used again
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
        return construct(node)
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
    """Whether a text that is not quoted may be a number to OmegaConf."""
    return not node.style and _MAY_BE_EXPONENT.match(node.value) is not None
