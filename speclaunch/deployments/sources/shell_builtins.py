"""Changes that assignments and bash's builtins make to the variables and the current directory."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from speclaunch.core import InputError, lazy
from speclaunch.deployments.sources.effective_words import NO_FILE, allowed_roots, read_below
from speclaunch.deployments.sources.expand import Expander
from speclaunch.deployments.sources.expansions import BY_KEY, INTEGER, MAX_TEXT, MAX_WORDS
from speclaunch.deployments.sources.fields import Field, ShellScope, Value, from_argument, present
from speclaunch.deployments.sources.interface import SERVER, ConfigFile
from speclaunch.deployments.sources.parser import DECLARING, parse
from speclaunch.deployments.sources.shell_syntax import (
    Assignment,
    Compound,
    Function,
    Node,
    Script,
    ShellWord,
    Simple,
)
from speclaunch.deployments.sources.source_text import SourceSpan, SourceText, WordPiece

Assigned = tuple[str, Value, bool]
"""Name, value, and True if the value was appended."""

_READING = frozenset({"read", "mapfile", "readarray", "getopts"})
_ONE_BY_ONE = "its elements are set individually"
_ELEMENT = lazy(r"\[[^]\s]*\]=")
_BY_KEY = lazy(r"\[([\"']?)(\w[\w.:/@+-]*)\1\]=")
_BRACES = lazy(r"[^\"'({]*(?<!\$)\{[^\"'}]*(?:,|\.\.)")
_UNTIL_END = lazy(r"""\s\(?["']?--["']?\s*\)\s*(?:shift[\s;]+)?break\b""")
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
    if assignment.index is not None and before is not None and before.why == BY_KEY:
        value = _put_element(expander, assignment)
    else:
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


def _put_element(expander: Expander, assignment: Assignment) -> Value:
    """Set an element of an associative array, and return the array's value."""
    scope, name, written = expander.scope, assignment.name, assignment.value
    key = _BY_KEY.fullmatch(f"[{assignment.index}]=")
    if key is not None and not assignment.append and isinstance(written, ShellWord):
        scope.set(f"{name}[{key[2]}]", Value(written.span, expander.text(written)))
        return Value(assignment.span, why=BY_KEY)
    for other in _elements(expander, name):
        scope.set(other, Value(assignment.span, why=_ONE_BY_ONE))
    return Value(assignment.span, why=_ONE_BY_ONE)


def _elements(expander: Expander, name: str) -> list[str]:
    """Return the pseudo-variables of an associative array's elements."""
    expander.document.spend(len(expander.scope.variables) // 5)
    return [other for other in expander.scope.variables if other.startswith(f"{name}[")]


def _by_key(expander: Expander, span: SourceSpan, name: str, words: Sequence[ShellWord]) -> None:
    """Make `name` an associative array with the elements ``[key]=value``."""
    scope = expander.scope
    keys = [key[2] for word in words if (key := _BY_KEY.match(word.span.text))]
    if len(keys) < len(words):
        return
    for other in _elements(expander, name):
        scope.set(other, None)
    for key_text, word in zip(keys, words, strict=True):
        cut, pieces = len(f"[{key_text}]="), list(expander.text(word))
        while pieces and cut >= len(pieces[0].text):
            cut -= len(pieces.pop(0).text)
        rest = (*(piece.slice(cut, len(piece.text)) for piece in pieces[:1]), *pieces[1:])
        scope.set(f"{name}[{key_text}]", Value(word.span, rest))
    scope.set(name, Value(span, why=BY_KEY))


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
    """Return the words or lines of the input of `read` or `mapfile`; None if unknown."""
    pieces = _piped(expander, node) or ()
    text = "".join(piece.text for piece in pieces).removesuffix("\n")
    with expander.scope.isolated():
        for assignment in node.assignments:
            assign(expander, assignment)
        ifs, separators = expander.scope.get("IFS"), expander.separators()
    is_blank = separators == " \t\n" and ifs is None
    is_sign = ifs is not None and ifs.conditions == {None} and re.fullmatch(r"\S", separators)
    is_unknown = any(piece.unknown or piece.condition for piece in pieces)
    if not pieces or is_unknown or "\\" in text or not (by_line or is_blank or is_sign):
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
    if any(o[0] == "-" and "A" in o for o in options) and not (kind or scope.locals):
        names = [field.text for field in fields[1:] if scope.get(field.text) is None]
        for name in filter(str.isidentifier, names):
            _by_key(expander, node.span, name, ())
        for declared in node.declared:
            if isinstance(declared.value, tuple):
                _by_key(expander, node.span, declared.name, declared.value)
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


def reads_getopt(node: Compound) -> bool:
    """True for a loop over the arguments that `eval set -- "$(getopt …)"` sets, until `--`."""
    before = node.span.source.text[: node.span.start]
    return node.kind == "while" and "getopt " in before and bool(_UNTIL_END.search(node.span.text))


# -- output of commands in `$( … )`

OUTPUT, INPUT = "$( ", "$(| "
"""Pseudo-variables for what the commands of `$( … )` print, and for what a pipe passes on."""
_TO_FILE = lazy(r"(?:1|&)?>")
_QUIET = frozenset({"true", "false", ":", "[", "test", "return", "break", "continue", "let"})
_PROGRAM = lazy(r"\w[\w.+-]*\Z")
_FORMAT = lazy(r"(?:[^%\\]|\\n|%[sd])*")
_NUMBER = lazy(r"0|[1-9][0-9]{0,17}")
_CUT = lazy(r"cut -d ?(.) ?-f ?([1-9])|awk (?:-F ?([^\s\\]) )?\{ ?print (\$[1-9]|NF);? ?\}")
_SIGN = lazy(r"[^\\[-]|\\n")
_SED = lazy(r"sed s([/|#,])((?:(?!\1)[\w :@%=/,#-])+)\1((?:(?!\1)[\w :@%=/,#-])*)\1(g?)")


@contextmanager
def child(scope: ShellScope, end: str = "") -> Iterator[None]:
    """Undo the changes of a child process at the end of the context, except its output."""
    before, is_piped = scope.get(OUTPUT), end in ("|", "|&")
    with scope.isolated() as changes:
        if before is not None and is_piped:
            scope.set(OUTPUT, replace(before, pieces=()))
        yield
    if before is not None:
        scope.set(INPUT, changes.get(OUTPUT) if is_piped else None)
        scope.set(OUTPUT, before if is_piped else changes.get(OUTPUT, before))


def is_silent(node: Node) -> bool:
    """True if a command's output goes to a file."""
    redirects = () if isinstance(node, Function) else node.redirects
    return any(_TO_FILE.match(redirect.span.text) for redirect in redirects)


def settled(value: Value | None, body: Sequence[Node]) -> Value | None:
    """Return the output of `$( body )`; None if only a part or an alternative has a condition."""
    pieces = (value and value.pieces) or ()
    conditions = {piece.condition for piece in present(pieces) if piece.text}
    is_choice = len(conditions) > 1 or any(node.end == "||" for node in body)
    if any(conditions) and is_choice:
        return None
    return replace(value, pieces=present(pieces)) if value and None in conditions else value


def put(expander: Expander, node: Simple, fields: Sequence[Field]) -> None:
    """Add a command's output to that of `$( … )`, which an unsupported command makes unknown."""
    before = expander.scope.get(OUTPUT)
    if before is None or before.pieces is None:
        return
    shown = [field for field in fields if present(field.pieces) or not field.pieces]
    texts, piped = [field.text for field in shown], _piped(expander, node)
    every = [*(piece for field in shown for piece in field.pieces), *present(piped or ())]
    pieces = piped if texts == ["cat"] else None
    if pieces is None and not any(piece.unknown or piece.condition for piece in every):
        text = "".join(piece.text for piece in present(piped)) if piped is not None else None
        found = _output(texts, text)
        note = next((piece.note for piece in every if piece.note), None)
        source, start = before.span.source, before.span.start
        piece = WordPiece(found or "", source, start, exact=False, note=note)
        pieces = None if found is None else (piece,)
    known = None if pieces is None else (*before.pieces, *pieces)
    size = sum(len(piece.text) for piece in known or ())
    expander.document.spend(len(known or ()) + size // 100)
    expander.scope.set(OUTPUT, replace(before, pieces=known if size <= MAX_TEXT else None))


def _piped(expander: Expander, node: Simple) -> tuple[WordPiece, ...] | None:
    """Return the input of a command in `$( … )`; None if unknown."""
    here = next((found for found in node.redirects if found.operator[0] == "<"), None)
    if here is None:
        held = expander.scope.get(INPUT)
        return held.pieces if held is not None else None
    if here.body is not None:
        return expander.document_text(here, here.body)
    end = WordPiece("\n", node.span.source, node.span.start, exact=False)
    target = here.target if here.operator == "<<<" else None
    return (*expander.text(target), end) if target is not None else None


def _output(words: Sequence[str], text: str | None) -> str | None:  # noqa: PLR0911
    """Return the output of a command that gets the input `text`; None if unsupported.

    For a program search (``command -v sglang``), return the program's name instead of its path.
    """
    match list(words):
        case ["seq", *arguments]:
            return _seq(arguments, MAX_WORDS)
        case ["which", program] | ["command", "-v", program]:
            return program if _PROGRAM.match(program) else None
        case ["echo", *rest] if not re.match(r"-[neE]+\Z", "".join(rest[rest[:1] == ["-n"] :][:1])):
            return " ".join(rest[1:]) if rest[:1] == ["-n"] else " ".join(rest) + "\n"
        case ["printf", "--", form, *rest] | ["printf", form, *rest]:
            return _formatted(form, rest)
        case ["basename", path] if path.strip("/"):
            return path.rstrip("/").rpartition("/")[2]
        case ["dirname", path] if path.strip("/") and "//" not in path:
            return posixpath.dirname(path.rstrip("/")) or "."
        case [name, *_] if name in _QUIET:
            return ""
    return None if text is None else _filtered([*words], text)


def _formatted(form: str, words: Sequence[str]) -> str | None:
    """Return the output of `printf` with `%s` and `%d`; None for other formats."""
    slots = re.findall("%[sd]", form)
    rounds = max(-(-len(words) // len(slots)), 1) if slots else 1
    filled = [*words, *[""] * (rounds * len(slots) - len(words))] if slots else []
    pairs = zip(slots * rounds, filled, strict=True)
    is_known = all(slot == "%s" or _NUMBER.fullmatch(word) for slot, word in pairs)
    if not is_known or not _FORMAT.fullmatch(form) or len(form) * rounds > MAX_TEXT:
        return None
    return form.replace("%d", "%s").replace("\\n", "\n") * rounds % tuple(filled)


def _filtered(words: list[str], text: str) -> str | None:  # noqa: PLR0911
    """Return what a filter such as `cut -d, -f1` makes of `text`; None if unsupported."""
    match words:
        case ["tr", "A-Z" | "[:upper:]", "a-z" | "[:lower:]"] if text.isascii():
            return text.lower()
        case ["tr", "-d", signs] if not set(signs) & set("\\[-"):
            return text.translate(dict.fromkeys(map(ord, signs)))
        case ["tr", old, new] if _SIGN.fullmatch(old) and _SIGN.fullmatch(new):
            return text.replace(old.replace("\\n", "\n"), new.replace("\\n", "\n"))
        case ["wc", "-l"]:
            return str(text.count("\n"))
        case ["head", "-1" | "-n1"] | ["head", "-n", "1"]:
            return text.partition("\n")[0]
    command, line = " ".join(words), text.removesuffix("\n")
    if (found := _SED.fullmatch(command)) and "\n" not in line:
        return line.replace(found[2], found[3], -1 if found[4] else 1) + "\n"
    if (found := _CUT.fullmatch(command)) is None or "\n" in line:
        return None
    columns, column = line.split(found[1] or found[3]), (found[2] or found[4]).removeprefix("$")
    if found[1] and len(columns) == 1:
        return text
    if column == "NF":
        return f"{len(columns) if line else 0}\n"
    return "".join(columns[int(column) - 1 : int(column)]) + "\n"


def _seq(arguments: list[str], most: int) -> str | None:
    separator = "\n"
    if arguments and arguments[0].startswith("-s"):
        option = arguments.pop(0)
        separator = option[2:] or (arguments.pop(0) if arguments else "")
    if not 1 <= len(arguments) <= 3 or not all(INTEGER.match(text) for text in arguments):
        return None
    numbers = [int(text) for text in arguments]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0 or (numbers[-1] - first) // step >= most:
        return None
    stop = numbers[-1] + (1 if step > 0 else -1)
    return separator.join(map(str, range(first, stop, step))) + "\n"


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
    if fields[0].text not in ("source", ".") or len(fields) != 2:
        return None
    path, moved = fields[1], ""
    if path.text.startswith("/") and not path.unknown:  # of the machine that the script is for
        own = f"${{0%/*}}/{posixpath.basename(path.text)}"
        path, moved = Field((replace(path.pieces[0], text=own),)), f" as {path.text}"
    found = neighbor(scope, path)
    if found is None or found.text is None:
        return None
    text, document = found.text, node.span.source.document
    if "/" in found.shown:  # `$BASH_SOURCE` is not the script
        text = re.sub(r"BASH_SOURCE(\[0\])?", lambda _: f"0/../{found.shown}", text)
    document.spend(1000)
    where = [node.span.source.offset(node.span.start)] * len(text)
    with suppress(InputError):
        return parse(SourceText(document, text, where)), f"read from {found.shown}{moved}"
    return None


def imported(value: Value, span: SourceSpan, note: str) -> Value:
    """Return a value that the `source` command at `span` sets, without places in its file."""

    def put(piece: WordPiece) -> WordPiece:
        own = piece.note or note
        return replace(piece, owner=None, note=own if note in own else f"{own}; {note}")

    moved = replace(value.each(put), span=replace(span, end=span.start))
    return replace(moved, items=moved.items and tuple(Field(item.pieces) for item in moved.items))
