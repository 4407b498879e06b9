"""Which file of the shared directory is what.

```
DIRECTORY/last-good/KEY.json            what served before
DIRECTORY/JOB/g0001/epoch-00000.json    a decision
                    life-server.1.2.json    the second life of rank 1 has come
                    beat-server.1.2.json    its state, again and again
                    failed-00003-server.1.2.json   its engine of epoch 3 ended
                    gone-server.1.1.json    seen to have ended by the next life on its host
                    served-00003.json   all ranks served with the settings of epoch 3
```
"""

from __future__ import annotations

import re
from pathlib import Path

from speclaunch.launch.agreement.records import Name

_LIFE = re.compile(r"(life|beat|gone)-([A-Za-z0-9_-]+)\.(\d+)\.(\d+)\.json\Z")
_EPOCH = re.compile(r"(epoch|served)-(\d{5,})\.json\Z")
_FAILED = re.compile(r"failed-(\d{5,})-([A-Za-z0-9_-]+)\.(\d+)\.(\d+)\.json\Z")
_GENERATION = re.compile(r"g(\d{4,})\Z")


def life(name: Name) -> str:
    """It has come."""
    return f"life-{name}.json"


def beat(name: Name) -> str:
    """Its state."""
    return f"beat-{name}.json"


def gone(name: Name) -> str:
    """It has ended for sure."""
    return f"gone-{name}.json"


def epoch(number: int) -> str:
    """A decision."""
    return f"epoch-{number:05d}.json"


def served(number: int) -> str:
    """All ranks served."""
    return f"served-{number:05d}.json"


def failed(number: int, name: Name) -> str:
    """An engine of that epoch ended."""
    return f"failed-{number:05d}-{name}.json"


def read_life(file: str) -> tuple[str, Name] | None:
    """Whether it is a `life`, a `beat` or a `gone`, and whose."""
    found = _LIFE.match(file)
    if found is None:
        return None
    kind, part, rank, number = found.groups()
    return kind, Name(part, int(rank), int(number))


def read_epoch(file: str) -> tuple[str, int] | None:
    """Whether it is an `epoch` or a `served`, and which."""
    found = _EPOCH.match(file)
    return None if found is None else (found[1], int(found[2]))


def is_failure(file: str) -> bool:
    """Whether it tells of an engine that ended."""
    return _FAILED.match(file) is not None


def generation(job: Path, number: int) -> Path:
    """The directory of a generation."""
    return job / f"g{number:04d}"


def generations(names: list[str]) -> list[int]:
    """Their numbers, in their order."""
    found = (_GENERATION.match(name) for name in names)
    return sorted(int(one[1]) for one in found if one)
