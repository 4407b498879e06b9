"""Facts of a deployment that its configuration does not state, known or unknown.

A field is None (or empty) if the checkpoint does not state it, or states it in a format that no
engine reads. A missing fact is unknown, never a guess.

Some keys of a config.json may not have been read; their values are also unknown. Treating such a
key as absent would apply the engine's default and give an unfounded result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.engine.facts.hardware import Hardware
from speclaunch.engine.facts.known_models import ModelPair
from speclaunch.engine.releases.versions import within

if TYPE_CHECKING:
    from speclaunch.engine.facts.runtime import Runtime
    from speclaunch.engine.facts.tensors import TensorFacts


UNKNOWN_HARDWARE = "the hardware is unknown"


class UnknownValueError(LookupError):
    """Error: a rule or a resolution step needs an unknown value."""


class UnknownFact(Struct, frozen=True):
    """An unknown fact: its name, the reason, and the remedy."""

    what: str
    why: str
    help: str | None = None


class FactSource(StrEnum):
    """Sources of a checkpoint's facts, nearest first."""

    DIRECTORY = "directory"
    """A directory with the requested name, or a directory below a `--models` directory."""
    CACHE = "cache"
    REPOSITORY = "repository"
    """A folder `.speclaunch/models/` next to the recipe or script, or in a parent directory."""
    INDEX = "index"
    HUB = "hub"


class Origin(Struct, frozen=True):
    """Source and limits of a checkpoint's facts."""

    provenance: FactSource
    where: str
    """Directory or file of the facts; for the index and the hub, a description of the source."""
    read: str | None = None
    """Date on which the source of a repository's file or an index entry was read, YYYY-MM-DD. None
    for other sources."""
    revision: str | None = None
    """The commit that the facts describe, if known."""
    doubt: str | None = None
    """Reason why the facts may not match the requested checkpoint, if any."""
    assumed: str | None = None
    """The checkpoint whose facts are used instead (`--assume`, `speclaunch.toml`), if any."""
    stated: tuple[str, ...] = ()
    """Keys of config.json that the document `stated_in` states; certain despite `doubt`."""
    stated_in: str | None = None

    def __str__(self) -> str:
        text = {
            FactSource.INDEX: f"speclaunch's index, read {self.read}",
            FactSource.REPOSITORY: f"{self.where}, read {self.read}",
            FactSource.HUB: "the hub",
        }.get(self.provenance, self.where)
        if self.assumed is not None:
            text = f"assumed to match {self.assumed}: {text}"
        return text if self.doubt is None else f"{text}; {self.doubt}"


COMPLETE_CONFIG = "config"
"""Pseudo-key in a list of unread keys: no key of config.json was read."""


