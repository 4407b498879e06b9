"""Which checkpoint the rules look into: the draft's; without speculation the target's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.safetensors_header import TensorHeader
from speclaunch.facts.tensors import TensorFacts
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.drafts import own_path
from speclaunch.record import record
from speclaunch.rules.checkpoints.dflash_loader import dflash
from speclaunch.rules.checkpoints.eagle_loaders import eagle, eagle3, whole_model
from speclaunch.rules.checkpoints.loader import Comparison, Loader, compare
from speclaunch.rules.checkpoints.mtp_loaders import deepseek, glm4_moe, mimo, qwen3_next

_Find = Callable[[Checkpoint, str], Loader | None]
_DRAFTS: Mapping[str, _Find] = MappingProxyType(
    {
        "LlamaForCausalLMEagle3": eagle3,
        "LlamaForCausalLMEagle": eagle,
        "Qwen2ForCausalLMEagle": eagle,
        "DFlashDraftModel": dflash,
    }
)
_LAYERS: Mapping[str, _Find] = MappingProxyType(
    {
        "Glm4MoeForCausalLM": glm4_moe,
        "Glm4MoeForCausalLMNextN": glm4_moe,
        "DeepseekV3ForCausalLM": deepseek,
        "DeepseekV3ForCausalLMNextN": deepseek,
        "MiMoForCausalLM": mimo,
        "Qwen3NextForCausalLM": qwen3_next,
    }
)
"""The classes whose own layer drafts."""
_WHOLE = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
_SAME_SHAPES = (None, "fp8")
"""How a checkpoint may be quantised and keep the shapes of its matrices."""
_FROM_DRAFT = ("EAGLE", "EAGLE3", "STANDALONE", "DFLASH")


@record
class Subject:
    """The checkpoint, and the argument that names it."""

    checkpoint: Checkpoint
    argument: str
    tensors: TensorFacts
    loader: Loader | None
    """None where the class is not one of those whose loader is known."""

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        """Names and shapes. Raises UnknownValueError where not all could be read."""
        headers = self.tensors.headers
        if headers.unread is not None:
            raise UnknownValueError(f"{self.checkpoint.name}: {headers.unread}")
        return headers.tensors

    @property
    def is_whole(self) -> bool:
        """Whether all files are there, and are what they should be."""
        return not (self.tensors.headers.broken or self.checkpoint.missing_files)

    def compared(self) -> Comparison | None:
        """The files against the class; None where either is not known, or the files are broken."""
        if self.loader is None or not self.is_whole:
            return None
        plain = self.checkpoint.quantization in _SAME_SHAPES
        return compare(self.loader, self.headers, plain=plain)

    def loaded(self) -> list[str]:
        """The tensors that the class computes with; all, where it is not known."""
        if self.loader is None:
            return list(self.headers)
        compared = self.compared()
        own = {} if compared is None else compared.own
        return [
            name
            for name, place in own.items()
            if place not in self.loader.expected or self.loader.expected[place].used
        ]


def examined(plan: Plan) -> tuple[Subject, Loader, Comparison] | None:
    """What is looked into, its loader, and the two compared; None where there is nothing to
    compare. Raises UnknownValueError."""
    found = subject(plan)
    if found is None:
        return None
    loader, compared = found.loader, found.compared()
    if loader is None or compared is None:
        return None
    return found, loader, compared


def subject(plan: Plan) -> Subject | None:
    """What is looked into; None where no files are at hand. Raises UnknownValueError."""
    algorithm = plan.algorithm
    if algorithm is None:
        return _subject(plan, plan.facts.target, "model_path", drafts=False)
    if algorithm not in _FROM_DRAFT:
        return None
    if own_path(plan) is None:
        return _subject(plan, plan.facts.target, "model_path", drafts=True)
    return _subject(plan, plan.facts.draft, "speculative_draft_model_path", drafts=True)


def _subject(
    plan: Plan, checkpoint: Checkpoint | None, argument: str, *, drafts: bool
) -> Subject | None:
    if checkpoint is None or checkpoint.tensors is None:
        return None
    find = _find(checkpoint, argument, drafts=drafts)
    if drafts and argument == "model_path" and find is None:
        return None  # the whole target, of which it is not known what drafts
    loader = None if find is None else find(checkpoint, plan.request.version)
    return Subject(checkpoint, argument, checkpoint.tensors, loader)


def _find(checkpoint: Checkpoint, argument: str, *, drafts: bool) -> _Find | None:
    name = checkpoint.architecture or ""
    if drafts and name in _LAYERS:
        return _LAYERS[name]
    if argument == "model_path" and drafts:
        return None
    return whole_model if name in _WHOLE else _DRAFTS.get(name)


def drafts_itself(checkpoint: Checkpoint) -> bool:
    """Whether its class is one whose own layer drafts, and of which it is known what it loads."""
    return (checkpoint.architecture or "") in _LAYERS
