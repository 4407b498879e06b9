"""Which modules a checkpoint's quantisation leaves alone, by the names in its config."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from speclaunch.plan.plan import UnknownValueError

_WRAPPERS = re.compile(
    r"^(?:model\.)?(?:language_model|text_model|llm)\.(?:model\.)?(?=layers\.|embed_tokens)"
)
_MOST_PATTERNS = 200
_MOST_REPEATS = 3
_REPEATED_GROUP = re.compile(r"\)[*+{]")
"""What a pattern may not have: matching it could take for ever."""


@dataclass(frozen=True)
class Excluded:
    """Names of modules, or parts of them; and patterns (`re:…`, `*`).

    The name of a module within one that is named is excluded with it.
    """

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> Excluded:
        """From the list of a config. Raises UnknownValueError."""
        plain, patterns = set(), []
        for name in names:
            if name.startswith("re:"):
                patterns.append(_harmless(name[3:]))
            elif "*" in name:
                patterns.append(translate(cls.plain(name)).removesuffix(r"\Z") + r"(?:\..*)?\Z")
            else:
                plain.add(cls.plain(name))
        unique = tuple(dict.fromkeys(patterns))
        if len(unique) > _MOST_PATTERNS:
            raise UnknownValueError(f"{len(unique)} patterns of modules are not worked out")
        return cls(frozenset(plain), unique)

    @staticmethod
    def plain(name: str) -> str:
        """A module's name as a model without a vision tower has it."""
        return _WRAPPERS.sub("model.", name).removeprefix("language_model.")

    def and_these(self, names: Iterable[str]) -> Excluded:
        """With more names."""
        return Excluded(self.names | frozenset(names), self.patterns)

    def __contains__(self, name: object) -> bool:
        return _is_within(self.names, self.patterns, str(name))


def _harmless(pattern: str) -> str:
    repeats = len(re.findall(r"(?<!\\)[*+{]", pattern))
    if repeats > _MOST_REPEATS or _REPEATED_GROUP.search(pattern):
        raise UnknownValueError(f"the pattern {pattern[:60]!r} of modules is not worked out")
    return pattern


@lru_cache(maxsize=1 << 14)
def _is_within(names: frozenset[str], patterns: tuple[str, ...], name: str) -> bool:
    parts = name.split(".")
    count = len(parts)
    for start in range(count):
        for end in range(start + 1, count + 1):
            if ".".join(parts[start:end]) in names:
                return True
    return any(pattern.match(name) for pattern in _compiled(patterns))


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    found = []
    for pattern in patterns:
        try:
            found.append(re.compile(pattern))
        except (re.error, RecursionError, OverflowError):
            continue  # the engine would refuse it, too
    return tuple(found)
