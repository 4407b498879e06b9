"""What has to hold for every entry of the index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from model_indexing.entries import FORMAT, KINDS, ORDER, Entry, flat, place, text_of
from model_indexing.parameters import parameters_of
from model_indexing.unread import NOTHING, Peers
from speclaunch.engine.plan.architectures import _data as releases
from speclaunch.engine.plan.memory.models import is_draft_model

_NEEDED = ("format", "model", "kind", "source", "read", "confidence", "config", "parameters_check")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DATE = re.compile(r"20\d\d-\d\d-\d\d")
_LEVELS = ("high", "medium", "low")
_PRIVATE = re.compile(r"https?:|/work\b|\.\./|stored public file|docs corpus")
"""What no entry may say: an address, a path of a machine, the name of a store."""
_OTHERS = frozenset(
    {
        *("DeciLMForCausalLM", "Gemma4UnifiedForConditionalGeneration", "NemotronH_Nano_VL_V2"),
        *(
            "SeedOssForCausalLM",
            "Olmo3ForCausalLM",
        ),
        *("Eagle3Speculator", "Eagle3DraftModel", "DFlashDraftModel", "DSparkDraftModel"),
        *("Qwen3DSparkModel", "Gemma4DSparkModel", "LlamaForCausalLMEagle3V2"),
    }
)
"""Architectures of published checkpoints that no release of the engine names so; it runs some of
them with the model of transformers."""
_HIDDEN = ("EAGLE", "EAGLE3", "NEXTN", "DFLASH", "DSPARK")
"""Algorithms whose draft reads the target's hidden states and shares its vocabulary."""


def problems_of(index: Mapping[str, Entry], folder: Path) -> Iterator[str]:
    """What is wrong, one text a problem, each with the entry that it is in."""
    peers = Peers(index)
    for name, entry in index.items():
        for problem in (*_format(name, entry, folder), *_facts(entry, peers)):
            yield f"{name}: {problem}"


def _format(name: str, entry: Entry, folder: Path) -> Iterator[str]:
    missing = [key for key in _NEEDED if key not in entry]
    if missing:
        yield f"{', '.join(missing)} is missing"
        return
    if entry["model"] != name or not _NAME.fullmatch(name):
        yield f"the model is {entry['model']}: set it to the file's place"
    if entry["format"] != FORMAT or entry["kind"] not in KINDS:
        yield f"unknown format {entry['format']} or kind {entry['kind']}"
    unknown = sorted(set(entry) - set(ORDER))
    if unknown:
        yield f"unknown keys {', '.join(unknown)}"
    if not _DATE.fullmatch(entry["read"]) or entry["confidence"] not in _LEVELS:
        yield f"read on {entry['read']} with confidence {entry['confidence']}"
    if "revision" in entry and not _COMMIT.fullmatch(entry["revision"]):
        yield f"the revision {entry['revision']} is not a commit"
    if place(name, folder).read_text() != text_of(entry):
        yield "the file is not as the tool writes it: run tools/model_index.py build"
    for said in _texts({key: value for key, value in entry.items() if key != "config"}):
        if _PRIVATE.search(said):
            yield f"remove the address or path in {said!r}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _facts(entry: Entry, peers: Peers) -> Iterator[str]:
    said = entry.get("unread", [])
    expected = peers.unread_of(entry)
    if said != expected:
        more = sorted(set(expected) ^ set(said))
        yield f"unread is not up to date ({', '.join(more)}): run tools/model_index.py build"
    if entry.get("base") is not None and entry["base"] not in peers.index:
        yield f"the base {entry['base']} has no entry"
    if NOTHING in said:
        return
    names = entry["config"].get("architectures") or []
    if not names and "architectures" not in said:
        yield "no architecture"
    if names and not _is_known(names[0]):
        yield f"unknown architecture {names[0]}"
    found = parameters_of(entry)
    if entry["parameters_check"] != found.found:
        yield f"parameters_check is {found.found}, not {entry['parameters_check']}"
    for target in entry.get("draft", {}).get("for", ()):
        yield from pair_problems(entry, peers.index.get(target))


@cache
def _registered() -> frozenset[str]:
    return frozenset(releases()["records"])


def _is_known(architecture: str) -> bool:
    """A model of some release, or a draft that one loads under another name."""
    return architecture in _registered() | _OTHERS or is_draft_model(architecture)


def pair_problems(draft: Entry, target: Entry | None) -> Iterator[str]:
    """Where a draft does not fit a target that it was made for: hidden size, vocabulary, taps."""
    if target is None or draft["draft"].get("algorithm") not in _HIDDEN:
        return
    own, other = flat(draft.get("config", {})), flat(target.get("config", {}))
    reads = own.get("target_hidden_size") or own.get("hidden_size")
    for what, left, right in (
        ("hidden size", reads, other.get("hidden_size")),
        ("vocabulary", own.get("vocab_size"), other.get("vocab_size")),
        ("target layers", own.get("num_target_layers"), other.get("num_hidden_layers")),
    ):
        if left is not None and right is not None and left != right:
            yield f"the {what} is {left}, that of {target['model']} {right}"
    layers = other.get("num_hidden_layers")
    keys = ("target_layer_ids", "eagle_aux_hidden_state_layer_ids")
    taps = [tap for key in keys for tap in own.get(key) or ()]
    if layers is not None and any(not 0 <= tap < layers for tap in taps):
        yield f"reads layers {taps} of {target['model']}, which has {layers}"
