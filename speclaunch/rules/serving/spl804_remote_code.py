"""Code from the hub runs as it is today."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.patterns import lazy
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_HUB = lazy(r"[\w-][\w.-]*/[\w.-]+")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a model of the hub that is known to bring code."""
    if not plan.given("trust_remote_code") or plan.is_given("revision"):
        return
    model, target = plan.given("model_path"), plan.facts.target
    if target is None or not target.config.get("auto_map") or not _HUB.fullmatch(str(model)):
        return
    yield Verdict(
        f"the server runs the code in {model} without a pinned revision",
        at=("trust_remote_code",),
        why="trust_remote_code without a revision runs what the repository holds at the time",
        fix=Fix("set revision to a commit that was reviewed"),
    )


RULE = rule("SPL804", "remote-code", Severity.INFO, check)
