"""Where the facts of checkpoints may come from, beyond the machine's own caches."""

from __future__ import annotations

from pathlib import Path

from speclaunch.record import record


@record
class Sources:
    """Directories of checkpoints, the facts that a repository keeps, the index, the hub."""

    directories: tuple[Path, ...] = ()
    """`--models`, in the order given."""
    repository: tuple[Path, ...] = ()
    """Folders `.speclaunch/models`, the nearest first."""
    index: Path | None = None
    """The index that ships; None: not asked."""
    online: bool = False
    assume: tuple[tuple[str, str], ...] = ()
    """Pairs of a checkpoint and the one whose facts are taken for it, the first counts."""

    def assumed(self, name: str) -> str | None:
        """The checkpoint that `name` is assumed to be as."""
        return next((other for one, other in self.assume if one == name), None)


NOWHERE_ELSE = Sources()
"""This machine's directories and caches alone."""
