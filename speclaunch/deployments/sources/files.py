"""Read server commands from a command line, a script or any file."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from msgspec.structs import replace

from speclaunch.core import COMMAND_LINE, InputError, Place, Problem, lazy, read_regular, reason
from speclaunch.deployments.sources.commands import CommandContext, environment, look
from speclaunch.deployments.sources.effective_words import followed
from speclaunch.deployments.sources.fields import Field, ShellScope, Value
from speclaunch.deployments.sources.interface import Reading, Word
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.shell_builtins import SCRIPT
from speclaunch.deployments.sources.source_text import (
    GO_SUFFIXES,
    KUSTOMIZATIONS,
    MAX_BYTES,
    PYTHON_SUFFIX,
    YAML_AND_JSON_SUFFIXES,
    Document,
    Form,
    SourceSpan,
    SourceText,
    TemplateError,
    WordPiece,
    form_of,
    is_template,
    looks_like_yaml,
    template_of,
)

_NOT_OURS = frozenset(
    {".toml", ".ini", ".cfg", ".rs", ".go", ".ts", ".js", ".jsonl", ".bat", ".cmd"}
)
_NIX = ".nix"
_ADDED = "the expression may add more"
_MOST_UNREAD = 4
"""Maximum number of unreadable commands of a script. A file with more is notes to paste from."""
_SCRIPTS = frozenset({".sh", ".bash", ".slurm", ".sbatch"})
_BASH_START = lazy(r"#![^\n]*\b(?:ba|da)?sh\b")


class _CommandLine(Document):
    """Command line as a document. Its places include their text."""

    def place(self, at: int, length: int = 1) -> Place:
        found = super().place(at, length)
        return replace(found, text=self.text[at : at + length])


def read_words(argv: Sequence[str], *, marked: Sequence[str] | None = None) -> Reading:
    """Return the server that the arguments after ``--`` start.

    `marked`: the same arguments with the marks that replace vLLM's program (`vllm.py`). In a place,
    `column` refers to the shell-quoted command, and `text` is the argument there.
    """
    quoted = [shlex.quote(word) for word in argv]
    document = _CommandLine(" ".join(quoted), COMMAND_LINE)
    line = document.source()
    fields: list[Field] = []
    at = 0
    for word, shown in zip(marked or argv, quoted, strict=True):
        where: int | list[int] = at if word == shown else at + 1
        if "'" in word or not word or "\r" in word:
            where = [at] * len(word)
        piece = WordPiece(word, SourceText(document, word, where), 0, quoted=True)
        fields.append(Field((piece,), SourceSpan(line, at, at + len(shown))))
        at += len(shown) + 1
    found = look(fields)
    if found.invocation is not None:
        env = environment(ShellScope(), {}, found.wrapping, CommandContext())
        dropped = (*found.wrapping.dropped, *found.invocation.dropped)
        invocation = replace(found.invocation, env=env, dropped=dropped)
        return Reading((invocation,), tuple(found.problems))
    if found.script:
        script = found.script[0]
        source = SourceText(document, script.text, script.pieces[0].source.where)
        env = environment(ShellScope(), {}, found.wrapping, CommandContext())
        before = tuple(field.word() for field in found.before)
        context = CommandContext(
            before, tuple(found.wrapping.dropped), found.wrapping.name, found.wrapping.image, env
        )
        variables = {
            name: Value(field.stretch, field.pieces, exported=True)
            for name, field in found.wrapping.env.items()
        }
        return run(source, ShellScope(variables, positional=found.positional), context)
    return Reading()


def read_shell(text: str, shown: str) -> Reading:
    """Return the servers that a shell script starts. `shown` is the name of the file.

    Raise InputError for NUL bytes, excessive nesting, or far more work than a launch script needs.
    """
    document = _document(text, shown, lenient=is_template(shown))
    if shown.endswith(_NIX):
        return _of_nix(run(document.source()))
    if shown.lower().endswith(".ps1") or ("[program:" in text and shown.endswith(".conf")):
        return _of_another(document)
    if document.lenient or not _is_script(text, shown):
        return _together(run(document.source()), document)
    path = (WordPiece(shown, document.source(), 0, exact=False),)
    scope = ShellScope({SCRIPT: Value(SourceSpan(document.source(), 0, 0), path)})
    if "#SBATCH" in text:
        from speclaunch.deployments.sources import compose_and_jobs  # noqa: PLC0415  few are jobs

        scope.variables |= compose_and_jobs.job_variables(document)
    reading = _together(run(document.source(), scope, strict=True), document)
    if len(reading.unread) > _MOST_UNREAD and not text.startswith("#!"):
        return _together(run(document.source()), document)
    carriage = _carriage_return(text, shown) if reading.invocations else None
    if carriage is None:
        return reading
    return replace(reading, misread=(carriage, *reading.misread))


def _of_another(document: Document) -> Reading:
    """Return the commands in a PowerShell script or a supervisord file."""
    from speclaunch.deployments.sources import units  # noqa: PLC0415  few files are

    language = "supervisord" if document.shown.endswith(".conf") else "powershell"
    found = run(units.in_shell(document.source(), language)).invocations
    return Reading(tuple(replace(x, read_only="it is not a shell script") for x in found))


def _of_nix(reading: Reading) -> Reading:
    """Return the commands in a Nix expression's scripts and lists. Nix may add arguments."""
    servers = []
    for found in filter(lambda found: found.words, reading.invocations):
        more = Word("*", found.place, evaluated=False, why=_ADDED)
        words = (more, *takewhile(lambda word: word.text != "]", found.words))
        servers.append(replace(found, words=words, read_only="it is a Nix expression"))
    return Reading(tuple(servers))


