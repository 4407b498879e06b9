"""Functions that verbs share: they derive values from options and input, and write results."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from speclaunch.app.output.console import err, err_lines, write_exact
from speclaunch.app.output.findings import show_findings
from speclaunch.checks import REFUSES, Lookup, Rule, codes, is_selected, selected
from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    Place,
    SpeclaunchError,
    read_stream,
    reason,
    redact,
)
from speclaunch.engine import (
    ResolvedVersion,
    UnknownVersion,
    assumption,
    declare,
    is_of_its_line,
    listed,
    named,
)

if TYPE_CHECKING:
    from speclaunch.checks import OutputCheck, ShownDiff

Form = TypeVar("Form", bound=StrEnum)


def engine_versions(text: str | None) -> tuple[str, ...]:
    """Return the known versions that `--engine` names, if any, and print their notes."""
    versions = listed(text) if text is not None else ()
    for version in versions:
        if version.note:
            err_lines().print(f"note: {version.note}")
    return tuple(dict.fromkeys(version.held for version in versions))


def engine_version(text: str) -> str:
    """Return the known version that `--engine` names, and print its note."""
    found = named(text)
    if found.note:
        err_lines().print(f"note: {found.note}")
    return found.held


def engine_release(option: str, text: str) -> ResolvedVersion:
    """Return the known release for `text`, without its note if both are of one release line.

    Raises InputError, naming `option`.
    """
    try:
        found = named(text)
    except UnknownVersion as error:
        raise InputError(str(error), Place(COMMAND_LINE, text=f"{option} {text}")) from error
    return replace(found, note=None) if is_of_its_line(found) else found


def lookup(
    models: Sequence[Path] | None,
    hardware: str | None,
    *,
    online: bool = False,
    assume: Sequence[str] | None = None,
) -> Lookup:
    """Return the fact sources selected by the options.

    Raises InputError for a missing directory, an unknown GPU or a malformed assumption.
    """
    for directory in models or ():
        if not directory.is_dir():
            raise InputError(f"--models {directory}: no such directory")
    declared = declare(hardware) if hardware is not None else None
    assumed = tuple(assumption(text) for text in assume or ())
    return Lookup(tuple(models or ()), online, assumed, declared)


def chosen_rules(select: Sequence[str] | None, ignore: Sequence[str] | None) -> tuple[Rule, ...]:
    """Return the rules that both options select. Raises InputError for an unknown code."""
    return selected(codes("--select", select), codes("--ignore", ignore))


def asks(select: Sequence[str] | None, ignore: Sequence[str] | None) -> bool:
    """True if `--select` and `--ignore` select the engine check (SPL090)."""
    return is_selected(REFUSES.code, codes("--select", select), codes("--ignore", ignore))


def read_stdin() -> bytes:
    """Return all of standard input. Raises InputError if it is too large, slow or unreadable."""
    try:
        return read_stream(sys.stdin.buffer)
    except OSError as error:
        help_ = "write it to a file and pass the file" if isinstance(error, TimeoutError) else None
        raise InputError(f"cannot read standard input: {reason(error)}", help=help_) from None


class OutputRefusedError(SpeclaunchError):
    """Error if the rules find errors in an output (exit code 1)."""


def require_sound(check: OutputCheck, what: str, *, force: bool) -> None:
    """Show the findings of an output on standard error.

    Raises OutputRefusedError for new errors, unless `force`.
    """
    show_findings(err(), [*check.warnings, *check.inherited, *check.errors])
    if check.inherited:
        count = _errors(len(check.inherited))
        err().print(f"{what}: the source already has {count}")
    if not check.errors:
        return
    count = _errors(len(check.errors))
    if force:
        err().print(f"--force: {what} is written despite {count}", style="bold red")
        return
    raise OutputRefusedError(
        f"{what} was not written: {count}", help="fix the errors, or write it anyway with --force"
    )


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise InputError for a file that exists, unless `overwrite`."""
    if (path.exists() or path.is_symlink()) and not overwrite:
        raise InputError(f"{path} already exists", help="use --overwrite to replace it")


def require_writable(path: Path, *, devices: bool = False) -> None:
    """Raise InputError for a directory, a file in a missing one, or, unless `devices`, a device."""
    if path.is_dir():
        why = "it is a directory"
    elif path.exists() and not (devices or path.is_file()):
        why = "it is not a regular file"
    elif not path.parent.is_dir():
        why = f"no such directory: {path.parent}"
    else:
        return
    raise InputError(f"cannot write {path}: {why}")


def require_recipe_file(path: Path, *, overwrite: bool) -> None:
    """Raise InputError if a recipe cannot be written to `path` or, unless `overwrite`, exists."""
    if path.suffix != ".yaml":
        raise InputError(f"{path}: a recipe file must end in .yaml")
    require_writable(path)
    require_free(path, overwrite=overwrite)


def output_files(
    values: Sequence[str],
    forms: type[Form],
    suffixes: Mapping[str, str],
    *,
    inputs: Sequence[str] = (),
    devices: bool = False,
) -> tuple[tuple[Path, Form], ...]:
    """Return each file with its format, from `FORMAT=FILE`, its name or its suffix.

    `suffixes`: formats of names, and of suffixes other than the format. Raises InputError for an
    unknown format, and a file that cannot be written, is in `inputs`, or is named twice.
    """
    found = []
    taken = {Path(name).resolve() for name in inputs if name != "-"} if values else set()
    for value in values:
        name, _, file = value.partition("=")
        path = Path(file or value)
        if not file:
            suffix = path.suffix.lower()
            name = suffixes.get(path.name) or suffixes.get(suffix, suffix[1:])
        if name not in set(forms):
            example = value if value and "=" not in value else "result.json"
            raise InputError(
                f"--output-file {value}: not in the form FORMAT=FILE",
                help=f"use --output-file json={example}; the formats are {', '.join(forms)}",
            )
        require_writable(path, devices=devices)
        if path.resolve() in taken and (path.is_file() or not path.exists()):
            raise InputError(f"--output-file {value}: {path} is an input, or is named twice")
        taken.add(path.resolve())
        found.append((path, forms(name)))
    return tuple(found)


def write_result(path: Path, text: str) -> None:
    """Write a result to a file with secrets redacted, and report it. Raises InputError."""
    from speclaunch.checks import write_atomically

    require_writable(path)
    write_atomically(path, redact(text))
    err_lines().print(f"wrote {path}")


def show_patch(shown: ShownDiff) -> None:
    """Print the diff of a file, and on standard error the number of secrets hidden in it."""
    write_exact(shown.text)
    if shown.hidden:
        values = "value is" if shown.hidden == 1 else "values are"
        note = f"{shown.hidden} secret {values} hidden (***): the patch does not apply"
        err_lines().print(note)


def _errors(count: int) -> str:
    return f"{count} error{'s' * (count > 1)}"
