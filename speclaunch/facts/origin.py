"""Where the facts of a checkpoint come from."""

from __future__ import annotations

from enum import StrEnum

from speclaunch.record import record


class Provenance(StrEnum):
    """Where the facts of a checkpoint were read, nearest first."""

    DIRECTORY = "directory"
    """A directory of that name, or one below --models."""
    CACHE = "cache"
    """A hub cache of this machine."""
    REPOSITORY = "repository"
    """`.speclaunch/models/` beside the file, or above it."""
    INDEX = "index"
    """The index that ships with speclaunch."""
    HUB = "hub"


@record
class Origin:
    """Where the facts of a checkpoint come from, and how far they go."""

    provenance: Provenance
    where: str
    """The directory or the file; of the index and of the hub, their source in words."""
    read: str | None = None
    """The day on which a repository's file or an entry of the index was read, YYYY-MM-DD."""
    revision: str | None = None
    """The commit that they describe, where it is known."""
    doubt: str | None = None
    """Why they may not be those of the checkpoint that is asked for."""
    assumed: str | None = None
    """The checkpoint whose facts these are, by `--assume` or `speclaunch.toml`."""
    stated: tuple[str, ...] = ()
    """Keys of config.json whose values `stated_in` states: they are certain despite `doubt`."""
    stated_in: str | None = None

    def __str__(self) -> str:
        told = {
            Provenance.INDEX: f"speclaunch's index, read {self.read}",
            Provenance.REPOSITORY: f"{self.where}, read {self.read}",
            Provenance.HUB: "the hub",
        }.get(self.provenance, self.where)
        if self.assumed is not None:
            told = f"assumed to be as {self.assumed}: {told}"
        return told if self.doubt is None else f"{told}; {self.doubt}"
