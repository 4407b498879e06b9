"""Regular expressions that are compiled when they are first used.

Of those that a module defines most are not needed for one answer, and compiling takes longer than
importing the module.
"""

from __future__ import annotations

import re
from typing import Any, cast

_METHODS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split")


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """What `re.compile` gives, made at the first use of one of its methods.

    A mistake in the pattern is told then, too: tests/core/test_patterns.py compiles all of them.
    """
    return cast("re.Pattern[str]", _Lazy(pattern, flags))


class _Lazy:
    """Stands for a compiled pattern; its methods are those of the pattern."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        for one in _METHODS:
            setattr(self, one, getattr(compiled, one))
        return getattr(compiled, name)
