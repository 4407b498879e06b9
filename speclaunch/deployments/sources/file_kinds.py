"""Detect a file's kind from its suffix and first lines, and detect templates.

Another program fills in a template before its contents run: a Helm chart's templates and values,
Jinja templates. The text that runs differs, so only the rendered text can be checked.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path, PurePath

from speclaunch.core import ExitCode, InputError, bounded, lazy, reads

MAX_BYTES = bounded.MAX_BYTES
"""Maximum size of a file; a larger file is rejected before it is read."""
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
JINJA_SUFFIXES = frozenset({".j2", ".jinja", ".jinja2"})
GO_SUFFIXES = frozenset({".tpl", ".tmpl", ".gotmpl"})
TEMPLATE_SUFFIXES = JINJA_SUFFIXES | GO_SUFFIXES
"""Suffixes of templates; `run.sh.j2` is a script once it is rendered."""
_TEMPLATES = frozenset({".j2", ".jinja", ".jinja2", ".tpl", ".tmpl", ".template", ".example"})
"""Suffixes of files that are filled in before they are used."""
DOCUMENT_SUFFIXES = frozenset(
    {".md", ".markdown", ".mdx", ".qmd", ".rst", ".adoc", ".txt", ".html", ".htm", ".log"}
)
"""Suffixes of prose that may contain code. A plain text file may be an exported issue."""
KUSTOMIZATIONS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
"""Files that state how other files are composed."""
NOTEBOOK_SUFFIX = ".ipynb"
_DOCKERFILE = lazy(r"(?:.*\.)?(?:docker|container)file(?:[.-].*)?", re.IGNORECASE)
_FROM = lazy(
    r"(?:[ \t]*(?:#[^\n]*)?\n|ARG[ \t][^\n]*\n)*FROM[ \t]+(?!import\b)\S+[ \t]*(?:[Aa][Ss][ \t]|$)",
    re.MULTILINE,
)
_MAKEFILE = lazy(r"(?:GNU)?makefile(?:\.[\w.-]+)?|.*\.(?:mk|mak)", re.IGNORECASE)
PYTHON_SUFFIX = ".py"
MAX_PROGRAM_BYTES = 1 << 20
"""Maximum size of a program. Larger programs are generated code, not launchers."""
_PROGRAM = re.compile(
    rb"launch_server|dynamo\.sglang|sglang_chute|prepare_server_args|popen_launch|--sglang-"
    rb"|sglang[\"',\s]+serve\b|(?:\b|Ray)(?:Engine|Runtime)\(|\bServerArgs\b"
)


def starts_a_program(data: bytes) -> bool:
    """True if a Python program may start a server. This test is cheap: it does not parse."""
    return (b"sglang" in data or b"sgl." in data) and _PROGRAM.search(data) is not None


def is_dockerfile(name: str, text: str = "") -> bool:
    """True for a Dockerfile, by its name, or by its first lines if it has no suffix."""
    base = PurePath(name).name
    if _DOCKERFILE.fullmatch(base):
        return PurePath(name).suffix.lower() not in (".md", ".yaml", ".yml", ".json", ".py", ".sh")
    return not PurePath(name).suffix and _FROM.match(text) is not None


def is_makefile(name: str) -> bool:
    """True for a Makefile, by its name."""
    return _MAKEFILE.fullmatch(PurePath(name).name) is not None


_YAML = frozenset({".yaml", ".yml", ".json"})
_YAML_START = lazy(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*(?:---|%YAML|(?:apiVersion|kind|services|version|name|defaults):)"
)
_SHELL_START = lazy(r"#!.*sh\b")


class Form(StrEnum):
    """Format that a file is read as."""

    PROGRAM = "program"
    PLAIN = "plain"
    """Document, or script with a document's suffix."""
    DOCUMENT = "document"
    NOTEBOOK = "notebook"
    DOCKERFILE = "dockerfile"
    MAKEFILE = "makefile"
    YAML = "yaml"
    SHELL = "shell"


