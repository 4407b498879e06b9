"""The draft model of a plan: which checkpoint it is, and how many layers it has."""

from __future__ import annotations

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.architectures import architectures
from speclaunch.plan.memory.model_config import ModelConfig
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics import drafts
from speclaunch.plan.topics.algorithms import BLOCK_FAMILY, EAGLE_FAMILY
from speclaunch.plan.topics.target import target_of
from speclaunch.record import record

_ONE_AT_A_TIME = ("MiMoV2MTP", "Step3p5MTP", "InklingForConditionalGenerationMTP")
"""A model of one layer each; multi-layer EAGLE runs several."""
MTP_ENDS = ("NextN", "MTP")
"""How the names of classes end that are multi-token-prediction layers alone."""


@record
class Draft:
    """The checkpoint of a draft model.

    `is_mtp` is whether the engine loads only the multi-token-prediction layers of it, `loaded_as`
    the model that it is then. `models` is how many of them run (multi-layer EAGLE).
    """

    checkpoint: Checkpoint
    config: ModelConfig
    is_mtp: bool
    loaded_as: str
    models: int = 1

    @property
    def layers(self) -> int:
        """Layers of the KV cache of all models together: `_compute_model_num_layers`
        (0.5.23 layer_setup.py:203). Raises UnknownValueError."""
        if self.loaded_as in _ONE_AT_A_TIME:
            return self.models
        said = self.mtp_layers
        return (said or 1) if self.is_mtp else (said or self.config.layers)

    @property
    def mtp_layers(self) -> int | None:
        """`num_nextn_predict_layers` of its config."""
        return self.config.optional("num_nextn_predict_layers", least=0)


def draft_of(plan: Plan) -> Draft | None:
    """The draft model; None: there is none (no speculation, or NGRAM). Raises UnknownValueError."""
    algorithm = plan.algorithm
    if algorithm is None or algorithm not in EAGLE_FAMILY | BLOCK_FAMILY:
        if algorithm not in (None, "NGRAM"):
            raise UnknownValueError(f"the draft of {algorithm} is not modelled")
        return None
    checkpoint = plan.facts.draft
    if checkpoint is None:
        if drafts.own_path(plan, as_given=False) is not None:
            raise UnknownValueError(drafts.UNKNOWN_DRAFT)
        checkpoint = target_of(plan)
    name = checkpoint.architecture
    if name is None:
        raise UnknownValueError(f"the architecture of the draft {checkpoint.name} is not known")
    config = ModelConfig.of(checkpoint)
    renamed = architectures(plan.request.version).draft_map.get(name, ())
    if algorithm in BLOCK_FAMILY and renamed:
        raise UnknownValueError(f"the DSPARK draft in {checkpoint.name} is not modelled")
    loaded_as = renamed[-1] if renamed else name
    if not renamed and name == "DeepseekV32ForCausalLM":
        loaded_as = "DeepseekV3ForCausalLMNextN"  # it is loaded as DeepseekV3ForCausalLM
    models = 1
    if plan.value("enable_multi_layer_eagle"):
        models = max(1, int(plan.value("speculative_num_steps") or 1))
    return Draft(checkpoint, config, loaded_as.endswith(MTP_ENDS), loaded_as, models)


def counted_layers(plan: Plan, draft: Draft) -> int:
    """The layers by which the engine scales its budget: `eagle_draft_num_layers`
    (0.5.23 spec_aux_hidden_state.py:174, 0.5.14 model_runner.py:446). Raises UnknownValueError.

    Without a path it counts none up to 0.5.19, and then those that the target's config declares.
    """
    said = draft.mtp_layers
    if plan.value("speculative_draft_model_path") is None:
        return 0 if plan.in_versions("<0.5.20") else said or 0
    if draft.is_mtp and said is None:
        if draft.loaded_as in _ONE_AT_A_TIME and plan.in_versions("<0.5.18"):
            return draft.config.layers  # as its source counts them
        return 1
    return said if said is not None else draft.config.layers
