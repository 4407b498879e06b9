"""Options that take several numbers: `1,8,32`."""

from __future__ import annotations

from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem


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
