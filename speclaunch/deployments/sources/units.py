"""Read the lines of a systemd unit or a Quadlet that a shell would misread, and other languages.

Sources: systemd.exec(5), systemd.service(5) and podman-systemd.unit(5); PowerShell, about_Quoting
and about_Variables; supervisord's "Configuration File".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.fields import Field, ShellScope, Value
from speclaunch.deployments.sources.interface import Dropped
from speclaunch.deployments.sources.shell_syntax import Literal, Node, OpaquePart, ShellWord, Simple
from speclaunch.deployments.sources.source_text import (
    SourceBuilder,
    SourceSpan,
    SourceText,
    WordPiece,
)
from speclaunch.deployments.sources.wrappers import cut

_EXEC = lazy(r"Exec(?:Condition|(?:Start|Stop)(?:Pre|Post)?|Reload)\Z")
_PREFIXES = "-@:+!|"
"""Characters before a program that change how systemd runs it."""
_NAME = lazy(r"[A-Za-z_]\w*=")
_WORD = lazy(r"(?:\"(?:[^\"\\]|\\[\s\S])*\"|'(?:[^'\\]|\\[\s\S])*'|[^\s\"'\\]|\\[^\n])+")
_PART = lazy(r"(\"|')((?:(?!\1)[^\\]|\\[\s\S])*)\1|(?:[^\"'\\]|\\.)+")
_LINE = lazy(r"(?:[^\n\\]|\\[\s\S])*")
_SECTION = lazy(r"\[[A-Za-z]+\]\Z")
_OPTIONS = {"ContainerName": "--name", "EnvironmentFile": "--env-file"}
_ORDER = (*_OPTIONS, "PodmanArgs", "Image", "Entrypoint", "Exec")
"""Settings of a Quadlet's ``[Container]`` in the order of `podman run`."""
_ALL = frozenset({"EnvironmentFile", "PodmanArgs"})
"""Settings whose values accumulate. For all other settings, the last value applies."""
_ESCAPE = lazy(r"\\([\\\"'])|%(%)")
_OPEN = lazy(r"[\\%]")


def read_settings(
    nodes: Sequence[Node], scope: ShellScope
) -> tuple[Sequence[Node], Sequence[Dropped]]:
    """Return a unit's commands and unread environment files; `nodes` and () for other texts.

    ``Environment=`` variables are added to `scope`; their position in the unit is irrelevant.
    """
    plain, nodes = nodes, _with_container(nodes)
    if nodes is plain and not any(_EXEC.match(_setting(node)) for node in nodes):
        return nodes, ()
    commands: list[Node] = []
    dropped: list[Dropped] = []
    variables: dict[str, Value] = {}
    for node in nodes:
        setting = _setting(node)
        if setting == "Environment":
            _add_variables(node.span, variables)
        elif setting == "EnvironmentFile":
            dropped.append(Dropped(node.span.text, node.span.place, "its variables are not read"))
        elif not _EXEC.match(setting):
            commands.append(node)
        elif isinstance(node, Simple) and (program := _program(node.assignments[0].value)):
            words = (program, *node.words)
            commands.append(replace(node, assignments=node.assignments[1:], words=words))
    for name, value in variables.items():
        scope.set(name, value)
    return commands, dropped


def _with_container(nodes: Sequence[Node]) -> Sequence[Node]:
    """Return the nodes, with a Quadlet's ``[Container]`` as one `podman run` command."""
    rest: list[Node] = []
    held: dict[str, list[ShellWord]] = {}
    variables: dict[str, Value] = {}
    header, program = None, None
    for node in nodes:
        name, line = _setting(node), node.span.text
        if _SECTION.match(line):
            header = node if line == "[Container]" else None
        elif header is None or not isinstance(node, Simple) or not name:
            rest.append(node)
        elif name == "Environment":
            _add_variables(node.span, variables)
        elif name in _ORDER and isinstance(value := node.assignments[0].value, ShellWord):
            if name not in _ALL:
                held.pop(name, None)
            if name in _OPTIONS:
                held.setdefault(name, []).append(_word(value.span, _OPTIONS[name]))
            held.setdefault(name, []).extend((value, *_more(node), *node.words))
            program = node if name == "Exec" else program
    if program is None:
        return nodes
    words = [_word(program.span, text) for text in ("podman", "run")]
    for name, variable in variables.items():
        words += (_word(variable.span, "-e"), _assigned(name, variable))
    words += (word for name in _ORDER for word in held.get(name, ()))
    return (*rest, replace(program, assignments=(), words=tuple(words)))


def _more(node: Simple) -> Iterator[ShellWord]:
    """Yield the ``NAME=value`` words after the first word of a setting."""
    for each in node.assignments[1:]:
        if isinstance(each.value, ShellWord):
            name = Literal(f"{each.name}=", each.span.start)
            yield replace(each.value, parts=(name, *each.value.parts), start=each.span.start)


def _word(span: SourceSpan, text: str) -> ShellWord:
    """Return a word that the file does not contain, with the place of `span`."""
    return ShellWord((Literal(text, span.start, exact=False),), span.source, span.start, span.end)


