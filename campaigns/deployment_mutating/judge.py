"""What lint finds in the text of a deployment."""

from __future__ import annotations

from functools import cache

from speclaunch.engine.catalogue import held_versions
from speclaunch.lint.checked_file import Options
from speclaunch.lint.collect import read_buffer
from speclaunch.lint.run import check, compare, result_of
from speclaunch.rules.examine import Lookup
from speclaunch.rules.finding import Finding
from speclaunch.rules.registry import all_rules


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
