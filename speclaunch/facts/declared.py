"""The GPUs that people serve on, by the names that people say."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches

from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem
from speclaunch.facts.hardware import Hardware, Vendor

AUTO = "auto"
"""What a recipe says for the hardware of the machine that it is launched on."""
_MAX_COUNT = 64


def _nvidia(name: str, memory_mib: int, capability: int) -> Hardware:
    return Hardware(name, Vendor.NVIDIA, 1, memory_mib, capability)


def _amd(name: str, memory_mib: int) -> Hardware:
    return Hardware(name, Vendor.AMD, 1, memory_mib)


# `memory.total` of nvidia-smi in MiB, which is what the engine reads, and the compute capability.
# Where a board's own number is not published, the nominal size is used: the engine's thresholds
# (20, 35, 60, 90, 160 GB) lie far from both.
_KNOWN = (
    _nvidia("t4", 15360, 75),
    _nvidia("v100-16gb", 16384, 70),
    _nvidia("v100-32gb", 32768, 70),
    _nvidia("l4", 23034, 89),
    _nvidia("l40", 46068, 89),
    _nvidia("l40s", 46068, 89),
    _nvidia("a10", 23028, 86),
    _nvidia("a10g", 23028, 86),
    _nvidia("a30", 24576, 80),
    _nvidia("a40", 46068, 86),
    _nvidia("a100-40gb", 40960, 80),
    _nvidia("a100-80gb", 81920, 80),
    _nvidia("a800-80gb", 81920, 80),
    _nvidia("h100-80gb", 81559, 90),
    _nvidia("h100-94gb", 95830, 90),
    _nvidia("h800-80gb", 81559, 90),
    _nvidia("h20-96gb", 97871, 90),
    _nvidia("h20-141gb", 143771, 90),
    _nvidia("h200", 143771, 90),
    _nvidia("gh200-96gb", 97871, 90),
    _nvidia("gh200-144gb", 147456, 90),
    _nvidia("b200", 183359, 100),
    _nvidia("gb200", 189471, 100),
    _nvidia("b300", 275040, 103),
    _nvidia("gb300", 284208, 103),
    _nvidia("rtx3090", 24576, 86),
    _nvidia("rtx4090", 24564, 89),
    _nvidia("rtx5090", 32607, 120),
    _nvidia("rtxa6000", 49140, 86),
    _nvidia("rtx6000ada", 49140, 89),
    _nvidia("rtxpro6000", 97887, 120),
    _nvidia("dgxspark", 122880, 121),
    _amd("mi250x", 65520),
    _amd("mi300x", 196592),
    _amd("mi325x", 262128),
    _amd("mi355x", 294896),
    Hardware("cpu", Vendor.CPU),
)
_ALIASES = {
    "a100": "a100-80gb",
    "a800": "a800-80gb",
    "h100": "h100-80gb",
    "h100nvl": "h100-94gb",
    "h800": "h800-80gb",
    "h20": "h20-96gb",
    "gh200": "gh200-96gb",
    "h200-141gb": "h200",
    "v100": "v100-32gb",
    "a6000": "rtxa6000",
    "rtx6000pro": "rtxpro6000",
}
_BY_KEY = {re.sub(r"[^a-z0-9]", "", one.name): one for one in _KNOWN}
_BY_KEY |= {
    re.sub(r"[^a-z0-9]", "", alias): _BY_KEY[re.sub(r"[^a-z0-9]", "", name)]
    for alias, name in _ALIASES.items()
}
_FORM = re.compile(r"(?:nvidia[ -]|amd[ -]|geforce[ -])*(?P<name>.+?)(?:[-_ ](?:sxm\d?|pcie))?\Z")


def declare(said: str) -> Hardware:
    """`h100`, `h100-80gb:8`, `a100-40gb`, `rtx4090`, `mi300x`, `cpu`: name and number of GPUs.

    Raises InputError for a name or a number that is none.
    """
    name, colon, number = said.strip().lower().partition(":")
    count = int(number) if number.isascii() and number.isdigit() else 0
    if colon and not 1 <= count <= _MAX_COUNT:
        raise _wrong(said, f"{number!r} is not a number of GPUs (1 to {_MAX_COUNT})", "h100-80gb:8")
    form = _FORM.match(name)
    key = re.sub(r"[^a-z0-9]", "", form["name"] if form else name)
    found = _BY_KEY.get(key)
    if found is None:
        near = get_close_matches(key, _BY_KEY, n=3, cutoff=0.6)
        known = dict.fromkeys(_BY_KEY[one].name for one in near)
        hint = (
            f"did you mean {' or '.join(known)}?"
            if known
            else "names are " + ", ".join(one.name for one in _KNOWN)
        )
        raise _wrong(said, f"no hardware is called {name!r}", hint)
    return replace(found, count=count or 1)


def names() -> tuple[str, ...]:
    """The names that are known, without their aliases."""
    return tuple(one.name for one in _KNOWN)


def _wrong(said: str, message: str, hint: str) -> InputError:
    return InputError(Problem(message, Place(COMMAND_LINE, text=f"hardware {said}"), hint))
