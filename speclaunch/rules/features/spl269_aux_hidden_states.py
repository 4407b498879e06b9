"""Auxiliary hidden states that are returned with what captures none."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_NAME = "enable_return_aux_hidden_states"
_LAYERS = "return_aux_hidden_state_layer_ids"
_ALGORITHM = "speculative_algorithm"
_DRAFT = "speculative_draft_model_path"
_METHODS = ("EAGLE3", "DFLASH", "DSPARK")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a thing that is missing or in the way."""
    layers = plan.given(_LAYERS)
    if not plan.given(_NAME):
        if layers is not None:
            yield _verdict(
                f"{_LAYERS} needs {_NAME}",
                "--return-aux-hidden-state-layer-ids requires --enable-return-aux-hidden-states.",
                _LAYERS,
                Fix(f"remove it, or set {_NAME}", set={_LAYERS: None}),
            )
        return
    asked = plan.given(_ALGORITHM)
    method = str(asked).upper()
    if method not in _METHODS:
        yield _verdict(
            f"{_NAME} needs {_ALGORITHM} EAGLE3, DFLASH or DSPARK, not {asked}",
            "--enable-return-aux-hidden-states needs --speculative-algorithm EAGLE3, DFLASH or "
            "DSPARK to name the capture convention",
            _ALGORITHM,
            Fix(f"remove {_NAME}", set={_NAME: None}),
        )
    elif method != "EAGLE3" and not layers:
        yield _verdict(
            f"{_NAME} with {asked} needs {_LAYERS}",
            f"--enable-return-aux-hidden-states with {method} requires "
            "--return-aux-hidden-state-layer-ids.",
            _NAME,
            Fix(f"name the layers in {_LAYERS}"),
        )
    if plan.given(_DRAFT) is not None:
        yield _verdict(
            f"{_NAME} captures without a draft: {_DRAFT} is in the way",
            "--enable-return-aux-hidden-states captures without a draft; drop "
            "--speculative-draft-model-path.",
            _DRAFT,
            Fix("remove the draft, or the hidden states", set={_NAME: None, _LAYERS: None}),
        )
    stages = number(plan, "pp_size")
    if stages != 1:
        yield _verdict(
            f"{_NAME} does not work with pp_size {stages}",
            "--enable-return-aux-hidden-states only supports pp_size == 1",
            "pp_size",
            Fix("set pp_size to 1", set={"pp_size": 1}),
        )


def _verdict(message: str, said: str, other: str, fix: Fix) -> Verdict:
    return Verdict(message, at=(other, _NAME), why=f"the engine refuses: {said}", fix=fix)


RULE = rule(
    "SPL269",
    "aux-hidden-states",
    Severity.ERROR,
    check,
    says=(
        "--enable-return-aux-hidden-states ",
        "--return-aux-hidden-state-layer-ids requires --enable-return-aux-hidden-states.",
    ),
)
