"""Server arguments and variables of SGLang that changed their name or their meaning.

Either name in a recipe means the same; the command uses the one that the engine version knows.
Whether a version knows a name is the catalogue's to say; this table only says which names are
the same thing. Sources: the `add_cli_args` of the released wheels, read by tools/catalogue.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version


@dataclass(frozen=True, slots=True)
class Rename:
    """Two names of one server argument; `since` is the first version that has the new one."""

    old: str
    new: str
    since: str


RENAMES: tuple[Rename, ...] = (
    # Old names are deprecated aliases in 0.5.14-0.5.19 and refused from 0.5.20 ("ambiguous
    # option: --cuda-graph-max-bs could match …"): server_args.py of 0.5.14 and 0.5.20.
    Rename("cuda_graph_max_bs", "cuda_graph_max_bs_decode", "0.5.14"),
    Rename("cuda_graph_bs", "cuda_graph_bs_decode", "0.5.14"),
    # Alias in 0.5.12, deprecated 0.5.13, gone in 0.5.20.
    Rename("speculative_dflash_draft_window_size", "speculative_draft_window_size", "0.5.12"),
)


@dataclass(frozen=True, slots=True)
class LiveVariable:
    """An environment variable of the engine and the versions in which something reads it."""

    name: str
    versions: SpecifierSet
    afterwards: str
    """What holds in versions that no longer read it."""


VARIABLES: tuple[LiveVariable, ...] = (
    # 0.5.4 server_args.py reads it; 0.5.14 speculative_hook.py:71 only prints a notice.
    LiveVariable(
        "SGLANG_ENABLE_SPEC_V2",
        SpecifierSet(">=0.5.4,<0.5.14", prereleases=True),
        "SpecV2 is always on from 0.5.14",
    ),
    # 0.5.5 ngram_info.py reads it; from 0.5.14 it is declared in environ.py and read by nothing.
    LiveVariable(
        "SGLANG_NGRAM_FORCE_GREEDY_VERIFY",
        SpecifierSet(">=0.5.5,<0.5.14", prereleases=True),
        "nothing reads it from 0.5.14",
    ),
)


def other_names(name: str) -> tuple[str, ...]:
    """The other names under which the same server argument is known, nearest first."""
    found: list[str] = []
    for rename in RENAMES:
        if name == rename.old:
            found.append(rename.new)
        elif name == rename.new:
            found.append(rename.old)
    return tuple(found)


def dead_variable(name: str, version: str) -> LiveVariable | None:
    """The entry of a variable that `version` is known not to read."""
    for variable in VARIABLES:
        if variable.name == name and not variable.versions.contains(_base(version)):
            return variable
    return None


def _base(version: str) -> str:
    """0.5.13.post1 is 0.5.13, and so is a nightly of it."""
    return Version(version).base_version
