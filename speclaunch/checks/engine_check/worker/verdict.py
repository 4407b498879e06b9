# ruff: noqa: PLC0415 (SGLang is imported only when everything is prepared)
"""Verdict of a release on a command line, from the release's functions in startup order.

``parse``    `prepare_server_args`: the parser, and up to 0.5.18 the resolution as well
``resolve``  `resolve_once`, if it exists (from 0.5.19)
``check``    `check_server_args`, the last step before the engine's processes start
``draft``    the draft's `ModelConfig`, the first object that a scheduler creates

Later refusals by the scheduler and the model runner are not covered.
"""

from __future__ import annotations

import io
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterator
from inspect import signature
from typing import Any

from .guards import NotChecked

ARTEFACTS = (ImportError, AttributeError, NameError, FileNotFoundError, MemoryError)
"""Errors that this machine or the emulated hardware may have caused."""
PROGRAM = re.compile(r"^[\w. -]+: error: ", re.M)
"""Beginning of argparse's errors, which in some releases includes the program's name."""
STAND_IN = re.compile(r"'Thing'|'StandIn'|\bstand_in\b|\.(?:stubs|torch_parts)\.")
"""Text in errors that come from a stand-in (stubs.py), not from the release."""
LONGEST = 4000
"""Maximum characters of a message."""
MOST = 300_000
"""Maximum characters of one resolved value."""


def verdict(words: list[str], env: dict[str, str]) -> dict[str, Any]:
    """Return the verdict record: `accepted`, `refused` or `usage_error`.

    Without a verdict, it is `artefact` (this machine's fault) or `unjudged`.
    """
    os.environ.update(env)
    output, stage = io.StringIO(), ["parse"]
    found: dict[str, Any] = {}
    standard_error, sys.stderr = sys.stderr, output
    try:
        pass_stages(words, stage, found)
        found["verdict"] = "accepted"
    except SystemExit as error:
        text = PROGRAM.split(output.getvalue().strip())[-1]
        lines = output.getvalue().strip().splitlines() or [""]
        found |= {
            "verdict": "usage_error" if error.code == 2 else "refused",
            "stage": stage[0],
            "error": "SystemExit",
            "message": tidy(PROGRAM.sub("error: ", lines[-1])),
            "said": tidy(text),
            **place(error),
        }
    except BaseException as error:
        found |= refusal(error, stage[0])
    finally:
        sys.stderr = standard_error
    if found["verdict"] != "accepted" and found.get("stage") != "draft":
        found.pop("values", None)
    return found


def pass_stages(words: list[str], stage: list[str], found: dict[str, Any]) -> None:
    """Run the stages; update `stage[0]` and `found["values"]`."""
    from sglang.srt import server_args as module

    args: Any = module.prepare_server_args(list(words))
    if hasattr(args, "resolve_once"):
        stage[0] = "resolve"
        args.resolve_once()
    stage[0] = "check"
    args.check_server_args()
    found["values"] = resolved(args)
    stage[0] = "draft"
    draft_config(args)


def resolved(server_args: Any) -> dict[str, Any]:
    """Return the engine's final values by name, except objects and very long values."""
    try:
        values = server_args.resolved_dict()
    except AttributeError:
        view = resolved_view(server_args)
        values = {name: getattr(view, name, value) for name, value in vars(server_args).items()}
    values |= dict(flattened(values))
    return {
        name: value
        for name, value in sorted(values.items())
        if value is None or isinstance(value, (str, int, float, bool, list))
        if not isinstance(value, (str, list)) or len(value) <= MOST
    }


def resolved_view(server_args: Any) -> Any:
    """Return the view with the overrides of a release that has them, else `server_args`."""
    try:
        from sglang.srt.arg_groups.overrides import resolved_view as view_of

        return view_of(server_args)
    except ImportError:
        return server_args


def flattened(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each `cuda_graph_config` field, if any, as `cuda_graph_NAME_PHASE` and its value."""
    config = values.get("cuda_graph_config")
    if not isinstance(config, dict):
        config = getattr(config, "__dict__", {})
    for phase, record in config.items():
        fields = record if isinstance(record, dict) else getattr(record, "__dict__", {})
        for name, value in fields.items():
            yield f"cuda_graph_{name}_{phase}", value


def draft_config(server_args: Any) -> None:
    """Make the draft's configuration as the draft worker's `ModelRunner` does; raise its errors."""
    from sglang.srt.configs.model_config import ModelConfig

    view = resolved_view(server_args)
    algorithm, path = view.speculative_algorithm, view.speculative_draft_model_path
    if algorithm in (None, "NGRAM", "UNO") or not path:
        return
    target = ModelConfig.from_server_args(server_args)
    options: dict[str, Any] = {
        "model_path": path,
        "model_revision": getattr(view, "speculative_draft_model_revision", None),
        "is_draft_model": True,
    }
    # The draft worker uses the context length of the target.
    if "context_length" in signature(ModelConfig.from_server_args).parameters:
        options["context_length"] = target.context_len
    else:
        server_args.context_length = target.context_len
    ModelConfig.from_server_args(server_args, **options)


def refusal(error: BaseException, stage: str) -> dict[str, Any]:
    """Return the verdict record for an error in a stage."""
    text = str(error)
    where = place(error)
    if isinstance(error, NotChecked):
        kind = "unjudged"
    elif isinstance(error, ARTEFACTS) or STAND_IN.search(text):
        kind = "artefact"
    else:
        kind = "unjudged" if without_model(error) else "refused"
    return {
        "verdict": kind,
        "stage": stage,
        "error": type(error).__name__,
        "message": tidy(text),
        **where,
    }


def place(error: BaseException) -> dict[str, Any]:
    """Return the place (`where`) and source (`line`) of an error, preferably in sglang."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/sglang/" in frame.filename][-1:] or frames[-1:]
    if not ours:
        return {"where": "", "line": ""}
    frame = ours[0]
    file = frame.filename.rpartition("/sglang/")[2]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return {"where": f"{file}:{frame.lineno}", "line": line[:LONGEST]}


def without_model(error: BaseException) -> bool:
    """True if the error only means that this machine lacks a checkpoint."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return False
        module = type(seen).__module__
        if type(seen).__name__.startswith("StrictDataclass"):  # about an available config
            return False
        if module.startswith(("huggingface_hub", "requests", "httpx", "urllib3")):
            return True
        if isinstance(seen, OSError) and any(
            frame.filename.endswith(("transformers/utils/hub.py", "configuration_utils.py"))
            for frame in traceback.extract_tb(seen.__traceback__)
        ):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def tidy(text: str) -> str:
    """Return `text` without this machine's paths, cut to `LONGEST` characters."""
    for path in (os.getcwd(), *(entry for entry in sys.path if len(entry) > 4)):
        text = text.replace(path, "")
    return text[:LONGEST]
