"""Which files are read at all: the ends of their names, and their size."""

from __future__ import annotations

import re
from pathlib import PurePath

from speclaunch.patterns import lazy
from speclaunch.reads import bounded

MAX_BYTES = bounded.MAX_BYTES
"""A larger file is refused before it is read."""
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
JINJA_SUFFIXES = frozenset({".j2", ".jinja", ".jinja2"})
GO_SUFFIXES = frozenset({".tpl", ".tmpl", ".gotmpl"})
TEMPLATE_SUFFIXES = JINJA_SUFFIXES | GO_SUFFIXES
"""What a template is called; `run.sh.j2` is a script once it is rendered."""
DOCUMENT_SUFFIXES = frozenset(
    {".md", ".markdown", ".mdx", ".qmd", ".rst", ".adoc", ".txt", ".html", ".htm", ".log"}
)
"""Prose with code in it; a plain text is the text of an issue, say."""
KUSTOMIZATIONS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
"""Files that say how others are composed."""
NOTEBOOK_SUFFIX = ".ipynb"
_DOCKERFILE = lazy(r"(?:.*\.)?(?:docker|container)file(?:[.-].*)?", re.IGNORECASE)
_FROM = lazy(
    r"(?:[ \t]*(?:#[^\n]*)?\n|ARG[ \t][^\n]*\n)*FROM[ \t]+(?!import\b)\S+[ \t]*(?:[Aa][Ss][ \t]|$)",
    re.MULTILINE,
)
_MAKEFILE = lazy(r"(?:GNU)?makefile(?:\.[\w.-]+)?|.*\.(?:mk|mak)", re.IGNORECASE)
PYTHON_SUFFIX = ".py"
MAX_PROGRAM_BYTES = 1 << 20
"""A larger program is generated: nobody launches servers with it."""
_PROGRAM = re.compile(
    rb"launch_server|dynamo\.sglang|sglang_chute|prepare_server_args|popen_launch|--sglang-"
    rb"|sglang[\"',\s]+serve\b|(?:\b|Ray)(?:Engine|Runtime)\(|\bServerArgs\b"
)


def starts_a_program(data: bytes) -> bool:
    """Whether a Python program may start a server: what is cheap to ask before it is parsed."""
    return (b"sglang" in data or b"sgl." in data) and _PROGRAM.search(data) is not None


def is_dockerfile(name: str, text: str = "") -> bool:
    """Whether a file is a Dockerfile: by its name, else (where the name says nothing) its start."""
    base = PurePath(name).name
    if _DOCKERFILE.fullmatch(base):
        return PurePath(name).suffix.lower() not in (".md", ".yaml", ".yml", ".json", ".py", ".sh")
    return not PurePath(name).suffix and _FROM.match(text) is not None


def is_makefile(name: str) -> bool:
    """True if a file is a Makefile, by its name."""
    return _MAKEFILE.fullmatch(PurePath(name).name) is not None
