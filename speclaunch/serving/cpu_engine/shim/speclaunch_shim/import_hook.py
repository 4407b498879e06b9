# ruff: noqa: PLC0415 (nothing heavy is imported before the package that needs it is)
"""Run patches before and after the first import of the packages that need them.

Waiting for that import avoids loading torch in other Python processes that inherit PYTHONPATH
(compilers, helper tools). It also ensures the right order: triton exists before SGLang imports it,
and SGLang's facts are set as soon as its package is complete.
"""

import gc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence


class PreparedImport:
    """Meta-path finder for one package. It removes itself when the package is imported.

    A search alone (``importlib.util.find_spec``) does not run the patches.
    """

    def __init__(
        self,
        package: str,
        before: Callable[[types.ModuleType], None],
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.package = package
        self.before = before
        self.after = after

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the package's spec with the patches; None for other or missing packages."""
        if fullname != self.package:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None or spec.origin is None:
            return None  # not installed: the usual ModuleNotFoundError follows
        execute = spec.loader.exec_module

        def prepared(module: types.ModuleType) -> None:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            self.before(module)
            execute(module)
            self.after()

        spec.loader.exec_module = prepared  # type: ignore[method-assign]
        return spec


def before_torchvision(package: types.ModuleType) -> None:
    """Declare missing operators before ``torchvision`` is executed."""
    from speclaunch_shim import torchvision_ops

    torchvision_ops.declare(package)


def before_sglang(package: types.ModuleType) -> None:
    """Patch ``triton`` and ``torch.cuda`` before ``sglang`` is executed."""
    from speclaunch_shim import cuda_sync, triton_stub

    gc.disable()  # garbage collection takes a tenth of the import and finds nothing
    triton_stub.install(package)
    cuda_sync.install()


def after_sglang() -> None:
    """Apply the patches that require a complete ``import sglang``."""
    from speclaunch_shim import platform_facts

    platform_facts.install()
    gc.enable()


def after_overrides() -> None:
    """Patch the module that chooses attention backends."""
    from speclaunch_shim import platform_facts

    platform_facts.patch_overrides()


def after_backend() -> None:
    """Patch the module of the attention backend."""
    from speclaunch_shim import verify_lengths

    verify_lengths.install()


def nixl_hook(name: str) -> PreparedImport:
    """Return the hook for a module that defines NIXL's agent."""

    def after() -> None:
        from speclaunch_shim import nixl_memory

        nixl_memory.install(name)

    return PreparedImport(name, lambda _: None, after)


def install() -> None:
    """Install the hooks ahead of all other finders."""
    sys.meta_path[:0] = [
        PreparedImport("torchvision", before_torchvision),
        PreparedImport("sglang", before_sglang, after_sglang),
        PreparedImport("sglang.srt.arg_groups.overrides", lambda _: None, after_overrides),
        PreparedImport(
            "sglang.srt.layers.attention.intel_amx_backend", lambda _: None, after_backend
        ),
        *map(nixl_hook, ("nixl_cu12._api", "nixl_cu13._api")),
    ]
