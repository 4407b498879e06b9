"""Templates: files that another program fills in before anybody starts what is in them.

A Helm chart's templates and values, Jinja templates. What stands in them is not what will run, so
they are not judged; the rendered text is.
"""

from __future__ import annotations

import re
from pathlib import Path

from speclaunch import reads
from speclaunch.errors import ExitCode, InputError
from speclaunch.importer.suffixes import DOCUMENT_SUFFIXES, GO_SUFFIXES, JINJA_SUFFIXES
from speclaunch.patterns import lazy

CHART = "Chart.yaml"
_MOST_PARENTS = 8
_VALUES = lazy(r"values\b.*\.ya?ml", re.I)
_HELM = lazy(r"\{\{[^{}\n]*(?<![\w.])\.(?:Values|Release|Chart|Capabilities)\.")
"""Helm's own objects."""
_MARK = lazy(r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}")
_BARE = lazy(r"(?:^|[:,\[-])[ \t]+\{\{[^{}\n]*\}\}|^\{\{|^[ \t]*\{%", re.MULTILINE)
"""A mark where YAML has a value: without quotes it is none."""

_HELM_REMEDY = "render it: helm template . | speclaunch lint -"
_REMEDY = "render it, and check the result"


class TemplateError(InputError):
    """A template is all there is: nothing can be checked (exit 3)."""

    exit_code = ExitCode.NOTHING


def template_of(text: str, path: Path | None, *, is_yaml: bool) -> str | None:
    """Why a text is not what will run, and what to do; None where it is no template.

    `path` is its file, where it has one: a chart is known by the `Chart.yaml` above it. Marks in
    the words of a script or of a document (`{{ x }}`), and quoted ones in YAML, make no template:
    the rest of it can be judged.
    """
    if path is not None:
        said = _by_name(text, path)
        if said is not None:
            return said
    if path is not None and path.suffix.lower() in DOCUMENT_SUFFIXES:
        return None
    if _HELM.search(text):
        return f"is a Helm template: not checked; {_HELM_REMEDY}"
    if is_yaml and _MARK.search(text) and (_BARE.search(text) or not _is_yaml(text)):
        return f"is a template: not checked; {_REMEDY}"
    return None


def _by_name(text: str, path: Path) -> str | None:
    chart = _chart(path)
    if chart is not None and path.parent == chart and _VALUES.fullmatch(path.name):
        return f"contains the values of a Helm chart: not checked; {_HELM_REMEDY}"
    if chart is not None and path.relative_to(chart).parts[0] == "templates":
        if _MARK.search(text) or path.suffix in GO_SUFFIXES:
            return f"is a Helm template: not checked; {_HELM_REMEDY}"
        return None
    suffixes = {suffix.lower() for suffix in path.suffixes}
    if suffixes & JINJA_SUFFIXES:
        return f"is a Jinja template: not checked; {_REMEDY}"
    if suffixes & GO_SUFFIXES and _MARK.search(text):
        return f"is a template: not checked; {_REMEDY}"
    return None


def _chart(path: Path) -> Path | None:
    """The directory of the chart that a file belongs to."""
    parents = list(path.parents)[:_MOST_PARENTS]
    return next((parent for parent in parents if reads.is_file(parent / CHART)), None)


def _is_yaml(text: str) -> bool:
    """True if a text is YAML, or begins as YAML and is deeper or larger than is read."""
    import yaml  # noqa: PLC0415  few files have a mark of a template

    from speclaunch.recipe.bounded_yaml import BoundsError, events  # noqa: PLC0415

    try:
        for _ in events(text):
            pass
    except BoundsError:
        return True
    except yaml.YAMLError:
        return False
    return True
