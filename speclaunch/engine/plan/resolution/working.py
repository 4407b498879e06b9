"""A plan that is being resolved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from speclaunch.engine.facts.facts import UNKNOWN_HARDWARE, Checkpoint, Facts
from speclaunch.engine.facts.hardware import Vendor
from speclaunch.engine.plan.architectures import Architectures, architectures
from speclaunch.engine.plan.plan import Change, ChangeKind, Plan, Reason, UnknownValueError
from speclaunch.engine.plan.request import Request
from speclaunch.engine.plan.topics.target import architecture_of, may_be, target_of

_DEFAULT_TO_USER = frozenset(
    {
        "disable_cuda_graph",
        "disable_radix_cache",
        "enable_mixed_chunk",
        "context_length",
        "dtype",
    }
)
"""Switches that only a few backends and models change, and settings from the target's config. If a
fact that decides one of them is missing, the user's value is used."""
_NOT_CUDA = frozenset({"cpu", "hpu", "mps", "musa", "npu", "xpu"})
_NOTHING = object()


def counted(number: int, what: str) -> str:
    """Return a count with its noun (`what`): `1 rank`, `2 ranks`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# a class, because a resolution enters about eighty contexts, and generators would cost more than
# their bodies
class _Deciding:
    __slots__ = ("_before", "_names", "_working")

    def __init__(self, working: Working, names: tuple[str, ...]) -> None:
        self._working, self._names = working, names

    def __enter__(self) -> None:
        resolved = self._working.resolved
        self._before = [resolved.get(name, _NOTHING) for name in self._names]

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, UnknownValueError):
            return False
        working = self._working
        for name, before in zip(self._names, self._before, strict=True):
            if working.resolved.get(name, _NOTHING) is before:
                working.undecided[name] = str(error)
        return True


class Working:
    """A mutable plan, to which resolution adds resolved values, undecided fields and changes.

    Reading an unknown value raises UnknownValueError; `deciding` turns it into undecided fields.
    """

    def __init__(self, request: Request, facts: Facts) -> None:
        self.resolved: dict[str, Any] = {}
        self.undecided: dict[str, str] = {}
        self.changes: list[Change] = []
        self.reasons: dict[str, Reason] = {}
        self.plan = Plan(request, facts, self.resolved, self.undecided)  # a view of these mappings

    @classmethod
    def of(cls, plan: Plan) -> Working:
        working = cls(plan.request, plan.facts)
        working.resolved.update(plan.resolved)
        working.undecided.update(plan.undecided)
        return working

    def finished(self) -> Plan:
        plan = self.plan
        return Plan(
            plan.request,
            plan.facts,
            dict(self.resolved),
            {name: why for name, why in self.undecided.items() if name not in _DEFAULT_TO_USER},
            tuple(self.changes),
            dict(self.reasons),
        )

    @property
    def facts(self) -> Facts:
        return self.plan.facts

    def in_versions(self, specifier: str) -> bool:
        return self.plan.in_versions(specifier)

    def env(self, name: str) -> str | None:
        return self.plan.env(name)

    def env_flag(self, name: str, default: bool = False) -> bool:
        return self.plan.env_flag(name, default)

    def value(self, name: str) -> Any:
        return self.plan.value(name)

    def user_value(self, name: str) -> Any:
        return self.plan.user_value(name)

    def is_set(self, name: str) -> bool:
        return self.plan.is_set(name)

    def number(self, name: str, default: int = 0) -> int:
        """Return an argument's integer value; `default` if it is None or missing in this
        version."""
        value = self.plan.value(name)
        return default if value is None else int(value)

    def set(self, name: str, value: Any, why: str, source: str) -> None:
        """Record a value that the engine sets, with the reason.

        `why` is one plain sentence with the deciding numbers. `source` is the file and line of a
        release that sets the value.
        """
        self.plan.must_exist(name)
        self.resolved[name] = value
        self.undecided.pop(name, None)
        self.reasons[name] = Reason(why, source)

    def change(
        self, kind: ChangeKind, name: str, value: Any, why: str, source: str, *, logged: bool = True
    ) -> None:
        """Record a value that the engine sets unexpectedly. Reports show it to the user."""
        try:
            before = self.plan.value(name)
        except UnknownValueError:
            before = None
        self.set(name, value, why, source)
        self.changes.append(Change(kind, name, before, value, why, source, logged))

    def deciding(self, *names: str) -> _Deciding:
        """Return a context manager that marks `names` as undecided if a fact is missing."""
        return _Deciding(self, names)

    def backend(self, name: str) -> str | None:
        """Return the attention backend that `name` sets; None if not set, or a CPU's default.

        That default is intel_amx or torch_native, and affects no other setting.
        """
        if name in self.undecided and self.device == "cpu":
            return None
        found: str | None = self.value(name)
        return found

    @property
    def algorithm(self) -> str | None:
        return self.plan.algorithm

    @property
    def target(self) -> Checkpoint:
        return target_of(self)

    @property
    def architecture(self) -> str:
        return architecture_of(self)

    def may_be(self, architectures: Iterable[str]) -> bool:
        return may_be(self, architectures)

    @property
    def architectures(self) -> Architectures:
        return architectures(self.plan.request.version)

    @property
    def device(self) -> str:
        return self.plan.device

    @property
    def is_hip(self) -> bool:
        """True if the accelerators are AMD GPUs. Raises UnknownValueError."""
        hardware = self.plan.facts.hardware
        if hardware is None:
            if self.is_set("device") and not self.device.startswith("cuda"):
                return False
            raise UnknownValueError(UNKNOWN_HARDWARE)
        return hardware.vendor is Vendor.AMD

    @property
    def is_cuda(self) -> bool:
        """True if the engine runs on NVIDIA GPUs. Raises UnknownValueError.

        The engine checks the machine, not the argument (`is_cuda`), so an unknown device name does
        not change the result.
        """
        if self.device in _NOT_CUDA or self.is_hip:
            return False
        hardware = self.plan.facts.hardware
        return self.device == "cuda" or (hardware is not None and hardware.vendor is Vendor.NVIDIA)

    @property
    def capability(self) -> int:
        """Compute capability of NVIDIA GPUs times ten (90 for 9.0); 0 on other devices.

        Raises UnknownValueError.
        """
        if not self.is_cuda:
            return 0
        hardware = self.plan.facts.hardware
        if hardware is None or hardware.capability is None:
            raise UnknownValueError("the compute capability of the GPU is unknown")
        return hardware.capability

    @property
    def gpu_memory(self) -> int | None:
        """MiB per GPU or CPU rank; None if the engine does not query it. Raises
        UnknownValueError."""
        if self.device == "cpu":
            return self._host_memory
        hardware = self.plan.facts.hardware
        if hardware is None or hardware.memory_mib is None:
            raise UnknownValueError("the memory of the GPU is unknown")
        return hardware.memory_mib

    @property
    def _host_memory(self) -> int | None:
        """MiB per rank on a CPU: host (or control group) memory divided by the number of NUMA
        nodes.

        None if the user binds cores, or up to 0.5.2 (utils.py:1406). Raises UnknownValueError for
        0.5.3 to 0.5.22, which use the smallest node's total memory.
        """
        if self.in_versions("<0.5.3") or self.plan.env("SGLANG_CPU_OMP_THREADS_BIND"):
            return None
        hardware = self.plan.facts.hardware
        if hardware is None or hardware.vendor is not Vendor.CPU or not hardware.gpus:
            raise UnknownValueError("the memory of the host is unknown")
        if self.in_versions("<0.5.23"):
            raise UnknownValueError("the memory of a NUMA node is unknown")
        return hardware.gpus[0].memory_bytes >> 20
