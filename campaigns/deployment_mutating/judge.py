"""What lint finds in the text of a deployment."""

from __future__ import annotations

from functools import cache

from speclaunch.checks.lint.collect import read_buffer
from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.lint.run import check, compare, result_of
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.interface import Finding
from speclaunch.checks.rules.registry import all_rules
from speclaunch.engine.releases.catalogue import held_versions


@cache
def _options() -> Options:
    return Options(Lookup(), all_rules(), installed=lambda: held_versions()[-1])


def findings(text: str) -> tuple[Finding, ...]:
    """All findings of a manifest, as lint tells them for the release of each image."""
    source = read_buffer("deployment.yaml", text.encode())
    assert source is not None, text
    checked = check(source, _options())
    compare([checked])
    return tuple(one for report in result_of(checked).reports for one in report.findings)
