"""Comparison of a checkpoint's files with the tensors that the engine loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import (
    Finding,
    Severity,
    Subject,
    TensorComparison,
    check_rules,
    drafts_itself,
    selected,
    subject,
)
from speclaunch.core import COMMAND_LINE, InputError, Place, Problem, models_dir
from speclaunch.engine import (
    HUB_NAME,
    NOWHERE_ELSE,
    Checkpoint,
    Facts,
    Plan,
    Request,
    RequestedValue,
    RequestOrigin,
    Sources,
    TensorHeader,
    UnknownFact,
    UnknownValueError,
    find_checkpoint,
    load,
    models_folders,
    resolve,
)

_ALGORITHMS = {
    "LlamaForCausalLMEagle3": "EAGLE3",
    "LlamaForCausalLMEagle": "EAGLE",
    "Qwen2ForCausalLMEagle": "EAGLE",
    "DFlashDraftModel": "DFLASH",
}
_UNKNOWN_TARGET = "its target"
_FILES = ("SPL95",)
_PAIR = ("SPL95", "SPL406", "SPL407", "SPL408", "SPL409", "SPL410", "SPL411", "SPL416")
"""Rules to check for the files only, and for the files with their target."""


class Inspection(Struct, frozen=True):
    """The checkpoint, its assumed use, and the findings."""

    checkpoint: Checkpoint
    target: Checkpoint | None
    engine: str
    algorithm: str | None
    """Algorithm that the draft is for; None: inspected as a complete model."""
    findings: tuple[Finding, ...]
    headers: Mapping[str, TensorHeader]
    loader: str | None
    """Engine class; None if unknown."""
    source: str | None
    comparison: TensorComparison | None
    numbers_read: bool
    """True if tensor values were read; hub checkpoints have only their headers read."""

    def status(self, name: str) -> str:
        """Return the state of a tensor.

        `loaded`, `shared` (the target's is used), `wrong shape`, `not read`, `skipped`, or
        `unknown`.
        """
        compared = self.comparison
        if compared is None:
            return "unknown"
        if any(tensor.name == name for tensor in compared.misshapen):
            return "wrong shape"
        if name in compared.own:
            return "loaded"
        return "not read" if name in compared.unread else "skipped"


def inspect_checkpoint(
    name: str, target: str | None, engine: str, *, online: bool = True
) -> Inspection:
    """Inspect a checkpoint: a directory, a cached name, or, if `online`, a hub name.

    Raises InputError if it does not exist or has no safetensors file.
    """
    found = _found(name, online=online)
    if found.tensors is None:
        raise InputError(
            Problem(
                f"{name} has no safetensors file",
                Place(COMMAND_LINE, text=name),
                "name the directory that holds the weights",
            )
        )
    other = None if target is None else _found(target, online=online, weights=False)
    plan = _plan(found, other, engine)
    results = check_rules(plan, selected(_FILES if other is None else _PAIR))
    findings = tuple(
        finding for finding in results.findings if finding.severity is not Severity.INFO
    )
    looked_at = _subject(plan)
    headers = found.tensors.headers
    if headers.unread is not None:
        raise InputError(Problem(f"{name} cannot be read: {headers.unread}"))
    loader = None if looked_at is None else looked_at.loader
    return Inspection(
        found,
        other,
        engine,
        plan.algorithm,
        findings,
        headers.tensors,
        None if loader is None else loader.name,
        None if loader is None else loader.source,
        None if looked_at is None else looked_at.compared(),
        found.path is not None,
    )


def _subject(plan: Plan) -> Subject | None:
    try:
        return subject(plan)
    except UnknownValueError:
        return None


def _found(name: str, *, online: bool, weights: bool = True) -> Checkpoint:
    sources = replace(NOWHERE_ELSE, online=online) if weights else _everywhere(online=online)
    found = find_checkpoint(name, sources, tokenizer=True)
    if isinstance(found, UnknownFact):
        raise InputError(
            Problem(
                f"{name} cannot be inspected: {found.why}",
                help="name the directory that holds its config.json and its weights",
            )
        )
    if found.tensors is None and weights and online and HUB_NAME.match(name):
        from speclaunch.engine import (  # noqa: PLC0415
            HubRefusedError,
            fetch_tensors,
        )

        try:
            return replace(found, tensors=fetch_tensors(name))
        except HubRefusedError as error:
            raise InputError(
                Problem(f"{name} cannot be inspected: {error}", help=error.help)
            ) from None
    return found


def _everywhere(*, online: bool) -> Sources:
    """Return all sources for a target, including the index and the repository."""

    return Sources((), models_folders(Path.cwd()), models_dir(), online, ())


def _plan(found: Checkpoint, target: Checkpoint | None, engine: str) -> Plan:
    """Return the plan that the rules check."""
    algorithm = _algorithm(found, target)
    own = algorithm is None or (target is None and drafts_itself(found))
    place = Place(COMMAND_LINE, text=found.name)
    values = {"model_path": found.name if own else target.name if target else _UNKNOWN_TARGET}
    if algorithm is not None:
        values["speculative_algorithm"] = algorithm
        if not own:
            values["speculative_draft_model_path"] = found.name
    arguments = {key: RequestedValue(key, value, key, place) for key, value in values.items()}
    request = Request(found.name, RequestOrigin.COMMAND, load(engine), place, arguments)
    facts = Facts(found) if own else Facts(target, found)
    return resolve(request, facts)


def _algorithm(found: Checkpoint, target: Checkpoint | None) -> str | None:
    name = found.architecture or ""
    if name in _ALGORITHMS:
        return _ALGORITHMS[name]
    if drafts_itself(found) and found.mtp_layers != 0:
        return "EAGLE"
    return None if target is None else "STANDALONE"
