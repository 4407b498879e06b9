"""Measure the size of the code: what is declared, and how often.

    python tools/measure.py [CHECKOUT]

Prints lines and files of each folder, and of the package its statements, record classes and the
public class names that are defined more than once.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

FOLDERS = ("speclaunch", "tools", "campaigns", "tests")
RECORDS = frozenset({"dataclass", "define", "frozen"})
BASES = frozenset({"BaseModel", "Struct", "NamedTuple", "TypedDict"})


def tracked(checkout: Path, folder: str) -> list[Path]:
    """Return the tracked Python files below a folder that exist."""
    command = ["git", "-C", str(checkout), "ls-files", "--", f"{folder}/*.py"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [path for name in names if (path := checkout / name).is_file()]


def is_record(node: ast.ClassDef) -> bool:
    """True if a class declares fields: by its decorator, or by the class it derives from."""
    decorators = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return not RECORDS.isdisjoint(map(_name, decorators)) or not BASES.isdisjoint(
        map(_name, node.bases)
    )


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def main() -> None:
    """Print a line for each measure."""
    checkout = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    for folder in FOLDERS:
        files = tracked(checkout, folder)
        lines = sum(path.read_bytes().count(b"\n") for path in files)
        print(f"{folder}: {lines:,} lines in {len(files):,} files")
    trees = [ast.parse(path.read_bytes()) for path in tracked(checkout, "speclaunch")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    fields = [
        sum(isinstance(one, ast.AnnAssign) for one in node.body)
        for node in classes
        if is_record(node)
    ]
    names = Counter(node.name for node in classes if not node.name.startswith("_"))
    twice = sorted(name for name, count in names.items() if count > 1)
    print(f"statements: {sum(isinstance(node, ast.stmt) for node in nodes):,}")
    print(
        f"record classes: {len(fields)}, {sum(count <= 3 for count in fields)} of at most 3 fields"
    )
    print(f"public class names defined more than once: {len(twice)}: {', '.join(twice)}")


if __name__ == "__main__":
    main()
