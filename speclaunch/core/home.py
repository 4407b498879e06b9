"""The directory of speclaunch's own files: the CPU engine, tiny models and run logs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import Struct

from speclaunch.core.errors import InputError, Problem


def speclaunch_home() -> Path:
    """Return `SPECLAUNCH_HOME`, else a folder in the user's cache directory. Does not create it."""
    chosen = os.environ.get("SPECLAUNCH_HOME")
    if chosen:
        return expand_user(chosen).absolute()
    # The XDG base directory specification. platformdirs would return the same, but its import
    # alone takes longer than reading a catalogue.
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "speclaunch"


def expand_user(path: str | Path) -> Path:
    """Return a path with `~` expanded. The path of an unknown user is unchanged, as in a shell."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


JUDGE_RECORD = "judge.json"
"""Name of the file that describes a judge."""


def judges_home() -> Path:
    """Return the directory of installed judges, one folder each. Does not create it."""
    return speclaunch_home() / "judges"


def advisories_home() -> Path:
    """Return the directory of stored advisories and their pages. Does not create it."""
    return speclaunch_home() / "advisories"


class Distrust(Struct, frozen=True):
    """Reason not to use the files in a folder, and the remedy."""

    why: str
    help: str
    is_of_permissions: bool = True
    """False if the folder's owner is the reason."""


_ENTERED = stat.S_IXGRP | stat.S_IXOTH


def distrust(folder: Path, home: Path | None = None) -> Distrust | None:
    """Return why files in `folder` (below the home) are neither executed nor trusted.

    The reason is that other users could have written them. None if only this user or root can write
    to the folder, or if it does not exist.

    The home and its contents must belong to this user or root, and no other user may have write
    access. A group may have it if it is root's or this user's own (`umask 002`). Above the home, a
    world-writable folder needs the sticky bit, like `/tmp`. Permissions are not checked below a
    folder that only this user can enter.
    """
    top = Path(os.path.realpath(home or speclaunch_home()))
    place = Path(os.path.realpath(folder))
    is_private = False
    for directory in (*reversed(place.parents), place):
        try:
            seen = directory.stat()
        except OSError:  # it does not exist, or cannot be used anyway
            return None
        found = _distrust_of(directory, seen, is_own=directory == top or top in directory.parents)
        if found is not None and not (is_private and found.is_of_permissions):
            return found
        is_private = is_private or (seen.st_uid == os.geteuid() and not seen.st_mode & _ENTERED)
    return None


def require_own(folder: Path, what: str, home: Path | None = None) -> None:
    """Raise InputError if other users could have written the programs in `folder` (`distrust`)."""
    found = distrust(folder, home)
    if found is not None:
        raise InputError(Problem(f"{what} is not executed: {found.why}", help=found.help))


def _distrust_of(place: Path, found: os.stat_result, *, is_own: bool) -> Distrust | None:
    another = "set SPECLAUNCH_HOME to a folder that you own"
    if is_own and found.st_uid not in (os.geteuid(), 0):
        why = f"{place} belongs to another user (uid {found.st_uid})"
        return Distrust(why, another, is_of_permissions=False)
    by_all = found.st_mode & stat.S_IWOTH and (is_own or not found.st_mode & stat.S_ISVTX)
    by_group = is_own and found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    if by_all or by_group:
        return Distrust(f"other users can write to {place}", f"chmod go-w {place}, or {another}")
    return None


def _is_own_group(group: int) -> bool:
    """True for root's group, and for a group whose only member is this user."""
    if group == 0:
        return True
    import grp  # noqa: PLC0415 - few folders are writable by a group
    import pwd  # noqa: PLC0415

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_named_so = found.gr_name == user.pw_name and user.pw_gid == group
    return is_named_so and set(found.gr_mem) <= {user.pw_name}
