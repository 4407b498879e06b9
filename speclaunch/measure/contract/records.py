"""A request contract: what each request field does with and without speculation.

`docs/reference/contract.schema.json` is generated from `ContractDocument`, the JSON of
`speclaunch prove recipe=R --requests`; a test compares them. Within version 1 keys are never
removed or redefined; new keys may be added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct

from speclaunch.serving import unfinished_work

CONTRACT = "contract"
"""Kind of stored work."""
REFUSED = "The server refuses it: "
"""Prefix of the engine's message if its validation refuses a field."""


class FieldResult(StrEnum):
    """Result of one request field."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_TESTED = "not_tested"


class FieldRow(Struct, frozen=True, forbid_unknown_fields=True):
    """One request field. `reason`: the first difference, why it is not testable here, or a remark;
    empty if there is none. `requests`: compared pairs of requests.

    `documented`: the engine's own statement of the difference with its source; null if none.
    `advisories`: IDs of known bugs of this release and configuration that concern the field."""

    field: str
    result: FieldResult
    reason: str = ""
    requests: int = 0
    documented: str | None = None
    advisories: tuple[str, ...] = ()

    @property
    def breaks(self) -> bool:
        """True if it differs and the engine does not document that."""
        return self.result is FieldResult.DIFFERS and self.documented is None

    @property
    def is_refused(self) -> bool:
        """True if only the speculative server refuses the field."""
        return (self.documented or "").startswith(REFUSED)


class ChangedFields(Struct, frozen=True):
    """Request fields that speculation changes in a release, but not in the release before it."""

    broken: tuple[str, ...]
    """Fields that speculation left unchanged in the previous release."""
    unknown: tuple[str, ...]
    """Fields that were not tested in the previous release."""


def changed_fields(before: Sequence[FieldRow], after: Sequence[FieldRow]) -> ChangedFields:
    """Return the undocumented differences and refusals of `after` that `before` does not have.

    Documented differences of `before` also count, because releases with the same behavior may
    document it differently.
    """
    known = {row.field: row.result for row in before}
    found = [(row.field, known.get(row.field)) for row in after if row.breaks or row.is_refused]
    same, differs = FieldResult.SAME, FieldResult.DIFFERS
    return ChangedFields(
        tuple(name for name, result in found if result is same),
        tuple(name for name, result in found if result not in (same, differs)),
    )


class ContractProgress(unfinished_work.Progress, frozen=True):
    """Progress of a contract: one row per checked field."""

    rows: tuple[FieldRow, ...] = ()

    @property
    def saved(self) -> str:
        """Number of fields as text; empty for none."""
        return f"{len(self.rows)} fields" if self.rows else ""


StoredContract: TypeAlias = unfinished_work.StoredWork[ContractProgress]
"""A contract on disk. `key` identifies both servers and the fields."""


class Contract(Struct, frozen=True):
    """All rows of a pair of servers, in the order of `FIELDS`."""

    rows: tuple[FieldRow, ...]
    release: str
    algorithm: str

    @property
    def broken(self) -> tuple[str, ...]:
        """Fields with undocumented differences."""
        return tuple(row.field for row in self.rows if row.breaks)

    @property
    def is_same(self) -> bool:
        """True if at least one field was compared and none is broken."""
        compared = any(row.result is not FieldResult.NOT_TESTED for row in self.rows)
        return compared and not self.broken

    def document(self, speculative: str, plain: str) -> ContractDocument:
        """Return the contract's document; `speculative` and `plain`: names of the servers."""
        counts = Counter(row.result for row in self.rows)
        return ContractDocument(
            speculative=speculative,
            plain=plain,
            engine=self.release,
            algorithm=self.algorithm,
            same=self.is_same,
            counts=FieldCounts(**{result.value: counts[result] for result in FieldResult}),
            fields=list(self.rows),
        )


class FieldCounts(Struct, frozen=True, forbid_unknown_fields=True):
    """Number of fields with each result."""

    same: int
    differs: int
    not_tested: int


class ContractDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`speclaunch prove recipe=R --requests --output-format json`. `same`: exit 0."""

    version: Literal[1] = 1
    speculative: str
    plain: str
    engine: str
    algorithm: str | None
    same: bool
    counts: FieldCounts
    fields: list[FieldRow]
