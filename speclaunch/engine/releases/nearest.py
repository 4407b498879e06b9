"""Finds known names that a word may be a typo of.

A common prefix is not enough: `speculative_draft` is not a typo of `speculative_draft_sink_size`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_LETTERS_PER_TYPO = 4
"""Letters per allowed typo (a letter added, missing or replaced, or two swapped). At least one typo
is allowed."""
_LEAST_SIMILARITY = 0.6
"""Minimum ratio of equal letters, as difflib computes it."""


def nearest(word: str, known: Iterable[str], count: int = 2) -> tuple[str, ...]:
    """Return up to `count` names close to `word`, likeliest first.

    If exactly one known name begins with `word`, ignoring separators (`tp` for `tp_size`,
    `memfraction` for `mem_fraction_static`), return only that name. Otherwise, return the names
    that `word` may be a typo of.
    """
    names = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in names}
    target = word.casefold()
    letters = map(re.escape, target.replace("_", "").replace("-", ""))
    beginning = re.compile(f"[_-]*{'[_-]*'.join(letters)}[_-]")
    longer = [name for name in folded if beginning.match(name)]
    if len(longer) == 1:
        return (folded[longer[0]],)
    allowed = max(1, len(word.lstrip("-")) // _LETTERS_PER_TYPO)
    found: list[tuple[int, bool, float, str]] = []
    for name in folded:
        typos = _typos(target, name) if abs(len(name) - len(target)) <= allowed else None
        if typos is not None and typos[0] <= allowed:
            found.append((typos[0], not name.startswith(target), -typos[1], name))
    return tuple(folded[name] for *_, name in sorted(found)[:count])


@lru_cache(maxsize=1 << 15)  # the versions share most of their names
def _typos(word: str, name: str) -> tuple[int, float] | None:
    """Return the number of typos and the similarity of two words; None if they hardly match."""
    from difflib import SequenceMatcher  # noqa: PLC0415  only needed for a mistake

    matcher = SequenceMatcher(None, name, word)
    if (
        matcher.quick_ratio() < _LEAST_SIMILARITY
        or (similarity := matcher.ratio()) < _LEAST_SIMILARITY
    ):
        return None
    return distance(word, name), similarity


def distance(word: str, other: str) -> int:
    """Return the number of typos between two words (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        last, before, row = before, row, [i]
        for j, its in enumerate(other, start=1):
            cost = min(row[j - 1] + 1, before[j] + 1, before[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == its:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def suggest(word: str, known: Iterable[str]) -> str | None:
    """Return `did you mean …?`; None if no known name is close."""
    close = nearest(word, sorted(known))
    if not close:
        return None
    return "did you mean " + " or ".join(f"`{name}`" for name in close) + "?"
