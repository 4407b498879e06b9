"""Arguments that released engines refuse, extracted from their validation (`tools/refusals.py`).

The rows are in `data/refusals.json`, with one JSON element per line, so that only the lines a plan
needs are parsed:

- `versions`: the releases, in ascending order.
- `sizes`: the numbers of nodes and rows.
- `index`: by release and argument, the rows that apply only if the argument is set (`*`: rows whose
  arguments are unknown).
- `nodes`: the expressions.
- `rows`: each `[condition, message, exception, file, function, [[version, line], …], names]`.

Conditions are evaluated for a plan in three-valued logic, without `eval`. A node is `[operator,
operand, …]`. Operands are indices of earlier nodes, except in leaves: see
`docs/explanation/refusals.md`. An unknown value makes a condition unknown unless the other operands
decide it. An unknown condition gives no finding.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from speclaunch.core import mapping
from speclaunch.engine.facts.facts import UnknownValueError
from speclaunch.engine.facts.hardware import Hardware, Vendor
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.settings import NoSuchArgumentError
from speclaunch.engine.plan.topics.target import architecture_of, method_of, target_of
from speclaunch.engine.releases.catalogue import FALSE_TEXTS, TRUE_TEXTS
from speclaunch.engine.releases.versions import UnknownVersion, is_of_its_line, resolve


def _in(item: Any, held: Any) -> bool:
    return bool(item in held)


OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "in": _in,
        "meets": lambda values, other: any(item in other for item in values),
        "is": operator.is_,
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "//": operator.floordiv,
        "/": operator.truediv,
        "%": operator.mod,
        "[]": operator.getitem,
        "min": min,
        "max": max,
    }
)

TEXTS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "neg": operator.neg,
        "none": lambda value: value is None,
        "len": len,
        "int": int,
        "float": float,
        "str": str,
        "bool": bool,
        "abs": abs,
        "lower": str.lower,
        "upper": str.upper,
        "strip": str.strip,
        "startswith": lambda text, start: text.startswith(_tuple(start)),
        "endswith": lambda text, end: text.endswith(_tuple(end)),
        "split": lambda text, *how: text.split(*how),
        "partition": lambda text, mark: list(text.partition(mark)),
        "replace": lambda text, old, new: text.replace(old, new),
        "get": lambda held, *how: held.get(*how),
        "isdict": lambda value: isinstance(value, dict),
        "isstr": lambda value: isinstance(value, str),
        "isint": lambda value: isinstance(value, int),
        "isbool": lambda value: isinstance(value, bool),
        "islist": lambda value: isinstance(value, list | tuple),
        "set": lambda value: list(dict.fromkeys(value)),
    }
)
"""Functions of one value, and methods with their arguments, by operator name."""


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


_OTHER_MACHINES: Final = ("is_npu", "is_xpu", "is_hpu", "is_musa", "is_mps")
_NUMBERS: Final[Mapping[str, Callable[[int], int]]] = MappingProxyType(
    {
        "device_sm": lambda capability: capability,
        "device_major": lambda capability: capability // 10,
        "device_minor": lambda capability: capability % 10,
    }
)
_MAJORS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "is_sm90": (9,),
        "is_sm100": (10,),
        "is_sm110": (11,),
        "is_sm120": (12,),
        "is_sm100_or_sm110": (10, 11),
        "is_blackwell": (10, 11, 12),
    }
)


class UnknownLeaf:
    """The type of the constant UNKNOWN."""

    __slots__ = ()


UNKNOWN: Final = UnknownLeaf()

_ABSENT_IS_NONE = frozenset({"quantization_config", "index_topk"})
"""Config keys that are None if absent, because no config class has a default for them
(tools/refusal_reading/facts.py)."""


def leaf(plan: Plan, node: Sequence[Any]) -> Any:
    """Return the value of a leaf, or UNKNOWN."""
    try:
        return _LEAVES[node[0]](plan, *node[1:])
    except (UnknownValueError, NoSuchArgumentError):
        return UNKNOWN


def _argument(plan: Plan, name: str) -> Any:
    value = plan.user_value(name) if plan.is_set(name) else plan.default(name)
    return list(value) if isinstance(value, tuple) else value


def _variable(plan: Plan, name: str, kind: str, default: Any) -> Any:
    """Return variable `name` as the engine's environ.py reads it; `default` if unset or invalid."""
    text = plan.env(name)
    if text is None or kind == "raw":
        return text if kind == "raw" else default
    if kind == "bool":
        lowered = text.lower()
        return True if lowered in TRUE_TEXTS else False if lowered in FALSE_TEXTS else default
    try:
        return {"int": int, "float": float, "str": str}[kind](text)
    except ValueError:
        return default


