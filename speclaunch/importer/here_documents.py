"""Scripts in here-documents: ``bash <<EOF``, ``ssh host <<'EOF'``, ``cat > run.sh <<EOF``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from speclaunch.errors import InputError
from speclaunch.importer.expand import Expander
from speclaunch.importer.interface import InvocationKind, Reading
from speclaunch.importer.parser import quoted_text
from speclaunch.importer.scope import Field
from speclaunch.importer.source_text import SourceSpan, SourceText, joined
from speclaunch.importer.syntax import Redirect, ShellWord, Simple
from speclaunch.importer.wrappers import SERVER, SHELLS, base
from speclaunch.patterns import lazy
from speclaunch.record import record

_RUN = SHELLS | {
    *("ssh", "sbatch", "sudo", "su", "env", "nohup", "srun", "qsub", "bsub"),
    *("docker", "podman", "kubectl", "singularity", "apptainer", "chroot"),
}
"""What runs the script that it is given on its standard input."""
_WRITE = frozenset({"cat", "tee"})
_APPLY = frozenset({"kubectl", "oc", "microk8s", "k3s"})
_READ_ONLY = "it is a manifest in a here-document"
_MAPPING = lazy(r"^[ \t]*(?:- )?[\w.-]+:(?:[ \t]|$)", re.MULTILINE)
_PIPED = lazy(r"\b(?:kubectl|oc|k3s)\b")
_NO_SCRIPT = (".md", ".txt", ".rst", ".log", ".yaml", ".yml", ".json", ".py", ".toml", ".service")


@record
class HereScript:
    """A script in a here-document; `is_run` by a shell that has the environment around it."""

    source: SourceText
    is_run: bool
    why: str


def body_word(body: SourceSpan) -> ShellWord | None:
    """The text of a here-document whose delimiter is not quoted, as one word.

    None where an expansion in it does not end.
    """
    try:
        return quoted_text(body.source.part(body.start, body.end))
    except InputError:
        return None


def script(node: Simple, fields: Sequence[Field], expander: Expander) -> HereScript | None:
    """The script that a command is given, or writes to a file; None where there is none."""
    given = next((one for one in node.redirects if one.body is not None), None)
    if given is None or given.body is None or not SERVER.search(given.body.text):
        return None
    head = base(fields[0].text)
    if head in _RUN:
        is_local = head in SHELLS or head in ("sudo", "env", "nohup", "srun", "sbatch")
        return HereScript(_text(given, expander), is_local, "the script of a here-document")
    target = _target(node, fields) if head in _WRITE else None
    if target is None or target.lower().endswith(_NO_SCRIPT):
        return None
    return HereScript(_text(given, expander), False, f"written to {target}")


def manifest(node: Simple, fields: Sequence[Field], pipeline: str) -> Reading | None:
    """The servers in YAML that ``kubectl`` is given, or ``cat`` writes to a file or a pipe to it;
    None where there is no YAML. `pipeline` is what the output goes to."""
    given = next((one for one in node.redirects if one.body is not None), None)
    if given is None or given.body is None or not SERVER.search(given.body.text):
        return None
    head, target = base(fields[0].text), _target(node, fields)
    is_yaml = head in _APPLY or (
        head in _WRITE
        and (target.endswith((".yaml", ".yml")) if target else _PIPED.search(pipeline))
    )
    where = given.body.source.where
    if not is_yaml or not isinstance(where, int) or not _MAPPING.search(given.body.text):
        return None
    start, end = given.body.start, given.body.end
    text = given.body.source.text[start:end]
    if not given.literal:
        text = text.replace("\\$", " $")
    from speclaunch.importer.yaml_files import read_yaml_document  # noqa: PLC0415  YAML

    try:
        reading = read_yaml_document(given.body.source.document.excerpt(where + start, text))
    except InputError as error:
        return Reading(problems=error.problems)
    shown = (one for one in reading.invocations if one.kind is not InvocationKind.CONFIG)
    return replace(reading, invocations=tuple(replace(o, read_only=_READ_ONLY) for o in shown))


def _target(node: Simple, fields: Sequence[Field]) -> str | None:
    """The file that ``cat`` or ``tee`` writes."""
    for redirect in node.redirects:
        if redirect.operator in (">", ">>", ">|") and redirect.target is not None:
            return redirect.target.span.text.strip("\"'")
    if base(fields[0].text) == "tee":
        return next((one.text for one in fields[1:] if not one.text.startswith("-")), None)
    return None


def _text(given: Redirect, expander: Expander) -> SourceText:
    if given.body is None:  # pragma: no cover - asked before
        return SourceText(expander.document, "")
    body = given.body
    if given.literal:
        return body.source.part(body.start, body.end)
    word = body_word(body)
    if word is None:
        return body.source.part(body.start, body.end)
    return joined(expander.text(word), expander.document)
