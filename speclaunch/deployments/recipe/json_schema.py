"""JSON Schema (draft-07) of recipes for one engine version, for editors and other checkers.

The schema is built from the models in `schema.py` (sections, types, bounds, docstrings) and from
that version's server arguments (`argument_schema`). It rejects the names, types and choices that
`speclaunch lint` rejects, and accepts all others (tests/deployments/recipe/test_json_schema.py
compares both for every argument of every release). Every value may be an interpolation:
`${oc.env:MODELS}`. The defaults list accepts only existing groups. Their options are suggested;
other options are accepted, because they may be files next to a recipe.

yaml-language-server supports draft-07 best. It also reads three keys outside the standard:
`errorMessage`, `deprecationMessage`, `doNotSuggest`.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speclaunch.core import InputError
from speclaunch.deployments.recipe import schema as models
from speclaunch.deployments.recipe.find_recipe import group_options, recipe_names
from speclaunch.engine import (
    About,
    Argument,
    ArgumentKind,
    Catalogue,
    about,
    is_negation,
    name_of,
    other_names,
    released_names,
)

Schema = dict[str, Any]

INTERPOLATION: Schema = {"title": "interpolation", "type": "string", "pattern": r"\$\{|^\?\?\?$"}
"""Schema of a string with interpolations (`${oc.env:MODELS}/llama`), and of `???` (a required
value)."""
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
    """Return the schema of `args`: the names in `catalogue`, and those of other releases.

    `suggested`: values to suggest for arguments that accept any value.
    """
    properties: dict[str, Schema] = {}
    for name in _names(catalogue):
        info = about(name, catalogue)
        if info is not None:
            properties[name] = _argument(info, catalogue.by_name(name))
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
    """Yield the argument names of this version, then those of other releases."""
    own = {
        name_of(flag): argument.deprecated
        for argument in catalogue.arguments.values()
        for flag in (*argument.flags, argument.dest)
        if not is_negation(argument, flag) and (len(flag) > 2 or flag == argument.dest)
    }
    yield from sorted(own, key=lambda name: (own[name], name))
    released = {*released_names(), *(other for name in own for other in other_names(name))}
    yield from sorted(released - own.keys())


def _argument(entry: About, outdated: Argument | None) -> Schema:
    """Return the schema of an argument.

    `outdated`: the removed argument of this name, if any, whose values are also accepted.
    """
    found: Schema = {"description": " ".join(entry.lines)}
    argument = entry.argument
    if argument is None or entry.is_refused:
        gone = " ".join(entry.lines)
        return {**found, "not": {}, "errorMessage": gone, "doNotSuggest": True}
    if entry.is_outdated:
        found |= {"deprecationMessage": " ".join(entry.lines[1:]), "doNotSuggest": True}
    if argument.default is not None:
        found["default"] = argument.default
    values = _argument_values(argument)
    if outdated is not None and outdated is not argument:
        some = [_SOMETHING if form is _ANY else form for form in _argument_values(outdated)]
        values += [form for form in some if form not in values]
    return {**found, "anyOf": [*values, {"$ref": "#/definitions/unset"}]}


def _argument_values(argument: Argument) -> list[Schema]:
    if not argument.kind.takes_value:
        return [{"type": "boolean"}]
    forms = _FORMS.get(argument.type, [_ANY])
    if argument.choices:
        forms = [{"enum": list(dict.fromkeys(_yaml_forms(argument)))}]
    if argument.kind is ArgumentKind.OPTIONAL_VALUE:
        return [{"const": True}, *forms]
    if argument.kind is ArgumentKind.LIST:
        forms = [_ITEM if form is _ANY else form for form in forms]
        items = [*forms, {"$ref": "#/definitions/interpolation"}]
        several: Schema = {"type": "array", "items": {"anyOf": items}}
        return [*forms, several if argument.nargs == "*" else {**several, "minItems": 1}]
    return forms


def _yaml_forms(argument: Argument) -> Iterator[Any]:
    """Yield each choice as YAML may read it: `1` is a number, `"1"` is text."""
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


_DRAFT = "http://json-schema.org/draft-07/schema#"
_INTERPOLATION: Schema = {"$ref": "#/definitions/interpolation"}
_ARGUMENTS: Schema = {"$ref": "#/definitions/args"}
_KEPT = frozenset(
    {"$ref", "anyOf", "default", "enum", "const", "exclusiveMaximum", "exclusiveMinimum", "items"}
    | {"maximum", "minimum", "minLength", "type", "uniqueItems"}
)
"""Keys copied from pydantic's own schema."""
_ENVIRONMENT: Schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}
_ROLE_NAME = "^(?!router$)[a-z]([a-z0-9-]{0,38}[a-z0-9])?$"


