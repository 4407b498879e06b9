"""Checks of the recipe's checkpoints, hub access, and other paths."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.engine import REFUSALS, Checkpoint, UnknownFact
from speclaunch.serving.doctor.facts import (
    CheckLine,
    CheckState,
    DiskVolume,
    Hub,
    LocalModel,
    MachineFacts,
    VolumeUse,
)

_SHOWN = 3


def check_models(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield one line per checkpoint, and at most one for the hub token."""
    hub = found.hub
    if not isinstance(hub, Hub):
        yield CheckLine("model", CheckState.UNKNOWN, f"the model cache is unknown: {hub.why}")
        return
    for model in found.models:
        yield _model(model, hub, found)
    yield from _token(found, hub)


def _model(model: LocalModel, hub: Hub, found: MachineFacts) -> CheckLine:
    name = f"{model.role}: {model.name}"
    if model.generated:
        return CheckLine("model", CheckState.OK, f"{name}, created at its first launch")
    if model.is_url or (hub.modelscope and not model.is_path):
        why = "only directories and the Hugging Face cache are checked"
        return CheckLine("model", CheckState.NOTE, name, why)
    if not model.readable:
        why = "the engine runs as this user"
        return CheckLine("model", CheckState.ERROR, f"{name} cannot be read", why)
    if model.present:
        return _present(name, model, hub, found)
    return _absent(name, model, hub) or _to_download(name, model, hub, found)


def _absent(name: str, model: LocalModel, hub: Hub) -> CheckLine | None:
    """Return an error line if a missing checkpoint cannot be downloaded; None if it can."""
    if model.is_path:
        return CheckLine(
            "model",
            CheckState.ERROR,
            f"{name} does not exist",
            "the engine treats it as a name on the hub, and finds no such model",
            "correct the path in the recipe" + _elsewhere(model),
        )
    if hub.offline is not None:
        return CheckLine(
            "model",
            CheckState.ERROR,
            f"{name} is not in {hub.cache}",
            f"{hub.offline} is set: the engine may not download it",
            f"unset {hub.offline}, or download it on a machine with network access"
            + _elsewhere(model),
        )
    return None


def _present(name: str, model: LocalModel, hub: Hub, found: MachineFacts) -> CheckLine:
    checkpoint = model.checkpoint
    missing = checkpoint.missing_files if checkpoint is not None else ()
    dummy = found.target is not None and found.target.dummy_weights
    if not dummy and (missing or model.weight_files is False):
        listed = ", ".join(missing[:_SHOWN]) or "any weights"
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        fetched = not model.is_path and hub.offline is None
        why = "the engine downloads them at the start" if fetched else "it cannot be loaded"
        return CheckLine(
            "model",
            CheckState.WARNING if fetched else CheckState.ERROR,
            f"{name} lacks {listed}{more}",
            why,
            "copy the missing files" if model.is_path else f"hf download {model.name}",
            command=not model.is_path,
        )
    if model.unfinished:
        text = f"{name}{_size(checkpoint)}, and {_downloads(model)}"
        return CheckLine("model", CheckState.NOTE, text, "all files in its index are present")
    return CheckLine("model", CheckState.OK, f"{name}{_size(checkpoint)}")


def _to_download(name: str, model: LocalModel, hub: Hub, found: MachineFacts) -> CheckLine:
    checkpoint = model.checkpoint
    size = checkpoint.weight_bytes if checkpoint is not None else None
    text = f"{name} is not downloaded{_size(checkpoint)}"
    if model.unfinished:
        text = f"{name}: {_downloads(model)}{_size(checkpoint)}"
    refused = _refused(text, model, hub)
    if refused is not None:
        return refused
    volumes = (volume for volume in found.volumes if isinstance(volume, DiskVolume))
    volume = next((volume for volume in volumes if volume.use is VolumeUse.MODELS), None)
    left = max(0, size - model.unfinished_bytes) if size is not None else None
    if left is not None and volume is not None and left > volume.free:
        return CheckLine(
            "model",
            CheckState.ERROR,
            text,
            f"{hub.cache} has {_amount(volume.free)} left",
            "free some space, or set HF_HOME to another directory",
        )
    why = "the first start downloads it"
    if size is None and model.unknown is not None:
        hint = "--online" in (model.unknown.help or "")
        why += (
            "; --online shows its size" if hint else f"; its size is unknown: {model.unknown.why}"
        )
    why += _elsewhere(model)
    return CheckLine(
        "model",
        CheckState.WARNING if model.unfinished else CheckState.NOTE,
        text,
        why,
        f"hf download {model.name}",
        command=True,
    )


