"""What the rules say of a pair of checkpoints on disk."""

from __future__ import annotations

from pathlib import Path

from speclaunch.checks.rules.examine import BUG, Lookup, check_request
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.checks.rules.registry import all_rules
from tests.support.checks.rules.harness import request_of

from .mutants import BASES

ENGINE = "0.5.23"


def findings(base: str, target: Path, draft: Path | None) -> tuple[Finding, ...]:
    """Errors and warnings of all rules about the deployment of a base."""
    args = {
        "model_path": str(target),
        "speculative_algorithm": BASES[base].algorithm,
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "device": "cpu",
        "dtype": "float32",
        "mem_fraction_static": 0.3,
    }
    if draft is not None:
        args["speculative_draft_model_path"] = str(draft)
    judgement = check_request(request_of(args, None, {}, ENGINE), Lookup(), all_rules()).results
    stumbled = [one for one in judgement.skipped if one.reason.startswith(BUG)]
    assert not stumbled, stumbled
    told = (Severity.ERROR, Severity.WARNING)
    return tuple(one for one in judgement.findings if one.severity in told)


def is_harmed(run: dict[str, object], healthy: float) -> bool:
    """Whether the engine refused it, or it lost 40 % of what speculation gains."""
    length = run.get("length")
    return not isinstance(length, float) or length - 1 < 0.6 * (healthy - 1)
