"""The GPUs that a manifest or a program names, as `--hardware` takes them."""

from __future__ import annotations

from speclaunch.errors import InputError
from speclaunch.facts.hardware import declare
from speclaunch.patterns import lazy

_GPUS = lazy(r"(?P<name>[A-Za-z][\w.-]*?)(?P<memory>[:-]\d+GB)?(?::(?P<count>\d+))?\Z")


def declared(said: str | None) -> str | None:
    """What `--hardware` takes for it; None where that is not one kind of GPU that is known."""
    found = _GPUS.match(said.strip()) if said else None
    if found is None:
        return None
    memory = (found["memory"] or "").lower().lstrip(":-")
    count = f":{found['count']}" if found["count"] else ""
    name = found["name"].lower()
    for text in ([f"{name}-{memory}{count}"] if memory else []) + [f"{name}{count}"]:
        try:
            declare(text)
        except InputError:
            continue
        return text
    return None