def _together(reading: Reading, document: Document) -> Reading:
    several = len(reading.invocations) > 1 or bool(reading.routers and reading.invocations)
    if not several and "#SBATCH" not in document.text:
        return reading
    from speclaunch.deployments.sources import compose_and_jobs  # noqa: PLC0415  most scripts start one server

    if not compose_and_jobs.may_form_deployment(reading, document.text):
        return reading
    return compose_and_jobs.add_script_context(reading, document)


def _is_script(text: str, shown: str) -> bool:
    """True if bash (or sh) gets the file unchanged.

    In a Dockerfile, a systemd unit or a pasted fragment, CRLF and syntax errors are allowed.
    """
    if text.startswith("#!"):
        return _BASH_START.match(text) is not None
    return Path(shown).suffix.lower() in _SCRIPTS


def _carriage_return(text: str, shown: str) -> Problem | None:
    for number, line in enumerate(text.split("\n"), 1):
        is_comment = line.lstrip().startswith("#") and not line.startswith("#!")
        if line.endswith("\r") and not is_comment:
            return Problem(
                "CRLF line endings: bash reads the carriage return as part of the last word "
                "of each line, and a `\\` before it does not continue the line",
                Place(shown, number, max(len(line.rstrip("\r")), 1)),
                f"convert the file: dos2unix {shlex.quote(shown)}",
            )
    return None


def read_markdown(text: str, shown: str) -> Reading:
    """Return the servers in a document's code: Markdown, reStructuredText or plain text."""
    return _read_document(_document(text, shown, lenient=True))


def _read_document(document: Document) -> Reading:
    from speclaunch.deployments.sources import documents  # noqa: PLC0415

    return documents.read_markdown(document)


def read_dockerfile(text: str, shown: str) -> Reading:
    """Return the servers that the stages or the build of a Dockerfile start."""
    from speclaunch.deployments.sources import dockerfile  # noqa: PLC0415  few files are

    return dockerfile.read_dockerfile(_document(text, shown, lenient=is_template(shown)))


def read_makefile(text: str, shown: str) -> Reading:
    """Return the servers that the recipes of a Makefile start."""
    from speclaunch.deployments.sources import templates  # noqa: PLC0415  few files are

    document = _document(text, shown)
    return _together(templates.read_makefile(document), document)


def read_notebook(text: str, shown: str) -> Reading:
    """Return the servers that the cells of a Jupyter notebook start."""
    from speclaunch.deployments.sources import documents  # noqa: PLC0415  few files are, and it needs YAML

    return documents.read_notebook(_document(text, shown, lenient=True))


def read_yaml(text: str, shown: str) -> Reading:
    """Return the servers in YAML.

    The text may be a docker-compose, Kubernetes or SGLang ``--config`` file. Embedded scripts are
    read. The result is empty for recipes and for YAML without a server.
    """
    from speclaunch.deployments.sources.yaml_files import read_yaml_document  # noqa: PLC0415  scripts need none

    return read_yaml_document(_document(text, shown, lenient=is_template(shown)), _read_document)


