"""``python -m sglang_router.launch_server``: a server for each rank, and a router before them.

It takes the arguments of the server and, with ``--router-`` before them, those of the router; each
server gets ``dp_size`` 1 and its own port (sgl-project/sglang at 0e6ed14,
sgl-router/py_src/sglang_router/launch_server.py: `main`, `launch_server_process`).
"""

from __future__ import annotations

from collections.abc import Sequence

from speclaunch.importer.interface import Dropped, Word

_PREFIX = "--router-"
_RANKS = frozenset({"--dp-size", "--dp", "--data-parallel-size"})


def of_servers(words: Sequence[Word]) -> tuple[tuple[Word, ...], tuple[Dropped, ...]]:
    """The arguments that each of the servers gets, and what the router takes."""
    kept: list[Word] = []
    dropped: list[Dropped] = []
    routers: list[Word] | None = None
    for word in words:
        if word.text.startswith("--"):
            _drop(routers, dropped)
            name = word.text.partition("=")[0]
            routers = [word] if name.startswith(_PREFIX) or name in _RANKS else None
            if routers is None:
                kept.append(word)
        elif routers is not None:
            routers.append(word)
        else:
            kept.append(word)
    _drop(routers, dropped)
    return tuple(kept), tuple(dropped)


def _drop(words: Sequence[Word] | None, dropped: list[Dropped]) -> None:
    if words:
        text = " ".join(word.text for word in words)
        name = words[0].text.partition("=")[0]
        why = "each rank is a server of its own" if name in _RANKS else "an argument of the router"
        dropped.append(Dropped(text, words[0].place, why))
