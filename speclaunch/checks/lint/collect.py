"""Read deployments and ignore comments from paths: recipes, and server commands in any file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from speclaunch.checks.lint.configuration import (
    PROSE,
    STDIN,
    STDIN_SHOWN,
    FoundFile,
    has_package,
    starts_a_server,
)
from speclaunch.checks.rules.interface import Finding
from speclaunch.checks.rules.registry import INVALID, REFUSES, UNUSED, FileCode, known_codes
from speclaunch.core import COMMAND_LINE, InputError, Place, Problem, lazy, reads, reason
from speclaunch.deployments import (
    PYTHON_SUFFIX,
    YAML_SUFFIXES,
    Invocation,
    Reading,
    is_template,
    looks_like_yaml,
    read_template,
    read_text,
    read_with_named_files,
    template_of,
)

if TYPE_CHECKING:
    import yaml

    from speclaunch.deployments import Recipe


_COMMENT = lazy(
    r"(?P<mark>#|<!--)\s*speclaunch:\s*ignore(?P<file>-file)?(?:\[(?P<codes>[^\]]*)\])?[ \t]*"
    r"(?P<reason>.*)"
)
_NOTHING = lazy(r"\s*(?:#|<!--|`{3}|~{3}|\.\. code|\Z)")
"""Line that may separate an ignore comment from its target: blank, a comment, or a code fence."""
_CODE = lazy(r"SPL\d{0,3}\Z|SPA(-\d{4}(-\d{4})?)?\Z")


class Extent(NamedTuple):
    """First and last line of a deployment in a file."""

    first: int
    last: int


class Ignore(Struct):
    """Ignore comment: its codes or code prefixes, and the lines that it applies to."""

    place: Place
    codes: tuple[str, ...]
    reason: str
    lines: range | None
    """Lines that it applies to; None: the complete file."""
    used: set[str] = set()

    def covers(self, finding: Finding) -> bool:
        """True if the comment suppresses a finding; marks the matching codes as used."""
        if self.lines is not None and finding.place.line not in self.lines:
            return False
        matching = [code for code in self.codes if finding.code.startswith(code)]
        self.used.update(matching)
        return bool(matching)


def read_ignores(text: str, path: str, commands: Sequence[Extent] = ()) -> list[Ignore]:
    """Return the ignore comments of a file in order. `commands`: the lines of its commands."""
    if "speclaunch:" not in text:
        return []
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    found: list[Ignore] = []
    for number, matched in _real_comments(lines, path):
        line = lines[number - 1]
        codes = tuple(c.strip().upper() for c in (matched["codes"] or "").split(",") if c.strip())
        reason = matched["reason"]
        if matched["mark"] != "#":
            reason = reason.partition("--")[0]
        length = len(matched[0].rstrip())
        place = Place(path, number, matched.start() + 1, length)
        own_line = not line[: matched.start()].strip()
        covered = None if matched["file"] else _covered(lines, number, own_line, commands)
        found.append(Ignore(place, codes, reason.strip(), covered))
    return found


def _real_comments(lines: Sequence[str], path: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the ignore comments in order, each with its line number."""
    from speclaunch.deployments import comments_of  # noqa: PLC0415  few files have any

    is_comment = comments_of("\n".join(lines), path)
    start = 0
    for number, line in enumerate(lines, 1):
        matched = _COMMENT.search(line) if "speclaunch:" in line else None
        while matched is not None:
            at = start + matched.start()
            if is_comment(at) if is_comment is not None else matched["mark"] == "#":
                yield number, matched
                break
            matched = _COMMENT.search(line, matched.start() + 1)
        start += len(line) + 1


def _covered(
    lines: Sequence[str], number: int, own_line: bool, commands: Sequence[Extent]
) -> range:
    if not own_line:
        return range(number, number + 1)
    following = number + 1
    while following <= len(lines) and _NOTHING.match(lines[following - 1]):
        following += 1
    for first, last in commands:
        if first <= following <= last:
            return range(following, last + 1) if first == following else range(following, first + 1)
    return range(following, following + 1)


def unsuppressed(findings: Iterable[Finding], ignores: Sequence[Ignore]) -> list[Finding]:
    """Return the findings that no ignore comment of their file suppresses."""
    by_path: dict[str, list[Ignore]] = {}
    for ignore in ignores:
        by_path.setdefault(ignore.place.path, []).append(ignore)

    def is_silenced(finding: Finding) -> bool:
        here = by_path.get(finding.place.path, ())
        covering = [ignore for ignore in here if ignore.covers(finding)]  # each records its use
        return bool(covering)

    return [finding for finding in findings if not is_silenced(finding)]


