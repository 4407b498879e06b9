"""Changes that assignments and bash's builtins make to the variables and the current directory."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from speclaunch.core import InputError, lazy
from speclaunch.deployments.sources.effective_words import NO_FILE, allowed_roots, read_below
from speclaunch.deployments.sources.expand import Expander
from speclaunch.deployments.sources.expansions import MAX_TEXT, MAX_WORDS
from speclaunch.deployments.sources.fields import Field, ShellScope, Value, from_argument
from speclaunch.deployments.sources.interface import SERVER, ConfigFile
from speclaunch.deployments.sources.parser import DECLARING, parse
from speclaunch.deployments.sources.shell_syntax import Assignment, Script, Simple
from speclaunch.deployments.sources.source_text import SourceSpan, SourceText, WordPiece

Assigned = tuple[str, Value, bool]
"""Name, value, and True if the value was appended."""

_READING = frozenset({"read", "mapfile", "readarray", "getopts"})
_ONE_BY_ONE = "its elements are set individually"
_ELEMENT = lazy(r"\[[^]\s]*\]=")
_BRACES = lazy(r"[^\"'({]*(?<!\$)\{[^\"'}]*(?:,|\.\.)")
_ASSIGNED = lazy(r"(?:^|[\s;&(])([A-Za-z_]\w*)\+?=")


def assign(
    expander: Expander,
    assignment: Assignment,
    *,
    exported: bool | None = None,
    temporary: bool = False,
) -> Assigned:
    """Evaluate and return an assignment; set its variable unless `temporary` (before a command)."""
    scope = expander.scope
    before = scope.get(assignment.name)
    value = _value(expander, assignment, before)
    if exported is None:
        exported = scope.export_all or (before is not None and before.exported)
    value = replace(value, exported=exported or temporary)
    if not temporary:
        scope.set(assignment.name, value)
    return assignment.name, value, assignment.append


def _value(expander: Expander, assignment: Assignment, before: Value | None) -> Value:  # noqa: PLR0911
    written = assignment.value
    if isinstance(written, tuple):
        if any(_ELEMENT.match(word.source.text, word.start) for word in written):
            return Value(assignment.span, why=_ONE_BY_ONE)
        items = tuple(expander.words(written))
        if assignment.append and before is not None and before.items is not None:
            items = (*before.items, *items)
        elif assignment.append and before is not None and before.pieces:
            items = (Field(before.pieces, before.span), *items)
        elif assignment.append and before is not None and before.why:
            source, start = assignment.span.source, assignment.span.start
            every = f"${{{assignment.name}[@]}}"
            piece = WordPiece(every, source, start, quoted=True, exact=False, unknown=before.why)
            items = (Field((piece,), assignment.span), *items)
        if len(items) > MAX_WORDS:
            return Value(assignment.span, why=f"it has more than {MAX_WORDS} elements")
        expander.document.spend(len(items))
        return Value(assignment.span, items=items)
    if assignment.index is not None:
        return Value(assignment.span, why=_ONE_BY_ONE)
    if not assignment.append and before is not None and len(before.items or ()) > 1:
        return Value(assignment.span, why=_ONE_BY_ONE)
    pieces = expander.text(written)
    if assignment.append and before is not None:
        if before.items is not None or before.pieces is None:
            why = before.why or "the script appends to it in an unsupported way"
            return Value(assignment.span, why=why)
        held = (replace(piece, owner=piece.owner or before.span) for piece in before.pieces)
        pieces = (*held, *pieces)
        expander.document.spend(len(pieces))
        if sum(len(piece.text) for piece in pieces) > MAX_TEXT:
            return Value(assignment.span, why=f"it is longer than {MAX_TEXT} characters")
        return Value(assignment.span, pieces)
    return Value(written.span, pieces)


def builtin(  # noqa: PLR0912
    expander: Expander, node: Simple, fields: Sequence[Field]
) -> list[Assigned] | None:
    """Apply a builtin that changes variables. Return its assignments; None for other commands."""
    scope = expander.scope
    name = fields[0].text
    if name in DECLARING:
        return _declare(expander, node, fields)
    match name:
        case "unset":
            for name, bracket, _ in (field.text.partition("[") for field in fields[1:]):
                scope.set(name, Value(node.span, why=_ONE_BY_ONE) if bracket else None)
        case "eval":
            _eval(scope, node.span, " ".join(field.text for field in fields[1:]))
            return None
        case "set":
            _set(expander, fields[1:])
        case "shift":
            count = fields[1].text if len(fields) > 1 else "1"
            if scope.positional is not None:
                known = count.isdecimal() and len(count) < 5
                scope.positional = (
                    from_argument(scope.positional, int(count) + 1) if known else None
                )
        case "source" | ".":
            scope.sourced.extend(field.text for field in fields[1:2])
            expander.document.spend(len(scope.variables) // 5)
            for name, value in list(scope.variables.items()):
                if value.texts() == ("",) and len(fields) > 1:
                    scope.set(name, value.noted(f"unless {fields[1].text} sets `{name}`"))
        case "printf" if len(fields) > 2 and fields[1].text == "-v":
            scope.set(fields[2].text, Value(node.span, why="`printf -v` sets it"))
        case _ if name in _READING:
            _read(expander, node, [field.text for field in fields])
        case _:
            return None
    return []


def _read(expander: Expander, node: Simple, texts: Sequence[str]) -> None:
    """Set the variables of `read` or `mapfile -t`: to the words after `<<<`, or unknown."""
    names = [text for text in texts[1:] if text.isidentifier()]
    options = {char for text in texts[1:] if text[:1] == "-" for char in text[1:]}
    is_array, by_line = bool(options & {"a", "t"}), texts[0] != "read"
    words = None if options - set("t" if by_line else "ra") else _input(expander, node, by_line)
    start = replace(node.span, end=node.span.start)
    for index, name in enumerate(names):
        value = Value(node.span, why=f"`{texts[0]}` sets it when it runs")
        if words is not None and is_array:
            value = Value(start, items=tuple(Field((word,)) for word in words))
        elif words is not None and len(words) <= len(names) and not by_line:
            value = Value(start, words[index : index + 1])
        expander.scope.set(name, value)


def _input(expander: Expander, node: Simple, by_line: bool) -> tuple[WordPiece, ...] | None:
    """Return the words or lines after `<<<`; None if unknown."""
    here = node.redirects[0] if len(node.redirects) == 1 else None
    target = here.target if here is not None and here.operator == "<<<" else None
    pieces = expander.text(target) if target is not None else ()
    text = "".join(piece.text for piece in pieces)
    with expander.scope.isolated():
        for assignment in node.assignments:
            assign(expander, assignment)
        ifs, separators = expander.scope.get("IFS"), expander.separators()
    is_blank = separators == " \t\n" and ifs is None
    is_sign = ifs is not None and ifs.conditions == {None} and re.fullmatch(r"\S", separators)
    is_unknown = any(piece.unknown or piece.condition for piece in pieces)
    if target is None or is_unknown or "\\" in text or not (by_line or is_blank or is_sign):
        return None
    words = text.split("\n")
    if not by_line:
        line = words[0].strip(" \t" if is_blank else "")
        words = re.split(r"[ \t]+" if is_blank else re.escape(separators), line)
        words = words[:-1] if not words[-1] else words
    expander.document.spend(len(words))
    note = next((piece.note for piece in pieces if piece.note), None)
    at, start = node.span.source, node.span.start
    return tuple(WordPiece(word, at, start, exact=False, note=note) for word in words)


def _eval(scope: ShellScope, span: SourceSpan, text: str) -> None:
    for name in () if SERVER.search(text) else _ASSIGNED.findall(text):
        scope.set(name, Value(span, why="`eval` sets it"))


def _declare(expander: Expander, node: Simple, fields: Sequence[Field]) -> list[Assigned]:
    scope = expander.scope
    options = [field.text for field in fields[1:] if field.text.startswith(("-", "+"))]
    is_export = fields[0].text == "export"
    exports = any("x" in o for o in options if o[0] == "-")
    exports = "-n" not in options if is_export else exports
    if scope.locals and not is_export and "-g" not in options:
        for name in (*(a.name for a in node.declared), *(field.text for field in fields[1:])):
            scope.locals[-1].setdefault(name, scope.get(name))
    done = [assign(expander, assignment, exported=exports or None) for assignment in node.declared]
    for name, held, _ in done:
        if _BRACES.match(held.span.text):
            scope.set(name, Value(held.span, exported=held.exported, why="its braces are expanded"))
    kind = next((c for o in options if o[0] == "-" for c in o if c in "niluc"), None)
    for name, held, _ in done if kind and not is_export else ():
        why = f"`{fields[0].text} -{kind}` changes it"
        target = "".join(piece.text for piece in held.pieces or ()) if kind == "n" else ""
        for other in (name, target) if target.isidentifier() else (name,):
            scope.set(other, Value(held.span, exported=held.exported, why=why))
    for field in fields[1:]:
        value = scope.get(field.text)
        if value is not None and (exports or "-n" in options):
            scope.set(field.text, replace(value, exported=exports))
    return done


def _set(expander: Expander, arguments: Sequence[Field]) -> None:
    scope = expander.scope
    for index, field in enumerate(arguments):
        text = field.text
        if text == "--":
            scope.positional = tuple(arguments[index + 1 :])
            return
        if text in ("-a", "+a"):
            scope.export_all = text == "-a"
        elif text[:1] not in ("-", "+"):
            before = arguments[index - 1].text if index else ""
            if not before.endswith("o"):
                scope.positional = tuple(arguments[index:])
                return
            if text == "allexport":
                scope.export_all = before[0] == "-"


# -- current directory of the script

DIRECTORY = "cd "
"""Pseudo-variable for the current directory.