def _architectures(plan: Plan, draft: str = "") -> Any:
    """Return the architectures of the target (of the draft if `draft` is set), or UNKNOWN.

    An unknown draft without "gemma" in its path gives an empty list: the engine tests only for
    Gemma.
    """
    if draft:
        if plan.facts.draft is not None:
            return list(plan.facts.draft.architectures) or UNKNOWN
        named = str(plan.user_value("speculative_draft_model_path") or "").lower()
        return UNKNOWN if "gemma" in named else []
    first = architecture_of(plan)
    target = plan.facts.target
    return [first, *target.architectures[1:]] if target is not None else UNKNOWN


def _config_key(plan: Plan, name: str, part: str = "") -> Any:
    target = plan.facts.target
    if target is None:
        return UNKNOWN
    held: Any = target.raw.get("text_config", target.raw) if part else target.raw
    if isinstance(held, Mapping) and name in held:
        found = held[name]
        return _with_method(plan, found) if name == "quantization_config" else found
    return None if name in _ABSENT_IS_NONE and target.raw else UNKNOWN


def _with_method(plan: Plan, entry: Any) -> Any:
    """Return `entry` with the quantization method that `ModelConfig` adds for ModelOpt."""
    since = ">=0.5.9" if "quant_method" not in mapping(entry) else ">=0.5.10"
    if mapping(entry).get("quant_method") not in (None, "modelopt") or not plan.in_versions(since):
        return entry
    return {**mapping(entry), "quant_method": method_of(plan).made}


def _worked_out(plan: Plan, name: str) -> Any:
    """Return a value that `ModelConfig` derives, or UNKNOWN."""
    if name == "nvfp4_moe_meta":  # 0.5.23 configs/model_config.py:775
        held = mapping(target_of(plan).raw.get("quantization_config"))
        return UNKNOWN if "moe_quant_algo" in held else None
    found = method_of(plan)
    return UNKNOWN if found.contradicted else found.used


def _platform(hardware: Hardware | None, fact: str) -> Any:
    """Return a machine fact as the engine's utils/common.py reports it, or UNKNOWN."""
    if hardware is None:
        return UNKNOWN
    vendor, capability = hardware.vendor, hardware.capability
    plain = {
        "is_cuda": vendor is Vendor.NVIDIA,
        "is_hip": vendor is Vendor.AMD,
        "is_cpu": vendor is Vendor.CPU,
        "is_cuda_alike": vendor is not Vendor.CPU,
        "device": hardware.device,
        "memory_mib": (vendor is not Vendor.CPU and hardware.memory_mib) or UNKNOWN,
        **dict.fromkeys(_OTHER_MACHINES, False),
    }
    if fact in plain:
        return plain[fact]
    if vendor is not Vendor.NVIDIA:
        return UNKNOWN if fact in _NUMBERS else False
    if capability is None:
        return UNKNOWN
    if fact in _NUMBERS:
        return _NUMBERS[fact](capability)
    return capability // 10 in _MAJORS[fact] if fact in _MAJORS else UNKNOWN


_LEAVES: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "k": lambda _plan, value: value,
        "u": lambda _plan, _why="": UNKNOWN,
        "f": _argument,
        "e": _variable,
        "p": lambda plan, fact: _platform(plan.facts.hardware, fact),
        "a": _architectures,
        "h": _config_key,
        "q": _worked_out,
    }
)


