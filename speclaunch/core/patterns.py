"""Regular expressions that are compiled on first use.

One run needs few of a module's patterns, and compiling takes longer than importing the module.
"""

from __future__ import annotations

import re
from typing import Any, cast

_METHODS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split")


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern like `re.compile`, but compile it only when one of its methods is first
    used.

    A mistake in the pattern is also reported only then: tests/core/test_patterns.py compiles all
    patterns.
    """
    return cast("re.Pattern[str]", _Lazy(pattern, flags))


class _Lazy:
    """A stand-in for a compiled pattern, with its methods."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
