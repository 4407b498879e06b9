"""Whether a ready engine really generates, and really speculates as it was asked to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from speclaunch.launch.client import EngineError, EngineRefusalError, EngineSilentError
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.engine.command import RenderedArgs
    from speclaunch.launch.client import EngineClient, Generation
    from speclaunch.recipe.schema import VerificationSection as Settings

_NEEDS_DRAFT = ("STANDALONE", "EAGLE3")
"""Algorithms whose draft is a model of its own; without one the engine loads the target again
and serves, accepting every token or none (0.5.23 model_config.py: `model_path or
server_args.model_path`)."""

_NOTHING_ACCEPTED = 1.0
_SHOWN = 2000
"""Characters of a value that the engine changed."""
_TOKEN_IDS = list(range(10, 26))


@record
class OverriddenArgument:
    """A server argument that the engine runs with another value than asked."""

    name: str
    asked: str
    effective: str


@record
class Verification:
    """What was found out about a ready engine."""

    generation: Generation | None
    algorithm: str | None
    changes: tuple[OverriddenArgument, ...] = ()
    problems: tuple[str, ...] = ()
    """Why it does not serve what was asked for."""
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it serves what was asked for."""
        return not self.problems


def verify(client: EngineClient, asked: RenderedArgs, settings: Settings) -> Verification:
    """Ask the engine for its arguments and for one generation, and judge both."""
    try:
        info = client.server_info()
        generation = None
        role = info.get("disaggregation_mode")
        generates = role in (None, "null") and not info.get("is_embedding")
        if generates:
            prompt = _TOKEN_IDS if info.get("skip_tokenizer_init") else settings.prompt
            generation = client.generate(prompt, settings.max_new_tokens, settings.timeout_seconds)
    except EngineRefusalError as error:
        reason = f"{error}: {error.answer.text.strip()[:300]}"
        return Verification(None, None, problems=(reason,))
    except EngineSilentError as error:
        reason = f"{error.path} did not answer within {settings.timeout_seconds:g} s"
        return Verification(None, None, problems=(reason,))
    except EngineError as error:
        return Verification(None, None, problems=(f"the engine's answer is not valid: {error}",))
    verdict = judge(info, generation, asked)
    if generates:
        return verdict
    note = f"generation was not checked: disaggregation_mode={role} cannot generate alone"
    return Verification(
        None, verdict.algorithm, verdict.changes, verdict.problems, (*verdict.warnings, note)
    )


def judge(
    info: Mapping[str, Any], generation: Generation | None, asked: RenderedArgs
) -> Verification:
    """Compare what the engine says and did with what was asked. Pure."""
    wanted = asked.value("speculative_algorithm")
    algorithm = info.get("speculative_algorithm")
    problems: list[str] = []
    warnings: list[str] = []
    if wanted and not algorithm:
        problems.append(f"speculation is off: {wanted} was requested, the engine runs without it")
    elif wanted and generation is not None and not generation.verify_count:
        problems.append(f"the engine reports {algorithm} but generated without drafting")
    elif generation is not None and (generation.acceptance_length or inf) <= _NOTHING_ACCEPTED:
        warnings.append(
            "acceptance length 1.0: no drafted token was accepted, so speculation only costs "
            "time; check that the draft was trained for this target"
        )
    draft = info.get("speculative_draft_model_path")
    if wanted in _NEEDS_DRAFT and draft in (None, info.get("model_path")):
        warnings.append(f"{wanted} runs with the target as its own draft: set a draft model")
    return Verification(
        generation, algorithm, _changes(info, asked), tuple(problems), tuple(warnings)
    )


def _changes(info: Mapping[str, Any], asked: RenderedArgs) -> tuple[OverriddenArgument, ...]:
    changes = []
    for argument in asked.arguments:
        field = argument.dest or argument.name  # the engine answers by its version's own names
        if argument.secret or field not in info:
            continue
        effective = info[field]
        text = _words(effective)
        given = " ".join(argument.values) if argument.values else "true"
        if not _same(given, text):
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            changes.append(OverriddenArgument(argument.name, given, shown))
    return tuple(changes)


def _words(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_words(item) for item in value)
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _same(given: str, effective: str) -> bool:
    if given.lower() == effective.lower():
        return True
    if re.fullmatch(r"\d+(\.\d+)?[kKmMgG]i?", given):  # human_readable_int: 32k
        return effective.isdigit()
    try:
        return bool(json.loads(given) == json.loads(effective))
    except (ValueError, RecursionError):
        return False
