"""What a model checkpoint says about itself, as far as a rule or a budget asks, and its origin.

Every field is None (or empty) where the checkpoint does not say, or says it in a way that no
engine would read: a fact that is missing is unknown, never a guess. Of a config.json of which some
keys were not read, asking for one of these is unknown: whoever took a missing key for absent would
get the engine's default for it, and a verdict that rests on nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.engine.facts.unknown import UnknownValueError
from speclaunch.engine.releases.versions import within

if TYPE_CHECKING:
    from speclaunch.engine.facts.tensors import TensorFacts


class FactSource(StrEnum):
    """Where the facts of a checkpoint were read, nearest first."""

    DIRECTORY = "directory"
    """A directory of that name, or one below --models."""
    CACHE = "cache"
    """A hub cache of this machine."""
    REPOSITORY = "repository"
    """`.speclaunch/models/` beside the file, or above it."""
    INDEX = "index"
    """The index that ships with speclaunch."""
    HUB = "hub"


class Origin(Struct, frozen=True):
    """Where the facts of a checkpoint come from, and how far they go."""

    provenance: FactSource
    where: str
    """The directory or the file; of the index and of the hub, their source in words."""
    read: str | None = None
    """The day on which a repository's file or an entry of the index was read, YYYY-MM-DD."""
    revision: str | None = None
    """The commit that they describe, where it is known."""
    doubt: str | None = None
    """Why they may not be those of the checkpoint that is asked for."""
    assumed: str | None = None
    """The checkpoint whose facts these are, by `--assume` or `speclaunch.toml`."""
    stated: tuple[str, ...] = ()
    """Keys of config.json whose values `stated_in` states: they are certain despite `doubt`."""
    stated_in: str | None = None

    def __str__(self) -> str:
        told = {
            FactSource.INDEX: f"speclaunch's index, read {self.read}",
            FactSource.REPOSITORY: f"{self.where}, read {self.read}",
            FactSource.HUB: "the hub",
        }.get(self.provenance, self.where)
        if self.assumed is not None:
            told = f"assumed to be as {self.assumed}: {told}"
        return told if self.doubt is None else f"{told}; {self.doubt}"


WHOLE = "config"
"""As an unread key: nothing of config.json was read."""


class PartialConfig(dict[str, Any]):
    """The keys that were read. Looking up one of `unread` raises UnknownValueError.

    Its length and its iteration are those of the keys that were read.
    """

    __slots__ = ("name", "unread")

    def __init__(self, name: str, read: Mapping[str, Any], unread: Iterable[str]) -> None:
        super().__init__(read)
        self.name = name
        """The checkpoint, for messages."""
        self.unread = frozenset(unread) - read.keys()

    def _look(self, key: object) -> None:
        if key in self.unread:
            raise UnreadKeyError(self.name, str(key))

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict; raises UnknownValueError for a key that was not read."""
        self._look(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._look(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._look(key)
        return super().__contains__(key)


class UnreadKeyError(UnknownValueError):
    """A key of a checkpoint's config.json was asked for that nobody read."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(f"`{key}` of {name} is not known: no source for it has been read")
        self.key = key


