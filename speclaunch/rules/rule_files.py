"""The modules of rules, found by their names: `<family>/spl<code>_<name>.py`.

The table of rules (`table.py`) is made of them; nothing else looks for files.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from pathlib import Path

import speclaunch.rules
from speclaunch.patterns import lazy
from speclaunch.record import record
from speclaunch.rules import FAMILIES
from speclaunch.rules.interface import Rule, defined_in

_FILE = lazy(r"spl(\dxx|\d{3}(?:_\d{3})*)_(\w+)")


@record
class RuleFile:
    """A module of rules: the numbers in its name (`9xx`: what else there is of them), its name."""

    module: str
    numbers: tuple[str, ...]
    name: str

    @property
    def is_single(self) -> bool:
        """Whether it holds one rule alone, whose name is the file's."""
        return len(self.numbers) == 1 and self.numbers[0].isdigit()

    @property
    def short(self) -> str:
        """Its name below `speclaunch.rules`, as the table has it."""
        return self.module.removeprefix(f"{speclaunch.rules.__name__}.")

    def rules(self) -> tuple[Rule, ...]:
        """Its rules; this imports it."""
        return defined_in(self.module)


@cache
def rule_files() -> tuple[RuleFile, ...]:
    """The modules of rules, none of them imported."""
    root = Path(speclaunch.rules.__path__[0])
    return tuple(
        RuleFile(f"{speclaunch.rules.__name__}.{family}.{found.name}", numbers, name[2])
        for family in FAMILIES
        for found in pkgutil.iter_modules([str(root / family)])
        if (name := _FILE.fullmatch(found.name))
        for numbers in [tuple(name[1].split("_"))]
    )