def _refused(text: str, model: LocalModel, hub: Hub) -> CheckLine | None:
    """Return a line with `text` if the hub denies access to the model; otherwise None. Only
    `--online` detects this (facts/hub.py)."""
    why, fix = "", "accept its license on the hub, then: hf auth login"
    if model.unknown is not None and model.unknown.why.startswith(REFUSALS):
        why, fix = model.unknown.why, model.unknown.help or fix
    elif model.checkpoint is not None and model.checkpoint.gated and hub.token is None:
        why = "it is gated on the hub, and no access token is set"
    if not why:
        return None
    # the engine's environment may have a token that this process, which sent the query, lacks
    help_ = (model.unknown.help if model.unknown is not None else None) or ""
    queried_without_token = hub.token is not None and "HF_TOKEN" in help_
    return CheckLine(
        "model", CheckState.WARNING if queried_without_token else CheckState.ERROR, text, why, fix
    )


def _token(found: MachineFacts, hub: Hub) -> Iterator[CheckLine]:
    """Yield at most one line about the hub token; never show the token itself."""
    absent = [m for m in found.models if not (m.present or m.is_path or m.generated)]
    text, fix = "no access token for the hub", "hf auth login"
    if hub.token is not None:
        yield CheckLine("token", CheckState.OK, f"an access token for the hub is in {hub.token}")
    elif absent and hub.offline is None:
        why = "gated models need it; the models to download may be gated"
        if len(absent) == 1:
            why = f"gated models need it: {absent[0].name} may be gated"
        yield CheckLine("token", CheckState.NOTE, text, why, fix, command=True)
    elif found.target is None:
        why = "only gated models need it"
        yield CheckLine("token", CheckState.NOTE, text, why, fix, command=True)


def _downloads(model: LocalModel) -> str:
    plural = "s" if model.unfinished > 1 else ""
    return f"{model.unfinished} unfinished download{plural} ({_amount(model.unfinished_bytes)})"


def _size(checkpoint: Checkpoint | None) -> str:
    known = checkpoint is not None and checkpoint.weight_bytes is not None
    return f", {_amount(checkpoint.weight_bytes or 0)} of weights" if known and checkpoint else ""


def _amount(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.{0 if size >= 10 * unit else 1}f} {name}"
    return f"{size} bytes"


def _elsewhere(model: LocalModel) -> str:
    """Return a hint to use the model's copy in a `--models` directory; empty if there is none.

    Rules search these directories; the engine does not.
    """
    path = model.checkpoint.path if model.checkpoint is not None else None
    argument = "speculative_draft_model_path" if model.role == "draft" else "model_path"
    return f", or use the local copy: args.{argument}={path}" if path is not None else ""


_CHECKPOINTS = ("model_path", "speculative_draft_model_path")


def check_paths(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield one line per missing path; checkpoints have their own lines."""
    if isinstance(found.missing, UnknownFact):
        text = f"cannot check the paths of the recipe: {found.missing.why}"
        yield CheckLine("path", CheckState.UNKNOWN, text)
        return
    reported = {model.name for model in found.models}
    for path in found.missing:
        if path.name in _CHECKPOINTS and path.path in reported:
            continue
        why = "the engine fails without it, sometimes only after loading the weights"
        yield CheckLine("path", CheckState.ERROR, path.message, why, path.help)
