"""Finds the SGLang server commands in anybody's files, with the place of every word.

Nothing is ever run.  What cannot be evaluated from the file alone is kept as it is written, and
says why.
"""

from speclaunch.importer.files import (
    read_file,
    read_markdown,
    read_shell,
    read_text,
    read_words,
    read_yaml,
)
from speclaunch.importer.interface import (
    Comment,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.importer.sglang_yaml import read_sglang_yaml

__all__ = [
    "Comment",
    "Dropped",
    "Invocation",
    "InvocationKind",
    "Reading",
    "Word",
    "read_file",
    "read_markdown",
    "read_sglang_yaml",
    "read_shell",
    "read_text",
    "read_words",
    "read_yaml",
]
