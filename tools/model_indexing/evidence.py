"""Makes entries of lines of evidence: what someone read of a checkpoint, and where.

A line is a JSON object with `model`, `role` (`target`, `draft`), `source`, `source_kind`
(`verbatim`, `derivative`, `stated in docs`), `confidence`; where known `config`, `config_file`
(beside the file of lines), `hf_quant_config`, `unread`, `absent`, `base`, `also`, `revision`,
`gated`, `weights_bytes` or `weights_bytes_approx` with `weights_source`, `mtp_weights`,
`tokenizer`; for a draft `for`, `algorithm`, `mode`, `since`, `pair_source`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from model_indexing.entries import DROPPED, FORMAT, NESTED, Entry, flat
from model_indexing.parameters import UNCHECKED, parameters_of
from model_indexing.unread import EVERYTHING, Peers
from speclaunch.engine.facts.record_checkpoint import shortened

_KINDS = {"verbatim": "config", "derivative": "sibling", "stated in docs": "documents"}
_SIBLING = re.compile(r"sibling ([\w.-]+/[\w.-]+)|([\w.-]+)--([\w.-]+?)_config\.json")
_PAGE = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)(?:/(?:blob|tree|commit|raw)/(\S+))?")
_REPLACED = (
    (re.compile(r"stored public file id \d+( \(the index names no repository for it\))?"), "file"),
    (re.compile(r"find_string id \d+"), "file"),
    (re.compile(r"(?:; )?(?:cited in )?field[/ ](?:models\.jsonl|cases)(?:: )?"), ""),
    (re.compile(r"[ ;]*\(?(?:HF page|model card) in the docs corpus(?:, [^)]*)?\)?"), ""),
)
_TRAINED = re.compile(
    r"training config|(?:SpecForge|TorchSpec)@\w+:configs/"
    r"|AngelSlim@\w+:\S+/train/|EAGLE@\w+:eagle/train"
)
_UNNAMED = "published file, repository not recorded"
_NUMBER = re.compile(r"\d+(?:\.(\d+))? ?(GiB|Gi|GB)")
_PLAIN = re.compile(r"\s+")
_LONGEST = 300


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, each with the configs beside it. Raises OSError, ValueError."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    for line in lines:
        if "config_file" in line:
            whole = path.parent / line["config_file"]
            line["whole"] = json.loads(whole.read_bytes())
            beside = whole.with_name(f"{whole.stem}.hf_quant_config.json")
            if beside.is_file():
                line["hf_quant_config"] = json.loads(beside.read_bytes())
    return lines


def build(lines: Iterable[Mapping[str, Any]], known: Mapping[str, Entry]) -> dict[str, Entry]:
    """The index with the lines in it: a whole config takes the place of what was known before.

    `unread` of every entry is computed again, from all whole configs together.
    """
    lines = list(lines)
    index = dict(known)
    by_name = {line["model"]: line for line in lines}
    for line in lines:
        entry = _entry(line)
        if line["source_kind"] == "derivative":
            _complete(entry, line, by_name, index)
        index[entry["model"]] = entry
    return refresh(index)


def refresh(index: Mapping[str, Entry]) -> dict[str, Entry]:
    """The same entries, with `unread` as the code and the whole configs of today make it."""
    found = {name: dict(entry) for name, entry in index.items()}
    _prove_unquantised(found)
    peers = Peers(found)
    unread = {name: peers.unread_of(entry) for name, entry in found.items()}
    for name, entry in found.items():
        if entry["kind"] in ("sibling", "documents") and _of_training(entry):
            entry["kind"] = "training"
        entry.pop("unread", None)
        if unread[name]:
            entry["unread"] = unread[name]
        entry["parameters_check"] = parameters_of(entry).found
    return dict(sorted(found.items()))


def _of_training(entry: Entry) -> bool:
    """Whether facts are of the config that a draft was, or may have been, trained with."""
    return any(_TRAINED.search(source) for source in (entry["source"], *entry.get("also", ())))


def _prove_unquantised(index: dict[str, Entry]) -> None:
    """Where the published size is that of the shapes in the dtype, nothing is quantised: that a
    `quantization_config` was not read is then no gap."""
    for entry in index.values():
        asked, config = "quantization_config", entry.get("config", {})
        absent = entry.get("absent", [])
        known = asked in flat(config) or asked in absent or EVERYTHING in absent
        if entry["kind"] in ("config", "disk") or known or not config:
            continue
        plain = {**entry, "unread": [key for key in entry.get("unread", ()) if key != asked]}
        if parameters_of(plain).found != UNCHECKED:
            entry["absent"] = sorted([*absent, asked])


def source_text(said: str) -> str:
    """Where something was read, in the words of the index: no address, no number of a store."""
    text = _PAGE.sub(_page, said)
    for pattern, word in _REPLACED:
        text = pattern.sub(_UNNAMED if word == "file" else word, text)
    text = _PLAIN.sub(" ", text).strip(" ;:")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def _page(found: re.Match[str]) -> str:
    rest = (found[2] or "").replace("%2F", "/")
    return f"hub: {found[1]}" + (f" ({rest})" if rest else "")


def _entry(line: Mapping[str, Any]) -> Entry:
    whole = "whole" in line
    entry: Entry = {
        "format": FORMAT,
        "model": line["model"],
        "kind": _KINDS[line["source_kind"]],
        "source": source_text(line["source"]),
        "also": [source_text(one) for one in line.get("also", ())] or None,
        "read": line.get("read", "2026-11-22"),
        "confidence": line["confidence"],
        "revision": line.get("revision"),
        "config": shortened(line.get("whole", line.get("config", {}))),
        "unread": [] if whole else list(line.get("unread", ())),
        "absent": line.get("absent"),
        "quantization_file": shortened(line.get("hf_quant_config")),
        "weights": _weights(line),
        "mtp_weights": line.get("mtp_weights"),
        "gated": line.get("gated"),
        "tokenizer": _tokenizer(line),
        "draft": _draft(line),
    }
    if line["source_kind"] == "verbatim" and not whole:
        entry["unread"] = sorted({*entry["unread"], *(DROPPED - set(flat(entry["config"])))})
    return {key: value for key, value in entry.items() if value is not None}


def _weights(line: Mapping[str, Any]) -> dict[str, Any] | None:
    exact = line.get("weights_bytes")
    size = exact or line.get("weights_bytes_approx")
    if size is None:
        return None
    said = line.get("weights_source", line["source"])
    found = {"bytes": size, "exact": exact is not None, "source": source_text(said)}
    if exact is None:
        found["rounding"] = line.get("rounding") or _rounding(said)
    return found


def _rounding(said: str) -> int:
    """How far a rounded size may be off, by how its source writes it."""
    number = _NUMBER.search(said)
    if number is None:
        return 500_000_000
    unit = 1 << 30 if number[2].startswith("Gi") else 1_000_000_000
    return round(unit * 0.5 / 10 ** len(number[1] or ""))


def _tokenizer(line: Mapping[str, Any]) -> dict[str, Any] | None:
    said = line.get("tokenizer") or {}
    return {key: said[key] for key in ("tokens", "digest") if key in said} or None


def _draft(line: Mapping[str, Any]) -> dict[str, Any] | None:
    targets = line.get("for")
    if not targets and line["role"] != "draft":
        return None
    algorithm, _, form = (line.get("algorithm") or "").partition(" (")
    found = {
        "for": list(targets or ()),
        "algorithm": algorithm or None,
        "form": form.rstrip(")") or None,
        "mode": line.get("mode"),
        "since": line.get("since"),
        "sources": [source_text(line.get("pair_source") or line["source"])],
    }
    return {key: value for key, value in found.items() if value is not None}


def _complete(
    entry: Entry,
    line: Mapping[str, Any],
    lines: Mapping[str, Mapping[str, Any]],
    index: Mapping[str, Entry],
) -> None:
    """A sibling has the keys of its base, but for what the line says otherwise."""
    named = _SIBLING.search(line["source"])
    name = line.get("base") or (named and (named[1] or f"{named[2]}/{named[3]}"))
    if not name:
        return
    base = lines.get(name)
    if base is not None and "config" in base:
        raw, stripped = shortened(base.get("whole", base["config"])), base["config"]
    elif name in index:
        raw = stripped = index[name]["config"]
    else:
        return
    entry["base"] = name
    said = line.get("config")
    entry["config"] = _over(raw, stripped, said) if said else dict(raw)
    changed = set(line.get("unread", ()))
    if "quantization_config" in changed:  # an export of another quantisation may say another dtype
        changed |= {"torch_dtype", "dtype"}
    entry["config"] = _less(entry["config"], changed)


def _less(config: Mapping[str, Any], keys: set[str]) -> dict[str, Any]:
    """A config without some keys, in its parts as well."""
    return {
        key: _less(value, keys) if key in NESTED and isinstance(value, dict) else value
        for key, value in config.items()
        if key not in keys
    }


def _over(raw: Any, stripped: Any, said: Any) -> Any:
    """`said`, with those keys of `raw` that only the evidence of the base left out."""
    if not all(isinstance(one, Mapping) for one in (raw, stripped, said)):
        return said
    kept = {key for key in raw if key not in stripped}
    return {
        key: _over(raw.get(key), stripped.get(key), said[key]) if key in said else raw[key]
        for key in [*raw, *(key for key in said if key not in raw)]
        if key in said or key in kept
    }
