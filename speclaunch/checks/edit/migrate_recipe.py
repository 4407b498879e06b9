"""Migration of a recipe's own arguments, version pin and image to another engine version.

Arguments from groups need no change, because `engine/releases/command.py` renders them for every
version. They are still checked against the target version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.edit.edits import Change, Edit, Insertion, SourceLines, apply
from speclaunch.checks.edit.migrate import (
    Migration,
    MigrationStep,
    is_outdated,
    successor,
    unknown_image,
)
from speclaunch.checks.edit.planned_migration import absent
from speclaunch.checks.edit.round_trip import differences, require_no_differences, text_differences
from speclaunch.core import InputError, Place, Problem, is_secret_variable, reads
from speclaunch.deployments import MAX_FILE_BYTES, Document, compose_node, nodes, read_positions
from speclaunch.engine import (
    Catalogue,
    canonical,
    check_values,
    conversion,
    history,
    is_secret_argument,
    other_names,
    render_args,
)
from speclaunch.engine import load as load_catalogue

_GONE = object()
_Key = tuple[str | None, str]
"""Role that sets an argument (None: shared part), and the argument key."""


class _Work(Struct):
    document: Document
    target: Catalogue
    migration: Migration
    changes: list[Change] = []
    becomes: dict[_Key, tuple[str, Any]] = {}
    """New key and value of each argument; `_GONE` if it is removed."""
    role: str | None = None
    """Role whose arguments are migrated; None: the shared part."""
    pins: dict[str | None, str] = {}
    """New `engine.version`, by the role that sets it."""
    keep_images: bool = False
    images: dict[str | None, str] = {}
    """New `deploy.image`, by the role that sets it."""


def is_recipe(text: str) -> bool:
    """True if a YAML text is a speclaunch recipe, not a manifest."""
    try:
        compose_node(text)  # rejects deep nesting
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # ValueError: the date 2001-99-99, the number 0x_
        return False
    if not isinstance(data, dict):
        return False
    return not data.keys() & {"services", "apiVersion"} and bool(data.keys() & {"args", "defaults"})


def migrate_recipe(path: Path, shown: str, to: str, *, keep_images: bool = False) -> Migration:
    """Return the migration of a recipe's own arguments (not its groups'), pin and image.

    Raises InputError if the file is not a recipe, and RoundTripError.
    """
    read_positions(path, shown)  # rejects hostile input, and anything but a mapping
    text = reads.read_text(path, MAX_FILE_BYTES)
    work = _Work(
        Document(text, shown), load_catalogue(to), Migration(text), keep_images=keep_images
    )
    roots = nodes.load(work.document)
    keys = nodes.entries(roots[0]) if roots else {}
    _section(None, keys, work)
    for role, node in nodes.entries(keys.get("roles")).items():
        _section(role, nodes.entries(node), work)
    if not work.migration.problems:
        made = apply(text, work.changes)
        _prove(text, made, work)
        work.migration.problems += _refusals(path, made, work)
        if not work.migration.problems:
            work.migration.text = made
    return work.migration


def _section(role: str | None, keys: Mapping[str, yaml.Node], work: _Work) -> None:
    """Migrate the arguments, pin and image of the recipe, or of one of its roles."""
    work.role = role
    args = keys.get("args")
    if isinstance(args, yaml.MappingNode):
        for key, value in args.value:
            if isinstance(key, yaml.ScalarNode):
                _argument(key, value, bool(args.flow_style), work)
    engine = nodes.entries(keys.get("engine"))
    for name in ("version", "requires"):
        _pin(engine.get(name), name, work)
    _image(nodes.entries(keys.get("deploy")).get("image"), work)


def _argument(key: yaml.ScalarNode, value: yaml.Node, flow: bool, work: _Work) -> None:
    name = str(key.value)
    target = work.target
    found = target.by_name(name)
    if found is not None and not found.deprecated:
        return
    place = nodes.place(key, work.document)
    is_single_line = (
        isinstance(value, yaml.ScalarNode) and value.start_mark.line == value.end_mark.line
    )
    for other in other_names(name):
        current = target.by_name(other)
        if current is not None and not current.deprecated:
            _renamed(name, other, place, work)
            return
    if found is not None:  # deprecated, and not set otherwise
        return
    plain = yaml.safe_load(work.document.text[slice(*nodes.offsets(value, work.document))])
    became = conversion(name)
    new = target.by_name(became.new) if became else None
    is_taken = became and new and (not new.choices or became.value in new.choices)
    if became is not None and is_taken and plain is True and is_single_line:
        _converted(name, became.new, became.value, (place, value), work)
        return
    if history(name) is None:
        why = f"{name}: no known SGLang version has this argument"
    elif (verdict := absent(name, target)).unknown:
        why = f"{name}: {verdict.why}"
    elif became is not None and plain is not True and plain not in (False, None):
        why = f"{name} is now {became.new}, which does not accept {plain!r}"
    elif flow or not is_single_line:
        why = f"{name} was removed: {verdict.why}"
    else:
        off = became is not None and plain in (False, None)
        reason = "it was off" if off else verdict.why
        work.changes.append(Edit(place.line, place.column, 0, "# "))
        work.changes.append(Insertion(place.line, f"# removed {name}: {reason}"))
        work.becomes[work.role, name] = (name, _GONE)
        work.migration.steps.append(MigrationStep(place, f"removed {name}: {reason}"))
        return
    work.migration.problems.append(Problem(why, place, "change it by hand"))


def _replace(place: Place, old: str, new: str, work: _Work) -> None:
    text = SourceLines(work.document.text).at(place).replace(old, new, 1)
    work.changes.append(Edit(place.line, place.column, place.length, text))


def _renamed(name: str, new: str, place: Place, work: _Work) -> None:
    _replace(place, name, new, work)
    work.becomes[work.role, name] = (new, None)
    work.migration.steps.append(MigrationStep(place, f"{name} is now {new}"))


def _converted(name: str, new: str, value: Any, at: tuple[Place, yaml.Node], work: _Work) -> None:
    place, node = at
    there = nodes.place(node, work.document)
    text = "true" if value is True else str(value)
    work.changes.append(Edit(place.line, place.column, place.length, new))
    work.changes.append(Edit(there.line, there.column, there.length, text))
    work.becomes[work.role, name] = (new, value)
    work.migration.steps.append(MigrationStep(place, f"{name} is now {new}: {text}"))


def _pin(node: yaml.Node | None, name: str, work: _Work) -> None:
    """Replace a pin in `engine.version`; report a range that excludes the target version."""
    from speclaunch.deployments import Engine  # noqa: PLC0415  pydantic is slow to import

    if not isinstance(node, yaml.ScalarNode) or not node.value or "$" in node.value:
        return
    to = work.target.version
    try:
        engine = Engine(version=str(node.value))
    except ValueError:
        return  # composing the recipe reports it better
    if engine.specifier.contains(to):
        return
    place = nodes.place(node, work.document)
    if engine.pinned is None or name == "requires":
        message = f"engine.{name}: {node.value} excludes SGLang {to}"
        remedy = f"change it to a range that includes {to}"
        work.migration.problems.append(Problem(message, place, remedy))
        return
    _replace(place, engine.pinned, to, work)
    pin = work.pins[work.role] = str(node.value).replace(engine.pinned, to, 1)
    work.migration.steps.append(MigrationStep(place, f"engine.version is now {pin}"))


def _image(node: yaml.Node | None, work: _Work) -> None:
    """Migrate `deploy.image`: an official image becomes that of the target release."""
    to = work.target.version
    if not isinstance(node, yaml.ScalarNode) or not is_outdated(str(node.value), to):
        return
    place, image = nodes.place(node, work.document), str(node.value)
    new = successor(image, to)
    if new is None or image not in SourceLines(work.document.text).at(place):
        problem = replace(unknown_image(image, to), place=place)
        migration = work.migration
        (migration.warnings if work.keep_images else migration.problems).append(problem)
        return
    _replace(place, image, new.name, work)
    work.images[work.role] = new.name
    work.migration.steps.append(MigrationStep(place, f"deploy.image is now {new.name}"))
    work.migration.warnings += [Problem(new.warning, place)] if new.warning else []


def _prove(before: str, made: str, work: _Work) -> None:
    """Raise RoundTripError unless the new data equals the old data with announced changes."""
    touched = {change.line for change in work.changes if isinstance(change, Edit)}
    inserted = {change.text for change in work.changes if isinstance(change, Insertion)}
    found = list(text_differences(before, made, "recipe.yaml", touched, inserted))
    try:
        new = yaml.safe_load(made)
    except yaml.YAMLError as error:
        found.append(f"the edited file is not valid YAML: {error}")
        new = None
    old = yaml.safe_load(before)
    if not found and isinstance(old, dict):
        found += [
            f"{difference.name} is not as announced"
            for difference in differences(_announced(old, new or {}, work), _set_keys(new or {}))
        ]
    require_no_differences("migrate", found, before, made, _secrets(old))


def _announced(old: dict[str, Any], new: Mapping[str, Any], work: _Work) -> dict[str, Any]:
    """Return the recipe's old data with every announced change, without empty keys."""
    expected = _with_changes(old, new, None, work)
    if isinstance(old.get("roles"), dict):
        after = new.get("roles") or {}
        expected["roles"] = {
            role: _with_changes(values, after.get(role) or {}, role, work) if values else values
            for role, values in old["roles"].items()
        }
    return _set_keys(expected)


