"""What speclaunch says of a command line, as a user has it, against what the engine said."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from campaigns.recalling.machines import hardware
from speclaunch.checks.rules.examine import Lookup, check_request
from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.plan.refusals import refusals
from speclaunch.engine.releases.catalogue import load
from tests.support.conformance.compare import NOT_OURS, exceptions
from tests.support.conformance.data import Said

NOT_JUDGED = (
    *NOT_OURS,
    "does not appear to have a file named",
    "trust_remote_code",
    "couldn't connect to",
    "Can't load",
    "Should have a `model_type` key",
    "is not a local folder",
    "contains custom code which must be executed",
    "not compiled with CUDA",
    "check the FlashInfer installation",
    "please check flashinfer installation",
    "requires the 'granian' package",
)
"""Refusals that come of this machine: files beside a config and packages that are not there."""

LATER = (
    ("SPL304", "minicpm", "at the first request (0.5.19 layers/attention/minicpm/backend.py:381)"),
    ("SPL304", "intel_xpu", "at the first request (0.5.9 layers/attention/xpu_backend.py:105)"),
    (
        "SPL321",
        "fp4_e2m1",
        "as the type is worked out (0.5.18 mem_cache/kv_cache_dtype.py:61)",
    ),
    ("SPL401", "", "as the draft first runs (tests/evidence: SPL401/eagle, SPL401/eagle3)"),
    ("SPL409", "", "the layer that joins target and draft is given another size as the draft runs"),
    ("SPL413", "", "as the draft is loaded (0.5.23 deepseek_common/deepseek_weight_loader.py:567)"),
    ("SPL414", "", "the loader finds no parameters (0.5.9 model_loader/weight_utils.py:248)"),
    ("SPL415", "", "the target's model has no hook for EAGLE3's layers as it is loaded"),
    ("SPL416", "", "the target's model has no such layer to capture as it is loaded"),
    ("SPL429", "", "the loader finds no class (tests/evidence: SPL429)"),
    ("SPL430", "", "the loader finds no class for the draft (tests/evidence: SPL430)"),
    ("SPL431", "", "as the layers are made (tests/evidence: SPL431)"),
    ("SPL432", "", "as the layers are made (tests/evidence: SPL432)"),
    ("SPL433", "", "at the first tokens (tests/evidence: SPL433)"),
    (
        "SPL434",
        "",
        "the target's class has no hook for the draft's embedding (tests/evidence: SPL434)",
    ),
    ("SPL506", "", "no GPU is left for a rank as the processes start"),
    ("SPL612", "", "the target's model has no hook for DFLASH's layers as it is loaded"),
    ("SPL613", "", "the target's model has no such layer to capture as it is loaded"),
)
"""Rules (a part of their message, and where the engine fails) about what follows validation, that
no stored configuration is about."""


class Line(Struct, frozen=True):
    """One command line on one machine, and what both sides say of it."""

    seed: str
    release: str
    machine: str
    words: tuple[str, ...]
    said: Mapping[str, Any]
    """The engine's verdict: `verdict`, `stage`, `error`, `message`, `where`."""
    errors: tuple[tuple[str, str], ...]
    """Code and message of each of our errors."""
    later: tuple[tuple[str, str], ...] = ()
    """Those of them that name a failure after validation (tests/conformance/exceptions.yaml)."""
    unjudged: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    """The messages of the generated rows that hold, whatever the rules say."""

    @property
    def outcome(self) -> str:
        """not judged; accepted: right, later, alarm; refused: caught, chance, missed.

        `later`: we foretell a failure that validation does not see. `chance`: we have such an
        error alone, and the engine refuses for another reason.
        """
        if self.said["verdict"] == "artefact":
            return "not judged"
        if any(part in self.said.get("message", "") for part in NOT_JUDGED):
            return "not judged"
        own = len(self.errors) > len(self.later)
        if self.said["verdict"] == "accepted":
            return "alarm" if own else "later" if self.errors else "right"
        return "caught" if own else "chance" if self.errors else "missed"


@cache
def _rules() -> tuple[Rule, ...]:
    return tuple(all_rules())


def _is_later(code: str, message: str) -> bool:
    return any(code == one and part in message for one, part, _ in LATER)


def compare(
    seed: str, release: str, machine: str, words: tuple[str, ...], said: Mapping[str, Any]
) -> Line:
    """Judge the words in the working directory, which holds the models."""
    request = from_words(words, {}, load(release))
    examined = check_request(request, Lookup(hardware=hardware(machine)), _rules())
    errors = [(found.code, found.message) for found in examined.results.errors]
    errors += [("parser", problem.message) for problem in request.problems]
    stand_in = Said(seed, release, machine, words, {}, "accepted")
    later = [e for e in errors if _is_later(*e) or exceptions().reason(stand_in, [e])]
    unjudged = tuple(f"{one.code} {one.reason}" for one in examined.results.skipped)
    rows = tuple(row.message for row in refusals(examined.plan)) if examined.plan else ()
    return Line(seed, release, machine, words, said, tuple(errors), tuple(later), unjudged, rows)
