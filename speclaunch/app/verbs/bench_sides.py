"""Sides and numeric options of `bench`, `prove` and `tune`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speclaunch.app.output.console import err_lines
from speclaunch.app.verbs.run_options import BenchOptions, ProveOptions, TuneOptions
from speclaunch.app.verbs.shared import lookup
from speclaunch.core import COMMAND_LINE, InputError, Place
from speclaunch.engine import Fit, memory_verdict
from speclaunch.measure import LEAST_PAIRS, AnySide, RunningSide, SideOptions, SideRecord
from speclaunch.serving import document

_OF_HERE = ("PATH",)
"""Environment variables that describe this machine, not the measured server."""


def side_options(options: BenchOptions | ProveOptions | TuneOptions) -> SideOptions:
    """Return the options that apply to all sides. Raises InputError."""
    return SideOptions(
        options.config_dir,
        options.engine,
        lookup(options.models, options.hardware),
        dry_run=options.dry_run,
    )


def side_record(side: AnySide) -> SideRecord:
    """Return the record of a side, without secrets."""
    if isinstance(side, RunningSide):
        version = side.info.get("version")
        return SideRecord(name=side.name, engine=str(version) if version else None, url=side.url)
    described = document(side.prepared)
    return SideRecord(
        name=side.name,
        engine=side.prepared.version,
        command=tuple(described["argv"]),
        environment={
            name: value for name, value in described["env"].items() if name not in _OF_HERE
        },
    )


def memory_warnings(sides: Iterable[AnySide]) -> Iterator[str]:
    """Yield memory warnings about sides, because the output of their engines is not shown."""
    for side in sides:
        if isinstance(side, RunningSide):
            continue
        memory = memory_verdict(side.plan)
        if memory.fit in (Fit.TIGHT, Fit.FAILS):
            yield f"{side.name} {memory.fit.text}: {memory.why}"


def hardware_of(side: AnySide) -> str | None:
    """Return the hardware of a side, for example `h100:8` or `cpu`; None if unknown."""
    if isinstance(side, RunningSide):
        return None
    if side.prepared.cpu is not None:
        return "cpu"
    found = side.plan.facts.hardware
    if found is None:
        return None
    return f"{found.name}:{found.count}" if found.count > 1 else found.name


def tell_replaced(*sides: AnySide) -> None:
    """Report overrides that are ignored because each measured engine gets its own port."""
    found = (side.replaced for side in sides if not isinstance(side, RunningSide))
    for word in dict.fromkeys(word for some in found for word in some):
        note = f"note: {word} is ignored: each measured engine gets its own port"
        err_lines().print(note)


def numbers(option: str, text: str, least: int, most: int) -> tuple[int, ...]:
    """Return the distinct numbers of a comma-separated list, in input order.

    Raises InputError for an item that is not a number from `least` to `most`.
    """
    found: list[int] = []
    for part in text.split(","):
        word = part.strip()
        number = int(word) if word.isascii() and word.isdigit() and len(word) < 16 else -1
        if not least <= number <= most:
            raise InputError(
                f"{option}: {word!r} is not a number from {least} to {most}",
                Place(COMMAND_LINE, text=f"{option} {text}"),
                f"separate numbers with commas: {option} 1,8",
            )
        found.append(number)
    return tuple(dict.fromkeys(found))


def default_blocks(starts: int) -> int:
    """Return the number of blocks per start and side for engines that run one at a time.

    A single start uses A B B A, so a machine that slows down affects both sides equally. Several
    starts alternate the sides.
    """
    return 2 if starts == 1 else 1


def require_starts(option: str, starts: int, rounds: int) -> None:
    """Raise InputError if several `starts` are too few to show variation, or over `rounds`."""
    place = Place(COMMAND_LINE, text=f"{option} {starts}")
    if 1 < starts < LEAST_PAIRS:
        message = f"{starts} starts cannot show the variation between starts"
        raise InputError(message, place, f"use {option} 1, or at least {LEAST_PAIRS}")
    if starts > rounds:
        message = f"{starts} starts share {rounds} rounds: each start needs at least one"
        raise InputError(message, place, f"add --rounds {2 * starts}")
