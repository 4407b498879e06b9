"""How a deployment is spread over its GPU ranks."""

from __future__ import annotations

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics import parallel
from speclaunch.plan.topics.parallel import attention_ranks
from speclaunch.record import record

_MOST = 1 << 16
"""No deployment has more ranks."""


@record
class Ranks:
    """Into how many parts each kind of weight, and the KV cache, is divided.

    - `tensor`: embeddings and dense MLPs. `attention`: heads, in the ranks that share a batch.
    - `stages`: pipeline stages. `experts`: groups of ranks that hold different experts.
    - `dense`: the MLPs of dense layers (`moe_dense_tp_size`).
    - `head`: the output layer. `embedding`: the input one.
    - `redundant_experts`: copies of experts for balance.
    """

    tensor: int = 1
    attention: int = 1
    stages: int = 1
    experts: int = 1
    dense: int = 1
    head: int = 1
    embedding: int = 1
    shared_expert: int = 1
    redundant_experts: int = 0

    def stage_layers(self, layers: int, partition: str | None = None) -> tuple[range, ...]:
        """The layers of each stage: `get_pp_indices` (0.5.23 distributed/utils.py:110), the last
        stages have one more where they cannot be even. Raises UnknownValueError."""
        if partition is not None and self.stages > 1:
            return _partitioned(layers, self.stages, partition)
        base, more = divmod(layers, self.stages)
        found, start = [], 0
        for stage in range(self.stages):
            end = start + base + (stage >= self.stages - more)
            found.append(range(start, end))
            start = end
        return tuple(found)


def ranks_of(plan: Plan) -> Ranks:
    """The ranks of a plan, target and draft alike. Raises UnknownValueError."""
    tensor = _number(plan, "tp_size")
    if _number(plan, "dcp_size") > 1:
        raise UnknownValueError("sizes with decode context parallelism are not modelled")
    spread_over = attention_ranks(plan)
    attention = max(1, tensor // spread_over // _number(plan, "attn_cp_size"))
    dense = plan.value("moe_dense_tp_size")
    spread = spread_over > 1
    backend = str(plan.value("moe_a2a_backend") or "none")
    whole_head = bool(plan.value("enable_dp_lm_head")) and spread
    return Ranks(
        tensor=tensor,
        attention=attention,
        stages=_number(plan, "pp_size"),
        experts=min(parallel.expert_ranks(plan), tensor),
        dense=tensor if dense is None else max(1, int(dense)),
        head=attention if whole_head else tensor,
        embedding=_embedding(plan, attention) if spread else tensor,
        shared_expert=1 if backend != "none" or plan.value("enable_deepep_moe") else tensor,
        redundant_experts=_number(plan, "ep_num_redundant_experts", 0, least=0),
    )


def _embedding(plan: Plan, attention: int) -> int:
    """With DP attention it is divided within attention, and up to 0.5.7 not at all."""
    return 1 if plan.in_versions("<0.5.8") else attention


def _number(plan: Plan, name: str, default: int = 1, least: int = 1) -> int:
    value = plan.value(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise UnknownValueError(f"`{name}` is {value}")
    return value


def _partitioned(layers: int, stages: int, partition: str) -> tuple[range, ...]:
    """`SGLANG_PP_LAYER_PARTITION`: the number of layers of each stage."""
    try:
        counts = [int(count) for count in partition.split(",")]
    except ValueError:
        counts = []
    if len(counts) != stages or sum(counts) != layers or min(counts) < 0:
        raise UnknownValueError(
            f"SGLANG_PP_LAYER_PARTITION {partition} does not fit {layers} layers"
        )
    found, start = [], 0
    for count in counts:
        found.append(range(start, start + count))
        start += count
    return tuple(found)
