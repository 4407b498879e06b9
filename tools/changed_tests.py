"""Find the test modules that reach a change since the last run of all tests.

    python tools/changed_tests.py            # their distances, as JSON
    python tools/changed_tests.py --record   # this tree passed all tests: write tests/tested.txt

A change is a file whose digest is not in tests/tested.txt. The digest of Python code leaves out
comments, docstrings, positions and the modules that imports name; that of a rule page leaves out
its prose, what the rule does and why it matters. The list has no paths: a moved or renamed file is
no change.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path("tests", "tested.txt")
SOURCES = ("speclaunch", "tests", "tools", "campaigns")
DATA = {"conf": "speclaunch.core.resources", "recipes": "speclaunch.core.resources"}
DATA |= {"models": "speclaunch.core.resources", "docs/rules": "speclaunch.checks.rules.interface"}
"""Folders outside the packages, and the module that reads them."""
ENGINE_TESTS = "tests.e2e"
STARTS_ENGINES = {
    "tests.e2e.conftest": ("speclaunch.serving.launch", "speclaunch.serving.cpu_engine")
}
"""The import graph does not know what a command line runs: packages that these modules reach."""


def digest(tree: ast.Module) -> str:
    """Return the digest of code without comments, docstrings, positions and names of modules.

    The tree is of no use afterwards.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
        elif isinstance(node, ast.ImportFrom):
            node.module, node.level = None, 0
    return _short(ast.dump(tree).encode())


def _is_text(node: ast.stmt) -> bool:
    """True for a docstring, also that of an attribute."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def module_name(path: Path) -> str:
    """Return the dotted name of a module by its path below the root."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read(root: Path) -> Iterator[tuple[str, str, ast.Module | None]]:
    """Yield module, digest and code of each file; a file of data belongs to its package."""
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root)
            if not path.is_file() or "__pycache__" in relative.parts or relative == RECORD:
                continue
            if path.suffix in (".md", ".pyi") or path in doors(root):
                continue  # a new name of a door is a change of the module that imports it
            if path.suffix != ".py":
                package = next(p for p in path.parents if p == root or any(p.glob("*.py")))
                yield module_name(package.relative_to(root)), _short(path.read_bytes()), None
                continue
            code = path.read_bytes()
            yield module_name(relative), digest(ast.parse(code)), ast.parse(code)
    for folder, reader in DATA.items():
        for path in sorted((root / folder).rglob("*")):
            if path.is_file():
                head, _, sections = path.read_bytes().partition(b"\n## What it does")
                yield reader, _short(head + sections.partition(b"\n## Example")[2]), None


def doors(root: Path) -> list[Path]:
    """Return the front doors of the libraries."""
    return sorted((root / "speclaunch").glob("*/__init__.py"))


def homes(root: Path) -> dict[str, str]:
    """Return the module behind each name of a front door: `speclaunch.engine.Plan`."""
    found = {}
    for path in doors(root):
        stub = path.with_suffix(".pyi")
        for node in ast.parse(stub.read_text()).body if stub.is_file() else ():
            if isinstance(node, ast.ImportFrom):
                library = module_name(path.relative_to(root))
                found |= {f"{library}.{one.name}": node.module or "" for one in node.names}
    return found


def named(module: str, tree: ast.Module, modules: set[str], behind: Mapping[str, str]) -> set[str]:
    """Return the modules that a module imports, or names in a string, with their packages.

    behind: the modules behind the names of front doors. A string counts if it is the dotted name
    of a module, complete or within the own package, as in a table of what to import late. The word
    `speclaunch` is the command line.
    """
    package = module if f"{module}.__init__" in modules else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {base} | names | {behind[name] for name in names & behind.keys()}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.partition(":")[0]
            ours = module.startswith("speclaunch.")
            if ours and ("." in text or text.isidentifier()):
                found.add(f"{package}.{text}")
            elif text == "speclaunch" and not ours and not module.startswith(ENGINE_TESTS):
                found.add("speclaunch.__main__")
    found &= modules
    for package in STARTS_ENGINES.get(module, ()):
        found |= {name for name in modules if name.startswith(f"{package}.")}
    found.add(package)  # the data next to it
    if package.startswith("tests.support"):
        found.add(package.replace(".support", "", 1))  # the data that it reads
    if module.startswith("tests.") and (own := f"{package}.conftest") in modules:
        found |= {own} - {"tests.conftest", module}  # that of all tests says nothing of one
    return found