def _assigned(name: str, value: Value) -> ShellWord:
    start = max(value.span.start - len(name) - 1, 0)
    parts: list[Literal | OpaquePart] = [Literal(f"{name}=", start, quoted=True)]
    for piece in value.pieces or ():
        if piece.unknown:
            end = piece.start + len(piece.text)
            parts.append(OpaquePart(piece.unknown, piece.start, end, quoted=True))
        else:
            parts.append(Literal(piece.text, piece.start, quoted=True, exact=piece.exact))
    return ShellWord(tuple(parts), value.span.source, start, value.span.end)


def _setting(node: Node) -> str:
    return node.assignments[0].name if isinstance(node, Simple) and node.assignments else ""


def _program(word: ShellWord | tuple[ShellWord, ...]) -> ShellWord | None:
    """Return a program without its prefixes; None if systemd runs nothing (``NAME=value``)."""
    if isinstance(word, tuple) or not word.parts or _NAME.match(word.span.text):
        return None
    first = word.parts[0]
    if not isinstance(first, Literal):
        return word
    text = first.text.lstrip(_PREFIXES)
    count = len(first.text) - len(text)
    first = replace(first, text=text, start=first.start + count)
    return replace(word, parts=(first, *word.parts[1:]), start=word.start + count)


def _add_variables(line: SourceSpan, variables: dict[str, Value]) -> None:
    if line.text == "Environment=":  # an empty value clears the list
        variables.clear()
    variables |= _variables(line)


def _variables(line: SourceSpan) -> Iterator[tuple[str, Value]]:
    """Yield the variables of an ``Environment=`` line. systemd does not expand ``$`` in them."""
    source = line.source
    start = source.text.index("=", line.start) + 1
    end = _LINE.search(source.text, start)
    for word in _WORD.finditer(source.text, start, end.end() if end else line.end):
        parts = _PART.finditer(source.text, word.start(), word.end())
        pieces = tuple(_piece(source, part) for part in parts)
        name = _NAME.match("".join(piece.text for piece in pieces))
        if name is not None:
            value = cut(Field(pieces, SourceSpan(source, word.start(), word.end())), name.end())
            yield name[0][:-1], Value(value.stretch, value.pieces, exported=True)


def _piece(source: SourceText, part: re.Match[str]) -> WordPiece:
    raw, start = (part[0], part.start()) if part[1] is None else (part[2], part.start(2))
    if "\\" not in raw and "%" not in raw:
        return WordPiece(raw, source, start, quoted=True)
    if _OPEN.search(_ESCAPE.sub("", raw)):
        why = "systemd replaces its escapes and specifiers"
        return WordPiece(raw, source, start, True, True, why)
    return WordPiece(_ESCAPE.sub(r"\1\2", raw), source, start, quoted=True, exact=False)


_LITERAL = r"[ \t]*=[ \t]*(?=(?:\"[^\"\n]*\"|'[^'\n]*'|[\d.]+)[ \t]*(?:#.*)?$)"
_POWERSHELL = (
    (r"\r$", ""),
    (r"('[^'\n]*')|(\\)", r"\1\2\2"),
    (r"`", r"\\"),
    (rf"^\$env:(\w+){_LITERAL}", r"export \1="),
    (rf"^\$(\w+){_LITERAL}", r"\1="),  # an indented assignment may be in a branch
    (r"^[ \t]*\$(?:env:)?(\w+)[ \t]*[-+*/]?=[^\n]*", r"\1=$(computed)"),
    (r"\$\{?env:(\w+)\}?", r"${\1}"),
    (r"\$(\w+(?:\.\w|\[)[\w.\[\]]*)", r"$(\1)"),
    (r"^[ \t]*&[ \t]+", ""),
    (r"(?<=[ \t])@(\w+)", r'"${\1[@]}"'),
)
_SUPERVISORD = (
    (r"\n[ \t]+(?=[^\s;#])", " "),
    (r"^command[ \t]*=[ \t]*", ""),
    (r"%\((?:ENV_)?(\w+)\)s", r"${\1}"),
    (r"%%", "%"),
)
LANGUAGES = {
    "supervisord": _SUPERVISORD,
    **dict.fromkeys(("powershell", "pwsh", "ps1"), _POWERSHELL),
}


def in_shell(source: SourceText, language: str) -> SourceText:
    """Return a text as a shell script with the same commands; a shell script unchanged."""
    rules = LANGUAGES.get(language, ())
    source.document.spend(len(source.text) // 3 if rules else 0)
    for pattern, template in rules:
        builder, at = SourceBuilder(source.document), 0
        for match in [*re.finditer(pattern, source.text, re.MULTILINE), None]:
            start, end = match.span() if match else (len(source.text), 0)
            builder.put(source.text[at:start], map(source.offset, range(at, start)))
            text = match.expand(template) if match else ""
            where = range(start, end) if match and text == match[0] else [start] * len(text)
            builder.put(text, map(source.offset, where))
            at = end
        source = builder.source()
    return source
