"""Advisories (known engine bugs): their database, and the rules that report them.

Each advisory is in `advisories/ID.yaml`. `tools/advisories.py build` collects them in
`data/advisories.json` for fast loading. An advisory is a rule: lint, plan, doctor, launch and the
language server report it. Its ID is valid in ignore comments and baselines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from speclaunch.checks.advisory_records import (
    Condition,
    Confidence,
    Marker,
    RequestField,
    Symptom,
    Workaround,
)
from speclaunch.checks.rules.interface import Fix, Rule, Severity, Verdict
from speclaunch.core import advisories_home, read_or_none

if TYPE_CHECKING:
    from speclaunch.engine import Plan


DATA = Path(__file__).parent / "data" / "advisories.json"
NONE, UNKNOWN = "none", "unknown"


class Advisory(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A known engine bug with its affected releases, conditions and remedy.

    `introduced`, `fixed`: first affected release and first release with the fix, among the known
    releases. `fixed: none`: the newest release still has the bug. An unknown bound becomes the
    first or last release of `seen`, the releases with reports. `requests`: fields of the affected
    requests; empty: all requests are affected.
    """

    id: str
    name: str
    summary: str
    details: str
    symptom: Symptom
    introduced: str
    fixed: str
    when: Condition
    references: tuple[str, ...]
    confidence: Confidence
    checked: str
    seen: tuple[str, ...] = ()
    marker: Marker | None = None
    requests: tuple[RequestField, ...] = ()
    certain: bool = True
    """False if the bug affects only some matching deployments, or occurs only sometimes."""
    workaround: Workaround | None = None

    @property
    def first(self) -> str:
        return self.seen[0] if self.introduced == UNKNOWN else self.introduced

    @property
    def versions(self) -> str:
        """Affected releases, as a specifier set."""
        lower = f">={self.first}"
        if self.fixed == NONE:
            return lower
        return f"{lower},<={self.seen[-1]}" if self.fixed == UNKNOWN else f"{lower},<{self.fixed}"

    @property
    def severity(self) -> Severity:
        """Severity by evidence and symptom.

        Error: the engine certainly does not start. Warning: hang, crash, wrong output, or proven
        low acceptance. Info: everything else, including single reports and bugs that affect only
        certain requests or deployments.
        """
        proven = self.confidence in _PROVEN
        if self.requests or not self.certain or self.confidence is Confidence.ONE_REPORT:
            return Severity.INFO
        if proven and self.symptom is Symptom.REFUSAL:
            return Severity.ERROR
        serious = self.symptom in _SERIOUS or (proven and self.symptom is Symptom.LOW_ACCEPTANCE)
        return Severity.WARNING if serious else Severity.INFO

    @property
    def release_range(self) -> str:
        """Affected releases as text: `SGLang 0.5.11 to 0.5.13.post1; fixed in 0.5.14`."""
        from speclaunch.engine import held_versions  # noqa: PLC0415  rules are read without releases

        held = held_versions()
        first = f"SGLang {self.first}" + (" (first report)" * (self.introduced == UNKNOWN))
        if self.fixed == NONE:
            return f"{first} and later; not fixed in {held[-1]}"
        if self.fixed == UNKNOWN:
            return f"{first} to {self.seen[-1]} (last report)"
        last = held[held.index(self.fixed) - 1] if self.fixed in held else "later"
        span = "" if last == self.first else f" to {last}"
        return f"{first}{span}; fixed in {self.fixed}"

    @property
    def changed(self) -> tuple[str, ...]:
        return () if self.workaround is None else (*self.workaround.set, *self.workaround.env)

    @property
    def remedy(self) -> str:
        """Upgrade and workaround as one sentence; empty if there is neither."""
        workaround = self.workaround.text if self.workaround is not None else ""
        if self.fixed in (NONE, UNKNOWN):
            return workaround
        more = f", or {workaround[0].lower()}{workaround[1:]}" if workaround else "."
        return f"Upgrade to SGLang {self.fixed}{more}"

    def applies(self, plan: Plan) -> bool:
        """True if a deployment is affected. Raises UnknownValueError."""
        from speclaunch.checks.advisory_conditions import holds  # noqa: PLC0415  needs plans

        return plan.in_versions(self.versions) and holds(self.when, plan)

    def rule(self) -> Rule:
        return Rule(
            self.id,
            self.name,
            self.severity,
            "",
            partial(_verdicts, self),
            self.versions,
            frozenset(self.when.algorithm),
        )


