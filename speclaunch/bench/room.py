"""Whether requests fit in a model's context: asked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speclaunch.bench.running import RunningSide
from speclaunch.bench.sides import AnySide
from speclaunch.bench.workload import Prompts
from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem
from speclaunch.plan.memory.terms import context_length
from speclaunch.plan.plan import UnknownValueError
from speclaunch.reads.safe_json import size


def longest(side: AnySide, answer: int) -> int | None:
    """Tokens of a prompt that leave room for an answer of so many; None where that is not known."""
    if isinstance(side, RunningSide):
        given = size(side.info.get("context_length"))
        return size(side.info.get("max_req_input_len")) if given is None else given - answer
    try:
        return context_length(side.plan) - answer
    except UnknownValueError:
        return None


def with_room(prompts: Prompts, sides: Sequence[AnySide]) -> Prompts:
    """The prompts, and how long one may be at most with its answer: the engine refuses a longer one
    (0.5.23 managers/tokenizer_manager.py `_validate_one_request`).

    Raises InputError for a length that was asked for, or answers, of which none fits.
    """
    answer = prompts.output_tokens
    asked = prompts.context or prompts.input_tokens
    known = [(most, side) for side in sides if (most := longest(side, answer)) is not None]
    if not known:
        return prompts
    most, side = min(known, key=lambda one: one[0])
    if most > 0 and asked <= most:
        return replace(prompts, longest=most + answer)
    option = f"--output-tokens {answer}"
    if asked and most > 0:
        option = f"--context {asked}" if prompts.context else f"--input-tokens {asked}"
    prompt = f"prompts of {asked} tokens and " if asked else ""
    told = f"{side.name} has no room for {prompt}answers of {answer} tokens"
    help_ = f"ask for at most {most}" if most > 0 else "lower --output-tokens"
    raise InputError(Problem(told, Place(COMMAND_LINE, text=option), help_))
