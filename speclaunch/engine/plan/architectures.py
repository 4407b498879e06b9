"""Model architectures that each engine version supports, and the Transformers model classes that
the engine falls back to.

`tools/architectures.py` and `tools/transformers_classes.py` generate the data from released wheels.
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
"""Key of the defaults for architectures without their own entry."""
STANDALONE = "STANDALONE"
"""Key of the STANDALONE defaults, which apply to every architecture."""

Parameters = tuple[int, int, int]
"""`speculative_num_steps`, `speculative_eagle_topk`, `speculative_num_draft_tokens`."""


class Architectures(Struct, frozen=True):
    """The architectures of one release.

    - `registered`: architectures that the release implements.
    - `mtp_default_draft_path`: targets that are their own draft when no path is set.
    - `draft_map`: model class that loads a draft, by the architecture in its config.
    - `eagle3_hooks`, `dflash_hooks`: targets whose model can pass hidden states to an EAGLE-3 or
    DFLASH draft; `shares_embedding`: those that pass embedding and output head to a draft.
    - `multi_layer_eagle`: targets for which EAGLE uses the multi-layer worker.
    - `multimodal`: models on the engine's multimodal list; `text_only`: those that serve only text
    by default.
    - `no_piecewise`, `multimodal_piecewise`, `multimodal_breakable`: models for which prefill
    graphs are off, or on although they are multimodal.
    - `sliding_window`: models whose sliding-window layers have a separate pool.
    - `sparse_attention`: models with DeepSeek sparse attention if the config has `index_topk`.
    - `hybrid`: models with linear attention, whose states are cached next to the KV cache;
    `extra_buffer`: those whose states may have a separate buffer (0.5.14 and later).
    - `fa3_default`: models that default to fa3 on Hopper in releases where not all models do.
    - `attention_sinks`: models with sinks, which flashinfer does not support.
    - `attention_overrides`: models with special rules for the backend or page size, and the
    backends that they choose from.
    - `latent_attention`: multi-head latent attention (MLA); for `ranked` models only if the config
    has `kv_lora_rank`, for `switched` models unless it sets `use_mla: false`.
    """

    requested: str
    """Requested version."""
    version: str
    """Release that the data describes; `exact`: True if it is the requested version."""
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
        """Return the engine's steps, topk and draft tokens if the user sets none of them."""
        if algorithm == STANDALONE and STANDALONE in self._automatic:
            return self._automatic[STANDALONE]
        return self._automatic.get(architecture, self._automatic[ANY])

    def uses_mla(self, checkpoint: Checkpoint) -> bool | None:
        """True if the engine runs the checkpoint with latent attention (MLA). None if unknown."""
        if not checkpoint.architectures:
            return None
        found = {self.latent_attention.get(name) for name in checkpoint.architectures}
        if "switched" in found:
            return checkpoint.config.get("use_mla") is not False
        return "always" in found or ("ranked" in found and checkpoint.kv_lora_rank is not None)


@lru_cache(maxsize=64)
def architectures(version: str) -> Architectures:
    """Return the architectures of a release, or of a substitute if it has no data.

    A fork uses its base release. Raises UnknownVersion.
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
        requested=version,
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
"""Suffixes of the class names in the data file."""


def in_transformers(architecture: str) -> bool | None:
    """True if any pinned release of Transformers has the class. None if the name lacks a model
    class suffix."""
    if not architecture.endswith(CLASS_ENDINGS):
        return None
    return architecture in _classes()


@lru_cache(maxsize=1)
def _classes() -> frozenset[str]:
    return frozenset(json.loads(TRANSFORMERS_DATA.read_bytes())["classes"])
