"""One stored verdict against what speclaunch says of the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from speclaunch.checks.rules.examine import check_rules
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import Hardware, Vendor
from speclaunch.engine.facts.read_checkpoint import from_config
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.renames import canonical
from tests.support.conformance import data
from tests.support.conformance.data import Said

NOT_OURS = {
    "does not recognize this architecture": "the transformers that it pins lacks the model type",
    "find them in the cached files": "the checkpoint is not there, and nothing is fetched",
}
"""Refusals that no argument is to blame for, by a part of their message."""

COMPARED = (
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_draft_model_revision",
    "speculative_draft_model_quantization",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_draft_attention_backend",
    "speculative_adaptive",
    "speculative_use_rejection_sampling",
    "enable_multi_layer_eagle",
    "max_running_requests",
    "disable_overlap_schedule",
    "enable_mixed_chunk",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "page_size",
    "chunked_prefill_size",
    "cuda_graph_max_bs_decode",
    "cuda_graph_bs_decode",
    "torch_compile_max_bs",
    "mem_fraction_static",
    "dp_size",
    "attn_dp_size",
    "enable_dp_attention",
    "enable_dp_lm_head",
    "disable_cuda_graph",
    "disable_radix_cache",
    "sampling_backend",
    "device",
    "mamba_radix_cache_strategy",
    "enable_lora",
)
"""Fields whose effective value a plan is asked for, by their newest names."""

LATE = frozenset({"attention_backend", "page_size", "sampling_backend", "mem_fraction_static"})
"""What some releases decide only in the model runner: None after validation is "not yet"."""


class Explained(Struct, frozen=True):
    """Why a field may differ: what the record of the engine's validation does not show.

    It is about the engines of `engines`, where the engine's value is `engine` (ANY: whatever it
    is) and the command line has all of `words`.
    """

    name: str
    engines: str
    engine: Any
    words: tuple[str, ...]
    why: str


ANY = object()
EXPLAINED = (
    Explained(
        "enable_dp_attention",
        ">=0.5.22",
        True,
        (),
        "the engine turns the argument into attn_dp_size (parallel_hook.py:60), and its record "
        "of resolved values reports it as set wherever that is above 1 (0.5.23 "
        "server_args.py:332); attn_dp_size is compared, too",
    ),
    Explained(
        "decode_attention_backend",
        "<0.5.4",
        None,
        ("--enable-hierarchical-cache",),
        "0.5.3 chooses it in the model runner, after validation (model_runner.py:638)",
    ),
    Explained(
        "mem_fraction_static",
        "<0.5.4",
        ANY,
        ("aiter",),
        "0.5.3 takes aiter's 15% in the model runner, after validation (model_runner.py:635)",
    ),
)
"""Every difference between a plan's values and the engine's; there is no other."""


class Difference(Struct, frozen=True):
    """One field with two values."""

    name: str
    engine: Any
    ours: Any

    def explained(self, said: Said) -> str | None:
        """Why it is no error of the plan, if it is none."""
        for one in EXPLAINED:
            if (
                one.name == self.name
                and (one.engine is ANY or one.engine == self.engine)
                and SpecifierSet(one.engines, prereleases=True).contains(said.engine)
                and all(word in said.words for word in one.words)
            ):
                return one.why
        return None


class Comparison(Struct, frozen=True):
    """What both sides say of one configuration."""

    said: Said
    errors: tuple[tuple[str, str], ...]
    """Code and message of each error finding; problems of the parser have the code `parser`."""
    unjudged: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()
    """Fields with the same value."""
    undecided: tuple[str, ...] = ()
    """Fields of which the plan does not tell a value."""
    open: Mapping[str, str] = field(default_factory=dict)
    """Why it does not."""
    differences: tuple[Difference, ...] = ()
    excused: str | None = None

    @property
    def refuses(self) -> bool:
        return bool(self.errors)

    @property
    def outcome(self) -> str:
        """both refuse, both accept, missed, false alarm, excused."""
        if self.said.accepts:
            return "excused" if self.excused else "false alarm" if self.refuses else "both accept"
        return "both refuse" if self.refuses else "missed"


class Exceptions(Struct, frozen=True):
    """`exceptions.yaml`: errors of ours that name a later failure than validation sees."""

    entries: tuple[Mapping[str, Any], ...] = field(default=())

    def reason(self, said: Said, errors: Iterable[tuple[str, str]]) -> str | None:
        """Why it is right to refuse what the engine's validation accepts, if it is.

        Every one of the errors must be excused.
        """
        reasons = {f"{code}: {self._why(said, code, message)}" for code, message in errors}
        excused = all(not reason.endswith(": None") for reason in reasons)
        return "; ".join(sorted(reasons)) if excused else None

    def _why(self, said: Said, code: str, message: str) -> str | None:
        for entry in self.entries:
            if fits(entry, said, code, message):
                return str(entry["why"])
        return None


def fits(entry: Mapping[str, Any], said: Said, code: str, message: str) -> bool:
    """Whether an exception is about this error on this configuration."""
    return (
        entry["code"] == code
        and entry.get("message", "") in message
        and said.id in entry.get("ids", [said.id])
        and SpecifierSet(entry.get("engines", ""), prereleases=True).contains(said.engine)
    )


@lru_cache(maxsize=1)
def exceptions() -> Exceptions:
    found = yaml.safe_load((data.HERE / "exceptions.yaml").read_text()) or []
    return Exceptions(tuple(found))


def compared(said: Said) -> bool:
    """Whether a stored verdict says something of the configuration."""
    if said.verdict == "artefact":
        return False
    return not any(part in said.message for part in NOT_OURS)


def compare(said: Said) -> Comparison:
    """Judge the words of one verdict."""
    request = from_words(said.words, said.env, load_catalogue(said.engine))
    path = request.values.get("model_path")
    draft = request.values.get("speculative_draft_model_path")
    facts = Facts(
        checkpoint(str(path.value)) if path else None,
        checkpoint(str(draft.value)) if draft else None,
        hardware(said.machine),
    )
    plan = resolve(request, facts)
    judgement = check_rules(plan, all_rules())
    errors = [(finding.code, finding.message) for finding in judgement.errors]
    errors += [("parser", problem.message) for problem in request.problems]
    excused = exceptions().reason(said, errors) if errors else None
    comparison = Comparison(
        said,
        tuple(errors),
        tuple(f"{u.code} {u.reason}" for u in judgement.skipped),
        excused=excused,
    )
    return _with_values(comparison, plan) if said.accepts and not errors else comparison


def _with_values(comparison: Comparison, plan: Plan) -> Comparison:
    engine = {canonical(name): value for name, value in comparison.said.values.items()}
    agreed, undecided, differences = [], {}, []
    for name in COMPARED:
        if name not in engine or not (plan.has_argument(name) or name in plan.resolved):
            continue
        theirs = engine[name]
        if theirs is None and name in LATE:
            continue
        try:
            ours = plan.value(name)
        except UnknownValueError as error:
            undecided[name] = str(error)
            continue
        if name == "device" and ours is None:
            ours = plan.device
        if _same(theirs, ours):
            agreed.append(name)
        else:
            differences.append(Difference(name, theirs, ours))
    return replace(
        comparison,
        agreed=tuple(agreed),
        undecided=tuple(undecided),
        open=undecided,
        differences=tuple(differences),
    )


def _same(theirs: Any, ours: Any) -> bool:
    if isinstance(ours, tuple):
        ours = list(ours)
    if isinstance(theirs, float) and isinstance(ours, float):
        return abs(theirs - ours) < 0.0005
    return bool(theirs == ours or (not theirs and not ours and theirs != 0 and ours != 0))


@lru_cache(maxsize=64)
def checkpoint(name: str) -> Checkpoint | None:
    """The facts of a stored checkpoint; None for one that is not there.

    The engine saw a directory of that name, with the config and no folders.
    """
    config = data.models().get(name)
    if config is None:
        return None
    return replace(from_config(name, config, Path(name)), has_dspark_folder=False)


def hardware(machine: str) -> Hardware:
    """The facts of a machine that the engine was told it runs on."""
    told = data.MACHINES[machine]
    vendor = Vendor.CPU if told["device"] == "cpu" else Vendor.NVIDIA
    return Hardware(machine, vendor, told["count"], told["memory_mib"], told["capability"])
