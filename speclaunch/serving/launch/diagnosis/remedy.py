"""Meaning of a diagnosis, and its remedy as flags and recipe settings for an engine version."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from speclaunch.checks import page
from speclaunch.engine import Catalogue, held_versions, load, other_names, render_args
from speclaunch.serving.launch.diagnosis.causes.engine import REFUSED
from speclaunch.serving.launch.diagnosis.interface import ABOVE, Cause, Diagnosis, Direction

_NONE: Mapping[str, float] = {}
_FOR_GPUS = re.compile(r"\bGPUs?\b|nvidia-smi|CUDA_VISIBLE_DEVICES")
_PLACE = re.compile(r"\{(?P<name>[a-z][a-z0-9_]*)(?:=(?P<value>[\w.]+))?\}")


class SettingChange(Struct, frozen=True):
    """A setting to change, as a flag and as a recipe override."""

    argument: str
    """Name of the argument in the newest engine, as in a recipe."""
    direction: Direction
    flag: str
    """Flag of this engine version, with the value if known: `--max-total-tokens 9`."""
    override: str
    """Override for a recipe, with the value if known: `args.max_total_tokens=9`."""
    now: float | None = None
    """Value in the failed start; None if the log does not show it."""


def meaning(diagnosis: Diagnosis) -> str:
    """Return the meaning of the cause, or the summary of the rule that explains a rejected
    argument; empty if the cause is unknown."""
    cause = diagnosis.cause
    if cause is None:
        return ""
    if cause.name == REFUSED and diagnosis.rule is not None:
        return f"{page(diagnosis.rule).summary}."
    return cause.meaning


def remedy_steps(diagnosis: Diagnosis, cause: Cause | None = None) -> tuple[str, ...]:
    """Return the steps to remedy `cause` (default: the diagnosed cause), with this version's flags.

    Omits steps about arguments that the version lacks and, on a CPU, steps about GPUs.
    """
    chosen = cause or diagnosis.cause
    if chosen is None:
        return ()
    catalogue = _catalogue(diagnosis.version)
    advice = chosen.remedy.split("\n")
    if diagnosis.cpu:
        advice = [step.replace("{tp_size}, ", "") for step in advice if not _FOR_GPUS.search(step)]
    found = (_rendered(step, catalogue) for step in advice)
    return tuple(step for step in found if step is not None)


def setting_changes(diagnosis: Diagnosis) -> tuple[SettingChange, ...]:
    """Return the settings to change, most promising first, with values that the log suggests."""
    if diagnosis.cause is None:
        return ()
    catalogue = _catalogue(diagnosis.version)
    found = []
    for argument, direction in diagnosis.cause.directions.items():
        flag = _flag(argument, catalogue)
        if flag is None:
            continue
        now = _now(argument, diagnosis)
        value = value_to_try(argument, direction, now, diagnosis.numbers)
        text = "" if value is None else f"{value:g}"
        if argument == "max_total_tokens" and now is None:
            continue  # not set: raise the fraction instead
        found.append(
            SettingChange(
                argument,
                direction,
                f"{flag} {text}".rstrip(),
                f"args.{argument}={text or '…'}",
                now,
            )
        )
    return tuple(found)


def _catalogue(version: str | None) -> Catalogue:
    return load(version or held_versions()[-1])


def _rendered(step: str, catalogue: Catalogue) -> str | None:
    missing = False

    def put(found: re.Match[str]) -> str:
        nonlocal missing
        if found["value"] is not None:
            rendered = render_args({found["name"]: found["value"]}, {}, catalogue)
            if rendered.problems or not rendered.arguments:
                missing = True
                return ""
            return " ".join(rendered.arguments[0].tokens)
        flag = _flag(found["name"], catalogue)
        missing = missing or flag is None
        return flag or ""

    text = _PLACE.sub(put, step)
    return None if missing else text


def _flag(argument: str, catalogue: Catalogue) -> str | None:
    for name in (argument, *other_names(argument)):
        found = catalogue.by_name(name)
        if found is not None:
            return found.flag
    return None


def _now(argument: str, diagnosis: Diagnosis) -> float | None:
    for name in (argument, *other_names(argument)):
        if name in diagnosis.numbers:
            return diagnosis.numbers[name]
        if name in diagnosis.settings:
            return diagnosis.settings[name]
    return None


def value_to_try(
    argument: str, direction: Direction, now: float | None, numbers: Mapping[str, float] = _NONE
) -> float | None:
    """Return the value to try next for an argument; None if the log does not suggest one."""
    if argument == "mem_fraction_static":
        above = numbers.get(ABOVE)
        if above is not None:
            return None if above >= 0.99 else min(0.99, round(above + 0.02, 3))
        if now is None:
            return None
        tried = now + (0.05 if direction is Direction.RAISE else -0.05)
        return round(tried, 3) if 0.05 <= tried <= 0.98 else None
    if now is None or now <= 1:
        return None
    if argument == "max_total_tokens" and direction is Direction.RAISE:
        return max(now * 2, 4096.0)
    return now * 2 if direction is Direction.RAISE else float(int(now) // 2)
