"""Renamed and replaced server arguments and variables of SGLang, and their canonical names.

A recipe may use the old or the new name; the command uses the name that the engine version has. The
catalogue states which version has a name. These tables only state which names are equivalent, and
what replaces a removed argument.

The catalogue's names differ by version (`tensor_parallel_size` up to 0.5.13, `tp_size` from
0.5.14). Flag and destination can differ, too. Therefore, code identifies an argument by its
canonical name only. tests/engine/releases/test_canonical.py checks every literal name in the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from speclaunch.engine.releases.catalogue import Catalogue, held_versions
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.versions import within


class Rename(Struct, frozen=True):
    """Two names of one server argument that accept the same values."""

    old: str
    new: str


RENAMES: tuple[Rename, ...] = (
    # Deprecated aliases in 0.5.14-0.5.19 and refused from 0.5.20 ("ambiguous option:
    # --cuda-graph-max-bs could match …"): server_args.py of 0.5.14 and 0.5.20.
    Rename("cuda_graph_max_bs", "cuda_graph_max_bs_decode"),
    Rename("cuda_graph_bs", "cuda_graph_bs_decode"),
    Rename("piecewise_cuda_graph_max_tokens", "cuda_graph_max_bs_prefill"),
    Rename("piecewise_cuda_graph_tokens", "cuda_graph_bs_prefill"),
    Rename("piecewise_cuda_graph_compiler", "cuda_graph_tc_compiler"),
    # Alias in 0.5.12, deprecated 0.5.13, removed in 0.5.20.
    Rename("speculative_dflash_draft_window_size", "speculative_draft_window_size"),
    Rename("mamba_scheduler_strategy", "mamba_radix_cache_strategy"),
    Rename("nsa_decode_backend", "dsa_decode_backend"),
    Rename("nsa_prefill_backend", "dsa_prefill_backend"),
    Rename("enable_nsa_prefill_context_parallel", "enable_dsa_prefill_context_parallel"),
    Rename("nsa_prefill_cp_mode", "dsa_prefill_cp_mode"),
    Rename("enable_gdn_replayssm_spec", "enable_linear_replayssm_spec"),
    Rename("stream_output", "incremental_streaming_output"),
    Rename("grpc_http_sidecar_port", "smg_http_sidecar_port"),
    # 0.5.13 and before have the long name; from 0.5.14 the short name is the destination.
    Rename("tensor_parallel_size", "tp_size"),
    Rename("data_parallel_size", "dp_size"),
    Rename("pipeline_parallel_size", "pp_size"),
    Rename("expert_parallel_size", "ep_size"),
    Rename("moe_data_parallel_size", "moe_dp_size"),
    Rename("attention_context_parallel_size", "attn_cp_size"),
)
"""Source: the released wheels as tools/catalogue.py reads them. A rename is listed if the old
flag's deprecation text names the new flag, or if both flags store to the same destination.
tests/engine/releases/test_renames.py compares each entry with the catalogue."""


class Conversion(Struct, frozen=True):
    """A switch that became a value of another argument: `old: true` means `new: value`."""

    old: str
    new: str
    value: Any


CONVERSIONS: tuple[Conversion, ...] = (
    # DeprecatedStoreConstAction in 0.5.14-0.5.19: the switch stores this value.
    Conversion("disable_piecewise_cuda_graph", "cuda_graph_backend_prefill", "disabled"),
    Conversion("enable_breakable_cuda_graph", "cuda_graph_backend_prefill", "breakable"),
    Conversion("enforce_piecewise_cuda_graph", "cuda_graph_backend_prefill", "tc_piecewise"),
    Conversion("enable_nsa_prefill_context_parallel", "enable_prefill_cp", True),
    Conversion("enable_dsa_prefill_context_parallel", "enable_prefill_cp", True),
    Conversion("enable_prefill_context_parallel", "enable_prefill_cp", True),
    Conversion("keep_mm_feature_on_device", "mm_feature_transport", "cuda_ipc"),
    Conversion("enable_flashinfer_trtllm_moe", "moe_runner_backend", "flashinfer_trtllm"),
    Conversion("enable_flashinfer_cutlass_moe", "moe_runner_backend", "flashinfer_cutlass"),
    Conversion("enable_flashinfer_mxfp4_moe", "moe_runner_backend", "flashinfer_mxfp4"),
    Conversion("enable_flashinfer_cutedsl_moe", "moe_runner_backend", "flashinfer_cutedsl"),
    Conversion("enable_triton_kernel_moe", "moe_runner_backend", "triton_kernel"),
    Conversion("enable_deepep_moe", "moe_a2a_backend", "deepep"),
    Conversion("enable_flashinfer_mla", "attention_backend", "flashinfer"),
    Conversion("enable_flashmla", "attention_backend", "flashmla"),
)

BORROWED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # 0.4.6 server_args.py:202 and 0.5.1 :310: `self.ep_size = self.tp_size`, for any ep_size;
        # 0.5.3 :2833 refuses it: "set `--ep-size` to the same value as `--tp-size`".
        "enable_ep_moe": ("ep_size", "tp_size"),
    }
)
"""Switches that copy one argument's value to another: the argument that is set, then the argument
whose value is copied."""

REMOVALS: Mapping[str, str] = MappingProxyType(
    {
        "speculative_ngram_min_match_window_size": "the trie of 0.5.10 has no match window",
        "speculative_ngram_max_match_window_size": (
            "the trie of 0.5.10 has no match window; its draft length is"
            " speculative_num_draft_tokens"
        ),
        "speculative_ngram_branch_length": (
            "0.5.10 stores suffixes in a trie; speculative_ngram_max_trie_depth limits their length"
        ),
        "speculative_skip_dp_mlp_sync": "0.5.23 has no such synchronization to skip",
        "enable_beta_spec": (
            "SGLANG_ENABLE_SPEC_V2=True replaces it from 0.5.4.post1; 0.5.11 and later need neither"
        ),
        "enable_nan_detection": "the environment variable SGLANG_SPEC_NAN_DETECTION=1 replaces it",
        "enable_piecewise_cuda_graph": "it is the default from 0.5.10 on",
        "hybrid_kvcache_ratio": "it no longer has an effect; see swa_full_tokens_ratio",
        "enable_ep_moe": "set ep_size to the value of tp_size instead",
        "prefill_cp_mode": "set cp_strategy (zigzag, interleave) instead",
        "dsa_prefill_cp_mode": "set cp_strategy (zigzag, interleave) instead",
        "cuda_graph_tc_compiler": "0.5.22 removed the tc_piecewise graphs that it compiled",
        "enable_double_sparsity": "0.5.11 removed double sparsity",
        "torchao_config": "0.5.18 removed torchao quantization",
        "disable_overlap_cg_plan": "the overlap of 0.4.7 no longer needs a plan",
    }
)
"""Removed arguments without an equivalent successor, each with a reason or a remedy."""


class LiveVariable(Struct, frozen=True):
    """An environment variable of the engine, and the versions that read it."""

    name: str
    versions: str
    afterwards: str
    """Behavior of the versions that no longer read the variable."""


VARIABLES: tuple[LiveVariable, ...] = (
    # 0.5.4.post1 server_args.py:1436 reads it; 0.5.14 speculative_hook.py:71 only prints a notice.
    LiveVariable(
        "SGLANG_ENABLE_SPEC_V2",
        ">=0.5.4.post1,<0.5.14",
        "SpecV2 is always on from 0.5.14",
    ),
    # 0.5.5 ngram_info.py reads it; from 0.5.14 it is declared in environ.py but never read.
    LiveVariable(
        "SGLANG_NGRAM_FORCE_GREEDY_VERIFY",
        ">=0.5.5,<0.5.14",
        "only 0.5.5 to 0.5.13 read it",
    ),
)


@lru_cache(maxsize=4096)
def other_names(name: str) -> tuple[str, ...]:
    """Return the other names of the same server argument, nearest rename first."""
    found = [name]
    for known in found:  # grows during the loop: a name may have changed twice
        for rename in RENAMES:
            if known == rename.old and rename.new not in found:
                found.append(rename.new)
            elif known == rename.new and rename.old not in found:
                found.append(rename.old)
    return tuple(found[1:])


def conversion(name: str) -> Conversion | None:
    """Return the conversion of a switch to another argument's value; None if there is none."""
    return next((entry for entry in CONVERSIONS if entry.old == name), None)


