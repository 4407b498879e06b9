# ruff: noqa: PLC0415 (SGLang is imported only when everything is prepared)
"""Make a release's validation see different hardware.

The engine's modules import platform functions (`is_cuda`, `get_device_sm`, …) by name. All modules
that validation may import are imported first, with the real hardware facts, to avoid searching for
kernel packages. Then the functions are replaced only in the modules that validate.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import light, stubs

VALIDATORS = (
    "sglang.srt.server_args",
    "sglang.srt.arg_groups",
    "sglang.srt.utils",
    "sglang.srt.runtime_context",
    "sglang.srt.configs",
    "sglang.srt.model_executor.cuda_graph_config",
    "sglang.srt.layers.attention.attention_registry",
)
"""Modules in which the real machine's facts are replaced."""

LAZY = re.compile(
    r"^[ ]+from (sglang\.srt\.(?:speculative|layers|configs|utils|model_executor|runtime_context"
    r"|platforms|managers|mem_cache|disaggregation|lora|arg_groups)[\w.]*) import",
    re.M,
)
"""Lazy imports of the validators."""

GPU_KERNELS = ("silu_and_mul",)
"""Names that 0.5.4 to 0.5.9 import from `sgl_kernel` even on a CPU (moe_runner/deep_gemm.py),
although only its GPU build has them. Nothing here calls them."""

CUDA = (13, 0)
"""CUDA version reported for declared NVIDIA GPUs."""


def facts(machine: dict[str, Any]) -> dict[str, Any]:
    """Return the results of the engine's platform functions on a machine, by name."""
    gpu = machine["device"] == "cuda"  # torch's name for AMD GPUs, too
    amd = bool(machine.get("gfx"))
    cuda = gpu and not amd
    capability = machine.get("capability") or 0
    major = 0 if amd else capability // 10
    found = {
        "is_cuda": cuda,
        "is_cuda_alike": gpu,
        "is_hip": amd,
        "is_npu": False,
        "is_xpu": False,
        "is_hpu": False,
        "is_musa": False,
        "is_mps": False,
        "is_cpu": not gpu,
        "is_sm90_supported": major == 9,
        "is_sm100_supported": major == 10,
        "is_sm100_or_sm110_supported": major in (10, 11),
        "is_sm110_supported": False,
        "is_sm120_supported": major == 12,
        "is_sm121": False,
        "is_blackwell": major >= 10,
        "is_blackwell_supported": major >= 10,
        "is_hopper_with_cuda_12_3": major == 9,
        "is_flashinfer_available": cuda,
        "is_triton_kernels_available": cuda,
        "is_tokenspeed_mla_available": cuda,
        "is_habana_available": False,
        "cpu_has_amx_support": not gpu,
        "get_device": machine["device"],
        "get_device_sm": capability,
        "get_device_capability": divmod(capability, 10) if gpu else (None, None),
        "get_device_count": machine["count"],
        "get_device_name": machine["name"],
        "get_device_memory_capacity": machine.get("memory_mib"),
        "get_nvgpu_memory_capacity": machine.get("memory_mib"),
        "get_nvidia_driver_version": (580, 65) if cuda else (0,),
        "get_nvidia_driver_version_str": "580.65.06" if cuda else None,
        "get_cuda_version": CUDA if cuda else (0, 0),
        "get_free_port": 30999,
        "is_port_available": True,
        "wait_port_available": True,
        "is_in_ci": False,
    }
    if amd:
        found["get_amdgpu_memory_capacity"] = machine.get("memory_mib")
        del found["get_nvgpu_memory_capacity"]
    return found


def answering(name: str, value: Any) -> Callable[..., Any]:
    """Return a function that returns `value` for any arguments."""

    def answer(*_: Any, **__: Any) -> Any:
        return value

    answer.__name__ = name
    answer.cache_clear = lambda: None  # type: ignore[attr-defined]
    return answer


def prepare() -> None:
    """Prepare the first import of SGLang, as the CPU engine's shim does."""
    sys.modules["kernels"] = None  # type: ignore[assignment]  # optional, pinned differently
    if light.is_needed():
        light.install()
    else:
        prepare_torch()
    import sgl_kernel

    for name in GPU_KERNELS:
        if not hasattr(sgl_kernel, name):
            setattr(sgl_kernel, name, answering(name, None))


def prepare_torch() -> None:
    """Prepare an installed CPU build of torch for SGLang."""
    from speclaunch_shim.cuda_sync import install
    from speclaunch_shim.import_hook import PreparedImport, before_torchvision

    sys.meta_path.insert(0, PreparedImport("torchvision", before_torchvision))  # type: ignore[arg-type]
    install()
    stubs.install(["triton"])


