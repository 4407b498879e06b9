"""JSON Schema of the server arguments of one engine version: what `args:` of a recipe may hold.

It refuses what `speclaunch lint` refuses of a name, a type or a choice, and takes the rest
(tests/recipe/test_json_schema.py asks both about every argument of every release).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from speclaunch.engine.about import About, about
from speclaunch.engine.argument import Argument, ArgumentKind, is_negation, name_of
from speclaunch.engine.catalogue import Catalogue, released_names
from speclaunch.engine.renames import other_names

Schema = dict[str, Any]

INTERPOLATION: Schema = {
    "title": "interpolation",
    "type": "string",
    "pattern": r"\$\{|^\?\?\?$",
}
"""`${args.tp_size}`, `${oc.env:MODELS}/llama`, and `???` for a value that has to be given."""
_WHOLE = {"type": "string", "pattern": r"^\s*[+-]?[0-9]+(_[0-9]+)*\s*$"}
_REAL = {
    "type": "string",
    "pattern": r"^\s*[+-]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][+-]?[0-9]+)?\s*$"
    r"|^\s*[+-]?([iI][nN][fF]|[iI][nN][fF][iI][nN][iI][tT][yY]|[nN][aA][nN])\s*$",
}
_SIZE = {
    "type": "string",
    "pattern": r"^\s*[+-]?[0-9]+(_[0-9]+)*\s*$|^\s*[0-9]+([.][0-9]+)?[kMGT]\s*$"
    r"|^\s*[0-9]+[KMGT]i\s*$",
}
_ANY: Schema = {"type": ["string", "number", "boolean", "object", "array"]}
_ITEM: Schema = {"type": ["string", "number", "boolean", "object"]}
_SOMETHING: Schema = {"anyOf": [_ITEM, {"type": "array", "minItems": 1}]}
_FORMS: dict[str, list[Schema]] = {
    "int": [{"type": "integer"}, _WHOLE],
    "float": [{"type": "number"}, _REAL],
    "human_readable_int": [{"type": "integer"}, _SIZE],
    "json": [_ANY],
    "json_list_type": [_ANY],
    "parse_cuda_graph_config_arg": [{"type": ["object", "string"]}],
}


def argument_schema(
    catalogue: Catalogue, suggested: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Schema:
    """An object with every name that this version can be asked by, and those that are gone.

    `suggested`: values to offer for arguments whose parser takes any.
    """
    properties: dict[str, Schema] = {}
    for name in _names(catalogue):
        told = about(name, catalogue)
        if told is not None:
            properties[name] = _property(told, catalogue.by_name(name))
    for name, values in suggested.items():
        if "anyOf" in properties.get(name, ()):
            properties[name]["anyOf"].insert(0, {"enum": list(values)})
    return {
        "type": "object",
        "description": f"Server arguments of SGLang {catalogue.version} under its own names, "
        "with underscores.",
        "properties": properties,
        "additionalProperties": False,
    }


def _names(catalogue: Catalogue) -> Iterator[str]:
    """The names of this version, then those that it is asked by in other releases."""
    own = {
        name_of(flag): argument.deprecated
        for argument in catalogue.arguments.values()
        for flag in (*argument.flags, argument.dest)
        if not is_negation(argument, flag) and (len(flag) > 2 or flag == argument.dest)
    }
    yield from sorted(own, key=lambda name: (own[name], name))
    released = {*released_names(), *(other for name in own for other in other_names(name))}
    yield from sorted(released - own.keys())


def _property(told: About, outdated: Argument | None) -> Schema:
    """`outdated`: what this very name is, which may take more than its successor."""
    found: Schema = {"description": " ".join(told.lines)}
    argument = told.argument
    if argument is None or told.is_refused:
        gone = " ".join(told.lines)
        return {**found, "not": {}, "errorMessage": gone, "doNotSuggest": True}
    if told.is_outdated:
        found |= {"deprecationMessage": " ".join(told.lines[1:]), "doNotSuggest": True}
    if argument.default is not None:
        found["default"] = argument.default
    values = _values(argument)
    if outdated is not None and outdated is not argument:
        some = [_SOMETHING if form is _ANY else form for form in _values(outdated)]
        values += [form for form in some if form not in values]
    return {**found, "anyOf": [*values, {"$ref": "#/definitions/unset"}]}


def _values(argument: Argument) -> list[Schema]:
    if not argument.kind.takes_value:
        return [{"type": "boolean"}]
    one = _one(argument)
    if argument.kind is ArgumentKind.OPTIONAL_VALUE:
        return [{"const": True}, *one]
    if argument.kind is ArgumentKind.LIST:
        one = [_ITEM if form is _ANY else form for form in one]
        items = [*one, {"$ref": "#/definitions/interpolation"}]
        several: Schema = {"type": "array", "items": {"anyOf": items}}
        return [*one, several if argument.nargs == "*" else {**several, "minItems": 1}]
    return one


def _one(argument: Argument) -> list[Schema]:
    if argument.choices:
        return [{"enum": list(dict.fromkeys(_spellings(argument)))}]
    return _FORMS.get(argument.type, [_ANY])


def _spellings(argument: Argument) -> Iterator[Any]:
    """Each choice as YAML may read it: `1` is a number, `"1"` is text."""
    for choice in argument.choices or ():
        yield choice
    for choice in argument.choices or ():
        if not isinstance(choice, str):
            yield str(choice)
            continue
        try:
            read = json.loads(choice)
        except ValueError:
            continue
        if isinstance(read, int) and (isinstance(read, bool) or str(read) == choice):
            yield read
