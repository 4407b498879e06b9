"""Runs a module of this installation: `python -P own_process.py MODULE ARGS…`.

`children.own_command` returns this command. The package is loaded from its directory, without
changing `sys.path`. This works even if a new interpreter would not find the installation.
"""

# ruff: noqa: PTH100, PTH118, PTH120  a fast start: no pathlib
import importlib.util
import os
import runpy
import sys


def _load_package() -> None:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "speclaunch", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        sys.exit(f"error: {folder} is not readable")
    package = importlib.util.module_from_spec(spec)
    sys.modules["speclaunch"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    _load_package()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
