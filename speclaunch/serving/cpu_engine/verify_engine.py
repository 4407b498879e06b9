"""Report the packages of the engine's interpreter after importing the engine's core.

That interpreter runs this script with the shim on its path. The last line of output is a JSON
object. The script fails with a traceback if the engine could not start.
"""

import importlib
import importlib.metadata
import json
import sys

MODULES = ("sgl_kernel", "sglang.srt.server_args", "sglang.srt.layers.attention.intel_amx_backend")


def main() -> None:
    """Import the engine's core, then print the report."""
    for name in MODULES:
        importlib.import_module(name)
    packages = {
        distribution.metadata["Name"]: distribution.version
        for distribution in importlib.metadata.distributions()
    }
    report = {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
