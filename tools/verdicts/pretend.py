# ruff: noqa: PLC0415 (SGLang is imported only when everything is prepared)
"""Ask one SGLang release what it makes of command lines, as if this machine had other hardware.

Run by the engine's interpreter, in the directory that holds `models/`; nothing of speclaunch is
imported. Standard input is one JSON document, `{"machine": …, "cases": [{"id", "words", "env"}]}`;
each line of standard output is one verdict. Every case is asked in a forked child: nothing that
the engine remembers reaches the next one.

The stages, in the order in which a server passes them:

``parse``    `prepare_server_args`: the parser, and up to 0.5.18 the resolution as well
``resolve``  `resolve_once`, where there is one (from 0.5.19)
``check``    `check_server_args`, the last thing before the processes of the engine start
``draft``    the draft's `ModelConfig`, the first thing that a scheduler makes of it

How it pretends. The engine asks its platform through functions (`is_cuda`, `get_device_sm`, …)
that its modules import by name. Everything that validation may import is imported first, while
they tell the truth, so that no kernel package is looked for; then the functions are replaced in
the modules that validate, and nowhere else.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

VALIDATORS = (
    "sglang.srt.server_args",
    "sglang.srt.arg_groups",
    "sglang.srt.utils",
    "sglang.srt.runtime_context",
    "sglang.srt.configs",
    "sglang.srt.model_executor.cuda_graph_config",
    "sglang.srt.layers.attention.attention_registry",
)
"""Modules in which the machine's facts are replaced."""

LAZY = re.compile(
    r"^[ ]+from (sglang\.srt\.(?:speculative|layers|configs|utils|model_executor|runtime_context"
    r"|platforms|managers|mem_cache|disaggregation|lora|arg_groups)[\w.]*) import",
    re.M,
)
"""What the validators import only when they need it."""

KEPT = re.compile(
    r"speculative_|.*attention_backend|page_size|max_running_requests|disable_overlap_schedule"
    r"|enable_mixed_chunk|mem_fraction_static|tp_size|pp_size|ep_size|dp_size|attn_dp_size"
    r"|attn_cp_size|enable_dp_attention|enable_dp_lm_head|disable_cuda_graph"
    r"|cuda_graph_(max_)?bs(_(decode|prefill))?|cuda_graph_backend_(decode|prefill)"
    r"|disable_piecewise_cuda_graph|piecewise_cuda_graph_max_tokens|piecewise_cuda_graph_tokens"
    r"|enable_multi_layer_eagle|sampling_backend|dtype|kv_cache_dtype|chunked_prefill_size"
    r"|max_prefill_tokens|context_length|device|quantization|disable_radix_cache"
    r"|enable_lora|enable_torch_compile|torch_compile_max_bs|moe_runner_backend|moe_a2a_backend"
    r"|mamba_|schedule_conservativeness|enable_beta_spec|enable_deterministic_inference"
    r"|disable_cuda_graph_padding|disaggregation_mode|load_format|disable_custom_all_reduce"
)
"""The fields of an accepted configuration that are recorded."""

GPU_KERNELS = ("silu_and_mul",)
"""What 0.5.4 to 0.5.9 import of `sgl_kernel` on a CPU too (moe_runner/deep_gemm.py), and that only
its build for GPUs has. Nothing here calls it."""

ARTEFACTS = (ImportError, AttributeError, NameError, FileNotFoundError)
"""Errors that say something of this machine or of the pretence, until somebody looks at them."""


PROGRAM = re.compile(r"^[\w. ]+: error: ")
"""How argparse begins: some releases name the program that was started."""