No real variable can have this name. Branches, subshells and functions save and restore it like
any other variable.
"""
_CHANGING = frozenset({"cd", "pushd", "popd"})


def changed(scope: ShellScope, span: SourceSpan, fields: Sequence[Field]) -> bool:
    """Apply `cd`, `pushd` or `popd`; return True if the command is one."""
    if fields[0].text not in _CHANGING:
        return False
    scope.set(DIRECTORY, _after(scope, span, fields))
    return True


def _after(scope: ShellScope, span: SourceSpan, fields: Sequence[Field]) -> Value | None:
    where = [field for field in fields[1:] if field.text[:1] != "-" or field.text == "-"]
    unknown = Value(span, why="the new directory is unknown")
    if fields[0].text == "popd" or len(where) != 1:
        return unknown
    (field,) = where
    if (own := _own_path(scope, field)) is not None:
        anchor = field.pieces[0].slice(0, 0)
        return Value(span, (replace(anchor, text=own, exact=False),))
    if field.unknown or field.text.startswith(("~", "-")) or not field.text:
        return unknown
    before = scope.get(DIRECTORY)
    if PurePosixPath(field.text).is_absolute() or before is None:
        return Value(span, tuple(field.pieces))
    if before.pieces is None:
        return unknown
    slash = replace(before.pieces[-1].slice(0, 0), text="/", exact=False)
    return Value(span, (*before.pieces, slash, *field.pieces))


def directory(scope: ShellScope) -> str | None:
    """Return the current directory relative to the initial one; None if unchanged or unknown."""
    value = scope.get(DIRECTORY)
    texts = value.texts() if value is not None and value.conditions == {None} else None
    return "".join(texts) if texts is not None else None


# -- files next to the script

SCRIPT = "$0 "
"""Pseudo-variable for the path of the script file; not set in a script inside another file."""
_MAX_SOURCED, _MAX_STEPS, _MAX_PATH = 1 << 16, 8, 1000
_SELF = lazy(
    r"\$(?:(?:0|BASH_SOURCE)(?!\w)"
    r"|\{(?:0|BASH_SOURCE(?:\[0\])?)(/\.\./[^}%:]*)?(?::-\$\{?0\}?)?(%/\*)?\})"
)
_STEP = lazy(
    r"""\$\(\s*(?:(dirname)|cd(?:\s+-P)?|realpath|readlink\s+-[a-z]+)\s+(?:--\s+)?"""
    r"""(?:"([^"$`]+)")?([^\s"'$`()&;|]*)\s*(?:[12&]?>[>&\s]*[\w/]++\s*){0,3}"""
    r"""(?:\|\|\s*exit(?:\s+\d+)?\s*)?(?:(?:&&|;)\s*pwd(?:\s+-P)?\s*)?\)"""
)
"""Pattern of a command that prints a path for a known one."""
_NAME = lazy(r"\$(?:(\w+)|\{(\w+)\})")
_OWN_PATH = lazy(r"\x01((?:/[\w.@%+,=: -]*)*)")


def _own_path(scope: ShellScope, field: Field) -> str | None:
    """Return the path in ``$(dirname "$0")/path`` or an equivalent word; None for other words."""

    def held(name: re.Match[str]) -> str:
        value = scope.get(name[1] or name[2])
        known = value.pieces if value is not None and value.conditions == {None} else None
        return "".join(piece.text for piece in known) if known else name[0]

    def step(found: re.Match[str]) -> str:
        path = (found[2] or "") + found[3]
        above, _, last = path.rpartition("/")
        climbs = not above or last in ("", ".", "..")
        return path if not found[1] else f"{path}/.." if climbs else above

    text = field.text if all(piece.condition is None for piece in field.pieces) else ""
    for _ in range(_MAX_STEPS):
        text = _SELF.sub(lambda own: f"\x01/0{own[1] or ''}{'/..' if own[2] else ''}", text)
        text = _NAME.sub(held, _STEP.sub(step, text))[:_MAX_PATH]
    own = _OWN_PATH.fullmatch(text)
    return posixpath.normpath(f".{own[1]}") if own is not None else None


def neighbor(scope: ShellScope, field: Field) -> ConfigFile | None:
    """Return the file that a word names next to the script; None if that is unknown."""
    script, current, own = scope.get(SCRIPT), directory(scope), _own_path(scope, field)
    elsewhere = (
        field.unknown or field.text[:1] in "/~" or (current is None and scope.get(DIRECTORY))
    )
    if script is None or (own is None and elsewhere):
        return None
    folder = Path("".join(script.texts() or ())).parent
    name = own or posixpath.join(current or "", field.text)
    places = [folder] if own else [folder, Path()]
    found = read_below(name, places, roots=[*allowed_roots(folder)], limit=_MAX_SOURCED)
    if found.text is not None:
        return replace(found, shown=posixpath.relpath(found.shown, folder))
    return found if own or found.why != NO_FILE else None


def sourced(scope: ShellScope, node: Simple, fields: Sequence[Field]) -> tuple[Script, str] | None:
    """Return the script that `source` reads, all with its place, and a note; None if unreadable."""
    is_source = fields[0].text in ("source", ".") and len(fields) == 2
    found = neighbor(scope, fields[1]) if is_source else None
    if found is None or found.text is None:
        return None
    text, document = found.text, node.span.source.document
    if "/" in found.shown:  # `$BASH_SOURCE` is not the script
        text = re.sub(r"BASH_SOURCE(\[0\])?", lambda _: f"0/../{found.shown}", text)
    document.spend(1000)
    where = [node.span.source.offset(node.span.start)] * len(text)
    with suppress(InputError):
        return parse(SourceText(document, text, where)), f"read from {found.shown}"
    return None


def imported(value: Value, span: SourceSpan, note: str) -> Value:
    """Return a value that the `source` command at `span` sets, without places in its file."""

    def put(piece: WordPiece) -> WordPiece:
        own = piece.note or note
        return replace(piece, owner=None, note=own if note in own else f"{own}; {note}")

    moved = replace(value.each(put), span=replace(span, end=span.start))
    return replace(moved, items=moved.items and tuple(Field(item.pieces) for item in moved.items))
