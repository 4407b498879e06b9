"""The smallest set of arguments that an engine refuses in the same way: delta debugging."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

Kept = frozenset[int]
"""The units that a command keeps."""
Search = Generator[list[Kept], list[bool], Kept]
"""Asks for sets, all of a list at once, and is sent whether each is refused in the same way."""
_MOST_ROUNDS = 12
"""Of batches, after which the set that was reached is taken."""


def smallest(units: int) -> Search:
    """A set of units, out of `units` that are refused together, of which none can be left out.

    Empty where the command is refused without any of them. Two rounds are nearly always enough:
    one with each unit left out, and each alone; one with those alone that cannot be left out.
    """
    everything = frozenset(range(units))
    without = [everything - {unit} for unit in range(units)]
    alone = [frozenset({unit}) for unit in range(units)]
    said = yield [frozenset(), *without, *alone]
    if said[0]:
        return frozenset()
    needed = frozenset(unit for unit in range(units) if not said[1 + unit])
    sufficient = [one for one, same in zip(alone, said[1 + units :], strict=True) if same]
    if sufficient:
        return next((one for one in sufficient if one <= needed), sufficient[0])
    if needed != everything:
        (is_enough,) = yield [needed]
        return (yield from _smaller(needed if is_enough else everything))
    return (yield from _smaller(everything))


def _smaller(given: Kept) -> Search:
    """ddmin (Zeller, Hildebrandt 2002), the complements of a round asked at once."""
    left, parts = sorted(given), 2
    for _ in range(_MOST_ROUNDS):
        if len(left) < 3:  # of one none, of two each alone was asked
            break
        parts = min(parts, len(left))
        complements = [frozenset(left).difference(part) for part in _divided(left, parts)]
        said = yield complements
        found = next((one for one, same in zip(complements, said, strict=True) if same), None)
        if found is not None:
            left, parts = sorted(found), max(parts - 1, 2)
        elif parts == len(left):
            break
        else:
            parts *= 2
    return frozenset(left)


def _divided(given: Sequence[int], parts: int) -> Iterable[Sequence[int]]:
    size, more = divmod(len(given), parts)
    start = 0
    for number in range(parts):
        end = start + size + (number < more)
        yield given[start:end]
        start = end
