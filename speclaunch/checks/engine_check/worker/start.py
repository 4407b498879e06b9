"""Entry point of the worker: runs its folder as a package with a unique name."""

import importlib.util
import sys
from pathlib import Path

NAME = "speclaunch_judge_worker"


def main() -> None:
    """Run the package. Its unique name avoids conflicts with other packages."""
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None  # noqa: S101  (a file in the same folder)
    sys.modules[NAME] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    importlib.import_module(f"{NAME}.serve").main()


if __name__ == "__main__":
    main()
