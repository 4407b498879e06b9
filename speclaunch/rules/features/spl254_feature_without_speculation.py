"""A feature that does not go with speculation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from speclaunch.plan.architectures import architectures
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.target import architecture_of
from speclaunch.record import record
from speclaunch.rules.features.audited_backends import POOL, unaudited
from speclaunch.rules.features.tables import is_on
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number


@record
class _Feature:
    name: str
    said: str
    versions: str = ""
    allowed: tuple[str, ...] = ()
    """The algorithms that go with it."""
    on: Callable[[Plan], bool] = lambda _: True


def _several(name: str) -> Callable[[Plan], bool]:
    return lambda plan: int(plan.value(name)) > 1


def _moves_pages(plan: Plan) -> bool:
    backend = plan.value("disaggregation_transfer_backend")
    return is_on(plan, "disaggregation_mode") and backend == "mooncake"


def _drafts_with_deepep_v2(plan: Plan) -> bool:
    inherited = plan.given("speculative_moe_a2a_backend") is None
    return inherited and plan.given("moe_a2a_backend") == "deepep_v2"


def _is_not_muse_spark(plan: Plan) -> bool:
    if plan.algorithm != "DFLASH":
        return True
    return architecture_of(plan) != "MuseSparkForConditionalGeneration"


def _is_not_glm_dsa(plan: Plan) -> bool:
    if plan.algorithm != "EAGLE" or number(plan, "speculative_eagle_topk") != 1:
        return True
    if plan.value("enable_multi_layer_eagle") or architecture_of(plan) != "GlmMoeDsaForCausalLM":
        return True
    target = plan.facts.target
    layers = target.mtp_layers if target is not None else None
    if layers is None:
        raise UnknownValueError("the draft layers of the target are not known")
    return layers != 1


_MIXED_LAYERS = ("layer_types", "layers_block_type", "hybrid", "linear_", "mamba", "ssm")
"""Keys of a config that may say that layers differ in kind. A window alone says nothing: which
classes have windows beside full attention is a list (0.5.23 configs/model_config.py:2655)."""


def _is_plain(plan: Plan) -> bool:
    """Whether the target has neither windows beside full attention nor states (kv_cache_hook.py
    :606: it is no hybrid)."""
    if plan.algorithm not in ("EAGLE", "EAGLE3"):
        return False
    architecture = architecture_of(plan)
    known = architectures(plan.request.version)
    if architecture in known.hybrid or architecture in known.sliding_window:
        return False
    config = plan.facts.target.config if plan.facts.target is not None else {}
    return not any(key.startswith(_MIXED_LAYERS) for key in config)


_FEATURES = (
    _Feature(
        "enable_unified_memory",
        "--enable-unified-memory is not yet compatible with speculative decoding.",
        ">=0.5.15,<0.5.18",
    ),
    _Feature(
        "enable_unified_memory",
        "--enable-unified-memory only supports --speculative-algorithm DSPARK (chain draft)",
        ">=0.5.18,<0.5.22",
        ("DSPARK",),
    ),
    _Feature(
        "enable_unified_memory",
        "--enable-unified-memory with PD disaggregation does not support speculative decoding "
        "with the Mooncake transfer backend.",
        ">=0.5.21",
        on=_moves_pages,
    ),
    _Feature(
        "enable_unified_memory",
        "--enable-unified-memory only supports --speculative-algorithm DSPARK, DFLASH, EAGLE and "
        "EAGLE3",
        ">=0.5.22",
        ("DSPARK", "DFLASH", "EAGLE", "EAGLE3"),
    ),
    _Feature(
        "enable_unified_memory",
        "--enable-unified-memory supports a linear draft chain only (--speculative-eagle-topk in "
        "{None, 1})",
        ">=0.5.22",
        on=lambda plan: number(plan, "speculative_eagle_topk") != 1,
    ),
    _Feature(
        "enable_unified_memory",
        "--enable-unified-memory + EAGLE/EAGLE3 requires a unified target (hybrid-SWA or a mamba "
        "hybrid)",
        ">=0.5.22",
        on=_is_plain,
    ),
    _Feature(
        "enable_unified_memory",
        "--enable-unified-memory + EAGLE/EAGLE3 does not support "
        "--disaggregation-decode-retraction-backup=host_pool",
        ">=0.5.22",
        ("DSPARK", "DFLASH"),
        on=lambda plan: plan.value("disaggregation_decode_retraction_backup") == "host_pool",
    ),
    _Feature(
        "enable_unified_memory",
        "--enable-unified-memory + EAGLE/EAGLE3 does not support --enable-hierarchical-cache",
        ">=0.5.22",
        ("DSPARK", "DFLASH"),
        on=lambda plan: is_on(plan, "enable_hierarchical_cache"),
    ),
    _Feature(
        "dwdp_size",
        "DWDP does not support speculative decoding (MTP/draft workers)",
        on=_several("dwdp_size"),
    ),
    _Feature(
        "enable_lmcache",
        "LMCacheUnifiedRadixCache does not yet support speculative decoding",
        ">=0.5.21",
    ),
    _Feature(
        "enable_layernorm_sp",
        "--enable-layernorm-sp is not compatible with speculative decoding (EAGLE/EAGLE3)",
        "<0.5.23",
    ),
    _Feature(
        "enable_layernorm_sp",
        "--enable-layernorm-sp supports speculative decoding only with Muse Spark DFLASH",
        ">=0.5.23",
        on=_is_not_muse_spark,
    ),
    _Feature(
        "enable_kv_cache_sharding",
        "--enable-kv-cache-sharding does not support speculative decoding.",
        "<0.5.23",
    ),
    _Feature(
        "enable_kv_cache_sharding",
        "KV sharding supports speculative decoding only for GLM DSA single-layer NextN MTP with "
        "EAGLE and topk=1.",
        ">=0.5.23",
        on=_is_not_glm_dsa,
    ),
    _Feature(
        "enable_hierarchical_cache",
        "HiCache with --dcp-size > 1 does not support speculative decoding yet",
        ">=0.5.17,<0.5.18",
        on=_several("dcp_size"),
    ),
    _Feature(
        "enable_hierarchical_cache",
        "HiCache with --dcp-size > 1 only supports DSPARK speculative decoding",
        ">=0.5.18",
        ("DSPARK",),
        on=_several("dcp_size"),
    ),
    _Feature(
        "speculative_moe_a2a_backend",
        "DeepEP v2 MoE is not validated as a speculative draft backend.",
        on=lambda plan: plan.given("speculative_moe_a2a_backend") == "deepep_v2",
    ),
    _Feature(
        "moe_a2a_backend",
        "DeepEP v2 MoE is not validated as a speculative draft backend. Select another "
        "--speculative-moe-a2a-backend.",
        allowed=("NGRAM",),
        on=_drafts_with_deepep_v2,
    ),
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a feature."""
    if plan.algorithm is None:
        return
    refused: set[str] = set()
    for row in _FEATURES:
        if not plan.is_given(row.name):
            continue
        if plan.algorithm in row.allowed or not plan.in_versions(row.versions):
            continue
        if row.on(plan):
            refused.add(row.name)
            yield Verdict(
                f"{row.name} does not work with {plan.algorithm} speculation as set here",
                at=(row.name, "speculative_algorithm"),
                why=f"the engine refuses: {row.said}",
                fix=Fix(f"remove {row.name}", set={row.name: None}),
            )
    if POOL not in refused:
        yield from unaudited(plan)


RULE = rule(
    "SPL254",
    "feature-without-speculation",
    Severity.ERROR,
    check,
    says=(
        "enable_mixed_chunk is required for speculative",
        "enable_mixed_chunk is not supported with",
    ),
)
