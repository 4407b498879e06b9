"""Runs speclaunch with engines that `planted.served` starts: `python -m` this module, WORDS."""

from __future__ import annotations

from speclaunch.app.verbs.app import main
from speclaunch.measure.bisect import bisect
from speclaunch.measure.upgrade import running
from tests.support.measure import planted

if __name__ == "__main__":
    bisect.launched = running.launched = planted.served  # type: ignore[attr-defined]
    main()
