"""The readers: a command, a script, a file of any kind that may hold server commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem
from speclaunch.importer.commands import Around, environment, look
from speclaunch.importer.follow import followed
from speclaunch.importer.interface import Reading
from speclaunch.importer.interpret import run
from speclaunch.importer.placeholders import is_template
from speclaunch.importer.scope import Field, ShellScope, Value
from speclaunch.importer.source_text import Document, SourceSpan, SourceText, WordPiece
from speclaunch.importer.suffixes import MAX_BYTES
from speclaunch.importer.templates import TemplateError, template_of
from speclaunch.patterns import lazy

_YAML = frozenset({".yaml", ".yml", ".json"})
_MARKDOWN = frozenset({".md", ".markdown", ".mdx"})
_NOT_OURS = frozenset({".py", ".toml", ".ini", ".cfg", ".ipynb", ".rs", ".go", ".ts", ".js"})
_YAML_START = lazy(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*(?:---|%YAML|(?:apiVersion|kind|services|version|name|defaults):)"
)
_SHELL_START = lazy(r"#!.*sh\b")
_SCRIPTS = frozenset({".sh", ".bash", ".slurm", ".sbatch"})
_BASH_START = lazy(r"#![^\n]*\b(?:ba|da)?sh\b")


class _CommandLine(Document):
    """The words of a command as a shell would be given them: there is no file."""

    def place(self, at: int, length: int = 1) -> Place:
        found = super().place(at, length)
        return replace(found, text=self.text[at : at + length])


def read_words(argv: Sequence[str]) -> Reading:
    """The server in a command that was given as words (after ``--``).

    Places are on the command line: `column` counts in the command as it would be quoted for a
    shell, `text` is the word there.
    """
    quoted = [shlex.quote(word) for word in argv]
    document = _CommandLine(" ".join(quoted), COMMAND_LINE)
    whole = document.source()
    fields: list[Field] = []
    at = 0
    for word, shown in zip(argv, quoted, strict=True):
        where: int | list[int] = at if word == shown else at + 1
        if "'" in word or not word or "\r" in word:
            where = [at] * len(word)
        piece = WordPiece(word, SourceText(document, word, where), 0, quoted=True)
        fields.append(Field((piece,), SourceSpan(whole, at, at + len(shown))))
        at += len(shown) + 1
    found = look(fields)
    if found.invocation is not None:
        env = environment(ShellScope(), {}, found.wrapping, Around())
        dropped = (*found.wrapping.dropped, *found.invocation.dropped)
        invocation = replace(found.invocation, env=env, dropped=dropped)
        return Reading((invocation,), tuple(found.problems))
    if found.script:
        source = SourceText(document, found.script[0].text, _where(found.script[0]))
        env = environment(ShellScope(), {}, found.wrapping, Around())
        before = tuple(field.word() for field in found.before)
        around = Around(
            before,
            tuple(found.wrapping.dropped),
            found.wrapping.name,
            found.wrapping.image,
            env,
        )
        given = {
            name: Value(field.stretch, field.pieces, exported=True)
            for name, field in found.wrapping.env.items()
        }
        return run(source, ShellScope(given, positional=found.positional), around)
    return Reading()


def _where(field: Field) -> int | Sequence[int]:
    return field.pieces[0].source.where


def read_shell(text: str, shown: str) -> Reading:
    """The servers that a shell script starts.  `shown` is the name of the file.

    Raises InputError where the script cannot be read at all (a quote that is never closed, NUL
    bytes, nesting without end, more than any launch script holds).
    """
    document = _document(text, shown, lenient=is_template(shown))
    if document.lenient or not _is_script(text, shown):
        return run(document.source())
    reading = run(document.source(), strict=True)
    carriage = _carriage_return(text, shown) if reading.invocations else None
    if carriage is None:
        return reading
    return replace(reading, misread=(carriage, *reading.misread))


def _is_script(text: str, shown: str) -> bool:
    """Whether bash (or sh) is given the file as it stands.

    A Dockerfile, a unit of systemd, a pasted fragment has line ends and errors of its own.
    """
    if text.startswith("#!"):
        return _BASH_START.match(text) is not None
    return Path(shown).suffix.lower() in _SCRIPTS


def _carriage_return(text: str, shown: str) -> Problem | None:
    """What bash makes of a script that was saved with the line ends of Windows."""
    for number, line in enumerate(text.split("\n"), 1):
        is_comment = line.lstrip().startswith("#") and not line.startswith("#!")
        if line.endswith("\r") and not is_comment:
            return Problem(
                "the line ends are CRLF: bash reads the carriage return as part of the last word "
                "of each line, and a `\\` before it does not continue the line",
                Place(shown, number, max(len(line) - 1, 1)),
                f"convert the file: dos2unix {shlex.quote(shown)}",
            )
    return None


def read_markdown(text: str, shown: str) -> Reading:
    """The servers in the shell blocks of a Markdown document."""
    from speclaunch.importer import markdown  # noqa: PLC0415

    return markdown.read_markdown(_document(text, shown, lenient=True))


def read_yaml(text: str, shown: str) -> Reading:
    """The servers in YAML: docker-compose, Kubernetes, SGLang's own ``--config``, or scripts in it.

    A recipe of ours, or anything else without a server, gives an empty reading.
    """
    from speclaunch.importer.yaml_files import read_yaml_document  # noqa: PLC0415  scripts need none

    return read_yaml_document(_document(text, shown, lenient=is_template(shown)))


def read_text(text: str | bytes, shown: str, suffix: str | None = None) -> Reading:
    """The servers in a text, read as what its name and its first lines say it is.

    Bytes are a file's: UTF-8.  `suffix` is that of the file (taken from `shown` when None):
    ``.sh``, ``.yaml``, ``.md`` …  Without a telling one the text decides between YAML and a script.
    Raises InputError, and TemplateError for what has to be rendered first.
    """
    if isinstance(text, bytes):
        text = _decoded(text, shown)
    name = Path(shown if suffix is None else f"x{suffix}")
    kind = (Path(Path(shown).stem).suffix if is_template(shown) else name.suffix).lower()
    if kind in _NOT_OURS:
        return Reading()
    template = template_of(text, Path(shown), is_yaml=looks_like_yaml(text, kind))
    if template is not None:
        raise TemplateError(Problem(f"{shown} {template}"))
    if kind in _MARKDOWN:
        return read_markdown(text, shown)
    if looks_like_yaml(text, kind):
        return read_yaml(text, shown)
    return read_shell(text, shown)


def looks_like_yaml(text: str, suffix: str) -> bool:
    """Whether a text is read as YAML: by the suffix of its file, else by its first lines."""
    if suffix in _MARKDOWN or suffix in _YAML:
        return suffix in _YAML
    return not _SHELL_START.match(text) and _YAML_START.match(text) is not None


def read_file(path: Path, shown: str | None = None) -> Reading:
    """The servers in a file.  Raises InputError for one that cannot be read."""
    name = shown or str(path)
    try:
        if not path.is_file():
            what = "is a directory" if path.is_dir() else "no such file"
            raise InputError(Problem(f"cannot read {name}: {what}"))
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(
                Problem(f"{name} has {size} bytes; a launch script has at most 10 MiB")
            )
        data = path.read_bytes()
    except OSError as error:
        raise InputError(Problem(f"cannot read {name}: {error.strerror}")) from error
    return followed(read_text(data, name, path.suffix), path)


def _decoded(data: bytes, shown: str) -> str:
    if len(data) > MAX_BYTES:
        raise InputError(Problem(f"{shown} is larger than 10 MiB", Place(shown)))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"{shown} is not UTF-8 text (byte {error.start})")) from error


def _document(text: str, shown: str, *, lenient: bool = False) -> Document:
    if len(text) > MAX_BYTES:
        raise InputError(Problem(f"{shown} is larger than 10 MiB", Place(shown)))
    return Document(text, shown, lenient=lenient)
