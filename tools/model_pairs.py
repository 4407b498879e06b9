"""Makes `models/pairs.json` from the entries of the index: the drafts of each target.

    python tools/model_pairs.py          write it
    python tools/model_pairs.py check    exit 1 where it is not what the entries say

speclaunch reads that file instead of all entries (speclaunch/engine/facts/known_models.py).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
sys.path[:0] = [str(TOOLS.parent), str(TOOLS)]

from model_indexing.entries import MODELS, Entry, flat, read_all  # noqa: E402

from speclaunch.checks.rules.values import EAGLE3_DRAFTS, EAGLE_HEADS  # noqa: E402
from speclaunch.core.files import replace_file  # noqa: E402
from speclaunch.engine.facts.known_models import same_model  # noqa: E402

FILE = "pairs.json"
FOUNDATION = {"high": 0, "medium": 1, "low": 2}
ORDER = ("EAGLE3", "DFLASH", "DSPARK", "EAGLE", "NEXTN", "STANDALONE")
NO_DRAFTS = frozenset({"token map"})
"""Files beside a draft, and not drafts."""
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
LAYOUTS = {"EAGLE3": frozenset(EAGLE3_DRAFTS), "EAGLE": frozenset(EAGLE_HEADS)}
"""The classes that SGLang takes for these algorithms; for the others any that it has."""
_TEST_FILE = re.compile(r" \((?:test fixture[^()]*)\)")
"""How evidence remarks that a file with a config belongs to a test."""
MOST_OF_TARGET = 0.3
"""A partner is worth its time only when it is much smaller: published ones have a fifth or less."""
MOST_PARTNERS = 3


def text_of(index: Mapping[str, Entry]) -> str:
    """The file: a draft a line, so that a change of one is seen as one."""
    drafts = dict(sorted(pairs(index).items()))
    lines = ['{\n "format": 1,\n "drafts": {']
    blocks = []
    for target, found in drafts.items():
        rows = ",\n".join(f"   {json.dumps(one, ensure_ascii=False)}" for one in found)
        blocks.append(f"\n  {json.dumps(target)}: [\n{rows}\n  ]")
    lines.append(",".join(blocks) + '\n },\n "partners": {')
    rows = [f"\n  {json.dumps(one)}: {json.dumps(few)}" for one, few in partners(index).items()]
    return "".join(lines) + ",".join(rows) + "\n }\n}\n"


def pairs(index: Mapping[str, Entry]) -> dict[str, list[dict[str, Any]]]:
    """The drafts of each target, the best founded first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, entry in index.items():
        draft = entry.get("draft") or {}
        algorithm = draft.get("algorithm")
        if not algorithm or algorithm in NO_DRAFTS:
            continue
        unread = entry.get("unread", [])
        one = {"draft": name, "algorithm": algorithm, "confidence": entry.get("confidence")}
        one |= {key: draft[key] for key in ("since", "form", "mode") if draft.get(key)}
        foreign = _foreign(algorithm, entry)
        one |= {"form": foreign} if foreign and "form" not in one else {}
        one |= {"read": True} if entry.get("config") and unread != ["config"] else {}
        one["sources"] = [shown(source) for source in draft.get("sources", [])]
        for target in draft.get("for", ()):
            found.setdefault(target, []).append(one)
    for target, some in _of_siblings(index, found).items():
        found.setdefault(target, []).extend(some)
    return {target: sorted(some, key=_place) for target, some in found.items()}


def _foreign(algorithm: str, entry: Entry) -> str | None:
    """What the weights are laid out for, where it is known and no class of SGLang's own."""
    names = (entry.get("config") or {}).get("architectures")
    ours = LAYOUTS.get(algorithm)
    return None if not names or ours is None or names[0] in ours else f"layout of {names[0]}"