def complaints(
    ignores: Iterable[Ignore], path: str, engine: str, selected: Collection[str] | None = None
) -> Iterator[Finding]:
    """Yield findings about ignore comments of the file `path`.

    `selected`: the codes that were checked; None for all. A comment is reported as unused only if
    all codes that it suppresses were checked.
    """
    for ignore in ignores:
        for notice, message, why in _complaints(ignore, selected):
            if selected is None or notice.code in selected:
                yield notice.finding(Problem(message, ignore.place), path, engine, why)


def _complaints(
    ignore: Ignore, selected: Collection[str] | None
) -> Iterator[tuple[FileCode, str, str]]:
    if not ignore.codes:
        yield INVALID, "the ignore comment has no code", "it suppresses nothing"
    elif not ignore.reason:
        why = "readers cannot know its purpose"
        yield INVALID, "the ignore comment has no reason", why
    for code in ignore.codes:
        meant = [known for known in known_codes() if known.startswith(code)]
        if not _CODE.match(code) or not meant:
            yield INVALID, f"unknown rule code {code}", "it suppresses nothing"
        elif code == REFUSES.code or code in ignore.used:  # engine checks differ between machines
            continue
        elif selected is None or all(known in selected for known in meant):
            why = "the comment would silently suppress the next such finding"
            yield UNUSED, f"no finding with the code {code} here", why


def read_elsewhere(findings: Iterable[Finding], path: str) -> list[Ignore]:
    """Return the ignore comments of the files with findings, except `path`."""
    paths = dict.fromkeys(finding.place.path for finding in findings)
    others = [other for other in paths if other not in (path, COMMAND_LINE)]
    return [ignore for other in others for ignore in read_ignores(_with_comments(other), other)]


@reads.cached(1024)
def _with_comments(path: str) -> str:
    """Return the text of a file that may contain ignore comments; empty for other files."""
    try:
        text = reads.read_text(path)
    except (OSError, ValueError):  # its findings are reported
        return ""
    return text if "speclaunch:" in text else ""


