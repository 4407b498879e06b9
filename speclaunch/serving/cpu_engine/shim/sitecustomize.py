"""Prepare each Python process of a CPU engine; ``site`` imports this file if its folder is on
PYTHONPATH.

Nothing heavy is imported here: import hooks wait for ``sglang`` (see ``speclaunch_shim``). A user's
``sitecustomize`` later on the path also runs.
"""

import os

if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    from speclaunch_shim import import_hook

    import_hook.install()

from speclaunch_shim import chain

chain.run_next("sitecustomize", after=os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