def facts(machine: dict[str, Any]) -> dict[str, Any]:
    """What the engine's platform functions answer on a machine, by their names."""
    cuda = machine["device"] == "cuda"
    capability = machine.get("capability") or 0
    major = capability // 10
    return {
        "is_cuda": cuda,
        "is_cuda_alike": cuda,
        "is_hip": False,
        "is_npu": False,
        "is_xpu": False,
        "is_hpu": False,
        "is_musa": False,
        "is_mps": False,
        "is_cpu": not cuda,
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
        "cpu_has_amx_support": not cuda,
        "get_device": machine["device"],
        "get_device_sm": capability,
        "get_device_capability": (major, capability % 10) if cuda else (None, None),
        "get_device_count": machine["count"],
        "get_device_name": machine["name"],
        "get_device_memory_capacity": machine.get("memory_mib"),
        "get_nvgpu_memory_capacity": machine.get("memory_mib"),
        "get_nvidia_driver_version": (580, 65) if cuda else (0,),
        "get_nvidia_driver_version_str": "580.65.06" if cuda else None,
        "get_cuda_version": (13, 0) if cuda else (0, 0),
        "get_free_port": 30999,
        "is_port_available": True,
        "wait_port_available": True,
        "is_in_ci": False,
    }


def answering(name: str, value: Any) -> Callable[..., Any]:
    """A function that answers `value` to whatever it is asked."""

    def answer(*_: Any, **__: Any) -> Any:
        return value

    answer.__name__ = name
    answer.cache_clear = lambda: None  # type: ignore[attr-defined]
    return answer


def prepare() -> None:
    """What the shim of the CPU engine does before the first import of SGLang."""
    from speclaunch_shim.cuda_sync import install
    from speclaunch_shim.import_hook import PreparedImport, before_torchvision

    sys.meta_path.insert(0, PreparedImport("torchvision", before_torchvision))  # type: ignore[arg-type]
    install()
    import sgl_kernel

    for name in GPU_KERNELS:
        if not hasattr(sgl_kernel, name):
            setattr(sgl_kernel, name, answering(name, None))


def import_all() -> dict[str, str]:
    """Import what the validators import lazily; return what could not be imported, and why."""
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