def form_of(text: str, shown: str, kind: str) -> Form:  # noqa: PLR0911
    """Return the format by suffix (`kind`), else by the beginning of the text."""
    if kind == PYTHON_SUFFIX:
        return Form.PROGRAM
    if kind == ".txt":
        return Form.PLAIN
    if kind in DOCUMENT_SUFFIXES:
        return Form.DOCUMENT
    if kind == NOTEBOOK_SUFFIX:
        return Form.NOTEBOOK
    if is_dockerfile(shown, text):
        return Form.DOCKERFILE
    if is_makefile(shown):
        return Form.MAKEFILE
    return Form.YAML if looks_like_yaml(text, kind) else Form.SHELL


def looks_like_yaml(text: str, suffix: str) -> bool:
    """True if a text is read as YAML, by its file's suffix, else by its first lines."""
    if suffix in DOCUMENT_SUFFIXES or suffix in _YAML or suffix == NOTEBOOK_SUFFIX:
        return suffix in _YAML
    return not _SHELL_START.match(text) and _YAML_START.match(text) is not None


# -- templates

CHART = "Chart.yaml"
_MOST_PARENTS = 8
_VALUES = lazy(r"values\b.*\.ya?ml", re.I)
_HELM = lazy(r"\{\{[^{}\n]*(?<![\w.])\.(?:Values|Release|Chart|Capabilities)\.")
"""Helm's own objects."""
_TEMPLATE_MARK = lazy(r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}")
_BARE = lazy(r"(?:^|[:,\[-])[ \t]+\{\{[^{}\n]*\}\}|^\{\{|^[ \t]*\{%", re.MULTILINE)
"""Unquoted template mark as a YAML value, which makes the text invalid YAML."""

_HELM_REMEDY = "render it: helm template . | speclaunch lint -"
_REMEDY = "render it, and check the result"


def is_template(name: str) -> bool:
    """True if a file's name marks it as a template."""
    return PurePath(name).suffix.lower() in _TEMPLATES


class TemplateError(InputError):
    """Input that is only a template and cannot be checked (exit 3)."""

    exit_code = ExitCode.NOTHING


def template_of(text: str, path: Path | None, *, is_yaml: bool) -> str | None:
    """Return why a text is a template, with the remedy; None if it is not a template.

    `path` is its file, if any: a chart has a `Chart.yaml` in a parent directory. A script or
    document with `{{ x }}` in its words, and YAML with quoted marks, are not templates. The rest
    of their text can be checked.
    """
    if path is not None:
        reason = _by_name(text, path)
        if reason is not None:
            return reason
    if path is not None and path.suffix.lower() in DOCUMENT_SUFFIXES:
        return None
    if _HELM.search(text):
        return f"is a Helm template: not checked; {_HELM_REMEDY}"
    if is_yaml and _TEMPLATE_MARK.search(text) and (_BARE.search(text) or not _is_yaml(text)):
        return f"is a template: not checked; {_REMEDY}"
    return None


def _by_name(text: str, path: Path) -> str | None:
    chart = _chart(path)
    if chart is not None and path.parent == chart and _VALUES.fullmatch(path.name):
        return f"contains the values of a Helm chart: not checked; {_HELM_REMEDY}"
    if chart is not None and path.relative_to(chart).parts[0] == "templates":
        if _TEMPLATE_MARK.search(text) or path.suffix in GO_SUFFIXES:
            return f"is a Helm template: not checked; {_HELM_REMEDY}"
        return None
    suffixes = {suffix.lower() for suffix in path.suffixes}
    if suffixes & JINJA_SUFFIXES:
        return f"is a Jinja template: not checked; {_REMEDY}"
    if suffixes & GO_SUFFIXES and _TEMPLATE_MARK.search(text):
        return f"is a template: not checked; {_REMEDY}"
    return None


def _chart(path: Path) -> Path | None:
    """Return the directory of the chart that a file belongs to."""
    parents = list(path.parents)[:_MOST_PARENTS]
    return next((parent for parent in parents if reads.is_file(parent / CHART)), None)


def _is_yaml(text: str) -> bool:
    """True if a text is YAML, or begins as YAML and exceeds the limits on depth or size."""
    import yaml  # noqa: PLC0415  few files have a mark of a template

    from speclaunch.deployments.recipe.bounded_yaml import BoundsError, events  # noqa: PLC0415

    try:
        for _ in events(text):
            pass
    except BoundsError:
        return True
    except yaml.YAMLError:
        return False
    return True
