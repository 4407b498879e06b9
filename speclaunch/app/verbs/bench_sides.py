"""The sides that `bench`, `prove` and `tune` compare, and their options with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speclaunch.app.output.console import err_lines
from speclaunch.app.verbs.check_options import lookup
from speclaunch.app.verbs.measure_options import BenchOptions, ProveOptions, TuneOptions
from speclaunch.core import COMMAND_LINE, InputError, Place, Problem
from speclaunch.engine import Fit
from speclaunch.measure import LEAST_PAIRS, AnySide, RunningSide, SideOptions, SideRecord
from speclaunch.serving import document

_OF_HERE = ("PATH",)
"""What says more of this machine than of what was measured."""


def side_options(options: BenchOptions | ProveOptions | TuneOptions) -> SideOptions:
    """Return the options that apply to all sides. Raises InputError."""
    return SideOptions(
        options.config_dir,
        options.engine,
        lookup(options.models, options.hardware),
        dry_run=options.dry_run,
    )


def told_of(side: AnySide) -> SideRecord:
    """A side without its secrets."""
    if isinstance(side, RunningSide):
        version = side.info.get("version")
        return SideRecord(name=side.name, engine=str(version) if version else None, url=side.url)
    said = document(side.prepared)
    return SideRecord(
        name=side.name,
        engine=side.prepared.version,
        command=tuple(said["argv"]),
        environment={name: value for name, value in said["env"].items() if name not in _OF_HERE},
    )


def memory_warnings(sides: Iterable[AnySide]) -> Iterator[str]:
    """Yield the memory verdicts that speak against a start; the children's output does not show."""
    from speclaunch.engine import memory_verdict

    for side in sides:
        if isinstance(side, RunningSide):
            continue
        memory = memory_verdict(side.plan)
        if memory.fit in (Fit.TIGHT, Fit.FAILS):
            yield f"{side.name} {memory.fit.text}: {memory.why}"


def hardware_of(side: AnySide) -> str | None:
    """`h100:8`, `cpu`; None where it is unknown."""
    if isinstance(side, RunningSide):
        return None
    if side.prepared.cpu is not None:
        return "cpu"
    found = side.plan.facts.hardware
    if found is None:
        return None
    return f"{found.name}:{found.count}" if found.count > 1 else found.name


def tell_replaced(*sides: AnySide) -> None:
    """Report overrides that are ignored: each engine of a measurement has its own port."""
    found = (one.replaced for one in sides if not isinstance(one, RunningSide))
    for word in dict.fromkeys(word for some in found for word in some):
        note = f"note: {word} is not used: each measured engine gets its own"
        err_lines().print(note, markup=False)


def numbers(option: str, text: str, least: int, most: int) -> tuple[int, ...]:
    """Each number once, in the order given. Raises InputError for what is none in the range."""
    found: list[int] = []
    for part in text.split(","):
        word = part.strip()
        number = int(word) if word.isascii() and word.isdigit() and len(word) < 16 else -1
        if not least <= number <= most:
            raise InputError(
                Problem(
                    f"{option}: {word!r} is not a number from {least} to {most}",
                    Place(COMMAND_LINE, text=f"{option} {text}"),
                    f"write numbers with commas: {option} 1,8",
                )
            )
        found.append(number)
    return tuple(dict.fromkeys(found))


def default_blocks(starts: int) -> int:
    """Blocks of rounds of each side in a start, where one engine runs at a time: with one start
    A B B A, so that a machine that becomes slower counts for both; else the starts take turns."""
    return 2 if starts == 1 else 1


def require_starts(option: str, starts: int, rounds: int) -> None:
    """Raises InputError for a number of which nothing could be said."""
    place = Place(COMMAND_LINE, text=f"{option} {starts}")
    if 1 < starts < LEAST_PAIRS:
        told = f"{starts} starts say nothing of how much starts differ"
        raise InputError(Problem(told, place, f"use 1, or {LEAST_PAIRS} and more"))
    if starts > rounds:
        told = f"{starts} starts share {rounds} rounds: each needs one"
        raise InputError(Problem(told, place, f"add --rounds {2 * starts}"))
