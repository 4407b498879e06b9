"""Which files are read at all: the ends of their names, and their size."""

from __future__ import annotations

MAX_BYTES = 10 << 20
"""A larger file is refused before it is read."""
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
JINJA_SUFFIXES = frozenset({".j2", ".jinja", ".jinja2"})
GO_SUFFIXES = frozenset({".tpl", ".tmpl", ".gotmpl"})
TEMPLATE_SUFFIXES = JINJA_SUFFIXES | GO_SUFFIXES
"""What a template is called; `run.sh.j2` is a script once it is rendered."""