def distances(graph: dict[str, set[str]], changed: Iterable[str]) -> dict[str, int]:
    """Return how many imports each module is away from the nearest changed one."""
    users: dict[str, set[str]] = {}
    for module, used in graph.items():
        for one in used:
            users.setdefault(one, set()).add(module)
            while "." in (one := one.rpartition(".")[0]):  # a package runs before its modules
                users.setdefault(one, set()).add(module)
    found = dict.fromkeys(changed, 0)
    queue = list(found)
    for module in queue:
        for user in sorted(users.get(module, ())):
            if user not in found:
                found[user] = found[module] + 1
                queue.append(user)
    return found


def heading() -> str:
    """Return the first line of the record. Another Python has another syntax tree."""
    return f"# all tests passed, Python {'.'.join(platform.python_version_tuple()[:2])}"


def import_graph(
    root: Path, files: Collection[tuple[str, str, ast.Module | None]]
) -> dict[str, set[str]]:
    """Return the modules that each module names. files: from `read`."""
    code = {name: tree for name, _, tree in files if tree is not None}
    packages = {f"{name}.__init__" for name in code if _is_package(root, name)}
    modules, behind = {name for name, _, _ in files} | packages, homes(root)
    return {name: named(name, tree, modules, behind) for name, tree in code.items()}


def test_file(module: str) -> str:
    """Return the path of a module with tests; an empty string for any other module."""
    if module.startswith("tests.") and module.rpartition(".")[2].startswith("test_"):
        return f"{module.replace('.', '/')}.py"
    return ""


def touched(root: Path) -> dict[str, int]:
    """Return the distance of each test file that reaches a change."""
    files = list(read(root))
    record = root / RECORD
    known = set(record.read_text().splitlines()) if record.is_file() else set()
    known = known if heading() in known else set()
    changed = sorted({name for name, own, _ in files if own not in known})
    found = distances(import_graph(root, files), changed)
    return {path: found[name] for name in found if (path := test_file(name))}


def reached_digests(root: Path) -> dict[str, str]:
    """Return a digest of all that each test file reaches: its result holds while that is equal.

    Of documents, a file with the text `.md` reaches all.
    """
    files = list(read(root))
    graph = import_graph(root, files)
    own: dict[str, list[str]] = {}
    for name, digest_, _ in files:
        own.setdefault(name, []).append(digest_)
    documents = [_short(p.read_bytes()) for p in sorted(root.glob("*.md"))]
    documents += [_short(p.read_bytes()) for p in sorted((root / "docs").rglob("*.md"))]
    found = {}
    for path, module in ((test_file(module), module) for module in own):
        if path:
            digests = sorted(one for name in reach(graph, module) for one in own.get(name, ()))
            digests += documents if ".md" in (root / path).read_text() else ()
            found[path] = _short("".join(digests).encode())
    return found


def reach(graph: Mapping[str, set[str]], module: str) -> list[str]:
    """Return a module and all that it imports, over any number of modules."""
    found = [module]
    seen = {module}
    for name in found:
        for used in graph.get(name, ()):
            new = {*accumulate(used.split("."), "{}.{}".format)} - seen  # its packages run first
            seen |= new
            found += new
    return found


def _is_package(root: Path, name: str) -> bool:
    return (root / name.replace(".", "/") / "__init__.py").is_file()


def record(root: Path) -> None:
    """Write down that this tree passed all tests."""
    lines = sorted({own for _, own, _ in read(root)})
    (root / RECORD).write_text("\n".join([heading(), *lines]) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record(ROOT)
    else:
        print(json.dumps(touched(ROOT), indent=1, sort_keys=True))
