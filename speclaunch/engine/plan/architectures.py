"""What each engine version does with the name of a model architecture, and the model classes that
Transformers has, which the engine serves where it has no class of its own.

The data are made from released wheels by `tools/architectures.py` and
`tools/transformers_classes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from speclaunch.engine.facts.checkpoint import Checkpoint
from speclaunch.engine.releases import timeline
from speclaunch.engine.releases.versions import resolve

DATA = Path(__file__).resolve().parent / "data" / "architectures.json"
ANY = "*"
"""The key of what holds for every architecture that has no record of its own."""
STANDALONE = "STANDALONE"
"""The key of what holds for that algorithm, whatever the architecture."""

Parameters = tuple[int, int, int]
"""`speculative_num_steps`, `speculative_eagle_topk`, `speculative_num_draft_tokens`."""


class Architectures(Struct, frozen=True):
    """The architectures of one release.

    - `registered`: it has a model of that name.
    - `mtp_default_draft_path`: targets that are their own draft when no path is given.
    - `draft_map`: what a draft with that name in its config is loaded as.
    - `eagle3_hooks`, `dflash_hooks`: targets whose model can hand hidden states to an EAGLE-3 or
      DFLASH draft; `shares_embedding`: those that hand embedding and output head to a draft.
    - `multi_layer_eagle`: targets for which EAGLE takes the multi-layer worker.
    - `multimodal`: the engine's own list; `text_only`: those of it that serve text alone, unless
      told.
    - `no_piecewise`, `multimodal_piecewise`, `multimodal_breakable`: models for which the graphs
      of prefill are off, or on although they are multimodal.
    - `sliding_window`: layers with a window have a pool of their own.
    - `sparse_attention`: where the config has `index_topk`, DeepSeek's sparse attention.
    - `hybrid`: layers of linear attention, whose states are cached beside the KV cache;
      `extra_buffer`: those of them whose states may have a buffer of their own (0.5.14 and later).
    - `fa3_default`: models that fa3 is the default for on Hopper, as long as not all were.
    - `attention_sinks`: models with sinks, which flashinfer does not have.
    - `attention_overrides`: models for which the engine chooses the backend or the size of a page
      in a way of its own, and the backends that it chooses from.
    - `latent_attention`: multi-head latent attention (MLA), for `ranked` ones only where the
      config has `kv_lora_rank`, for `switched` ones unless it says `use_mla: false`.
    """

    asked: str
    """The version that they were asked for."""
    version: str
    """The release whose data they are; `exact` says whether that is the one that was asked for."""
    exact: bool
    registered: frozenset[str]
    mtp_default_draft_path: frozenset[str]
    multi_layer_eagle: frozenset[str]
    multimodal: frozenset[str]
    text_only: frozenset[str]
    no_piecewise: frozenset[str]
    multimodal_piecewise: frozenset[str]
    multimodal_breakable: frozenset[str]
    sliding_window: frozenset[str]
    sparse_attention: frozenset[str]
    hybrid: frozenset[str]
    extra_buffer: frozenset[str]
    fa3_default: frozenset[str]
    attention_sinks: frozenset[str]
    eagle3_hooks: frozenset[str]
    dflash_hooks: frozenset[str]
    shares_embedding: frozenset[str]
    draft_map: Mapping[str, tuple[str, ...]]
    latent_attention: Mapping[str, str]
    attention_overrides: Mapping[str, tuple[str, ...]]
    _automatic: Mapping[str, Parameters]

    def auto_parameters(self, architecture: str, algorithm: str | None = None) -> Parameters:
        """Steps, topk and draft tokens when the user gives none of them."""
        if algorithm == STANDALONE and STANDALONE in self._automatic:
            return self._automatic[STANDALONE]
        return self._automatic.get(architecture, self._automatic[ANY])

    def uses_mla(self, checkpoint: Checkpoint) -> bool | None:
        """Whether the engine runs a checkpoint with latent attention; None: not known."""
        if not checkpoint.architectures:
            return None
        found = {self.latent_attention.get(name) for name in checkpoint.architectures}
        if "switched" in found:
            return checkpoint.config.get("use_mla") is not False
        return "always" in found or ("ranked" in found and checkpoint.kv_lora_rank is not None)


@lru_cache(maxsize=64)
def architectures(version: str) -> Architectures:
    """The architectures of a release; of the one that answers for it where it is not held.

    A fork has those of the release that it was made from. Raises UnknownVersion.
    """
    data = _data()
    resolved = resolve(version, data["versions"])
    held = resolved.held
    records = timeline.select(data, held)

    def having(key: str) -> frozenset[str]:
        return frozenset(name for name, record in records.items() if key in record)

    def values(key: str) -> Iterator[tuple[str, Any]]:
        return ((name, record[key]) for name, record in records.items() if key in record)

    return Architectures(
        asked=version,
        version=held,
        exact=resolved.exact or version.partition("+")[0] == held,
        registered=having("model"),
        mtp_default_draft_path=having("mtp"),
        multi_layer_eagle=having("multi_layer"),
        multimodal=having("multimodal"),
        text_only=having("text_only"),
        no_piecewise=having("no_piecewise"),
        multimodal_piecewise=having("multimodal_piecewise"),
        multimodal_breakable=having("multimodal_breakable"),
        sliding_window=having("sliding_window"),
        sparse_attention=having("sparse"),
        hybrid=having("hybrid"),
        extra_buffer=having("extra_buffer"),
        fa3_default=having("fa3"),
        attention_sinks=having("sinks"),
        eagle3_hooks=having("eagle3"),
        dflash_hooks=having("dflash"),
        shares_embedding=having("embedding"),
        draft_map=MappingProxyType({name: tuple(drafts) for name, drafts in values("draft")}),
        latent_attention=MappingProxyType(dict(values("mla"))),
        attention_overrides=MappingProxyType({k: tuple(v) for k, v in values("backends")}),
        _automatic=MappingProxyType(
            {name: (steps, topk, tokens) for name, (steps, topk, tokens) in values("auto")}
        ),
    )


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_bytes())
    return found


TRANSFORMERS_DATA = Path(__file__).resolve().parent / "data" / "transformers_classes.json"
CLASS_ENDINGS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""How the names of the classes end that are listed."""


def in_transformers(architecture: str) -> bool | None:
    """Whether a release that some SGLang pins has it; None for a name of another kind."""
    if not architecture.endswith(CLASS_ENDINGS):
        return None
    return architecture in _classes()


@lru_cache(maxsize=1)
def _classes() -> frozenset[str]:
    return frozenset(json.loads(TRANSFORMERS_DATA.read_bytes())["classes"])