def recipe_schema(
    catalogue: Catalogue,
    config_dirs: Sequence[Path] = (),
    section: str | None = None,
    suggested: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Schema:
    """Return the schema of a recipe, or of a group option that fills one `section` of it.

    Groups and recipes of `config_dirs` are included. `suggested`: values to suggest for arguments
    without choices. Raises InputError for an unknown section.
    """
    made = models.Deployment.model_json_schema()
    texts = _docstrings()
    definitions: Schema = {
        "interpolation": INTERPOLATION,
        "unset": {"anyOf": [{"type": "null"}, _INTERPOLATION]},
        "args": argument_schema(catalogue, suggested),
        "defaults": _defaults(config_dirs),
    }
    for name, definition in made["$defs"].items():
        if definition.get("type") == "object":
            definitions[name] = _section(definition, made["$defs"], texts.get(name, {}))
    router = definitions["RouterSection"]["properties"]["args"]
    router["anyOf"] = [{"type": "object"}, _INTERPOLATION]
    recipe = _section(made, made["$defs"], texts["Deployment"])
    properties = {"defaults": {"$ref": "#/definitions/defaults"}, **recipe["properties"]}
    title = f"speclaunch recipe for SGLang {catalogue.version}"
    if section is None:
        found = {**recipe, "properties": properties}
    else:
        title = f"`{section}` of a {title}"
        found = _group(section, properties, definitions)
    found.pop("description", None)
    return {
        "$schema": _DRAFT,
        "title": title,
        "description": "Written by `speclaunch recipes schema`; do not edit.",
        **found,
        "definitions": definitions,
    }


def _group(section: str, properties: Schema, definitions: Schema) -> Schema:
    """Return the schema of a group option: one section and an optional defaults list."""
    known = {
        name: definitions[reference.rpartition("/")[2]]
        for name, value in properties.items()
        if (reference := _reference(value)) and name != "defaults"
    }
    if section not in known:
        help_ = f"choose one of {', '.join(known)}"
        raise InputError(f"`{section}` is not a section of a recipe", help=help_)
    found = dict(known[section])
    return {**found, "properties": {"defaults": properties["defaults"], **found["properties"]}}


def _reference(value: Schema) -> str:
    found = [schema.get("$ref", "") for schema in (value, *value.get("anyOf", ()))]
    return next((ref for ref in found if ref and ref != _INTERPOLATION["$ref"]), "")


def _section(model: Schema, known: Mapping[str, Schema], texts: Mapping[str, str]) -> Schema:
    properties = {
        name: _value(name, schema, known, texts.get(name))
        for name, schema in model["properties"].items()
    }
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"description": texts[""], **found} if "" in texts else found


def _value(name: str, made: Schema, known: Mapping[str, Schema], text: str | None) -> Schema:
    """Return the draft-07 schema of a key from pydantic's (`made`), with interpolations."""
    forms: list[Schema]
    if name in ("args", "minimal"):
        forms = [_ARGUMENTS]
        if made.get("default", ...) is None:
            forms.append({"type": "null"})
    elif name == "roles":
        role = {"anyOf": [{"$ref": "#/definitions/RoleSection"}, {"type": "null"}]}
        names = {"pattern": _ROLE_NAME}
        forms = [{"type": "object", "propertyNames": names, "additionalProperties": role}]
    elif name == "env":
        forms = [_ENVIRONMENT]
    else:
        forms = [_plain(schema, known) for schema in made.get("anyOf", [made])]
    if name == "policy" and any("off" in form.get("enum", ()) for form in forms):
        forms = [{"enum": [*form["enum"], False]} for form in forms]  # YAML reads `off` as false
    found: Schema = {"description": text} if text else {}
    default = made.get("default")
    if isinstance(default, str | int | float | bool):
        found["default"] = default
    return {**found, "anyOf": [*forms, _INTERPOLATION]}


def _plain(made: Schema, known: Mapping[str, Schema]) -> Schema:
    """Return a value's draft-07 schema, with all references inlined except those to sections."""
    reference = made.get("$ref")
    if reference is not None:
        name = reference.rpartition("/")[2]
        if known[name].get("type") == "object":
            return {"$ref": f"#/definitions/{name}"}
        return _plain(known[name], known)
    found = {key: value for key, value in made.items() if key in _KEPT and key != "default"}
    if "items" in found:
        found["items"] = {"anyOf": [_plain(found["items"], known), _INTERPOLATION]}
        found["uniqueItems"] = True
    return found


def _docstrings() -> dict[str, dict[str, str]]:
    """Return docstrings by model and field. The key "" has the docstring of the class."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(models)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        texts = found[node.name] = {}
        if (own := ast.get_docstring(node)) is not None:
            texts[""] = " ".join(own.split())
        for field, text in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                texts[field.target.id] = " ".join(str(text.value.value).split())
    return found


def _defaults(config_dirs: Sequence[Path]) -> Schema:
    choices: Schema = {}
    for group, options in group_options(config_dirs).items():
        written = {"anyOf": [{"enum": options}, {"type": "string"}, {"type": "null"}]}
        several: Schema = {"type": "array", "items": {"type": "string"}}
        choices[group] = {
            "description": f"An option of the group `{group}`.",
            "anyOf": [*written["anyOf"], several],
        }
    # keys with a package, a leading slash, or `override`
    patterns = {
        rf"^((override|optional) +)?/?{re.escape(group)}(@[A-Za-z0-9_.:]+)?$": value
        for group, value in choices.items()
    }
    names = ["base", "_self_", *sorted(recipe_names(config_dirs))]
    return {
        "type": "array",
        "description": "Parts of the recipe, merged in this order: `base`, options of groups, "
        "other recipes, and `_self_` for the recipe itself.",
        "items": {
            "anyOf": [
                {"anyOf": [{"enum": names}, {"type": "string"}]},
                {
                    "type": "object",
                    "properties": choices,
                    "patternProperties": patterns,
                    "additionalProperties": False,
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            ]
        },
    }