class PartialConfig(dict[str, Any]):
    """The part of a config that was read. Looking up a key in `unread` raises UnknownValueError.

    Length and iteration cover only the keys that were read.
    """

    __slots__ = ("name", "unread")

    def __init__(self, name: str, read: Mapping[str, Any], unread: Iterable[str]) -> None:
        super().__init__(read)
        self.name = name
        self.unread = frozenset(unread) - read.keys()

    def _look(self, key: object) -> None:
        if key in self.unread:
            raise UnreadKeyError(self.name, str(key))

    def get(self, key: str, default: Any = None) -> Any:
        self._look(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._look(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._look(key)
        return super().__contains__(key)


class UnreadKeyError(UnknownValueError):
    """Error: lookup of an unread key of config.json."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(f"`{key}` of {name} is unknown: no source states it")
        self.key = key


def merged(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `inner` merged over `outer`. Unread keys that neither contains remain unread."""
    both = {**outer, **inner}
    for part in (outer, inner):
        if isinstance(part, PartialConfig):
            return PartialConfig(part.name, both, part.unread)
    return both


SHORT_DTYPES = {"half": "float16", "float": "float32"}
"""Data types by the short names that configs and the engine's arguments may use."""
_TRANSFORMERS_5 = ">=0.5.10"
"""Releases that need transformers 5, which reads rope scaling differently."""


class Checkpoint(Struct, frozen=True):  # noqa: PLW1641  its mappings have no hash
    """Facts of one checkpoint, from its config, weights index and tokenizer.

    The config is `config.json`, including a nested `text_config`.
    """

    name: str
    """The requested name: a path, or `organization/model`."""
    path: Path | None = None
    """The directory that the facts were read from; None for other sources."""
    architectures: tuple[str, ...] = ()
    model_type: str | None = None
    dtype: str | None = None
    """`torch_dtype` or `dtype` of the config without the prefix `torch.`, such as `bfloat16`."""
    context_length: int | None = None
    """Maximum number of tokens as the engine derives it, with rope scaling and long-context keys
    (`get_context_length` in sglang/srt/utils/hf_transformers_utils.py). Also None if releases
    differ: use `context_in` for one release."""
    context_lengths: tuple[int | None, int | None] | None = None
    """The context lengths before 0.5.10 and from 0.5.10 on; None if releases agree."""
    hidden_size: int | None = None
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    """Size of an EAGLE-3 draft's reduced vocabulary."""
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    """Width of the compressed KV cache; None unless attention is latent (MLA)."""
    sliding_window: int | None = None
    quantization: str | None = None
    """The checkpoint's `quant_method` (awq, gptq, fp8, modelopt_fp4, …), as the newest engine names
    it. None if the checkpoint is unquantized or its method is unknown."""
    mtp_layers: int | None = None
    """Number of multi-token-prediction layers (`num_nextn_predict_layers` or a similar key)."""
    mtp_weights: bool | None = None
    """True if the weights index, else the file headers, lists MTP layers; None without either."""
    target_hidden_size: int | None = None
    """Hidden size of the target that an EAGLE-3 draft was trained for."""
    aux_hidden_layers: tuple[int, ...] = ()
    """Target layers whose hidden states the draft reads (EAGLE-3, DFLASH or DSPARK)."""
    use_aux_hidden_state: bool | None = None
    """True if an EAGLE-3 draft reads hidden states (`eagle_config`). None also means true."""
    block_size: int | None = None
    """Number of tokens that a DFLASH draft proposes per step."""
    has_token_map: bool | None = None
    """True if a draft's weights include `d2t` (EAGLE-3); None if no file lists the weights."""
    has_dspark_folder: bool | None = None
    """True if the directory has a folder `dspark` with a draft (SGLang 0.5.23 searches for it).
    None if the facts are not from a directory."""
    is_moe: bool | None = None
    is_multimodal: bool = False
    tokenizer_size: int | None = None
    """Number of distinct tokens in the vocabulary, including added tokens; None if not read."""
    tokenizer_digest: str | None = None
    """Digest of the token → id mapping; None if not read. Equal digests mean equal vocabularies."""
    weight_bytes: int | None = None
    """`total_size` of the index, or the total size of the files. None if unknown."""
    weights_rounded: bool = False
    """True if `weight_bytes` is a rounded, published size."""
    missing_files: tuple[str, ...] = ()
    """Files that the index names but the directory lacks."""
    gated: bool | None = None
    quantization_config: Mapping[str, Any] = {}
    """The quantization object in the config, or in ModelOpt's file next to it."""
    config: Mapping[str, Any] = {}
    """The flat config (text_config merged over the top level), for values without a field above."""
    raw: Mapping[str, Any] = {}
    """The unmodified config."""
    origin: Origin | None = None
    """Source of the facts; None for facts from the user."""
    tensors: TensorFacts | None = None
    """Tensors in the checkpoint's directory, read on demand; None without a safetensors file."""
    unread: Mapping[str, str] = {}
    """Fields above without a source, with the config.json key that would provide each. Reading such
    a field raises UnknownValueError."""

    def __eq__(self, other: object) -> bool:
        """Compare all fields except `tensors`, which are read from disk."""
        return other.__class__ is self.__class__ and all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name != "tensors"
        )

    @property
    def architecture(self) -> str | None:
        """The first architecture, on which the engine dispatches; None if unknown."""
        return self.architectures[0] if self.architectures else None

    def context_in(self, version: str) -> int | None:
        """Return `context_length` as one engine release derives it; None if unknown."""
        if self.context_lengths is None:
            return self.context_length
        return self.context_lengths[within(version, _TRANSFORMERS_5)]

    def field_or_none(self, name: str) -> Any:
        """Return a field, or None if it is `unread`. For display only."""
        return object.__getattribute__(self, name)

    @property
    def is_eagle3(self) -> bool | None:
        """True if this is an EAGLE-3 draft; None if the architecture is unknown."""
        if not self.architectures:
            return None
        return any("Eagle3" in name or "EAGLE3" in name for name in self.architectures)


class PartlyReadCheckpoint(Checkpoint, frozen=True):
    """A checkpoint with unknown fields. Reading such a field raises UnknownValueError."""

    __hash__ = object.__hash__

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "unread" and name in self.unread:
            raise UnreadKeyError(self.name, self.unread[name])
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"PartlyReadCheckpoint({self.name!r}, unread={sorted(self.unread)})"


__all__ = ["Facts", "UnknownFact", "checkpoint_fact"]


def checkpoint_fact(name: str) -> str:
    """Return an UnknownFact's name for the facts of checkpoint `name`."""
    return f"the checkpoint {name[:200]}"


class Facts(Struct, frozen=True):
    """Target and draft checkpoints, hardware, and engine runtime; each None if unknown.

    `draft` is the checkpoint that `speculative_draft_model_path` names. It is also None if no draft
    is named (check `plan.value("speculative_draft_model_path")`).
    """

    target: Checkpoint | None = None
    draft: Checkpoint | None = None
    hardware: Hardware | None = None
    runtime: Runtime | None = None
    unknown: tuple[UnknownFact, ...] = ()
    made_for_target: tuple[ModelPair, ...] = ()
    """Drafts that the index lists for the target, best supported first."""

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Known checkpoints of target and draft, without duplicates."""
        found = (self.target, self.draft)
        return tuple({fact.name: fact for fact in found if fact is not None}.values())

    def why_unknown(self, checkpoint: str) -> UnknownFact | None:
        """Return why the checkpoint of this name is unknown; None if no reason is recorded."""
        what = checkpoint_fact(checkpoint)
        return next((fact for fact in reversed(self.unknown) if fact.what == what), None)
