"""Causes in the machine: ports and ranks, kernels and drivers, externally killed processes."""

from __future__ import annotations

from speclaunch.serving.launch.diagnosis.causes.memory import AFTER_CAPTURE, out_of_memory
from speclaunch.serving.launch.diagnosis.interface import (
    FailureLevel,
    KnownCause,
    LogFailure,
    known,
    logged,
    lower,
    printed,
    raised,
)
from speclaunch.serving.launch.engine_log import DEAD_PROCESS, PORT_TAKEN, LogMark, Phase

NETWORK: tuple[KnownCause, ...] = (
    known(
        name="port-taken",
        title="the port is already in use",
        meaning="Another process listens on it. The engine notices only after everything is "
        "loaded, and does not exit: its processes keep the GPU.",
        remedy="Stop the other process, or choose another {port}.",
        sources=("uvicorn", "utils/network.py wait_port_available"),
        signatures=(
            logged(r"ERROR: +" + PORT_TAKEN),
            printed(r"ERROR: +" + PORT_TAKEN),
            raised(PORT_TAKEN),
            raised(r"Address already in use \(addr='"),
            raised(r"[\w ]{1,60} at (?P<port>\d{1,5}) is not available in \d{1,6} seconds\."),
        ),
    ),
    known(
        name="bootstrap-port-taken",
        title="the port of the engine's information service is already in use",
        meaning="Another engine on this machine uses it.",
        remedy="Choose another {engine_info_bootstrap_port}.",
        versions=">=0.5.10",
        sources=("entrypoints/engine.py",),
        signatures=(
            raised(r"engine_info_bootstrap_port \d{1,5} is already in use"),
            raised(r"--engine-info-bootstrap-port"),
        ),
    ),
    known(
        name="rendezvous-port-taken",
        title="the rendezvous port of the ranks is already in use",
        meaning="torch's store could not listen on it; another engine may use the same port.",
        remedy="Choose another {nccl_port}.\nOr another {dist_init_addr} across machines.",
        sources=("torch.distributed",),
        signatures=(
            raised(r"The server socket has failed to listen on any local network address"),
            raised(r".{0,120}EADDRINUSE"),
        ),
    ),
    known(
        name="rendezvous-failed",
        title="the ranks did not find each other",
        meaning="A machine or rank did not join in time, or is not reachable.",
        remedy="Check {dist_init_addr}, {nnodes} and {node_rank} on every machine, the "
        "firewall, and GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.",
        sources=("torch.distributed",),
        signatures=(
            raised(r"The client socket has (?:timed out|failed to connect)"),
            raised(r"Timed out after \d{1,9} seconds waiting for clients"),
            raised(r"wait timeout after \d{1,12}ms"),
            raised(r"Gloo connectFullMesh failed"),
        ),
    ),
    known(
        name="nccl-out-of-memory",
        title="no GPU memory was left for the communication between GPUs",
        meaning=(
            "NCCL allocates its buffers outside mem_fraction_static, where no memory was left."
        ),
        remedy="Lower {mem_fraction_static}.",
        directions=lower("mem_fraction_static"),
        sources=("NCCL's wording",),
        signatures=(raised(r"NCCL", out_of_memory),),
    ),
    known(
        name="nccl-failed",
        title="the communication between GPUs failed",
        meaning="NCCL failed. Possible causes: shared memory, the fabric, an incompatible driver, "
        "or a GPU that failed with another error.",
        remedy="Run again with NCCL_DEBUG=INFO to see what failed.\n"
        "In a container: --ipc=host or a larger --shm-size.\n"
        "As a test: NCCL_P2P_DISABLE=1, {disable_custom_all_reduce}.",
        sources=("distributed/device_communicators/pynccl_wrapper.py", "NCCL, torch"),
        signatures=(
            raised(r"NCCL error: ", level=FailureLevel.AFTERMATH),
            raised(r"NCCL error in: ", level=FailureLevel.AFTERMATH),
            raised(
                r"\[Rank \d{1,5}\] Watchdog caught collective operation timeout",
                level=FailureLevel.AFTERMATH,
            ),
            printed(
                r"\S{1,100}:\d{1,9}:\d{1,9} \[\d{1,3}\] [\w./]{1,120}:\d{1,6} NCCL WARN ",
                level=FailureLevel.AFTERMATH,
            ),
        ),
    ),
    known(
        name="rank-lost",
        title="a rank lost another rank",
        meaning="The connection to another rank broke: the other rank failed first, and its "
        "log has the cause.",
        remedy="Check the logs of the other ranks and machines.",
        sources=("torch.distributed, gloo",),
        signatures=(
            raised(r"\[[\w./]{0,120}gloo[\w./]{0,120}:\d{1,6}\]", level=FailureLevel.AFTERMATH),
            raised(r"Connection closed by peer", level=FailureLevel.AFTERMATH),
            raised(r"Connection reset by peer", level=FailureLevel.AFTERMATH),
            raised(
                r"TP rank \d{1,5} could finish the model loading, but there are other ranks",
                level=FailureLevel.AFTERMATH,
            ),
        ),
    ),
)


