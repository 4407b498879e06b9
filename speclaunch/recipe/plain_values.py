"""From a composed container as it is written to plain values: interpolations and what is missing.

What nearly all recipes say needs no OmegaConf (`simple_interpolation.py`), which is imported for
the rest and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from speclaunch import reads
from speclaunch.cpu.environment import CpuEngine
from speclaunch.errors import InputError, Place, Problem
from speclaunch.home import speclaunch_home
from speclaunch.patterns import lazy
from speclaunch.recipe.hydra_errors import first_line
from speclaunch.recipe.interpolation import (
    RESOLVERS,
    is_marked,
    missing_in,
    resolved,
    uses_environment,
)
from speclaunch.recipe.simple_interpolation import NotSimpleError, resolved_simply
from speclaunch.recipe.source import Provenance

_COMPUTED = lazy(r"\$\{[\w.\s]*\$\{")
"""A name that is itself looked up may be that of any resolver, `oc.env` included."""


def plain_values(raw: Any, provenance: Provenance, shown: str) -> dict[str, Any]:
    """The values of a container as it is composed (interpolations and `???` as they are written).

    Raises InputError for an interpolation that leads nowhere, and for each value that is missing.
    """
    if not isinstance(raw, dict):
        raise InputError(Problem("a recipe is a YAML mapping", Place(shown)))
    if any("${" in text or text == "???" for text in _texts(raw)):
        if any(_COMPUTED.search(text) for text in _texts(raw)):
            reads.unrepeatable()
        raw = _resolved_values(raw, provenance, shown)
    return {str(key): value for key, value in raw.items()}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _resolved_values(raw: dict[Any, Any], provenance: Provenance, shown: str) -> dict[Any, Any]:
    try:
        return _simply(raw)
    except (NotSimpleError, RecursionError):
        return _by_omegaconf(raw, provenance, shown)


def _simply(raw: dict[Any, Any]) -> dict[Any, Any]:
    def resolve(container: Any) -> Any:
        return resolved_simply(container, _SIMPLE)

    found: dict[Any, Any] = resolved(raw, resolve) if uses_environment(raw) else resolve(raw)
    return found


def _by_omegaconf(raw: dict[Any, Any], provenance: Provenance, shown: str) -> dict[Any, Any]:
    from omegaconf import OmegaConf  # noqa: PLC0415
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    register_resolvers()
    try:
        if uses_environment(raw):
            values: Any = resolved(raw, resolve)
            missing = missing_in(raw)
        else:
            config = OmegaConf.create(raw)
            OmegaConf.set_struct(config, True)
            values = OmegaConf.to_container(config, resolve=True)
            missing = OmegaConf.missing_keys(config)
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        path = tuple(re.split(r"[.\[\]]+", key.rstrip("]")))
        raise InputError(
            Problem(first_line(error), provenance.find(path) or Place(shown))
        ) from error
    except RecursionError as error:
        raise InputError(Problem("values refer to each other in a cycle", Place(shown))) from error
    if missing:
        raise InputError(
            Problem(
                f"{key} has no value yet",
                provenance.find(tuple(key.split("."))) or Place(shown),
                f"set it: {key}=…",
            )
            for key in sorted(missing)
        )
    found: dict[Any, Any] = values
    return found


def _cpu_model(name: object) -> str:
    return str(CpuEngine(speclaunch_home()).model(str(name)))


_SIMPLE = {**RESOLVERS, "cpu_model": _cpu_model}
"""Without `oc.env`, which `resolved` writes as one of these."""


def register_resolvers() -> None:
    """`${cpu_model:cycle}` is the directory of a tiny model of the CPU engine."""
    from omegaconf import OmegaConf  # noqa: PLC0415

    if not OmegaConf.has_resolver("cpu_model"):
        OmegaConf.register_new_resolver("cpu_model", _cpu_model)
        for name, resolver in RESOLVERS.items():
            OmegaConf.register_new_resolver(name, resolver)
        OmegaConf.register_new_resolver("speclaunch_decode", _decode)


def resolve(raw: Any) -> Any:
    """A container with its interpolations resolved. Raises OmegaConf's own errors."""
    from omegaconf import OmegaConf  # noqa: PLC0415

    return OmegaConf.to_container(OmegaConf.create(raw), resolve=True)


def _decode(text: str | None) -> Any:
    """OmegaConf's own `oc.decode`, which would trip over the mark of a variable."""
    if text is None or is_marked(text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return resolve({"value": f"${{oc.decode:'{escaped}'}}"})["value"]