def read_text(text: str | bytes, shown: str, suffix: str | None = None) -> Reading:
    """Return the servers in a text, read according to its name and first lines.

    Bytes are a file's UTF-8 content. `suffix` (``.sh``, ``.yaml``, ``.md`` …) defaults to that of
    `shown`. If the suffix is unknown, the text decides between YAML and a script. Raise InputError
    for unreadable input, and TemplateError for a template that must be rendered first.
    """
    if isinstance(text, bytes):
        text = _decoded(text, shown)
    name = Path(shown if suffix is None else f"x{suffix}")
    kind = (Path(Path(shown).stem).suffix if is_template(shown) else name.suffix).lower()
    if kind in _NOT_OURS:
        return Reading()
    if kind != PYTHON_SUFFIX:
        template = template_of(text, Path(shown), is_yaml=looks_like_yaml(text, kind))
        if template is not None:
            reading = read_template(text, shown, kind)
            if reading.invocations:
                return reading
            raise TemplateError(Problem(f"{shown} {template}"))
    form = form_of(text, shown, kind)
    reading = _READERS[form](text, shown)
    if form is Form.YAML and "{{" in text and reading.invocations:
        from speclaunch.deployments.sources import templates  # noqa: PLC0415  few files have marks

        reading = templates.fill_in(reading, text, shown)
    return _with_read_variables(reading, text)


_READ_VARIABLE = lazy(
    r"""(?:\b(\w+)(?:=|\s*:\s)["']?)?(?:\$[{(]?|\b(?:getenv|environ\.get)\(["'])"""
    r"""(SGL(?:ANG)?_\w+)\b(?!:?=)"""
)
"""Pattern of a variable that a file reads, after the name that it is assigned to."""


def _with_read_variables(reading: Reading, text: str) -> Reading:
    """Return the commands with the engine-like variables that the file reads.

    A variable that is only passed on (`-e NAME=$NAME`) or set by default is not read.
    """
    names = frozenset(match[2] for match in _READ_VARIABLE.finditer(text) if match[2] != match[1])
    if not names:
        return reading
    found = (replace(command, read_variables=names) for command in reading.invocations)
    return replace(reading, invocations=tuple(found))


def _read_python(text: str, shown: str) -> Reading:
    from speclaunch.deployments.sources.python_files import read_python  # noqa: PLC0415  `ast`

    return read_python(text, shown)


def read_template(text: str, shown: str, kind: str) -> Reading:
    """Return the servers in an unrendered template; `kind` is the suffix of its output."""
    from speclaunch.deployments.sources import templates  # noqa: PLC0415  few files are templates

    is_yaml = looks_like_yaml(text, kind) or Path(shown).suffix.lower() in GO_SUFFIXES
    reading = templates.read_template(text, shown, is_yaml=is_yaml)
    if is_yaml and not reading.invocations and kind not in YAML_AND_JSON_SUFFIXES:
        reading = templates.read_template(text, shown, is_yaml=False)
    return _with_read_variables(reading, text)


def _read_plain(text: str, shown: str) -> Reading:
    if text.startswith("#!"):
        return read_shell(text, shown)
    reading = read_markdown(text, shown)
    if reading.invocations:
        return reading
    with suppress(InputError):
        script = read_shell(text, shown)
        if script.invocations:
            return script
    return reading


_READERS: dict[Form, Callable[[str, str], Reading]] = {
    Form.PROGRAM: _read_python,
    Form.PLAIN: _read_plain,
    Form.DOCUMENT: read_markdown,
    Form.NOTEBOOK: read_notebook,
    Form.DOCKERFILE: read_dockerfile,
    Form.MAKEFILE: read_makefile,
    Form.YAML: read_yaml,
    Form.SHELL: read_shell,
}


def read_with_named_files(
    data: bytes, shown: str, file: Path | None, suffix: str | None = None
) -> Reading:
    """Return the servers in a text, and in the files that it names.

    `file` is None for standard input. Raise InputError for unreadable input.
    """
    if file is not None and file.name in KUSTOMIZATIONS:
        from speclaunch.deployments.sources import kustomizations  # noqa: PLC0415  few files are one

        return kustomizations.read_kustomization(file, data, shown)
    return followed(read_text(data, shown, suffix), file)


def read_file(path: Path, shown: str | None = None) -> Reading:
    """Return the servers in a file. Raise InputError if it is unreadable."""
    name = shown or str(path)
    try:
        data = read_regular(path)
    except OSError as error:
        from speclaunch.deployments.recipe.find_recipe import similar_file  # noqa: PLC0415 - for a mistake

        problem = Problem(f"cannot read {name}: {reason(error)}", help=similar_file(str(path)))
        raise InputError(problem) from error
    return read_with_named_files(data, name, path, path.suffix)


def _decoded(data: bytes, shown: str) -> str:
    if len(data) > MAX_BYTES:
        raise InputError(f"{shown} is larger than 10 MiB", Place(shown))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} is not UTF-8 text (byte {error.start})") from error


def _document(text: str, shown: str, *, lenient: bool = False) -> Document:
    if len(text) > MAX_BYTES:
        raise InputError(f"{shown} is larger than 10 MiB", Place(shown))
    return Document(text, shown, lenient=lenient)
