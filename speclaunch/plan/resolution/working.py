"""The plan while it is being resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from packaging.version import Version

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import Facts
from speclaunch.facts.hardware import Vendor
from speclaunch.plan.architectures import Architectures, architectures
from speclaunch.plan.plan import Change, Plan, Reason, UnknownValueError
from speclaunch.plan.request import Request

EAGLE_HANDLER = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
"""The algorithms of `_handle_eagle_family` (0.5.13; before, the same branch of the resolver)."""
_FAMILY = 4
"""Letters of an architecture's name that stand in the names of its checkpoints: MiMo, Step."""
_AS_GIVEN = frozenset(
    {
        "disable_cuda_graph",
        "disable_radix_cache",
        "enable_mixed_chunk",
        "context_length",
        "dtype",
    }
)
"""Switches that only a few backends and models turn, and what the target's own config decides:
where the facts that decide it are missing they count as they were given."""
_NOT_CUDA = frozenset({"cpu", "hpu", "mps", "musa", "npu", "xpu"})
UNKNOWN_TARGET = "the target checkpoint is not known"
UNKNOWN_DRAFT = "the draft checkpoint is not known"
UNKNOWN_HARDWARE = "the hardware is not known"


@lru_cache(maxsize=512)
def _parsed(text: str) -> Version:
    return Version(text)