_WRAPPED = AFTER_CAPTURE + r"(?:CUDA error|HIP error|Triton Error \[CUDA\]): ?"

KERNELS: tuple[KnownCause, ...] = (
    known(
        name="illegal-memory-access",
        title="a kernel accessed invalid memory",
        meaning="A kernel has a bug, or the draft does not match its target. The amount of "
        "memory is not the cause, despite any advice printed below the error.",
        remedy="Try another {attention_backend} (and {speculative_draft_attention_backend}).\n"
        "Start once with {disable_cuda_graph} and CUDA_LAUNCH_BLOCKING=1: the traceback then "
        "names the kernel.\nUse a newer release.",
        sources=("CUDA's wording",),
        signatures=(
            raised(_WRAPPED + r"an illegal memory access was encountered"),
            raised(_WRAPPED + r"(?:misaligned address|an illegal instruction|unspecified launch)"),
            raised(
                r"(?:CUDAGraphError|CUDA runtime error|CUDA kernel errors?)[^:]{0,80}: ?"
                r"an illegal memory access"
            ),
            printed(
                r" *what\(\): +CUDA error: an illegal memory access was encountered",
                level=FailureLevel.AFTERMATH,
            ),
        ),
    ),
    known(
        name="device-assertion",
        title="a kernel used an index out of range",
        meaning="Usually a token id is beyond the vocabulary (if the draft has its own), or a "
        "position is beyond the draft's context.",
        remedy="Check that draft and target share tokenizer and vocabulary, and that the "
        "draft's context is not shorter: `speclaunch lint` compares both.",
        sources=("CUDA's wording",),
        signatures=(
            raised(_WRAPPED + r"device-side assert triggered"),
            printed(r"\S{1,200}\.cu:\d{1,6}: .{0,300}Assertion `.{1,200}` failed"),
        ),
    ),
    known(
        name="kernel-not-built-for-gpu",
        title="a kernel was not built for this GPU",
        meaning="A kernel package has no code for this generation of GPUs.",
        remedy="Install builds that support it (torch, sgl-kernel, flashinfer for a CUDA "
        "version that supports this GPU), or choose another {attention_backend}.",
        sources=("CUDA's wording", "sgl_kernel"),
        signatures=(
            raised(_WRAPPED + r"no kernel image is available for execution on the device"),
            raised(r"\[sgl_kernel\] CRITICAL: Could not load any common_ops library"),
            raised(r"\S{0,200}common_ops\S{0,60}\.so: undefined symbol"),
        ),
    ),
    known(
        name="kernel-out-of-resources",
        title="a kernel needs more shared memory than this GPU has",
        meaning="Its tile sizes were chosen for a larger GPU.",
        remedy="Choose another {attention_backend}, or a newer release that supports this GPU.",
        sources=("triton's wording",),
        signatures=(raised(AFTER_CAPTURE + r"out of resource: shared memory"),),
    ),
    known(
        name="no-gpu",
        title="the engine found no GPU",
        meaning="The machine or container lacks a driver or a GPU, or CUDA_VISIBLE_DEVICES hides "
        "all GPUs.",
        remedy="In Docker, pass `--gpus all`. In Kubernetes, request nvidia.com/gpu.\n"
        "`speclaunch doctor` shows the GPUs. On a machine without a GPU, set `{device=cpu}`.",
        sources=("torch", "utils/common.py get_device"),
        signatures=(
            raised(r"No CUDA GPUs are available"),
            raised(r"Found no NVIDIA driver on your system"),
            raised(r"Torch not compiled with CUDA enabled"),
            raised(r"No accelerator \("),
            raised(r"libcuda\.so\.1: cannot open shared object file"),
            raised(_WRAPPED + r"(?:invalid device ordinal|no CUDA-capable device is detected)"),
            raised(r"Invalid device (?:id|argument)"),
        ),
    ),
    known(
        name="driver-too-old",
        title="the NVIDIA driver is too old for this torch",
        meaning="torch was built for a newer CUDA than the driver supports.",
        remedy="Update the driver, or install a torch that is built for its CUDA version.",
        sources=("torch", "CUDA's wording"),
        signatures=(
            raised(r"The NVIDIA driver on your system is too old"),
            raised(_WRAPPED + r"(?:CUDA driver version is insufficient|the provided PTX was comp)"),
            raised(r"Unexpected error from cudaGetDeviceCount\(\)"),
        ),
    ),
    known(
        name="gpu-broken",
        title="the GPU reports a hardware error",
        meaning="The GPU has uncorrectable memory errors, or fell off the bus.",
        remedy="Check `nvidia-smi -q` and `dmesg` for Xid errors; drain the machine.",
        sources=("CUDA's wording",),
        signatures=(
            raised(_WRAPPED + r"uncorrectable (?:ECC|NVLink) error"),
            raised(_WRAPPED + r"(?:GPU is lost|unknown error|hardware stack error)"),
        ),
    ),
    known(
        name="compiler-missing",
        title="a compiler that the engine needs at the start is missing",
        meaning="On first use, NGRAM compiles C++ code, and other features compile kernels.",
        remedy="Install g++ and ninja, and the CUDA toolkit if nvcc is named (a `-devel` image "
        "has it).",
        sources=("torch.utils.cpp_extension, triton, flashinfer",),
        signatures=(
            raised(r"Ninja is required to load C\+\+ extensions"),
            raised(r"Could not find nvcc"),
            raised(r"Failed to find C compiler"),
            raised(r"CUDA_HOME environment variable is not set"),
            raised(r"\[Errno 2\] No such file or directory: '\S{0,200}(?:nvcc|ninja|gcc|g\+\+)'"),
            raised(r"Error building extension '"),
            raised(r"Ninja build failed"),
        ),
    ),
    known(
        name="kernel-shapes",
        title="a kernel was called with mismatched sizes",
        meaning="The draft tree, the graphs and the backend disagree about sizes: a bug in "
        "this release with this combination.",
        remedy="Use a chain: {speculative_eagle_topk} 1, draft tokens = steps + 1.\n"
        "Try another {attention_backend}.\nUse a newer release.",
        sources=("torch's wording",),
        signatures=(
            raised(AFTER_CAPTURE + r"Sizes of tensors must match except in dimension"),
            raised(r"Invalid mode: forward_mode="),
        ),
    ),
)