_FAILS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""Exceptions that the engine itself would raise during evaluation. They give no finding."""


_Nodes = Mapping[int, Any] | Sequence[Any]


class ConditionEvaluator:
    """An evaluator for one plan, which evaluates each node at most once."""

    def __init__(self, nodes: _Nodes, plan: Plan) -> None:
        self._nodes = nodes
        self._plan = plan
        self._values: dict[int, Any] = {}
        self._truths: dict[int, bool | None] = {}

    def holds(self, node: int) -> bool | None:
        """True if condition `node` holds; None if unknown."""
        try:
            return self._truth(node)
        except RecursionError:
            return None

    def text(self, node: int) -> str:
        """Return message `node`, with `…` in place of unknown values."""
        found = self._nodes[node]
        if found[0] == "fmt":
            return "".join(self.text(part) for part in found[1:])
        shown = found[0] == "repr"
        value = self.value(found[1] if shown else node)
        if isinstance(value, UnknownLeaf):
            return "…"
        return repr(value) if shown else str(value)

    def value(self, node: int) -> Any:
        """Return the value of a node, or UNKNOWN."""
        values, truths, passed = self._values, self._truths, []
        while node not in values:
            found = self._nodes[node]
            if found[0] != "?":
                values[node] = self._value(found)
                break
            passed.append(node)  # chains of assignments: a loop is faster than a call for each
            test = found[1]
            condition = truths[test] if test in truths else self._truth(test)
            if condition is None:
                values[node] = self._either(found)
                break
            node = found[2] if condition else found[3]
        result = values[node]
        for earlier in passed:
            values[earlier] = result
        return result

    def _truth(self, node: int) -> bool | None:
        truths, passed = self._truths, []
        while node not in truths:
            found = self._nodes[node]
            if found[0] != "?":
                truths[node] = self._truth_of(node, found)
                break
            passed.append(node)
            test = found[1]
            condition = truths[test] if test in truths else self._truth(test)
            if condition is None:
                then, other = self._truth(found[2]), self._truth(found[3])
                truths[node] = then if then is other else None
                break
            node = found[2] if condition else found[3]
        result = truths[node]
        for earlier in passed:
            truths[earlier] = result
        return result

    def _truth_of(self, node: int, found: Sequence[Any]) -> bool | None:
        op = found[0]
        if op == "and" or op == "or":  # noqa: PLR1714  a set is slower
            return self._junction(found, final=op == "or")
        if op == "not":
            inner = self._truth(found[1])
            return None if inner is None else not inner
        value = self.value(node)
        return None if value is UNKNOWN else bool(value)

    def _junction(self, found: Sequence[Any], *, final: bool) -> bool | None:
        """Return the truth value of `found`, an `and` or `or`; None if unknown. An operand whose
        truth value is `final` decides it."""
        truths, unknown = self._truths, False
        for part in found[1:]:
            truth = truths[part] if part in truths else self._truth(part)
            if truth is final:
                return final
            unknown = unknown or truth is None
        return None if unknown else not final

    def _value(self, found: Sequence[Any]) -> Any:
        op = found[0]
        if op in _LEAVES:  # constants are the most frequent
            return found[1] if op == "k" else leaf(self._plan, found)
        if op == "not":
            truth = self._truth(found[1])
            return UNKNOWN if truth is None else not truth
        if op in ("and", "or"):
            return self._junction_value(found, final=op == "or")
        known = self._values
        values = [known[part] if part in known else self.value(part) for part in found[1:]]
        if UNKNOWN in values:
            return UNKNOWN
        try:
            return values if op == "list" else (OPERATIONS.get(op) or TEXTS[op])(*values)
        except _FAILS:
            return UNKNOWN

    def _either(self, found: Sequence[Any]) -> Any:
        then, other = self.value(found[2]), self.value(found[3])
        same = type(then) is type(other) and then == other
        return then if same else UNKNOWN

    def _junction_value(self, found: Sequence[Any], *, final: bool) -> Any:
        """Return the operand of `found` that `and` or `or` returns, or UNKNOWN."""
        value: Any = UNKNOWN
        for part in found[1:]:
            value = self.value(part)
            if isinstance(value, UnknownLeaf) or bool(value) is final:
                return value
        return value


DATA = Path(__file__).resolve().parent / "data" / "refusals.json"
_ANY: Final = "*"


class EngineRefusal(Struct, frozen=True):
    """An engine refusal that applies to a plan."""

    message: str
    """The engine's own message, with the values of this plan; `…` for unknown values."""
    exception: str
    source: str
    """Release, file and line, such as `sglang 0.5.18 server_args.py:1234`."""
    names: tuple[str, ...]
    """User-set arguments and variables in the condition, most decisive first."""


