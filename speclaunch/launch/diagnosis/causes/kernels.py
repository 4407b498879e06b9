"""Errors of kernels, drivers and compilers. No setting of memory helps against them."""

from __future__ import annotations

from speclaunch.launch.diagnosis.causes.oom import CAPTURE
from speclaunch.launch.diagnosis.interface import Cause
from speclaunch.launch.diagnosis.signature import Known, Level, printed, raised

_WRAPPED = rf"(?:{CAPTURE}: ?)?(?:CUDA error|HIP error|Triton Error \[CUDA\]): ?"

CAUSES: tuple[Known, ...] = (
    Known(
        Cause(
            name="illegal-memory-access",
            title="a kernel read or wrote where it must not",
            meaning="An error of a kernel, or a draft that does not fit its target. It says "
            "nothing about the amount of memory, whatever advice stands beneath it.",
            remedy="Try another {attention_backend} (and {speculative_draft_attention_backend}).\n"
            "Start once with {disable_cuda_graph} and CUDA_LAUNCH_BLOCKING=1: the traceback then "
            "names the kernel.\nUse a newer release.",
            memory=False,
            sources=("CUDA's wording",),
        ),
        (
            raised(_WRAPPED + r"an illegal memory access was encountered"),
            raised(_WRAPPED + r"(?:misaligned address|an illegal instruction|unspecified launch)"),
            raised(
                r"(?:CUDAGraphError|CUDA runtime error|CUDA kernel errors?)[^:]{0,80}: ?"
                r"an illegal memory access"
            ),
            printed(
                r" *what\(\): +CUDA error: an illegal memory access was encountered",
                level=Level.AFTERMATH,
            ),
        ),
    ),
    Known(
        Cause(
            name="device-assertion",
            title="a kernel met an index that does not exist",
            meaning="Mostly a token number beyond the vocabulary (a draft with another one), or a "
            "position beyond the draft's context.",
            remedy="Check that draft and target share tokenizer and vocabulary, and that the "
            "draft's context is not shorter: `speclaunch lint` compares both.",
            memory=False,
            sources=("CUDA's wording",),
        ),
        (
            raised(_WRAPPED + r"device-side assert triggered"),
            printed(r"\S{1,200}\.cu:\d{1,6}: .{0,300}Assertion `.{1,200}` failed"),
        ),
    ),
    Known(
        Cause(
            name="kernel-not-built-for-gpu",
            title="a kernel was not built for this GPU",
            meaning="A package of kernels has no code for the GPU's generation.",
            remedy="Install the builds for it (torch, sgl-kernel, flashinfer for the CUDA version "
            "that knows this GPU), or choose another {attention_backend}.",
            memory=False,
            sources=("CUDA's wording", "sgl_kernel"),
        ),
        (
            raised(_WRAPPED + r"no kernel image is available for execution on the device"),
            raised(r"\[sgl_kernel\] CRITICAL: Could not load any common_ops library"),
            raised(r"\S{0,200}common_ops\S{0,60}\.so: undefined symbol"),
        ),
    ),
    Known(
        Cause(
            name="kernel-out-of-resources",
            title="a kernel wants more shared memory than this GPU has",
            meaning="Tile sizes that were chosen for a larger GPU.",
            remedy="Choose another {attention_backend}, or a newer release that knows this GPU.",
            memory=False,
            sources=("triton's wording",),
        ),
        (raised(rf"(?:{CAPTURE}: ?)?out of resource: shared memory"),),
    ),
    Known(
        Cause(
            name="no-gpu",
            title="the engine sees no GPU",
            meaning="No driver, no GPU in the container, or CUDA_VISIBLE_DEVICES hides them.",
            remedy="In Docker: --gpus all. In Kubernetes: a request for nvidia.com/gpu.\n"
            "`speclaunch doctor` shows what is there. For a machine without one: `{device=cpu}`.",
            memory=False,
            sources=("torch", "utils/common.py get_device"),
        ),
        (
            raised(r"No CUDA GPUs are available"),
            raised(r"Found no NVIDIA driver on your system"),
            raised(r"Torch not compiled with CUDA enabled"),
            raised(r"No accelerator \("),
            raised(r"libcuda\.so\.1: cannot open shared object file"),
            raised(_WRAPPED + r"(?:invalid device ordinal|no CUDA-capable device is detected)"),
            raised(r"Invalid device (?:id|argument)"),
        ),
    ),
    Known(
        Cause(
            name="driver-too-old",
            title="the NVIDIA driver is too old for this torch",
            meaning="torch was built for a newer CUDA than the driver speaks.",
            remedy="Update the driver, or install the torch that is built for its CUDA version.",
            memory=False,
            sources=("torch", "CUDA's wording"),
        ),
        (
            raised(r"The NVIDIA driver on your system is too old"),
            raised(_WRAPPED + r"(?:CUDA driver version is insufficient|the provided PTX was comp)"),
            raised(r"Unexpected error from cudaGetDeviceCount\(\)"),
        ),
    ),
    Known(
        Cause(
            name="gpu-broken",
            title="the GPU itself reports an error",
            meaning="Uncorrectable memory errors or a GPU that fell off the bus.",
            remedy="Look at `nvidia-smi -q` and `dmesg` for Xid; drain the machine.",
            memory=False,
            sources=("CUDA's wording",),
        ),
        (
            raised(_WRAPPED + r"uncorrectable (?:ECC|NVLink) error"),
            raised(_WRAPPED + r"(?:GPU is lost|unknown error|hardware stack error)"),
        ),
    ),
    Known(
        Cause(
            name="compiler-missing",
            title="a compiler that the engine runs at its start is missing",
            meaning="NGRAM compiles its corpus, others compile kernels, on first use.",
            remedy="Install g++ and ninja, and the CUDA toolkit where nvcc is named (a `-devel` "
            "image has it).",
            memory=False,
            sources=("torch.utils.cpp_extension, triton, flashinfer",),
        ),
        (
            raised(r"Ninja is required to load C\+\+ extensions"),
            raised(r"Could not find nvcc"),
            raised(r"Failed to find C compiler"),
            raised(r"CUDA_HOME environment variable is not set"),
            raised(r"\[Errno 2\] No such file or directory: '\S{0,200}(?:nvcc|ninja|gcc|g\+\+)'"),
            raised(r"Error building extension '"),
            raised(r"Ninja build failed"),
        ),
    ),
    Known(
        Cause(
            name="kernel-shapes",
            title="a kernel was called with sizes that do not fit each other",
            meaning="The draft tree, the graphs and the backend disagree about sizes: an error of "
            "this release for this combination.",
            remedy="Use a chain: {speculative_eagle_topk} 1, draft tokens = steps + 1.\n"
            "Try another {attention_backend}.\nUse a newer release.",
            memory=False,
            sources=("torch's wording",),
        ),
        (
            raised(rf"(?:{CAPTURE}: ?)?Sizes of tensors must match except in dimension"),
            raised(r"Invalid mode: forward_mode="),
        ),
    ),
)
