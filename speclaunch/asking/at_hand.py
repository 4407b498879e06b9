"""Who is asked with `auto`. Where nobody can be, that must cost nothing to know."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.asking.mode import Ask, has_judges

if TYPE_CHECKING:
    from speclaunch.asking.asker import Asker
    from speclaunch.judge.interface import Judge


def asker_for(mode: Ask, *, keeps: bool = True, starts: bool = False) -> Asker | None:
    """Who asks; None: nobody does.

    With `auto` the judges are asked that were added, and not an engine that happens to be
    installed: loading it would cost seconds for each file or recipe that is changed. `starts`:
    the engine is about to be started, so that it may be asked as well. `keeps`: whether verdicts
    are kept, and kept ones count.
    """
    only_added = mode is Ask.AUTO and not starts
    if mode is Ask.NEVER or (only_added and not has_judges()):
        return None
    from speclaunch.asking.asker import Asker  # noqa: PLC0415  where somebody may be asked
    from speclaunch.asking.verdicts import opened  # noqa: PLC0415

    asker = Asker(mode, opened(wanted=keeps))
    if only_added:
        asker.find = added_judge
    return asker


def added_judge(version: str | None, python: Path | None) -> Judge | None:
    """The judge of a version that was added for it; an interpreter's own was not."""
    from speclaunch.judge.environments import kept  # noqa: PLC0415
    from speclaunch.judge.interface import judge_for  # noqa: PLC0415

    is_added = python is None and any(version in (one.release, one.name) for one in kept())
    return judge_for(version, None) if is_added else None


def identity(asker: Asker | None) -> tuple[str, ...]:
    """What a result rests on that was found with its help: the mode, and all who can be asked."""
    if asker is None:
        return ()
    from speclaunch.judge.interface import judges  # noqa: PLC0415

    return (asker.mode.value, *(f"{one.release} {one.digest}" for one in judges()))


def interpreter(python: str | None) -> Path | None:
    """The interpreter that would be launched, where it is named by its path."""
    return Path(python) if python is not None and "/" in python else None
