"""The program: makes the folder that it stands in a package of a name of its own, and runs it."""

import importlib.util
import sys
from pathlib import Path

NAME = "speclaunch_judge_worker"


def main() -> None:
    """Nothing of this folder is found by its plain name, which may be a module of somebody's."""
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None  # noqa: S101  (a file beside this one)
    sys.modules[NAME] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    importlib.import_module(f"{NAME}.serve").main()


if __name__ == "__main__":
    main()