_PROVEN = (Confidence.MARKER, Confidence.NAMED_CHANGE, Confidence.MAINTAINER)
_SERIOUS = (Symptom.HANG, Symptom.CRASH, Symptom.REFUSAL, Symptom.WRONG_OUTPUT)


def _fix(advisory: Advisory) -> Fix | None:
    """Return the remedy as a fix, or None without a remedy.

    The fix of an info advisory has no edits, because they would affect all requests.
    """
    workaround = advisory.workaround
    if workaround is None or advisory.severity is Severity.INFO:
        return Fix(advisory.remedy) if advisory.remedy else None
    return Fix(advisory.remedy, workaround.set, workaround.env)


def _verdicts(advisory: Advisory, plan: Plan) -> Iterator[Verdict]:
    if not advisory.applies(plan):
        return
    why = f"{advisory.symptom.value}; {advisory.release_range}"
    if advisory.requests:
        why = f"affects requests with {', '.join(advisory.requests)}; {why}"
    yield Verdict(
        advisory.summary.removesuffix("."),
        at=(*advisory.when.names, *advisory.changed, "speculative_algorithm"),
        why=why,
        fix=_fix(advisory),
    )


def stored_file() -> Path:
    """Return the path of the file that `advisories update` writes."""
    return advisories_home() / "advisories.json"


@cache
def all_advisories() -> tuple[Advisory, ...]:
    """Return the latest version of each shipped or stored advisory, ordered by ID."""
    return latest(_decoded(DATA.read_bytes()), stored_advisories())


def latest(*sources: Iterable[Advisory]) -> tuple[Advisory, ...]:
    """Return the most recently checked version of each advisory, ordered by ID."""
    found: dict[str, Advisory] = {}
    for source in sources:
        for advisory in source:
            known = found.get(advisory.id)
            if known is None or advisory.checked > known.checked:
                found[advisory.id] = advisory
    return tuple(found[name] for name in sorted(found))


@cache
def stored_advisories() -> tuple[Advisory, ...]:
    """Return the stored advisories; if the file is unreadable, print a note and return none."""
    path = stored_file()
    data = read_or_none(path)
    if data is None:
        return ()
    try:
        return _decoded(data)
    except ValueError as error:
        sys.stderr.write(
            f"note: {path} is ignored: {error}; run `speclaunch advisories update` again\n"
        )
        return ()


def _decoded(data: bytes) -> tuple[Advisory, ...]:
    return msgspec.json.decode(data, type=tuple[Advisory, ...])


def page_of(code: str) -> str:
    """Return the advisory `code` as a Markdown page. Raises FileNotFoundError for an unknown ID."""
    advisory = advisory_of(code)
    if advisory is None:
        raise FileNotFoundError(code)
    return page_text(advisory)


def page_text(advisory: Advisory) -> str:
    """Return the Markdown page of an advisory."""
    what = [f"# {advisory.id} {advisory.name}", f"{advisory.summary.removesuffix('.')}."]
    what += ["## What it does", _filled(advisory.details)]
    facts = [f"Symptom: {advisory.symptom.value}.", f"Affected: {advisory.release_range}."]
    if advisory.requests:
        facts.append(f"Affected requests: {', '.join(advisory.requests)}.")
    confidence = advisory.confidence
    facts.append(
        f"Evidence: {confidence.value} ({confidence.meaning}), checked {advisory.checked}."
    )
    what.append("\n".join(f"- {fact}" for fact in facts))
    if advisory.remedy:
        what += ["## Use instead", _filled(advisory.remedy)]
    what += ["## Sources", "\n".join(f"- {reference}" for reference in advisory.references)]
    return "\n\n".join(what) + "\n"


def _filled(text: str) -> str:
    import textwrap  # noqa: PLC0415  few commands show a page

    return textwrap.fill(
        " ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False
    )


@cache
def advisory_rules() -> tuple[Rule, ...]:
    """Return the rule of each advisory."""
    return tuple(advisory.rule() for advisory in all_advisories())


def advisory_of(code: str) -> Advisory | None:
    """Return the advisory with this ID or name, ignoring case; None if there is none."""
    normalized = code.strip().lower()
    return next((a for a in all_advisories() if normalized in (a.id.lower(), a.name)), None)
