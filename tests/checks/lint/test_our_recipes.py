"""Our recipes are what the rules ask for, at every version that they say they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.interface import Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.resources import recipes_dir
from speclaunch.engine.releases.catalogue import held_versions
from tests.support.lint_report import collect, lint


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted(recipes_dir().glob("*.yaml")), ids=lambda path: path.stem)
def test_no_error_at_any_of_its_versions(path: Path) -> None:
    options = Options(Lookup(), all_rules(), held_versions())
    report = lint(collect([str(path)]), options)
    errors = [
        (file.engine, finding.code, finding.message)
        for file in report.files
        for finding in file.findings
        if finding.severity is Severity.ERROR
    ]
    assert not errors
    assert any(not file.skipped for file in report.files)
