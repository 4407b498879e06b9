"""Run a module hidden by a module of the same name earlier on the path."""

import importlib.machinery
import importlib.util
import os
import sys


def run_next(name: str, *, after: str) -> None:
    """Execute the first module ``name`` on ``sys.path`` that is not in the folder ``after``.

    The module's errors propagate to ``site``, which reports them as usual.
    """
    rest = [entry for entry in sys.path if os.path.realpath(entry) != os.path.realpath(after)]
    spec = importlib.machinery.PathFinder.find_spec(name, rest)
    if spec is None or spec.loader is None:
        return
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
