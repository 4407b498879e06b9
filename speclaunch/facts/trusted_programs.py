"""Which of the programs that files name may run. None, unless the user wants it.

A recipe may come with a repository that somebody else wrote. Verbs that only read run its
`engine.python` for `--trust-engine` alone; a launch runs it, and a value of the command line is the
user's own.
"""

from __future__ import annotations

_TRUSTED: set[str] = set()
_EVERY = "*"


def trust_all() -> None:
    """Trust every program that a file names, for this process (`--trust-engine`)."""
    _TRUSTED.add(_EVERY)


def trust(program: str) -> None:
    """Trust one program for this process, by the text that names it."""
    _TRUSTED.add(program)


def is_trusted(program: str) -> bool:
    """True if the user wants this program to run."""
    return _EVERY in _TRUSTED or program in _TRUSTED
