"""Which keys of a config that was not had whole nobody read, although someone may ask for them.

A key counts where the product reads it (its name is a literal of the product's code) and where a
config as published may have it: some whole config of the same architecture says more than null
there, or, where the index has no such config, any whole config at all.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from model_indexing.entries import DROPPED, ROOT, Entry, flat, wholes

_READERS = ("engine/facts", "engine/plan", "checks/rules")
_ALIASES = (
    frozenset({"dtype", "torch_dtype"}),
    frozenset({"rope_scaling", "rope_parameters"}),
    frozenset({"quantization_config", "compression_config"}),
)
"""Names of one thing: where one is read, the other is not missing."""
_NOT_WATCHED = frozenset({"language_model_only", "ep_size", "bias", "architectures", "hidden_act"})
"""Literals of the code that are no key of a config there, one that every entry needs, or one
that is judged only where it is shown."""
EVERYTHING = "*"
"""The word of `absent` for a sibling of whose fine-tune or export the config was had whole."""
NOTHING = "config"
"""The word of `unread` for an entry of which nothing but its pair is known."""


@cache
def read_keys(package: Path = ROOT / "speclaunch") -> frozenset[str]:
    """Every word that is a literal of the modules which read configs."""
    found: set[str] = set()
    for part in _READERS:
        for path in sorted((package / part).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return frozenset(word for word in found if word[:1].isalpha()) - _NOT_WATCHED


class Peers:
    """What the whole configs of an index say that a published config of some kind may have."""

    def __init__(self, index: Mapping[str, Entry]) -> None:
        self.index = index
        self._groups: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for one in wholes(index):
            said = {key for key, value in flat(one["config"]).items() if value is not None}
            for group in ((), (_use(one),), *_groups(one)):
                self._groups[group] |= said & read_keys()

    def possible(self, entry: Entry) -> set[str]:
        """The keys of the configs of the same architecture, else of the same model type, else of
        all; of a draft those of drafts for the same algorithm, of a target those of targets."""
        for group in (*_groups(entry), (_use(entry),)):
            if group in self._groups:
                return self._groups[group]
        return self._groups[()]

    def unread_of(self, entry: Entry) -> list[str]:
        """The keys of an entry that are unknown: those that its evidence names, and those that its
        architecture's published configs may have and the entry lacks."""
        said, config = set(entry.get("unread", ())), entry.get("config", {})
        if not config:
            return [NOTHING]
        own, absent = flat(config), set(entry.get("absent", ()))
        known = set(own) | absent
        known |= {name for group in _ALIASES if group & set(own) for name in group}
        base = self.index.get(entry.get("base", ""))
        missing: set[str] = set()
        if EVERYTHING in absent:
            pass
        elif entry["kind"] in ("config", "disk"):
            said -= DROPPED - self.possible(entry)
        elif base is not None:
            missing = set(self.unread_of(base)) - {NOTHING}
            if "quantization_config" in said:
                missing |= {"torch_dtype", "dtype"} & set(flat(base["config"])) - known
        else:
            missing = self.possible(entry)
        return sorted((said | missing) - known - {NOTHING})


def _groups(entry: Entry) -> Iterator[tuple[str, ...]]:
    """What a config is of, the narrowest first."""
    for key in ("architectures", "model_type"):
        if entry["config"].get(key):
            yield _use(entry), key, str(entry["config"][key])


def _use(entry: Entry) -> str:
    """What it is for: the algorithm of a draft; small models of the usual kind are targets, too."""
    algorithm = entry.get("draft", {}).get("algorithm")
    return "" if algorithm in (None, "STANDALONE") else str(algorithm)
