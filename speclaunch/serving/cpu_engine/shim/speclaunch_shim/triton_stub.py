# ruff: noqa: PLC0415 (nothing heavy is imported before sglang is)
"""Replace the missing ``triton`` with the stubs that SGLang ships for macOS.

SGLang's kernels are decorated with ``@triton.jit`` at import time on every platform, though none of
them runs on a CPU. ``sglang/_platform_stubs.py`` mocks the package for Apple machines. Here it runs
as if on such a machine, without its changes to ``Tensor.to`` and ``Tensor.copy_``, which concern
only Metal. Up to 0.5.17 the module is ``sglang/_triton_stub.py``, which mocks triton alone.
"""

import importlib.util
import platform
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock


def install(package: types.ModuleType) -> None:
    """Install the stubs found in ``package`` (``sglang``) unless the real triton is available."""
    if importlib.util.find_spec("triton") is not None:
        return
    folder = Path(package.__path__[0])
    places = [folder / "_platform_stubs.py", folder / "_triton_stub.py"]
    source = next(filter(Path.is_file, places), None)
    if source is None:
        raise ImportError(f"{folder} has no stand-in for triton (_platform_stubs.py)")
    spec = importlib.util.spec_from_file_location("_speclaunch_platform_stubs", source)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} cannot be loaded")
    stubs = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = stubs  # its dataclasses look their module up by name
    spec.loader.exec_module(stubs)
    if source.name == "_triton_stub.py":
        stubs.install()
        return
    stubs._patch_non_blocking = lambda: None
    with _posing_as_apple():
        stubs.install_platform_stubs()


@contextmanager
def _posing_as_apple() -> Iterator[None]:
    import torch

    with (
        mock.patch.object(sys, "platform", "darwin"),
        mock.patch.object(platform, "machine", lambda: "arm64"),
        mock.patch.object(torch.backends.mps, "is_available", lambda: True),
    ):
        yield
