"""The edits that a finding's fix makes in its file, for whoever shows or applies them.

    text_edits(source: LintedFile, finding: Finding, config_dirs: Sequence[Path] = ())
        -> FileEdits | None

`source` is the file as `lint.collect` reads it (`read_found`), `finding` one of its findings, also
one that was remembered. The result has `path`, `edits` (`TextEdit`: `line`, `column`, `end_line`,
`end_column`, `new`; all from 1, the end left out, columns in code points), `safe`, and the texts
`before` and `after` (without a byte order mark). It is proven: read back, the new text says what
the fix sets, and everything else as before. None: the fix has no edits, or they are left to a
person; `fixed` raises with the reason instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.errors import SpeclaunchError
from speclaunch.fix.edits import FileEdits, TextEdit, applied, text_edits_between
from speclaunch.fix.fixed_text import fixed_commands, fixed_recipe
from speclaunch.fix.spelling import Spelling, spelled_commands, spelled_recipe
from speclaunch.fix.yaml_edits import NotFixableError
from speclaunch.lint.collect import LintedFile
from speclaunch.lint.paths import STDIN_SHOWN
from speclaunch.rules.finding import Applicability, Finding

__all__ = ["FileEdits", "NotFixableError", "TextEdit", "applied", "fixed", "text_edits"]


def text_edits(
    source: LintedFile, finding: Finding, config_dirs: Sequence[Path] = ()
) -> FileEdits | None:
    """The edits of a finding's fix; None where there are none, or they are a person's to make."""
    try:
        return fixed(source, finding, config_dirs)
    except NotFixableError:
        return None


def fixed(
    source: LintedFile,
    finding: Finding,
    config_dirs: Sequence[Path] = (),
    others: Collection[str] = (),
) -> FileEdits:
    """The edits of a finding's fix. `others` are versions that the file is checked for besides.

    Raises NotFixableError with the reason.
    """
    fix = finding.fix
    if fix is None or fix.applicability is None:
        raise NotFixableError("its fix has no edits")
    file = None if source.path == STDIN_SHOWN else Path(source.path)
    spelling = None if fix.rename is None else Spelling(*fix.rename, finding.place)
    try:
        catalogue = load_catalogue(finding.engine)
        if source.rest is not None:
            raise NotFixableError("its recipe has other problems: correct them first")
        if source.recipe is not None:
            if file is None:
                raise NotFixableError("a recipe is fixed in its file")
            if spelling is not None:
                after = spelled_recipe(source.text, source.path, file, spelling, config_dirs)
            else:
                after = fixed_recipe(
                    source.text,
                    source.path,
                    file,
                    fix,
                    catalogue,
                    config_dirs,
                    finding.deployments,
                )
        elif source.invocations and spelling is not None:
            after = spelled_commands(source.text, source.path, file, spelling, catalogue)
        elif source.invocations:
            after = fixed_commands(
                source.text, source.path, file, finding.deployments, fix, catalogue, others
            )
        else:
            raise NotFixableError("its deployment was not read")
    except SpeclaunchError as error:
        raise NotFixableError(str(error)) from error
    edits = text_edits_between(source.text, after)
    is_safe = fix.applicability is Applicability.SAFE
    return FileEdits(source.path, edits, is_safe, source.text, after)