def import_all() -> dict[str, str]:
    """Import the modules that validators import lazily; return failed imports with reasons."""
    stubs.import_standing_in("sglang.srt.server_args")
    from sglang.srt import server_args

    base = Path(server_args.__file__).parent
    sources = [base / "server_args.py", *sorted(base.glob("arg_groups/**/*.py"))]
    sources += [base / "configs" / "model_config.py", base / "speculative" / "spec_info.py"]
    names = {name for path in sources if path.is_file() for name in LAZY.findall(path.read_text())}
    failed = {}
    for name in sorted(names):
        try:
            importlib.import_module(name)
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {str(error)[:100]}"
    return failed


@cache
def places() -> tuple[tuple[Any, str], ...]:
    """Return pairs of a validating module and the name of a fact that it queries."""
    names = facts({"device": "cpu", "name": "", "count": 0}).keys() | {"get_amdgpu_memory_capacity"}
    return tuple(
        (module, fact)
        for name, module in list(sys.modules.items())
        if module is not None and name.startswith(VALIDATORS)
        for fact in names
        if callable(vars(module).get(fact))
    )


def pretend(machine: dict[str, Any]) -> None:
    """Make the validating modules see the facts of `machine`."""
    import torch

    values = {name: value for name, value in facts(machine).items() if value is not None}
    values["get_device_memory_capacity"] = machine.get("memory_mib")
    for module, fact in places():
        if fact in values:
            setattr(module, fact, answering(fact, values[fact]))
    pretend_torch(torch, machine)
    register_quantization(machine)
    context = sys.modules.get("sglang.srt.runtime_context")
    if hasattr(context, "_PLATFORM"):
        probes = {**context._PLATFORM_PROBES, **context._PLATFORM_VALUES}
        context._PLATFORM._install(
            **{fact: values[probe] for fact, probe in probes.items() if probe in values}
        )


def register_quantization(machine: dict[str, Any]) -> None:
    """Adapt the quantization methods registered at import (0.5.23 layers/quantization/__init__.py).

    `mxfp4` needs an NVIDIA GPU or an AMD GPU from gfx950. `gptq` is removed if it is CPU-only.
    """
    for name, fact in (("petit", "_is_hip"), ("awq.awq", "_is_cuda"), ("awq", "_is_cuda")):
        module = sys.modules.get(f"sglang.srt.layers.quantization.{name}")
        if hasattr(module, fact):  # queried at import
            setattr(module, fact, facts(machine)[fact.removeprefix("_")])
    methods = sys.modules.get("sglang.srt.layers.quantization")
    config = getattr(methods, "Mxfp4Config", None)
    if config is None or machine["device"] != "cuda":
        return
    runs = machine.get("gfx", "gfx95").startswith("gfx95")
    for name in ("BASE_QUANTIZATION_METHODS", "QUANTIZATION_METHODS"):
        known = getattr(methods, name, {})
        if known.get("gptq") is getattr(methods, "CPUGPTQConfig", object):
            del known["gptq"]
        if runs:
            known.setdefault("mxfp4", config)
        else:
            known.pop("mxfp4", None)


def pretend_torch(torch: Any, machine: dict[str, Any]) -> None:
    """Replace the hardware facts that torch reports."""
    gpu = machine["device"] == "cuda"
    torch.cuda.is_available = answering("is_available", gpu)
    torch.cuda.device_count = answering("device_count", machine["count"] if gpu else 0)
    if gpu:  # without a GPU torch raises, and so does code that queries it anyway
        torch.cuda.get_device_capability = answering(
            "get_device_capability", divmod(machine.get("capability") or 0, 10)
        )
        torch.cuda.get_device_name = answering("get_device_name", machine["name"])
    if not machine.get("gfx"):
        torch.version.cuda = ".".join(map(str, CUDA)) if gpu else None
        return
    # A ROCm build: the modules that validate queried it at import.
    torch.version.hip = "7.0.0"
    properties = SimpleNamespace(
        name=machine["name"],
        gcnArchName=machine["gfx"],
        total_memory=machine["memory_mib"] << 20,
        multi_processor_count=machine.get("processors", 304),
    )
    torch.cuda.get_device_properties = answering("get_device_properties", properties)
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith(VALIDATORS) and "_is_hip" in vars(module):
            setattr(module, "_is_hip", True)  # noqa: B010  (of a module, by its name)