def _of_siblings(
    index: Mapping[str, Entry], found: Mapping[str, list[dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """For other exports of a target its drafts, where the two configs have the same shape."""
    drafted: dict[str, list[dict[str, Any]]] = {}
    for name, entry in index.items():
        if entry.get("draft") or not _shape(entry):
            continue
        for target, some in found.items():
            other = index.get(target)
            if name == target or other is None or not same_model(name, target):
                continue
            if _shape(other) != _shape(entry):
                continue
            named = {one["draft"] for one in (*found.get(name, ()), *drafted.get(name, ()))}
            new = [one for one in some if one["draft"] not in named]
            drafted.setdefault(name, []).extend(
                {**one, "confidence": _less(one["confidence"]), "of": target} for one in new
            )
    return {name: some for name, some in drafted.items() if some}


def _shape(entry: Entry) -> tuple[int, ...] | None:
    """What a draft must agree with: the hidden size, the vocabulary and the layers."""
    config = flat(entry.get("config") or {})
    shape = tuple(config.get(key) for key in ("hidden_size", "vocab_size", "num_hidden_layers"))
    return shape if all(isinstance(one, int) for one in shape) else None


def _less(confidence: str | None) -> str:
    """That an export of the same shape takes the same draft was not published."""
    return "low" if confidence == "low" else "medium"


def shown(source: str) -> str:
    """A source in one line, without remarks that say nothing about the pair."""
    return " ".join(_TEST_FILE.sub("", source).split())[:200]


def _place(one: Mapping[str, Any]) -> tuple[int, int, int, str]:
    algorithm = one["algorithm"]
    rank = ORDER.index(algorithm) if algorithm in ORDER else len(ORDER)
    return rank, FOUNDATION.get(one["confidence"], 3), not one.get("read"), one["draft"]


def partners(index: Mapping[str, Entry]) -> dict[str, list[str]]:
    """For each target the smaller models of its family that have its vocabulary."""
    complete = {name: known for name, entry in index.items() if (known := _model(entry))}
    found = {}
    for name, (family, vocabulary, digest, size) in sorted(complete.items()):
        smaller = [
            (_chats(other) != _chats(name), other_size, other)
            for other, (kin, tokens, its, other_size) in complete.items()
            if kin == family
            and tokens == vocabulary
            and (digest is None or its is None or digest == its)
            and other_size <= size * MOST_OF_TARGET
            and _can_draft(index[other])
        ]
        if smaller:
            found[name] = [other for *_, other in sorted(smaller)[:MOST_PARTNERS]]
    return found


def _can_draft(entry: Entry) -> bool:
    """Whether a small model drafts as it is: text alone, dense, not quantised."""
    config = flat(entry["config"])
    quantised = entry["config"].get("quantization_config") or entry.get("quantization_file")
    text_alone = entry["config"]["architectures"][0].endswith("ForCausalLM")
    return text_alone and not quantised and not any(config.get(key) for key in EXPERTS)


def _chats(name: str) -> bool:
    """Whether a model's name says that it was tuned to answer."""
    return any(word in name.lower() for word in ("instruct", "chat", "-it"))


def _model(entry: Entry) -> tuple[str, int, str | None, float] | None:
    """Family, vocabulary, tokenizer's digest and size of a complete language model."""
    config = flat(entry.get("config") or {})
    names = (entry.get("config") or {}).get("architectures") or [""]
    whole = names[0].endswith(("ForCausalLM", "ForConditionalGeneration"))
    draft = (entry.get("draft") or {}).get("algorithm")
    kind, tokens = config.get("model_type"), config.get("vocab_size")
    if not whole or not kind or not tokens or draft not in (None, "STANDALONE"):
        return None
    layers, hidden = config.get("num_hidden_layers"), config.get("hidden_size")
    if not isinstance(layers, int) or not isinstance(hidden, int):
        return None
    experts = next((one for key in EXPERTS if (one := config.get(key))), 1)
    wide = config.get("moe_intermediate_size") if experts > 1 else None
    wide = wide or config.get("intermediate_size") or 4 * hidden
    wide = max(wide) if isinstance(wide, list) else wide
    size = layers * hidden * (4 * hidden + 3 * wide * experts) + tokens * hidden
    family = str(kind)
    for end in ("_text", "_moe", "_vl", "_next"):
        family = family.replace(end, "")
    return family, tokens, (entry.get("tokenizer") or {}).get("digest"), float(size)


def write(folder: Path = MODELS) -> bool:
    """Write the file whole. Returns whether it was another before."""
    path, data = folder / FILE, text_of(read_all(folder)).encode()
    if path.is_file() and path.read_bytes() == data:
        return False
    replace_file(path, data, 0o666)
    return True


def main(arguments: list[str]) -> int:
    """Writes, or checks. Returns the exit code."""
    if arguments == ["check"]:
        same = (MODELS / FILE).read_text() == text_of(read_all())
        print("models/pairs.json is what the entries say" if same else "models/pairs.json is old")
        return 0 if same else 1
    print("written" if write() else "nothing changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