def counted(number: int, what: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Working:
    """A plan whose resolved values, undecided fields and changes are still being written.

    Asking for a value that nobody can tell raises UnknownValueError; `deciding` turns it into an
    undecided field.
    """

    def __init__(self, request: Request, facts: Facts) -> None:
        self.resolved: dict[str, Any] = {}
        self.undecided: dict[str, str] = {}
        self.changes: list[Change] = []
        self.reasons: dict[str, Reason] = {}
        self.plan = Plan(request, facts, self.resolved, self.undecided)  # a view: it sees them

    @classmethod
    def of(cls, plan: Plan) -> Working:
        """A plan that is finished, to ask the same questions of it."""
        working = cls(plan.request, plan.facts)
        working.resolved.update(plan.resolved)
        working.undecided.update(plan.undecided)
        return working

    def finished(self) -> Plan:
        """The plan as it stands, which nothing changes any more."""
        plan = self.plan
        return Plan(
            plan.request,
            plan.facts,
            dict(self.resolved),
            {name: why for name, why in self.undecided.items() if name not in _AS_GIVEN},
            tuple(self.changes),
            dict(self.reasons),
        )

    def since(self, version: str) -> bool:
        """Whether the engine is of this version or a later one."""
        return self.plan.version >= _parsed(version)

    def value(self, name: str) -> Any:
        """The value as resolved so far, else given, else the parser's default."""
        return self.plan.value(name)

    def given(self, name: str) -> Any:
        """The value that the user set, None when not set."""
        return self.plan.given(name)

    def is_given(self, name: str) -> bool:
        """Whether the user set the argument."""
        return self.plan.is_given(name)

    def number(self, name: str, default: int = 0) -> int:
        """A value that is a whole number; `default` where this version lacks the argument."""
        value = self.plan.value(name)
        return default if value is None else int(value)

    def set(self, name: str, value: Any, why: str, source: str) -> None:
        """The engine gives an argument a value, as anyone would expect.

        `why` is one plain sentence with the numbers that decide, `source` the file and line of a
        release that does it.
        """
        self.resolved[name] = value
        self.undecided.pop(name, None)
        self.reasons[name] = Reason(why, source)

    def change(
        self, code: str, name: str, value: Any, why: str, source: str, *, said: bool = True
    ) -> None:
        """The engine gives an argument a value in a way that users must know."""
        try:
            before = self.plan.value(name)
        except UnknownValueError:
            before = None
        self.set(name, value, why, source)
        self.changes.append(Change(code, name, before, value, why, source, said))

    @contextmanager
    def deciding(self, *names: str) -> Iterator[None]:
        """What happens inside decides `names`; where a fact is missing they are undecided."""
        before = {name: self.resolved.get(name, self) for name in names}
        try:
            yield
        except UnknownValueError as error:
            for name in names:
                if self.resolved.get(name, self) is before[name]:
                    self.undecided[name] = str(error)

    def backend(self, name: str) -> str | None:
        """An attention backend; None for the default of a CPU, which is intel_amx or torch_native
        and sets nothing else."""
        if name in self.undecided and self.device == "cpu":
            return None
        found: str | None = self.value(name)
        return found

    @property
    def algorithm(self) -> str | None:
        """The algorithm as resolved. Raises UnknownValueError."""
        return self.plan.algorithm

    @property
    def target(self) -> Checkpoint:
        """The target checkpoint. Raises UnknownValueError."""
        target = self.plan.facts.target
        if target is None:
            raise UnknownValueError(UNKNOWN_TARGET)
        return target

    @property
    def architecture(self) -> str:
        """The architecture of the target that the engine dispatches on."""
        found = self.target.architecture
        if found is None:
            raise UnknownValueError("the architecture of the target is not known")
        if found == "DeepseekV32ForCausalLM" and not self.since("0.5.12"):
            return "DeepseekV3ForCausalLM"  # 0.5.3 hf_transformers_utils.py:146 loads it so
        return found

    def may_be(self, architectures: Iterable[str]) -> bool:
        """Whether the target can be of one of these architectures, which are rare.

        A checkpoint of which nothing is known but the name (or path) can be, where the name has
        the family in it: `MiMoV2ForCausalLM` may be `XiaomiMiMo/MiMo-V2-Flash`. So that what
        holds for nearly every model is not left open for want of its config.
        """
        if self.plan.facts.target is not None:
            return True
        name = str(self.given("model_path") or "").lower()
        return any(one[:_FAMILY].lower() in name for one in architectures)

    @property
    def architectures(self) -> Architectures:
        """What this version does with architectures."""
        return architectures(self.plan.request.version)

    @property
    def device(self) -> str:
        """The engine's device. Raises UnknownValueError."""
        return self.plan.device

    @property
    def is_hip(self) -> bool:
        """Whether the accelerators are AMD's. Raises UnknownValueError."""
        hardware = self.plan.facts.hardware
        if hardware is None:
            if self.is_given("device") and not self.device.startswith("cuda"):
                return False
            raise UnknownValueError(UNKNOWN_HARDWARE)
        return hardware.vendor is Vendor.AMD

    @property
    def is_cuda(self) -> bool:
        """Whether it runs on NVIDIA GPUs. Raises UnknownValueError.

        The engine asks the machine and not the argument (`is_cuda`): a device that it does not
        know is no other one.
        """
        if self.device in _NOT_CUDA or self.is_hip:
            return False
        hardware = self.plan.facts.hardware
        return self.device == "cuda" or (hardware is not None and hardware.vendor is Vendor.NVIDIA)

    @property
    def capability(self) -> int:
        """The compute capability of NVIDIA GPUs, 0 on anything else. Raises UnknownValueError."""
        if not self.is_cuda:
            return 0
        hardware = self.plan.facts.hardware
        if hardware is None or hardware.capability is None:
            raise UnknownValueError("the compute capability of the GPU is not known")
        return hardware.capability

    @property
    def gpu_memory(self) -> int | None:
        """MiB of a GPU, as the engine asks for it; None on a CPU. Raises UnknownValueError."""
        if self.device == "cpu":
            return self._host_memory
        hardware = self.plan.facts.hardware
        if hardware is None or hardware.memory_mib is None:
            raise UnknownValueError("the memory of the GPU is not known")
        return hardware.memory_mib

    @property
    def _host_memory(self) -> int | None:
        """MiB of a rank on a CPU: the host's, or its control group's, for each NUMA node.

        Up to 0.5.2 the engine does not ask (utils.py:1406), nor where the cores are bound by hand;
        0.5.3 to 0.5.22 take the least node's whole memory, which is not probed.
        """
        if not self.since("0.5.3") or self.plan.env("SGLANG_CPU_OMP_THREADS_BIND"):
            return None
        hardware = self.plan.facts.hardware
        if hardware is None or hardware.vendor is not Vendor.CPU or not hardware.gpus:
            raise UnknownValueError("the memory of the host is not known")
        if not self.since("0.5.23"):
            raise UnknownValueError("the memory of a NUMA node is not known")
        return hardware.gpus[0].memory_bytes >> 20
