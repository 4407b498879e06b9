"""Completions at the cursor: arguments and their values, keys, groups, flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from lsprotocol.types import (
    CompletionItem,
    CompletionItemKind,
    MarkupContent,
    MarkupKind,
    Range,
    TextEdit,
)

from speclaunch.checks.editors.checking import CheckedDocument
from speclaunch.checks.editors.cursor import (
    CursorKind,
    DocumentPositions,
    InCommand,
    InYaml,
    about_key,
    in_command,
    in_yaml,
    is_section,
    keys_below,
    kind,
    values_of,
)
from speclaunch.checks.editors.hover import SLIME, argument
from speclaunch.checks.lint.paths import mentions_a_server
from speclaunch.deployments import group_options, recipe_names
from speclaunch.engine import (
    ArgumentKind,
    Catalogue,
    about,
    argument_names,
    argument_values,
    load,
    name_of,
    value_kind,
)

_ARGUMENTS = (("args",), ("recovery", "minimal"))
Item = Callable[[str, str, CompletionItemKind, str, str], CompletionItem]


def completions(
    checked: CheckedDocument, text: str, positions: DocumentPositions, line: int, column: int
) -> list[CompletionItem]:
    """Return the completions at a line and column, from 1."""
    what, base = kind(text, checked.path)
    catalogue = load(checked.version_at(line))
    if what is CursorKind.COMMANDS:
        here = in_command(positions.lines, line, column)
        if here is None or not mentions_a_server(text.encode("utf-8", "replace")):
            return []
        item = _making(positions, line, here.start, column)
        return list(_flags(here, catalogue, text, item))
    place = in_yaml(positions.lines, line, column, base)
    if place is None:
        return []
    item = _making(positions, line, place.start, column)
    if place.above[:1] == ("defaults",) or (place.above == () and place.key == "defaults"):
        return list(_defaults(place, checked.config_dirs, item))
    if place.above in _ARGUMENTS:
        return list(_arguments(place, catalogue, positions.lines, line, item))
    return list(_keys(place, catalogue, item))


def _making(positions: DocumentPositions, line: int, start: int, column: int) -> Item:
    """Return a function that makes completion items that replace the incomplete word."""
    where = Range(positions.position(line, start), positions.position(line, column))

    def item(
        label: str, new: str, kind_: CompletionItemKind, detail: str = "", documentation: str = ""
    ) -> CompletionItem:
        return CompletionItem(
            label=label,
            kind=kind_,
            detail=detail or None,
            documentation=MarkupContent(MarkupKind.Markdown, documentation)
            if documentation
            else None,
            filter_text=label,
            text_edit=TextEdit(where, new),
        )

    return item


def _arguments(
    place: InYaml, catalogue: Catalogue, lines: Sequence[str], line: int, item: Item
) -> Iterator[CompletionItem]:
    if place.key is not None:
        found = about(place.key, catalogue)
        if found is not None and found.argument is not None:
            for value in argument_values(found.argument, catalogue.version):
                yield item(
                    value, _quoted(value, found.argument.kind), CompletionItemKind.Value, "", ""
                )
        return
    present = {
        other.strip().partition(":")[0] for number, other in enumerate(lines, 1) if number != line
    }
    for name, _, detail, description in _every_argument(catalogue.version):
        if name not in present:
            yield item(name, f"{name}: ", CompletionItemKind.Property, detail, description)


@lru_cache(maxsize=8)
def _every_argument(version: str) -> tuple[tuple[str, str, str, str], ...]:
    """Return the name, flag, accepted values and description of each argument of a version."""
    catalogue = load(version)
    known = ((name, catalogue.by_name(name)) for name in argument_names(catalogue))
    return tuple(
        (name, known_argument.flag, value_kind(known_argument), argument(name, catalogue))
        for name, known_argument in known
        if known_argument
    )


def _quoted(value: str, kind_: ArgumentKind) -> str:
    """Return a value, quoted if YAML would otherwise not read it as text."""
    is_switch = not kind_.takes_value or kind_ is ArgumentKind.OPTIONAL_VALUE
    words = ("true", "false", "null", "yes", "no", "on", "off", "~", "")
    return f'"{value}"' if not is_switch and value.lower() in words else value


def _defaults(place: InYaml, dirs: Sequence[Path], item: Item) -> Iterator[CompletionItem]:
    groups = group_options(dirs)
    if place.key is not None and place.key != "defaults":
        group = place.key.removeprefix("override").removeprefix("optional").strip(" /")
        for option in groups.get(group, ()):
            yield item(option, option, CompletionItemKind.EnumMember, f"an option of {group}", "")
        return
    for name in ("base", "_self_"):
        yield item(name, name, CompletionItemKind.Module, "", "")
    for group in groups:
        yield item(group, f"{group}: ", CompletionItemKind.Module, "a group", "")
        override = f"override {group}"
        yield item(
            override,
            f"{override}: ",
            CompletionItemKind.Module,
            "replace an earlier choice",
            "",
        )
    for name in sorted(recipe_names(dirs)):
        yield item(name, name, CompletionItemKind.File, "a recipe", "")


def _keys(place: InYaml, catalogue: Catalogue, item: Item) -> Iterator[CompletionItem]:
    if place.key is not None:
        for value in values_of((*place.above, place.key)):
            yield item(value, value, CompletionItemKind.Value, "", "")
        return
    if place.above == ("engine", "env"):
        for name in catalogue.variables:
            yield item(name, f"{name}: ", CompletionItemKind.Variable, "", "")
        return
    if place.in_list:
        for value in values_of(place.above):
            yield item(value, value, CompletionItemKind.Value, "", "")
        return
    for name in keys_below(place.above):
        path = (*place.above, name)
        new = f"{name}:" if is_section(path) else f"{name}: "
        yield item(name, new, CompletionItemKind.Property, "", about_key(path))


def _flags(
    here: InCommand, catalogue: Catalogue, text: str, item: Item
) -> Iterator[CompletionItem]:
    slime = SLIME in text
    if here.flag is not None:
        found = about(name_of(here.flag.replace(SLIME, "--", 1)), catalogue)
        known = found.argument if found is not None else None
        if known is not None and known.kind.takes_value:
            for value in argument_values(known, catalogue.version):
                yield item(value, value, CompletionItemKind.Value, "", "")
        return
    for _, written, detail, description in _every_argument(catalogue.version):
        flag = written.replace("--", SLIME, 1) if slime else written
        yield item(flag, flag, CompletionItemKind.Field, detail, description)
