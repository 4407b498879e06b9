"""Judge without torch: stand-ins for packages that a release imports for validation."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
import types

from . import stubs, torch_parts

PACKAGES = {
    "torch": f"torch {torch_parts.VERSION}",
    "torchvision": "torchvision 0.28.0",
    "functorch": "",
    "torchgen": "",
    "triton": "",
    "sgl_kernel": "",
    "numpy": "numpy 2.4.6",
    "tokenizers": "tokenizers 0.23.2",
    "safetensors": "safetensors 0.8.0",
    "sentencepiece": "sentencepiece 0.2.1",
    "compressed_tensors": "compressed-tensors 0.18.0",
    "gguf": "gguf 0.19.0",
    "xgrammar": "xgrammar 0.2.7",
    "einops": "einops 0.8.2",
    "tvm_ffi": "apache-tvm-ffi 0.1.11",
    "pynvml": "nvidia-ml-py 13.615.71",
    "ninja": "ninja 1.13.2",
    "sympy": "sympy 1.14.0",
    "mpmath": "mpmath 1.3.0",
    "networkx": "networkx 3.6.1",
    "PIL": "pillow 13.0.0",
    "soundfile": "soundfile 0.13.1",
    "jinja2": "jinja2 3.1.6",
    "markupsafe": "markupsafe 3.0.4",
    "jsonschema": "jsonschema 4.26.0",
    "partial_json_parser": "partial-json-parser 0.2.1.1.post7",
    "pybase64": "pybase64 1.5.1",
    "openai": "openai 2.8.0",
    "distro": "distro 1.9.0",
    "fastapi": "fastapi 0.165.0",
    "starlette": "starlette 1.10.0",
    "uvicorn": "uvicorn 0.54.0",
    "uvloop": "uvloop 0.23.0",
    "multipart": "python-multipart 0.0.34",
    "python_multipart": "",
    "aiohttp": "aiohttp 3.14.5",
    "yarl": "yarl 1.25.1",
    "multidict": "multidict 7.2.1",
    "anyio": "anyio 4.16.0",
    "zmq": "pyzmq 27.3.0",
    "click": "click 8.5.1",
    "rich": "rich 15.0.0",
    "pygments": "pygments 2.21.0",
    "IPython": "ipython 9.18.1",
    "traitlets": "traitlets 5.16.1",
    "loguru": "loguru 0.7.3",
    "opentelemetry": "opentelemetry-api 1.45.2",
    "prometheus_client": "prometheus_client 0.26.0",
    "setproctitle": "setproctitle 1.3.8",
}
"""Modules of the CPU engine's packages that no verdict depends on, with the distribution and
version that `importlib.metadata` reports in that engine (cpu/requirements.txt). All other packages
that a release may look for are absent, as in the CPU engine."""


def fill(module: types.ModuleType) -> None:
    """Set the attributes that need real values in a stand-in for a package other than torch."""
    if module.__name__ == "uvloop":  # asyncio rejects a stand-in
        module.EventLoopPolicy = asyncio.DefaultEventLoopPolicy  # type: ignore[attr-defined]


def is_needed() -> bool:
    """True if the worker needs stand-ins, because its interpreter has no torch."""
    return importlib.util.find_spec("torch") is None


def install() -> None:
    """Install the stand-ins; call before any import of the release."""
    finder = stubs.FINDER
    stubs.install(list(PACKAGES))
    for module, distribution in PACKAGES.items():
        name, _, version = distribution.partition(" ")
        if name and module in finder.packages:
            finder.versions[module] = (name, version)
    finder.parts |= set(torch_parts.PARTS)
    finder.absent = {**finder.absent, **torch_parts.ABSENT}
    finder.fill += [torch_parts.fill, fill]
    if importlib.util.find_spec("regex") is None:  # `re` handles its patterns at import
        sys.modules["regex"] = re
        finder.versions["regex"] = ("regex", "2026.11.15")
    # The versions of tokenizers and numpy that transformers requires do not affect validation.
    checked = types.ModuleType("transformers.dependency_versions_check")
    checked.dep_version_check = lambda *_, **__: None  # type: ignore[attr-defined]
    sys.modules[checked.__name__] = checked
