"""What a finding rests on that a script has under a condition alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from speclaunch.importer.interface import Invocation
from speclaunch.rules.finding import Finding, Severity


def with_conditions(findings: Iterable[Finding], invocation: Invocation) -> Iterator[Finding]:
    """The findings of a command, each with the conditions of the words that it is about.

    Two words of different conditions need not come together: that is no error, but a warning.
    """
    conditions = {
        (word.place.path, word.place.line, word.place.column): word.condition
        for word in invocation.words
        if word.condition is not None
    }
    for finding in findings:
        places = (finding.place, *finding.others) if conditions else ()
        named = (conditions.get((place.path, place.line, place.column)) for place in places)
        told = list(dict.fromkeys(one for one in named if one is not None))
        if not told:
            yield finding
            continue
        is_sure = len(told) == 1 or finding.severity is not Severity.ERROR
        yield replace(
            finding,
            why="; ".join((finding.why, *told)),
            severity=finding.severity if is_sure else Severity.WARNING,
        )
