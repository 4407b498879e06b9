"""The command line: one file a verb."""

import sys

if "typing_extensions" not in sys.modules:
    # msgspec needs nothing of it from Python 3.11 on, but imports it if it is installed: 6 ms
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import msgspec  # noqa: F401

    del sys.modules["typing_extensions"]
