"""Rules about server features that exclude or require others, or limit values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from speclaunch.checks.rules.feature_tables import (
    NEEDS,
    NUMBERS,
    PAIRS,
    POOL,
    is_on,
    unaudited,
)
from speclaunch.checks.rules.interface import Fix, Severity, Verdict, refused, rule
from speclaunch.checks.rules.values import number, page_size
from speclaunch.engine import (
    Checkpoint,
    Plan,
    UnknownValueError,
    architecture_of,
    architectures,
    attention_ranks,
    spec_v2,
)


@rule("SPL235")
def weight_cache(plan: Plan) -> Iterator[Verdict]:
    """Report speculation with the weight cache, which cannot store drafts."""
    mode = plan.value("weight_cache_mode")
    if mode == "off" or plan.algorithm is None:
        return
    yield Verdict(
        f"weight_cache_mode {mode} does not work with speculation",
        at=("weight_cache_mode", "speculative_algorithm"),
        why="the engine refuses: the weight cache daemon does not export the draft model's weights",
        fix=Fix("remove weight_cache_mode", set={"weight_cache_mode": None}, safe=True),
    )


@rule("SPL238")
def unpadded_torch_compile(plan: Plan) -> Iterator[Verdict]:
    """Report torch.compile with CUDA graphs for every batch size."""
    if plan.value("disable_cuda_graph_padding") and plan.value("enable_torch_compile"):
        yield Verdict(
            "enable_torch_compile cannot be combined with disable_cuda_graph_padding",
            at=("disable_cuda_graph_padding", "enable_torch_compile"),
            why="the engine stops: AssertionError: --disable-cuda-graph-padding is incompatible "
            "with --enable-torch-compile. With padding disabled, every distinct batch size gets "
            "its own torch.compile + Triton autotune cycle",
            fix=Fix(
                "remove disable_cuda_graph_padding",
                set={"disable_cuda_graph_padding": None},
                safe=True,
            ),
        )


@rule("SPL239")
def cpu_graph(plan: Plan) -> Iterator[Verdict]:
    """Report CPU graphs with speculation, which they do not support."""
    if plan.algorithm is None or not plan.value("enable_torch_compile"):
        return
    if plan.device == "cpu":
        yield Verdict(
            "on a CPU enable_torch_compile captures graphs, which do not support speculation",
            at=("enable_torch_compile", "speculative_algorithm"),
            why="the engine stops: AssertionError: CPUGraphRunner does not support speculative "
            "inference yet.",
            fix=Fix("remove enable_torch_compile", set={"enable_torch_compile": None}, safe=True),
        )


@rule("SPL240")
def streaming_session(plan: Plan) -> Iterator[Verdict]:
    """Report streaming sessions with SpecV2 in 0.5.10."""
    if plan.value("enable_streaming_session") and spec_v2.would_run(plan):
        yield Verdict(
            f"SGLang {plan.request.version} refuses streaming sessions with SpecV2",
            at=("enable_streaming_session", spec_v2.VARIABLE),
            why="each request to open a session fails: Streaming sessions are incompatible with "
            "speculative decoding v2 (overlap + speculative)",
            fix=Fix("unset SGLANG_ENABLE_SPEC_V2", env={spec_v2.VARIABLE: None}),
        )


@rule("SPL251")
def number_out_of_range(plan: Plan) -> Iterator[Verdict]:
    """Report a number that the engine refuses."""
    for row in NUMBERS:
        value = plan.user_value(row.name)
        if value is None or row.allows(value):
            continue
        if plan.in_versions(row.versions) and row.on(plan):
            needed = row.requirement or f"at least {row.least}"
            yield Verdict(
                f"{plan.written_name(row.name)} must be {needed}, not {value}",
                at=(row.name,),
                why=f"the engine stops: {row.engine_message}",
                fix=Fix("remove it: the default works", set={row.name: None}),
            )


@rule("SPL252")
def exclusive_arguments(plan: Plan) -> Iterator[Verdict]:
    """Report two arguments that exclude each other."""
    for row in PAIRS:
        if not plan.is_set(row.name) or not is_on(plan, row.name) or not is_on(plan, row.other):
            continue
        if plan.in_versions(row.versions):
            yield Verdict(
                f"{row.name} and {row.other} cannot be combined",
                at=(row.name, row.other),
                why=f"the engine refuses: {row.engine_message}",
                fix=Fix(f"remove {row.name} or {row.other}", set={row.name: None}),
            )


@rule("SPL253")
def missing_companion(plan: Plan) -> Iterator[Verdict]:
    """Report an argument without another argument that it requires."""
    for row in NEEDS:
        if row.value not in (None, plan.user_value(row.name)) or not is_on(plan, row.name):
            continue
        if not plan.in_versions(row.versions):
            continue
        if not row.present(plan):
            yield Verdict(
                f"{row.name} needs {row.needs}",
                at=(row.name,),
                why=f"the engine refuses: {row.engine_message}",
                fix=Fix(f"remove {row.name}, or use {row.needs}", set={row.name: None}),
            )


class _Feature(Struct, frozen=True):
    name: str
    engine_message: str
    versions: str = ""
    allowed: tuple[str, ...] = ()
    """Algorithms that support the feature."""
    on: Callable[[Plan], bool] = lambda _: True


def _several(name: str) -> Callable[[Plan], bool]:
    return lambda plan: int(plan.value(name)) > 1


def _moves_pages(plan: Plan) -> bool:
    backend = plan.value("disaggregation_transfer_backend")
    return is_on(plan, "disaggregation_mode") and backend == "mooncake"


def _drafts_with_deepep_v2(plan: Plan) -> bool:
    inherited = plan.user_value("speculative_moe_a2a_backend") is None
    return inherited and plan.user_value("moe_a2a_backend") == "deepep_v2"


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
        raise UnknownValueError("the draft layers of the target are unknown")
    return layers != 1


_MIXED_LAYERS = ("layer_types", "layers_block_type", "hybrid", "linear_", "mamba", "ssm")
"""Config keys that may declare layers of different kinds. A window alone does not: the engine lists
the classes that mix windows with full attention (0.5.23 configs/model_config.py:2655)."""


def _is_plain(plan: Plan) -> bool:
    """True for EAGLE or EAGLE3 on a target without recurrent state and without mixed windows.

    The engine does not treat such a target as hybrid (kv_cache_hook.py:606).
    """
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
        on=lambda plan: plan.user_value("speculative_moe_a2a_backend") == "deepep_v2",
    ),
    _Feature(
        "moe_a2a_backend",
        "DeepEP v2 MoE is not validated as a speculative draft backend. Select another "
        "--speculative-moe-a2a-backend.",
        allowed=("NGRAM",),
        on=_drafts_with_deepep_v2,
    ),
)


@rule("SPL254")
def feature_without_speculation(plan: Plan) -> Iterator[Verdict]:
    """Report a feature that does not support speculation."""
    if plan.algorithm is None:
        return
    refused: set[str] = set()
    for row in _FEATURES:
        if not plan.is_set(row.name):
            continue
        if plan.algorithm in row.allowed or not plan.in_versions(row.versions):
            continue
        if row.on(plan):
            refused.add(row.name)
            yield Verdict(
                f"{row.name} does not work with {plan.algorithm} speculation as configured",
                at=(row.name, "speculative_algorithm"),
                why=f"the engine refuses: {row.engine_message}",
                fix=Fix(f"remove {row.name}", set={row.name: None}),
            )
    if POOL not in refused:
        yield from unaudited(plan)


_SMALLEST_DEFAULT = 2048
_BEFORE_RESOLUTION = "<0.4.9.post4"
"""Releases that check the prefill chunk before DP attention divides it and backends set the page
size (0.4.9 server_args.py:342)."""
_OFF_TOO = "<0.5.0rc2"
"""Releases that also check a size that disables chunking (0.4.10.post2 server_args.py:1955)."""
_DECODE_TOO = "<0.5.3"
"""Releases that also check decode servers (0.5.2 server_args.py:2285)."""


@rule("SPL257")
def chunked_prefill_pages(plan: Plan) -> Iterator[Verdict]:
    """Report prefill chunks that are not a multiple of the page size."""
    early = plan.in_versions(_BEFORE_RESOLUTION)
    page = int(plan.user_value("page_size") or 1) if early else page_size(plan)
    if page == 1:
        return
    if plan.value("disaggregation_mode") == "decode" and not plan.in_versions(_DECODE_TOO):
        return
    chunk = _chunk(plan, page)
    if chunk % page and (chunk > 0 or plan.in_versions(_OFF_TOO)):
        rounded = page * max(1, round(chunk / page))
        yield Verdict(
            f"chunked_prefill_size {chunk} is not a multiple of page_size {page}",
            at=("chunked_prefill_size", "page_size"),
            why="the engine stops: AssertionError: chunked_prefill_size must be divisible by "
            "page_size",
            fix=Fix(f"set it to {rounded}", set={"chunked_prefill_size": rounded}, safe=True)
            if chunk > 0
            else Fix(
                "set it to 0, which also disables chunked prefill", set={"chunked_prefill_size": 0}
            ),
        )


def _chunk(plan: Plan, page: int) -> int:
    """Return a rank's prefill chunk size in tokens; 0 if every default fits the page size."""
    ranks = 1 if plan.in_versions(_BEFORE_RESOLUTION) else attention_ranks(plan)
    explicit = plan.user_value("chunked_prefill_size")
    if explicit is not None:
        return int(explicit) // ranks
    if (_SMALLEST_DEFAULT // ranks) % page == 0:
        return 0  # the other defaults are multiples of the smallest
    return int(plan.value("chunked_prefill_size"))


@rule("SPL259")
def priority_scheduling(plan: Plan) -> Iterator[Verdict]:
    """Report priority scheduling with a policy that does not support it."""
    if not plan.value("enable_priority_scheduling"):
        return
    policy = plan.value("schedule_policy")
    if policy not in ("fcfs", "lof"):
        yield Verdict(
            f"schedule_policy {policy} does not support priorities",
            at=("schedule_policy", "enable_priority_scheduling"),
            why="the engine stops: AssertionError: To use priority scheduling, schedule_policy "
            "must be 'fcfs' or 'lof'.",
            fix=Fix("set schedule_policy to fcfs", set={"schedule_policy": "fcfs"}),
        )


_STORES = ("s3://", "gs://", "az://")
"""Prefixes of object store addresses, which 0.5.10 and later accept as a served model name."""


@rule("SPL262")
def served_model_name(plan: Plan) -> Iterator[Verdict]:
    """Report a served model name with a colon."""
    name = str(plan.user_value("served_model_name") or plan.user_value("model_path") or "")
    stored = name.lower().startswith(_STORES) and plan.in_versions(">=0.5.10")
    if ":" in name and not stored:
        yield Verdict(
            f"the served model name {name} contains a colon",
            at=("served_model_name", "model_path"),
            why="the engine stops: AssertionError: served_model_name cannot contain a colon (':') "
            "character. The colon is reserved for the 'model:adapter' syntax",
            fix=Fix(
                f"set served_model_name to {name.replace(':', '-')}",
                set={"served_model_name": name.replace(":", "-")},
            ),
        )


_NAME = "enable_hisparse"
_SPARSE = (("0.5.12", "DeepseekV4"), ("0.5.21", "MiniMaxM3Sparse"))
"""Prefixes of architectures that are sparse without an index_topk, each with the first release
that supports it."""


@rule("SPL264")
def hisparse(plan: Plan) -> Iterator[Verdict]:
    """Report hierarchical sparse attention if a requirement is missing."""
    if not plan.value(_NAME):
        return
    target = plan.facts.target
    if target is not None and target.architectures and not _is_sparse(plan, target):
        yield refused(
            f"{target.architecture} has no sparse attention for {_NAME}",
            "--enable-hisparse is only supported for DSA (DeepSeek Sparse Attention) models",
            (_NAME,),
            Fix("remove it", set={_NAME: None}),
        )
    if not plan.user_value("disable_radix_cache"):
        yield refused(
            f"{_NAME} needs disable_radix_cache",
            "Hierarchical sparse attention currently requires --disable-radix-cache.",
            (_NAME,),
            Fix("set disable_radix_cache to true", set={"disable_radix_cache": True}, safe=True),
        )
    if plan.algorithm is None or plan.in_versions("<0.5.22"):
        return
    if (plan.user_value("speculative_eagle_topk") or 1) > 1:
        yield refused(
            f"{_NAME} works only with speculative_eagle_topk 1",
            "The minimal HiSparse spec integration supports linear speculation only",
            (_NAME,),
            Fix("set speculative_eagle_topk to 1", set={"speculative_eagle_topk": 1}),
        )
    if plan.user_value("speculative_adaptive"):
        yield refused(
            f"{_NAME} does not work with speculative_adaptive",
            "HiSparse speculative decoding uses statically sized swap state",
            (_NAME,),
            Fix("remove speculative_adaptive", set={"speculative_adaptive": None}),
        )


def _is_sparse(plan: Plan, target: Checkpoint) -> bool:
    if target.config.get("index_topk") is not None:
        return True
    known = tuple(name for since, name in _SPARSE if plan.in_versions(f">={since}"))
    return str(target.architecture).startswith(known)


@rule("SPL266")
def device_number(plan: Plan) -> Iterator[Verdict]:
    """Report a `device` with a number, such as `cuda:1`."""
    kind, _, number = str(plan.user_value("device")).partition(":")
    if not number:
        return
    stops = plan.in_versions("<0.5.10")
    yield Verdict(
        f"SGLang {plan.request.version} does not accept a device with an index ({kind}:{number})",
        at=("device",),
        why="each worker stops: torch.distributed has no backend for such a device"
        if stops
        else f"the ranks communicate through gloo instead of the backend of {kind}",
        fix=Fix(f"set device to {kind}, and select the GPU with base_gpu_id", set={"device": kind}),
        severity=Severity.ERROR if stops else Severity.WARNING,
    )
