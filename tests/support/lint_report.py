"""Paths checked by the pipeline of `lint`, in this process and without its cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from speclaunch.checks.lint.collect import LintedFile, read_found
from speclaunch.checks.lint.configuration import Options, find_files
from speclaunch.checks.lint.report import Report
from speclaunch.checks.lint.run import check, compare, result_of


def collect(paths: Sequence[str], config_dirs: Sequence[Path] = ()) -> Iterator[LintedFile]:
    """Read every path: files, and directories with what is below them."""
    for found in find_files(paths):
        source = read_found(found, b"", config_dirs)
        if source is not None:
            yield source


def lint(sources: Iterable[LintedFile], options: Options) -> Report:
    """Check files and compare them with each other."""
    read = list(sources)
    checked = [check(source, options) for source in read if not source.not_read]
    compare(checked)
    reports = [one for file in checked for one in result_of(file).reports]
    return Report(tuple(reports), tuple(source.path for source in read if source.not_read))
