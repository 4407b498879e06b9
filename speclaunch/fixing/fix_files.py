"""The fixes of many files, one after the other, and the new texts written."""

from __future__ import annotations

import codecs
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from speclaunch.errors import InputError, Problem
from speclaunch.fix.edits import write_atomically
from speclaunch.fixing.fix_file import FixedFile, fix_file
from speclaunch.lint.collect import LintedFile, read_found
from speclaunch.lint.paths import STDIN, STDIN_SHOWN, FoundFile
from speclaunch.lint.report import Report
from speclaunch.lint.run import Options, check
from speclaunch.lint.workers import WorkerDiedError, spread
from speclaunch.reads.bounded import read_regular
from speclaunch.record import record
from speclaunch.rules.finding import Applicability


@record
class FixRequest:
    """Which fixes are asked for; of each file how it is checked, and where its groups are."""

    options: Callable[[str], Options]
    config_dirs: Callable[[str], Sequence[Path]]
    stdin: bytes = b""
    unsafe: bool = False
    apart: frozenset[str] = frozenset()
    """Files of which all is said in themselves: other processes may fix them at the same time."""
    processes: int = 1


def fixable_paths(report: Report, *, unsafe: bool) -> list[str]:
    """The files with findings whose fixes are asked for, each once, in their order."""
    asked = {Applicability.SAFE, Applicability.UNSAFE} if unsafe else {Applicability.SAFE}
    return list(
        dict.fromkeys(
            file.path
            for file in report.files
            for one in file.findings
            if one.fix is not None and one.fix.applicability in asked
        )
    )


def standing_alone(report: Report) -> frozenset[str]:
    """The files whose findings all stand in themselves, not in a group or a `--config` file."""
    elsewhere = {
        file.path for file in report.files for one in file.findings if one.place.path != file.path
    }
    return frozenset(file.path for file in report.files if file.path not in elsewhere)


def fixed_files(paths: Sequence[str], asked: FixRequest) -> Iterator[tuple[FixedFile, bytes]]:
    """Each file with its fixes, and its bytes before; nothing is written."""
    made = _made_apart([path for path in paths if path in asked.apart], asked)
    for path in paths:
        found = made[path] if path in made else _fixed(path, asked)
        if found is not None:
            yield found


_Fixed = tuple[FixedFile, bytes]


def _fixed(path: str, asked: FixRequest) -> _Fixed | None:
    source, data = _source(path, asked)
    if source is None or data is None or _text(data) != source.text:
        return None  # it is gone, or changes while we look
    options, folders = asked.options(_given(path)), asked.config_dirs(_given(path))
    return fix_file(source, options, folders, unsafe=asked.unsafe), data


def _given(path: str) -> str:
    return STDIN if path == STDIN_SHOWN else path


def _source(path: str, asked: FixRequest) -> tuple[LintedFile | None, bytes | None]:
    given = _given(path)
    data = asked.stdin if given == STDIN else _bytes(path)
    return read_found(FoundFile(given, is_named=True), asked.stdin, asked.config_dirs(given)), data


def _made_apart(paths: Sequence[str], asked: FixRequest) -> dict[str, _Fixed | None]:
    """What other processes make of files. All of it before anything is written: so that it does
    not depend on who is quicker. What one of them could not do is left out."""
    if asked.processes < 2 or len(paths) < 2:
        return {}

    def work(path: str) -> bytes:
        found = _fixed(path, asked)
        if found is None:
            return b""
        found[0].hidden = list  # it is asked in this process alone
        return pickle.dumps(found)

    made: dict[str, _Fixed | None] = {}
    with spread(paths, work, min(asked.processes, len(paths))) as answers:
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, WorkerDiedError):
                made[path] = None  # lint reports it
            elif answer is not None:
                file, data = pickle.loads(answer)  # noqa: S301  a copy of this process wrote it
                file.hidden = partial(_secrets, path, asked)
                made[path] = file, data
    return made


def _secrets(path: str, asked: FixRequest) -> Sequence[str]:
    source, _ = _source(path, asked)
    return [] if source is None else check(source, asked.options(_given(path))).secrets


def written(fixed: FixedFile, before: bytes) -> None:
    """Write the new text in place of the old one, whole, where nobody changed it meanwhile.

    A link stays one; a byte order mark and the mode stay. Raises InputError.
    """
    path = Path(fixed.path)
    if _bytes(fixed.path) != before:
        said = f"{fixed.path} changed while it was being fixed"
        raise InputError(Problem(said, help="run it again"))
    mark = codecs.BOM_UTF8.decode() if before.startswith(codecs.BOM_UTF8) else ""
    write_atomically(path.resolve(), mark + fixed.after)


def in_bytes(fixed: FixedFile, before: bytes) -> bytes:
    """The new text as the file has it."""
    mark = codecs.BOM_UTF8 if before.startswith(codecs.BOM_UTF8) else b""
    return mark + fixed.after.encode()


def _bytes(path: str) -> bytes | None:
    try:
        return read_regular(path)
    except OSError:
        return None


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def counted(files: Sequence[FixedFile], report: Report) -> str:
    """`3 fixed, 2 left (1 fix is unsafe: --unsafe-fixes)`; empty where there was nothing to fix.

    `report` has the other files, too, in which there was nothing to fix.
    """
    fixed = sum(len(one.applied) for one in files)
    unsafe = sum(len(one.unsafe) for one in files)
    looked_at = {one.path for one in files}
    unsafe += sum(
        one.fix is not None and one.fix.applicability is Applicability.UNSAFE
        for file in report.files
        if file.path not in looked_at
        for one in file.findings
    )
    left = sum(len(one.left) for one in files) + unsafe
    if not fixed and not left:
        return ""
    hint = ""
    if unsafe:
        fixes = "1 fix is" if unsafe == 1 else f"{unsafe} fixes are"
        hint = f" ({fixes} unsafe: --unsafe-fixes)"
    return f"{fixed} fixed, {left} left{hint}"
