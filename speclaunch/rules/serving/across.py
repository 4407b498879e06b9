"""Deployments that serve one model together: prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.record import record


@record
class Role:
    """One side of a disaggregated deployment: what it serves, and what drafts for it."""

    plan: Plan
    mode: str
    model: str
    algorithm: str | None
    draft: str | None

    @property
    def home(self) -> tuple[str, str, str]:
        """Roles with the same home belong together: directory, model, engine version."""
        where = str(PurePath(self.plan.request.place.path).parent)
        return where, self.model, self.plan.request.version


def roles(plans: Sequence[Plan]) -> list[Role]:
    """The plans that are one side of a disaggregated deployment, as far as that can be told."""
    found = (_role(plan) for plan in plans)
    return [role for role in found if role is not None]


def is_role(plan: Plan) -> bool:
    """Whether a plan is one side of a disaggregated deployment."""
    return _role(plan) is not None


def pairs(plans: Sequence[Plan]) -> Iterator[tuple[Role, list[Role]]]:
    """Each decode role, and the prefill roles that belong to it."""
    known = roles(plans)
    for decode in known:
        partners = [r for r in known if r.mode == "prefill" and r.home == decode.home]
        if decode.mode == "decode" and partners:
            yield decode, partners


def _role(plan: Plan) -> Role | None:
    try:
        mode, model = plan.value("disaggregation_mode"), plan.value("model_path")
        algorithm = plan.algorithm
        draft = plan.given("speculative_draft_model_path")
    except UnknownValueError:
        return None
    if mode not in ("prefill", "decode") or model is None:
        return None
    return Role(plan, mode, str(model), algorithm, None if draft is None else str(draft))
