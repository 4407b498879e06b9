"""Space where models, caches and logs go."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Surroundings, Volume
from speclaunch.facts.facts import UnknownFact

_GB = 10**9
_LOW = 5 * _GB
"""Less than this runs out on a log, a compile cache or a small model."""
_FULL = 200 * 10**6


def check(found: Surroundings) -> Iterator[Line]:
    """One line a disk; directories that cannot be written one each."""
    disks: dict[int, list[Volume]] = {}
    for volume in found.volumes:
        if isinstance(volume, UnknownFact):
            yield Line("disk", State.UNKNOWN, f"{volume.what}: {volume.why}")
        else:
            disks.setdefault(volume.device, []).append(volume)
    for volumes in disks.values():
        yield _space(volumes)
        for volume in volumes:
            if not volume.writable:
                yield Line(
                    "disk",
                    State.WARNING,
                    f"{volume.path} cannot be written",
                    f"it is meant for {volume.what}",
                    _elsewhere(volume),
                )


def _space(volumes: list[Volume]) -> Line:
    first = volumes[0]
    names = ", ".join(f"{volume.what} {volume.path}" for volume in volumes)
    said = f"{first.free / _GB:.1f} of {first.total / _GB:.0f} GB free: {names}"
    if first.free < _FULL:
        why = "nothing can be downloaded, compiled or logged there"
        return Line("disk", State.WARNING, said, why, _make_room(volumes))
    if first.free < _LOW:
        return Line("disk", State.WARNING, said, "a model does not fit", _make_room(volumes))
    return Line("disk", State.OK, said)


def _make_room(volumes: list[Volume]) -> str:
    return f"make room, or {_elsewhere(volumes[0])}"


_VARIABLES = {
    "models": "HF_HOME",
    "speclaunch": "SPECLAUNCH_HOME",
    "temporary files": "TMPDIR",
}


def _elsewhere(volume: Volume) -> str:
    variable = _VARIABLES.get(volume.what)
    return f"name another directory in {variable}" if variable else "name another directory"
