"""Verbs of the command line, and their options."""

import sys

if "typing_extensions" not in sys.modules:
    # msgspec does not need it from Python 3.11 on, but imports it if installed, which takes 6 ms
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import msgspec  # noqa: F401

    del sys.modules["typing_extensions"]