def pretend(machine: dict[str, Any]) -> None:
    """Replace the machine's facts in the modules that validate."""
    import torch

    told = {name: value for name, value in facts(machine).items() if value is not None}
    told["get_device_memory_capacity"] = machine.get("memory_mib")
    for name, module in list(sys.modules.items()):
        if module is None or not name.startswith(VALIDATORS):
            continue
        for fact, value in told.items():
            if callable(vars(module).get(fact)):
                setattr(module, fact, answering(fact, value))
    cuda = machine["device"] == "cuda"
    capability = machine.get("capability") or 0
    torch.cuda.is_available = answering("is_available", cuda)
    torch.cuda.device_count = answering("device_count", machine["count"] if cuda else 0)
    torch.cuda.get_device_capability = answering(
        "get_device_capability", (capability // 10, capability % 10)
    )
    torch.cuda.get_device_name = answering("get_device_name", machine["name"])
    context = sys.modules.get("sglang.srt.runtime_context")
    if hasattr(context, "_PLATFORM"):
        probes = {**context._PLATFORM_PROBES, **context._PLATFORM_VALUES}
        context._PLATFORM._install(
            **{fact: told[probe] for fact, probe in probes.items() if probe in told}
        )


def resolved(server_args: Any) -> dict[str, Any]:
    """The recorded fields with the values that the engine ends up with."""
    try:
        values = server_args.resolved_dict()
    except AttributeError:
        values = dict(vars(server_args))
        try:
            from sglang.srt.arg_groups.overrides import resolved_view

            view = resolved_view(server_args)
            values = {name: getattr(view, name, value) for name, value in values.items()}
        except ImportError:
            pass
    values |= dict(flattened(values))
    return {
        name: value
        for name, value in sorted(values.items())
        if KEPT.fullmatch(name) or (name.startswith(("speculative_", "mamba_")))
        if value is None or isinstance(value, str | int | float | bool | list)
    }


def flattened(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The capture lists of releases that keep them in a record of their own."""
    config = values.get("cuda_graph_config")
    if not isinstance(config, dict):
        config = getattr(config, "__dict__", {})
    for phase, record in config.items():
        fields = record if isinstance(record, dict) else getattr(record, "__dict__", {})
        for name, value in fields.items():
            yield f"cuda_graph_{name}_{phase}", value


def draft_config(server_args: Any) -> None:
    """Make the draft's configuration as `ModelRunner` of the draft worker does."""
    from sglang.srt.configs.model_config import ModelConfig

    view: Any = server_args
    try:
        from sglang.srt.arg_groups.overrides import resolved_view

        view = resolved_view(server_args)
    except ImportError:
        pass
    algorithm, path = view.speculative_algorithm, view.speculative_draft_model_path
    if algorithm in (None, "NGRAM", "UNO") or not path:
        return
    target = ModelConfig.from_server_args(server_args)
    asked: dict[str, Any] = {
        "model_path": path,
        "model_revision": getattr(view, "speculative_draft_model_revision", None),
        "is_draft_model": True,
    }
    # The worker of a draft is given the context length of the target.
    if "context_length" in signature(ModelConfig.from_server_args).parameters:
        asked["context_length"] = target.context_len
    else:
        server_args.context_length = target.context_len
    ModelConfig.from_server_args(server_args, **asked)


def ask(case: dict[str, Any]) -> dict[str, Any]:
    """One verdict."""
    from sglang.srt import server_args as module

    os.environ.update(case["env"])
    said, stage, args = io.StringIO(), "parse", None
    verdict: dict[str, Any] = {"id": case["id"]}
    standard_error, sys.stderr = sys.stderr, said
    try:
        args = module.prepare_server_args(list(case["words"]))
        if hasattr(args, "resolve_once"):
            stage = "resolve"
            args.resolve_once()
        stage = "check"
        args.check_server_args()
        verdict["values"] = resolved(args)
        stage = "draft"
        draft_config(args)
        verdict["verdict"] = "accepted"
    except SystemExit as error:
        lines = said.getvalue().strip().splitlines() or [""]
        verdict |= {
            "verdict": "usage_error" if error.code == 2 else "refused",
            "stage": stage,
            "error": "SystemExit",
            "message": tidy(lines[-1]),
        }
    except BaseException as error:
        verdict |= refusal(error, stage)
    finally:
        sys.stderr = standard_error
    if verdict["verdict"] != "accepted" and verdict.get("stage") != "draft":
        verdict.pop("values", None)
    return verdict


def refusal(error: BaseException, stage: str) -> dict[str, Any]:
    """How an error reads in a verdict."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/sglang/" in frame.filename][-1:] or frames[-1:]
    place = ours[0].filename.rpartition("/sglang/")[2] if ours else ""
    return {
        "verdict": "artefact" if isinstance(error, ARTEFACTS) else "refused",
        "stage": stage,
        "error": type(error).__name__,
        "message": tidy(str(error)),
        "where": f"{place}:{ours[0].lineno}" if ours else "",
    }


def tidy(text: str) -> str:
    """The first line that says something, without this machine's paths."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    for path in (os.getcwd(), *(entry for entry in sys.path if len(entry) > 4)):  # noqa: PTH109
        line = line.replace(path, "")
    return PROGRAM.sub("error: ", line)[:300]


def answers(cases: list[dict[str, Any]]) -> Iterator[str]:
    """The verdicts in order, each from a child of its own."""
    for case in cases:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                text = json.dumps(ask(case), default=str)
            except BaseException as error:
                text = json.dumps({"id": case["id"], **refusal(error, "record")})
            with os.fdopen(write, "w") as pipe:
                pipe.write(text)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        yield text or json.dumps(
            {"id": case["id"], "verdict": "artefact", "stage": "fork", "error": f"exit {status}"}
        )


def main() -> None:
    """Read the document, print the verdicts."""
    document = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr
    logging.basicConfig(level=logging.ERROR)
    sys.modules["kernels"] = None  # type: ignore[assignment]  # optional, pinned differently
    prepare()
    machine = document["machine"]
    failed = import_all()
    sglang = importlib.import_module("sglang.version").__version__
    # One resolution with the truth told brings in what the sources' text does not show.
    warm = ask({"id": "warm", "env": {}, "words": [*document["warm"], "--device", "cpu"]})
    pretend(machine)
    print(json.dumps({"sglang": sglang, "failed": failed, "warm": warm}), file=out, flush=True)
    for line in answers(document["cases"]):
        print(line, file=out, flush=True)


if __name__ == "__main__":
    main()