_DIED = r"Rank (?P<died_rank>\d{1,5}) scheduler died during initialization \(exit code: "
_KILLED = r"(?P<exit_code>-9)\b"


def _sizing_on_cpu(failure: LogFailure) -> bool:
    """True if a CPU engine failed while it filled its pool or built its graphs."""
    return failure.cpu and failure.last in (LogMark.LOAD_END, LogMark.POOL, LogMark.POOL_END)


PROCESSES: tuple[KnownCause, ...] = (
    known(
        name="killed-filling-pool",
        title="the machine ran out of memory while the KV pool was filled",
        meaning="On a CPU the pool is in the machine's memory. The system killed the process "
        "when no memory was left.",
        remedy="Lower {mem_fraction_static}.\nOr set {max_total_tokens} lower.\nOr serve fewer "
        "concurrent requests: {max_running_requests}.",
        directions=lower("mem_fraction_static", "max_total_tokens", "max_running_requests"),
        sources=("entrypoints/engine.py _scheduler_died_error: exit code -9, device=cpu",),
        signatures=(
            raised(_DIED + _KILLED, _sizing_on_cpu, level=FailureLevel.AFTERMATH),
            logged(DEAD_PROCESS + _KILLED, _sizing_on_cpu, level=FailureLevel.AFTERMATH),
        ),
    ),
    known(
        name="killed-while-starting",
        title="a process of the engine was killed while it started",
        meaning="Usually the operating system kills it when main memory (not GPU memory) runs "
        "out. Weights pass through main memory while they load.",
        remedy="Check `dmesg -T | grep -i -e oom -e 'killed process'` and the container's "
        "memory limit.\nGive the container more memory, or load less at once: fewer "
        "ranks per machine.",
        sources=("entrypoints/engine.py _scheduler_died_error", "utils/watchdog.py"),
        signatures=(
            raised(_DIED + _KILLED, level=FailureLevel.AFTERMATH),
            logged(
                DEAD_PROCESS + _KILLED,
                lambda failure: not failure.served and failure.phase is not Phase.READY,
                level=FailureLevel.AFTERMATH,
            ),
            printed(r".{0,120}: error: Detected \d{1,6} oom[-_]kill event"),
        ),
    ),
    known(
        name="process-killed",
        title="a process of the engine was killed while it served",
        meaning="The operating system killed it when main memory (not GPU memory) ran out, or "
        "a user did. The engine then stops itself.",
        remedy="Check `dmesg -T | grep -i -e oom -e 'killed process'`. If the system did it, "
        "add memory or raise the container's limit.\nStart the engine again.",
        sources=("utils/watchdog.py SubprocessWatchdog",),
        signatures=(logged(DEAD_PROCESS + _KILLED, level=FailureLevel.AFTERMATH),),
    ),
    known(
        name="process-crashed",
        title="a process of the engine crashed without a message",
        meaning="Only a signal or an exit code remains: -11 is a segmentation fault in native "
        "code, -6 an abort (often after an error of CUDA or NCCL), -7 a full /dev/shm.",
        remedy="Check the lines right before it, and `dmesg`.\nExit code -7 in a container: "
        "--ipc=host or a larger --shm-size.\nUse a newer release, or another "
        "{attention_backend}.",
        sources=("utils/watchdog.py", "entrypoints/engine.py"),
        signatures=(
            raised(_DIED + r"(?P<exit_code>-?\d{1,5}|None)\)", level=FailureLevel.AFTERMATH),
            logged(
                DEAD_PROCESS + r"(?!-15\b)(?P<exit_code>-?\d{1,5})\b", level=FailureLevel.AFTERMATH
            ),
            printed(r"Fatal Python error: ", level=FailureLevel.CAUSE),
            printed(r"!!!!!!! Segfault encountered !!!!!!!", level=FailureLevel.CAUSE),
            printed(
                r"(?:\S{1,200}: line \d{1,6}: +\d{1,9} )?(?:Segmentation fault|Bus error|"
                r"Aborted|Illegal instruction)(?: +\(core dumped\))?(?: .{0,300})?$",
                level=FailureLevel.AFTERMATH,
            ),
            printed(
                r"terminate called after throwing an instance of ", level=FailureLevel.AFTERMATH
            ),
            printed(r"free\(\): invalid |malloc\(\): |double free or corruption"),
        ),
    ),
    known(
        name="shared-memory-too-small",
        title="the shared memory of the container is too small",
        meaning="The ranks exchange data through /dev/shm, which Docker limits to 64 MB.",
        remedy="Start the container with --ipc=host, or --shm-size 16g; in Kubernetes mount "
        "an emptyDir with `medium: Memory` at /dev/shm.",
        sources=("torch, NCCL",),
        signatures=(
            raised(r"unable to (?:write to file|mmap \d{1,20} bytes from file|open shared memory)"),
            raised(r".{0,120}Error while creating shared memory segment /dev/shm"),
            raised(r"DataLoader worker .{0,60}insufficient shared memory"),
        ),
    ),
    known(
        name="machine-out-of-memory",
        title="the machine is out of memory",
        meaning="An allocation in main memory failed.",
        remedy="Give the machine or the container more memory; lower {cpu_offload_gb} and "
        "{hicache_ratio} if they are set.",
        sources=("Python, the C++ runtime, the operating system",),
        signatures=(
            raised(r".{0,60}\[Errno 12\] Cannot allocate memory"),
            raised(r"std::bad_alloc"),
            raised(r"can't start new thread"),
        ),
    ),
    known(
        name="warm-up-failed",
        title="the engine's first request failed",
        meaning="Everything was loaded, but the engine's own test request failed. The cause is "
        "the error before this one, if the log has it.",
        remedy="Check the lines before it. A proxy in the environment must exclude the "
        "engine's own address: NO_PROXY=127.0.0.1,localhost.",
        sources=("entrypoints/http_server.py _execute_server_warmup",),
        signatures=(
            logged(r"Initialization failed\. warmup error: ", level=FailureLevel.AFTERMATH),
        ),
    ),
)
