"""The parser of the version refuses a word of the command, or misses one."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.arguments.refusals import Refusal, refused, verdict
from speclaunch.rules.interface import Check, Fix, Severity, Verdict, rule


def _refused(kind: Refusal) -> Check:
    def check(plan: Plan) -> Iterator[Verdict]:
        """One verdict a refused word."""
        for problem in refused(plan, kind):
            yield verdict(problem, plan)

    return check


def _missing(plan: Plan) -> Iterator[Verdict]:
    """One verdict for the model that is not named, or for the empty one, which the parser takes."""
    yield from _refused(Refusal.MISSING)(plan)
    model = plan.request.given.get("model_path")
    if model is not None and model.value == "":
        yield Verdict(
            "--model-path is empty",
            at=("model_path",),
            why="the engine finds no config.json in a model without a name",
            fix=Fix("name the model; a variable may be unset"),
        )


RULES = (
    rule("SPL002", "ambiguous-argument", Severity.ERROR, _refused(Refusal.AMBIGUOUS)),
    rule("SPL003", "invalid-value", Severity.ERROR, _refused(Refusal.VALUE)),
    rule("SPL004", "missing-model", Severity.ERROR, _missing),
)