class LintedFile(Struct, frozen=True):
    """File with its deployments. `text` is empty if the file could not be read."""

    path: str
    """Path as the user named it."""
    text: str = ""
    recipe: Recipe | None = None
    invocations: tuple[Invocation, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Reasons why the file, or a part of it, could not be read."""
    remarks: tuple[Problem, ...] = field(default=())
    """Parts that a reader did not understand and skipped."""
    rest: Recipe | None = None
    """The checkable part of a recipe that has problems; None if there is none."""
    template: str | None = None
    """Reason to skip a file that another program fills in before use; None: the file is checked."""
    misread: tuple[Problem, ...] = ()
    """Parts that the shell reads differently than the author intended."""
    not_read: bool = False
    """True if the file starts a server in a way that no reader supports."""

    @property
    def commands(self) -> tuple[Extent, ...]:
        own = (invocation for invocation in self.invocations if invocation.place.path == self.path)
        return tuple(_extent(invocation, self.path) for invocation in own)


def read_found(
    found: FoundFile, stdin: bytes = b"", config_dirs: Sequence[Path] = ()
) -> LintedFile | None:
    """Return one file with its deployments; None if it has none and the user did not name it."""
    if found.is_unread:
        return LintedFile(found.path, not_read=True)
    if found.path == STDIN:
        return _read(STDIN_SHOWN, stdin, config_dirs, None)
    path, file = found.path, Path(found.path)
    try:
        source = _read(path, reads.read_bytes(file), config_dirs, file)
    except OSError as error:
        from speclaunch.deployments import similar_file  # noqa: PLC0415  only for a wrong path

        problem = Problem(f"cannot read {path}: {reason(error)}", help=similar_file(path))
        source = LintedFile(path, problems=(problem,))
    return source if found.is_named or _has_something(source) else None


def read_buffer(path: str, data: bytes, config_dirs: Sequence[Path] = ()) -> LintedFile | None:
    """Return an editor's buffer with its deployments; None if it has none. See `reads.overlay`."""
    source = _read(path, data, config_dirs, Path(path))
    return source if _has_something(source) else None


def _has_something(source: LintedFile) -> bool:
    found = (source.recipe, source.rest, source.invocations, source.template, source.not_read)
    return any((*found, source.problems, source.remarks, source.misread))


def _read(path: str, data: bytes, config_dirs: Sequence[Path], file: Path | None) -> LintedFile:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = Problem(f"{path} is not UTF-8 text (byte {error.start})")
        return LintedFile(path, problems=(problem,))
    if Path(path).suffix.lower() in YAML_SUFFIXES and has_package(text):
        return LintedFile(path, text)  # a group option is part of recipes, but not a recipe
    is_yaml = looks_like_yaml(text, file.suffix.lower() if file else "")
    template = template_of(text, file, is_yaml=is_yaml)
    if template is not None:
        name = Path(path)  # its output is `run.sh` for `run.sh.j2`
        kind = (Path(name.stem).suffix if is_template(path) else name.suffix).lower()
        found = read_template(text, path, kind).invocations
        return LintedFile(path, text, None, found, template=None if found else template)
    try:
        if _is_recipe(text, Path(path).suffix):
            if file is None:
                raise InputError("a recipe cannot come from standard input; pass its file")
            recipe, refused = _recipe(path, config_dirs)
            sound, rest = (None, recipe) if refused else (recipe, None)
            return LintedFile(path, text, sound, problems=refused, rest=rest)
        reading = read_with_named_files(data, path, file)
    except InputError as error:
        return LintedFile(path, text, problems=error.problems)
    nothing = not (reading.invocations or reading.unread or reading.problems or reading.misread)
    suffix = Path(path).suffix.lower()
    is_unknown = nothing and suffix not in PROSE and starts_a_server(text)
    if is_unknown and suffix == PYTHON_SUFFIX:
        is_unknown = starts_a_server(_without_docstrings(text))
    return _of_reading(path, text, reading, not_read=is_unknown)


def _without_docstrings(text: str) -> str:
    """Return a Python program without its docstrings; unchanged if it cannot be parsed."""
    import ast  # noqa: PLC0415  few files are programs without a reader
    import warnings  # noqa: PLC0415

    lines = text.split("\n")
    errors = (SyntaxError, ValueError, RecursionError, MemoryError)
    with suppress(*errors), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Expr(value=ast.Constant(), lineno=first, end_lineno=int(last)):
                    lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(lines)


def read_commands(path: str, text: str) -> LintedFile:
    """Return the commands of a text alone, without the files that it includes."""
    return _of_reading(path, text, read_text(text, path, Path(path).suffix or None))


def _of_reading(path: str, text: str, reading: Reading, *, not_read: bool = False) -> LintedFile:
    return LintedFile(
        path,
        text,
        None,
        reading.invocations,
        reading.unread,
        reading.problems,
        misread=reading.misread,
        not_read=not_read,
    )


def _is_recipe(text: str, suffix: str) -> bool:
    """True if a text is a speclaunch recipe, according to its top-level keys."""
    if suffix.lower() not in (*YAML_SUFFIXES, "") or not re.search(r"args:|defaults:", text):
        return False
    import yaml  # noqa: PLC0415  not needed for scripts

    from speclaunch.deployments import compose_node  # noqa: PLC0415

    try:
        root = compose_node(text)
    except yaml.YAMLError:
        has_section = re.search(r"^(args|defaults):", text, re.M) is not None
        return has_section and suffix.lower() in YAML_SUFFIXES
    if not isinstance(root, yaml.MappingNode):
        return False
    items = next((value for key, value in root.value if key.value == "defaults"), None)
    # an empty `args: {}` starts nothing: it is part of recipes, such as conf/base.yaml
    keys = {
        key.value for key, value in root.value if isinstance(key, yaml.ScalarNode) and value.value
    }
    if keys & {"services", "apiVersion"}:
        return False
    if "args" in keys:
        args = next(value for key, value in root.value if key.value == "args")
        return not isinstance(args, yaml.SequenceNode) or _has_sections_only(keys)
    return "defaults" in keys and (bool(keys & {"name", "description"}) or _composes(items))


def _has_sections_only(keys: set[str]) -> bool:
    """True if all keys belong to a recipe, so a list under `args` is not a container's."""
    from speclaunch.deployments import SECTIONS  # noqa: PLC0415  few files need it

    return keys <= {*SECTIONS["Deployment"], "defaults"}


def _composes(defaults: yaml.Node | None) -> bool:
    """True if a `defaults` list is a recipe's: it has `base` and options of speclaunch's groups."""
    import yaml  # noqa: PLC0415

    if not isinstance(defaults, yaml.SequenceNode):
        return False
    names = {item.value for item in defaults.value if isinstance(item, yaml.ScalarNode)}
    groups = {
        key.value.removeprefix("override ").strip("/ ")
        for item in defaults.value
        if isinstance(item, yaml.MappingNode)
        for key, _ in item.value
        if isinstance(key, yaml.ScalarNode)
    }
    return "base" in names and bool(groups & {"model", "speculation"})


def _recipe(path: str, config_dirs: Sequence[Path]) -> tuple[Recipe | None, tuple[Problem, ...]]:
    """Return the checkable part of a recipe, or None, and the problems of its other sections."""
    from speclaunch.deployments import load_sound_part  # noqa: PLC0415  Hydra is slow to import

    found, refused = load_sound_part(path if path.endswith(".yaml") else f"./{path}", config_dirs)
    if found is not None and any(reads.is_file(role.lock_path) for role in found.roles):
        from speclaunch.deployments import with_lock_differences  # noqa: PLC0415  few have one

        found = with_lock_differences(found, config_dirs)
    return found, refused


def _extent(invocation: Invocation, path: str) -> Extent:
    words = (*invocation.program, *invocation.words)
    places = (word.used_at or word.place for word in words)
    first = invocation.place.line
    return Extent(first, max([first, *(place.line for place in places if place.path == path)]))
