"""speclaunch as one rank of a campaign: its shared directory fails and is slow when it is told to.

    python campaigns/_agreement_rank.py CONTROL launch recipe=… …

The file CONTROL says what every operation on the shared directory does from now on: nothing (it is
empty), `slow SECONDS` (each takes up to that), or `error NAME` (each fails so: ENOSPC, ESTALE, …).
"""

from __future__ import annotations

import errno
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from speclaunch.serving.launch.agreement.membership import DirectoryStore, StoreError  # noqa: E402

WRITES = frozenset({"create", "overwrite"})
ONLY_WRITES = frozenset({"ENOSPC", "EROFS", "EDQUOT"})


def faulty(name: str, operation: Callable[..., Any], control: Path) -> Callable[..., Any]:
    """The operation as a bad disk does it."""

    def done(self: DirectoryStore, *args: Any) -> Any:
        kind, _, what = control.read_text().strip().partition(" ")
        if kind == "slow":
            time.sleep(random.uniform(0, float(what)))  # noqa: S311 - to find trouble
        elif kind == "error" and (name in WRITES or what not in ONLY_WRITES):
            number = getattr(errno, what)
            error = OSError(number, os.strerror(number))
            raise StoreError("write to" if name in WRITES else "read", error, self._path)
        return operation(self, *args)

    return done


def main() -> None:
    control = Path(sys.argv.pop(1))
    for name in ("create", "overwrite", "read", "names"):
        setattr(DirectoryStore, name, faulty(name, getattr(DirectoryStore, name), control))
    from speclaunch.app.verbs.app import main as run  # noqa: PLC0415 - the store is ready now

    run()


if __name__ == "__main__":
    main()