def _set_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}


def _with_changes(
    old: dict[str, Any], new: Mapping[str, Any], role: str | None, work: _Work
) -> dict[str, Any]:
    """Return the old data of a role (None: the shared part) with the announced changes."""
    changed = dict(old)
    if isinstance(old.get("args"), dict):
        args: dict[Any, Any] = {}
        for name, value in old["args"].items():
            key, becomes = work.becomes.get((role, name), (name, None))
            if becomes is not _GONE:
                args[key] = value if becomes is None else becomes
        changed["args"] = args or new.get("args")
    if role in work.pins:
        changed["engine"] = {**old["engine"], "version": work.pins[role]}
    if role in work.images:
        changed["deploy"] = {**old["deploy"], "image": work.images[role]}
    return changed


def _secrets(data: Any) -> list[str]:
    found: list[Any] = []
    if isinstance(data, dict):
        engine = data.get("engine")
        env = engine.get("env") if isinstance(engine, dict) else None
        found += _hidden(data.get("args"), is_secret_argument)
        found += _hidden(env, is_secret_variable)
        for role in _roles(data).values():
            found += _secrets(role)
    return [str(value) for value in found if value]


def _roles(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    roles = data.get("roles")
    pairs = roles.items() if isinstance(roles, dict) else ()
    return {str(name): role for name, role in pairs if isinstance(role, dict)}


def _hidden(values: Any, is_secret: Callable[[str], bool]) -> list[Any]:
    pairs = values.items() if isinstance(values, dict) else ()
    return [value for name, value in pairs if is_secret(str(name))]


def _refusals(path: Path, made: str, work: _Work) -> list[Problem]:
    """Return the problems of the recipe, its groups and its roles in the target version."""
    data = yaml.safe_load(made)
    own = data if isinstance(data, dict) else {}
    parts: list[tuple[str | None, dict[str, Any]]] = [(None, own), *_roles(own).items()]
    shared = own.get("args") or {}
    inherited = _inherited(path, shared, work)
    places = read_positions(path, work.document.shown)
    found: list[Problem] = []
    for role, part in parts:
        args = part.get("args") or {}
        same = {canonical(str(name)) for name in args}
        base = {**inherited, **shared} if role is not None else inherited
        unchanged = {name: value for name, value in base.items() if canonical(name) not in same}
        known = {n: v for n, v in {**unchanged, **args}.items() if not _open(v)}
        rendered = render_args(known, {}, work.target)
        back = {new: old for (whose, old), (new, _) in work.becomes.items() if whose == role}
        at = ("args",) if role is None else ("roles", role, "args")
        found += [
            Problem(
                problem.message,
                places.get((*at, back.get(problem.name, problem.name)))
                or places.get(("args", problem.name))
                or Place(work.document.shown),
                problem.help,
            )
            for problem in (*rendered.problems, *check_values(rendered, work.target))
        ]
    return list(dict.fromkeys(found))


def _open(value: Any) -> bool:
    """True if a value is known only after composition: an interpolation or `???`."""
    return isinstance(value, str) and ("${" in value or value == "???")


def _inherited(path: Path, own: Mapping[str, Any], work: _Work) -> Mapping[str, Any]:
    """Return the arguments from the recipe's groups that the recipe does not set itself."""
    from speclaunch.deployments import compose  # noqa: PLC0415  Hydra is slow to import

    recipe = str(path) if path.is_absolute() else f"./{path}"
    try:
        composed = compose(recipe, (), ()).values.get("args")
    except InputError as error:
        message = f"its groups were not checked: {error.problems[0].message}"
        work.migration.steps.append(MigrationStep(Place(work.document.shown), message))
        return {}
    mine = {canonical(name) for name in own} | {canonical(name) for _, name in work.becomes}
    found = composed if isinstance(composed, dict) else {}
    return {name: value for name, value in found.items() if canonical(name) not in mine}