def merged(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> Mapping[str, Any]:
    """`inner` over `outer`; what neither of them read stays unread."""
    both = {**outer, **inner}
    for part in (outer, inner):
        if isinstance(part, PartialConfig):
            return PartialConfig(part.name, both, part.unread)
    return both


SHORT_DTYPES = {"half": "float16", "float": "float32"}
"""Other names of data types, of configs and of the engine's argument."""
_TRANSFORMERS_5 = ">=0.5.10"
"""The first release that needs transformers 5, which reads the scaling of positions otherwise."""


class Checkpoint(Struct, frozen=True):  # noqa: PLW1641  its mappings have no hash
    """The facts of one checkpoint: its `config.json` (nested `text_config` included), the index
    of its weights, and its tokenizer.
    """

    name: str
    """As it was asked for: a path, or `organisation/model`."""
    path: Path | None = None
    """The directory that the facts were read from."""
    architectures: tuple[str, ...] = ()
    """`architectures` of config.json, e.g. `LlamaForCausalLM`."""
    model_type: str | None = None
    dtype: str | None = None
    """`torch_dtype` or `dtype`, without `torch.`: bfloat16, float16, float32."""
    context_length: int | None = None
    """Tokens, as the engine derives it: rope scaling and long-context keys included
    (`get_context_length` in sglang/srt/utils/hf_transformers_utils.py). None, too, where releases
    differ: `context_in` tells for one."""
    context_lengths: tuple[int | None, int | None] | None = None
    """Where releases differ: what those before 0.5.10 derive, and those from then on."""
    hidden_size: int | None = None
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    """The reduced vocabulary of an EAGLE-3 draft."""
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    """Set for multi-head latent attention (MLA)."""
    sliding_window: int | None = None
    quantization: str | None = None
    """`quant_method` of the checkpoint (awq, gptq, fp8, modelopt_fp4, …) as the newest engine
    names it; None: not quantised, or not known."""
    mtp_layers: int | None = None
    """Multi-token-prediction layers that the config declares (`num_nextn_predict_layers`,
    `mtp_num_hidden_layers`)."""
    mtp_weights: bool | None = None
    """Whether the index of the weights (else the heads of the files) names those layers; None:
    there is nothing to look at."""
    target_hidden_size: int | None = None
    """An EAGLE-3 draft's hidden size of the target that it was trained for."""
    aux_hidden_layers: tuple[int, ...] = ()
    """Target layers whose hidden states an EAGLE-3, DFLASH or DSPARK draft reads."""
    use_aux_hidden_state: bool | None = None
    """Whether an EAGLE-3 draft reads any (`eagle_config`); None: it does not say, so it does."""
    block_size: int | None = None
    """Tokens that a DFLASH draft proposes at a time."""
    has_token_map: bool | None = None
    """Whether the weights of a draft hold `d2t` (EAGLE-3); None: no index to look at."""
    has_dspark_folder: bool | None = None
    """Whether the directory has a folder `dspark` with a draft (SGLang 0.5.23 looks for one)."""
    is_moe: bool | None = None
    is_multimodal: bool = False
    tokenizer_size: int | None = None
    """Number of different tokens in the tokenizer's vocabulary, added ones included."""
    tokenizer_digest: str | None = None
    """A digest of the token → id mapping: equal digests are equal vocabularies."""
    weight_bytes: int | None = None
    """`total_size` of the weights' index, or the sum of the weight files."""
    weights_rounded: bool = False
    """Whether `weight_bytes` is a published size, rounded by whoever says it."""
    missing_files: tuple[str, ...] = ()
    """Files that the index names and the directory lacks."""
    gated: bool | None = None
    quantization_config: Mapping[str, Any] = {}
    """How it is quantised: that object of the config, or the one in ModelOpt's file beside it."""
    config: Mapping[str, Any] = {}
    """The flat config (text_config over the outer keys), for what no field above says."""
    raw: Mapping[str, Any] = {}
    """The config as it is written."""
    origin: Origin | None = None
    """Where the facts come from; None: from values that were given."""
    tensors: TensorFacts | None = None
    """The tensors in its directory, read when asked; None: no safetensors file is at hand."""
    unread: Mapping[str, str] = {}
    """Fields above that no source tells, with the key of config.json that is wanted for it:
    asking for one raises UnknownValueError."""

    def __eq__(self, other: object) -> bool:
        """Compare all but `tensors`, which are read from the disk."""
        return other.__class__ is self.__class__ and all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name != "tensors"
        )

    @property
    def architecture(self) -> str | None:
        """The first architecture: the one that the engine dispatches on."""
        return self.architectures[0] if self.architectures else None

    def context_in(self, version: str) -> int | None:
        """`context_length` as one release derives it."""
        if self.context_lengths is None:
            return self.context_length
        return self.context_lengths[within(version, _TRANSFORMERS_5)]

    def told(self, name: str) -> Any:
        """A field, or None where it is `unread`: for what is shown, and for nothing else."""
        return object.__getattribute__(self, name)

    @property
    def is_eagle3(self) -> bool | None:
        """Whether this is an EAGLE-3 draft; None when the architecture is not known."""
        if not self.architectures:
            return None
        return any("Eagle3" in name or "EAGLE3" in name for name in self.architectures)


class PartlyReadCheckpoint(Checkpoint, frozen=True):
    """A checkpoint of which some fields are not known: asking for one raises UnknownValueError."""

    __hash__ = object.__hash__

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "unread" and name in self.unread:
            raise UnreadKeyError(self.name, self.unread[name])
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"PartlyReadCheckpoint({self.name!r}, unread={sorted(self.unread)})"
