"""What the reader takes as given: functions of the engine that ask the machine or the model."""

from __future__ import annotations

PLATFORM = {
    "is_cuda": "is_cuda",
    "is_hip": "is_hip",
    "is_npu": "is_npu",
    "is_xpu": "is_xpu",
    "is_hpu": "is_hpu",
    "is_musa": "is_musa",
    "is_mps": "is_mps",
    "is_cpu": "is_cpu",
    "is_cuda_alike": "is_cuda_alike",
    "is_sm90_supported": "is_sm90",
    "is_sm90": "is_sm90",
    "is_sm100_supported": "is_sm100",
    "is_sm100": "is_sm100",
    "is_sm100_or_sm110_supported": "is_sm100_or_sm110",
    "is_sm100_or_sm110": "is_sm100_or_sm110",
    "is_sm110_supported": "is_sm110",
    "is_sm110": "is_sm110",
    "is_sm120_supported": "is_sm120",
    "is_sm120": "is_sm120",
    "is_blackwell": "is_blackwell",
    "is_blackwell_supported": "is_blackwell",
    "is_hopper_with_cuda_12_3": "is_sm90",
    "is_flashinfer_available": "is_cuda",
    "has_flashinfer": "is_cuda",
    "get_device": "device",
    "get_device_sm": "device_sm",
    "device_sm": "device_sm",
    "is_host_cpu_x86": "",
    "is_remote_url": "",
    "is_port_available": "",
}
"""Functions (or attributes of `get_platform()`) and the fact that each of them asks; empty: none
that anybody knows beforehand."""

UNREAD = frozenset(
    {
        "get_available_gpu_memory",
        "is_port_available",
        "get_free_port",
        "parse_connector_type",
        "torch_release",
        "configure_ipv6",
        "check_pkg_version_at_least",
        "is_valid_ipv6_address",
        "is_in_ci",
        "human_readable_int",
        "get_int_env_var",
        "assert_pkg_version",
        "load_json_config",
        "json_list_type",
        "nullable_str",
        "set_default_torch_dtype",
        "xpu_has_xmx_support",
        "cpu_has_amx_support",
        "is_triton_kernels_available",
        "is_sglang_kernel_available",
        "use_mlx",
        "publish_config",
        "get_context",
    }
)
"""Functions of the engine that are not read: they ask the machine, or parse text."""

MEMORY = frozenset({"get_device_memory_capacity", "get_nvgpu_memory_capacity"})
"""Functions that ask how much memory a GPU has."""
MODEL_CONFIG = frozenset({"get_model_config", "model_config_of"})
WORKED_OUT = frozenset({"quantization", "nvfp4_moe_meta"})
"""What `ModelConfig` makes of the arguments and the checkpoint, and speclaunch does, too."""
VIEWS = frozenset({"resolving_view", "ResolvingConfig"})
SNAPSHOTS = frozenset({"resolved_view", "ResolvedView"})
DECLARE = frozenset({"declare_resolution", "declare_late_resolution"})

ABSENT_IS_NONE = frozenset({"quantization_config", "index_topk"})
"""Keys of config.json that no config class has a value of its own for."""

ENTRY = ("_run_resolution_pipeline", "__post_init__", "resolve_once")
PIPELINE = ("sglang.srt.arg_groups.pipeline", "run_resolution_pipeline")

HARMLESS = frozenset(
    {
        *("from_server_args", "apply_server_args_defaults", "apply_server_args_default", "print"),
        *("isinstance", "hasattr", "getattr", "repr", "str", "id", "type", "deepcopy", "asdict"),
        *("fields", "set_global_server_args_for_scheduler", "from_string", "ModelConfig"),
    }
)
"""Unread functions that are given the record and write nothing to it, or a plugin's only."""