def dead_variable(name: str, version: str) -> LiveVariable | None:
    """Return the entry of a variable if `version` does not read it; None otherwise."""
    for variable in VARIABLES:
        if variable.name == name and not within(version, variable.versions):
            return variable
    return None


def forwarded_variable(name: str, version: str) -> str | None:
    """Return the variable that a release derives from `name` (`SGL_…`); None if it derives none.

    The prefix becomes `SGLANG_…`, for any suffix (0.5.3 and later, environ.py:218 of 0.5.3, :2299
    of 0.5.23).
    """
    if not name.startswith("SGL_") or within(version, "<0.5.3"):
        return None
    return name.replace("SGL_", "SGLANG_", 1)


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Return the newest engine's destination for an argument, from any of its names.

    `cuda_graph_max_bs` becomes `cuda_graph_max_bs_decode`, `tensor_parallel_size` becomes
    `tp_size`. A removed argument keeps its last name.
    """
    if not isinstance(name, str):  # a key of an invalid recipe, which is reported as such
        return name
    newest = load_catalogue(held_versions()[-1])
    argument = newest.by_name(current_name(name, newest) or name)
    if argument is not None:
        return argument.dest
    last = name
    for rename in RENAMES:  # in chronological order
        last = rename.new if rename.old == last else last
    return last


def current_name(name: str, catalogue: Catalogue) -> str | None:
    """Return a release's current name for an argument; None if it has none."""
    for known in (name, *other_names(name)):
        argument = catalogue.by_name(known)
        if argument is not None and not argument.deprecated:
            return known
    return None


def value_of(args: Mapping[str, Any], name: str) -> Any:
    """Return the value of the argument `name` in `args`, under any of its names; None if absent."""
    if name in args:
        return args[name]
    return next((value for key, value in args.items() if canonical(key) == name), None)