class _Lines(dict[int, Any]):
    """A range of the data file's lines, by index. Each line is parsed on first access."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self._lines = lines

    def __missing__(self, number: int) -> Any:
        self[number] = found = json.loads(self._lines[number].rstrip(","))
        return found


class _Data(Struct, frozen=True):
    """The data file, with lines that are parsed on demand."""

    places: Mapping[str, int]
    index: Mapping[int, Mapping[str, Mapping[str, Sequence[int]]]]
    nodes: Mapping[int, Any]
    rows: Mapping[int, Any]

    def release(self, version: str) -> str | None:
        """Return the version whose rows apply: `version`, else its post-release (`0.5.13.post1` for
        `0.5.13`). None if there are no rows."""
        if version in self.places or "+" in version:  # a fork has different refusals
            return version if version in self.places else None
        try:
            found = resolve(version, tuple(self.places))
        except UnknownVersion:
            return None
        return found.held if is_of_its_line(found) else None

    def rows_of(self, release: str, written: set[str]) -> list[Any]:
        """Return a release's rows that can match the names in `written`, in order of file and
        line."""
        place = self.places[release]
        index = self.index[place][release]
        numbers = {number for name in (_ANY, *written) for number in index.get(name, ())}
        rows = [self.rows[number] for number in numbers]
        return sorted(((*row[:4], dict(row[5])[place]) for row in rows), key=lambda r: r[3:])


@lru_cache(maxsize=1)
def _data() -> _Data:
    lines = DATA.read_text(encoding="utf-8").splitlines()
    head = json.loads("".join(lines[:2]).rstrip(",") + "}")
    versions, (nodes, rows) = head["versions"], head["sizes"]
    first = 3
    second = first + len(versions) + 2
    third = second + nodes + 2
    return _Data(
        {version: place for place, version in enumerate(versions)},
        _Lines(["{" + line.rstrip(",") + "}" for line in lines[first : first + len(versions)]]),
        _Lines(lines[second : second + nodes]),
        _Lines(lines[third : third + rows]),
    )


def refusals(plan: Plan) -> Iterator[EngineRefusal]:
    """Yield the engine's refusals that the user's arguments and variables cause."""
    request = plan.request
    written = {name for name in request.values if name != "model_path"} | set(request.env)
    release = _data().release(request.version) if written else None
    if release is None:
        return
    rows, nodes = _data().rows_of(release, written), _data().nodes
    evaluator = ConditionEvaluator(nodes, plan)
    for condition, message, exception, file, line in rows:
        if evaluator.holds(condition):
            yield EngineRefusal(
                " ".join(evaluator.text(message).split()),
                exception,
                f"sglang {release} {file.removeprefix('srt/')}:{line}",
                tuple(name for name in _names(nodes, condition) if name in written),
            )


def _names(nodes: _Nodes, condition: int) -> list[str]:
    """Return the arguments and variables of a condition, nearest to the root first."""
    found: dict[str, None] = {}
    seen = {condition}
    level = [condition]
    while level:
        below: list[int] = []
        for number in level:
            node = nodes[number]
            if node[0] in ("f", "e"):
                found.setdefault(node[1])
            elif node[0] not in _LEAVES:
                below += [part for part in node[1:] if part not in seen]
                seen.update(node[1:])
        level = below
    return list(found)
