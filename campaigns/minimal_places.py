"""Hold the arguments that a refusal is blamed on against those that its condition names.

    python -m campaigns minimal_places ask FILE --configs DIR [--count N]  refusals, and their blame
    python -m campaigns minimal_places read FILE --sources DIR             what each condition names
    python -m campaigns minimal_places compare FILE                        counts, and what differs
    python -m campaigns minimal_places store FILE                          places.jsonl.xz

`ask` draws command lines over real configs on four machines, and takes the smallest set of
arguments that the release refuses in the same way (speclaunch/checks/engine_check/opinions.py).
`read` looks at the line that refused in the release's source, as DIR/VERSION/sglang: the arguments
in the tests of the statement, of all around it in its function, and of what their names were
assigned from; and those of the generated row of that line (tools/refusals.py), whose condition goes
through the whole of the resolution. Neither reader knows what was asked.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import lzma
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from campaigns.recalling.drawing import draw
from campaigns.recalling.machines import MACHINES, hardware
from campaigns.recalling.models import lay_out, read_models
from speclaunch.checks.engine_check.installed_judges import cpu_judge
from speclaunch.checks.engine_check.opinions import converse, inquire, is_named_in
from speclaunch.checks.engine_check.questions import NotQueriedError, query_command
from speclaunch.checks.rules.examine import Lookup
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.cpu_engine import SGLANG_VERSION
from speclaunch.engine.plan.refusals import DATA
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.renames import canonical

REPOSITORY = Path(__file__).resolve().parent.parent

STORED = REPOSITORY / "tests" / "checks" / "engine_check" / "places.jsonl.xz"
_DEPTH = 3
"""How far a name is followed to what it was assigned from."""


def ask(args: argparse.Namespace) -> int:
    """Draw and ask until there are as many refusals as wanted."""
    judge, models = cpu_judge(), read_models(args.configs)
    if judge is None:
        raise SystemExit("the CPU engine is not installed: speclaunch engine install cpu")
    found = list(rows(args.file)) if args.file.exists() else []
    number = found[-1]["number"] + 1 if found else 0
    out = args.file.absolute().open("a")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), out:
        lay_out(args.configs.absolute(), Path(folder))
        while len(found) < args.count:
            machine = MACHINES[number % len(MACHINES)]
            words = draw(f"places/{number}", load(SGLANG_VERSION), models)
            request = from_words(words, {}, load(SGLANG_VERSION))
            plan = resolve(request, Lookup(hardware=hardware(machine)).facts(request))
            with contextlib.suppress(NotQueriedError):
                command = query_command(plan)
                said = converse(
                    inquire(command, judge.release), lambda asked: judge.ask(asked, seconds=600)
                )
                if (refusal := said.refusal) is not None:
                    row = {
                        "number": number,
                        "machine": machine,
                        "words": words,
                        "kind": refusal.kind,
                        "place": refusal.place,
                        "said": refusal.words.replace(folder + "/", ""),
                        "blamed": [unit.name for unit in refusal.units],
                        "given": [unit.name for unit in command.units],
                    }
                    found.append(row)
                    print(json.dumps(row), file=out, flush=True)
            number += 1
    return 0


def read(args: argparse.Namespace) -> int:
    """Add what the source names to each row."""
    package = args.sources / SGLANG_VERSION / "sglang"
    found = list(rows(args.file))
    for row in found:
        near, around = of_source(package, row["place"])
        row["near"], row["around"] = sorted(near), sorted(around)
        row["row"] = sorted(of_row(row["place"]))
        words = f"{row['said']} {_line(package, row['place'])}"
        row["told"] = [
            name for name in row["given"] if name not in row["blamed"] and is_named_in(name, words)
        ]
    args.file.write_text("".join(json.dumps(row) + "\n" for row in found))
    return compare(args)


def _line(package: Path, place: str) -> str:
    file, _, line = place.rpartition(":")
    path = package / file
    return path.read_text("utf-8").splitlines()[int(line) - 1] if path.is_file() else ""


def of_source(package: Path, place: str) -> tuple[set[str], set[str]]:
    """The arguments of the tests that decide a line: of its statement, and of those around it."""
    if place.startswith("--"):
        return {canonical(place[2:].replace("-", "_"))}, set()
    file, _, line = place.rpartition(":")
    path = package / file
    if not path.is_file():
        return set(), set()
    tree = _tree(path)
    function = _function(tree, int(line))
    if function is None:
        return set(), set()
    assigned = _assigned(function)
    tests = list(_tests(function, int(line)))
    near = _names(tests[-1], assigned) if tests else set()
    return near, set[str]().union(*(_names(test, assigned) for test in tests))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _function(tree: ast.Module, line: int) -> ast.FunctionDef | None:
    """The innermost function around a line."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _tests(node: ast.AST, line: int) -> Iterator[ast.AST]:
    """The tests of the statements around a line, the outermost first; an assertion's own last.

    What stands before it in a block and leaves the function decides, too.
    """
    for name in ("body", "orelse", "handlers", "finalbody"):
        block = getattr(node, name, None)
        if not isinstance(block, list):
            continue
        for number, part in enumerate(block):
            if not part.lineno <= line <= (part.end_lineno or part.lineno):
                continue
            for before in block[:number]:
                if isinstance(before, ast.If) and any(
                    isinstance(one, (ast.Return, ast.Continue)) for one in before.body
                ):
                    yield before.test
            if isinstance(part, (ast.If, ast.While)):
                yield part.test
            elif isinstance(part, ast.For):
                yield part.iter
            elif isinstance(part, ast.Assert):
                yield part.test
            yield from _tests(part, line)


def _assigned(function: ast.FunctionDef) -> dict[str, list[ast.AST]]:
    """What each local name was assigned."""
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.For)):
            targets = [node.target]
        value = node.iter if isinstance(node, ast.For) else getattr(node, "value", None)
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(value, ast.AST):
                    found.setdefault(name.id, []).append(value)
    return found


def _names(node: ast.AST, assigned: Mapping[str, Sequence[ast.AST]], depth: int = 0) -> set[str]:
    """The arguments that an expression names, as attributes or through local names."""
    known = _arguments()
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in known:
            found.add(known[part.attr])
        elif isinstance(part, ast.Name):
            if part.id in known:
                found.add(known[part.id])
            if depth < _DEPTH:
                for value in assigned.get(part.id, ()):
                    found |= _names(value, assigned, depth + 1)
    return found


@cache
def _arguments() -> dict[str, str]:
    """Destinations of the release's arguments, and their newest names."""
    return {
        argument.dest: canonical(argument.dest)
        for argument in load(SGLANG_VERSION).arguments.values()
    }


def of_row(place: str) -> set[str]:
    """The arguments in the whole condition of the generated rows of a line."""
    return _of_rows().get(place, set())


@cache
def _of_rows() -> dict[str, set[str]]:
    data = json.loads(DATA.read_text("utf-8"))
    nodes, version = data["nodes"], data["versions"].index(SGLANG_VERSION)
    found: dict[str, set[str]] = {}
    for condition, _message, _kind, file, _function, lines, _index in data["rows"]:
        line = dict(lines).get(version)
        if line is not None:
            found.setdefault(f"{file}:{line}", set()).update(_fields(nodes, condition))
    return found


def _fields(nodes: Sequence[Sequence[Any]], condition: int) -> set[str]:
    """The fields below a node."""
    seen, left, found = {condition}, [condition], set()
    while left:
        node = nodes[left.pop()]
        if node[0] == "f":
            found.add(canonical(node[1]))
        elif node[0] not in "kephau":
            below = [part for part in node[1:] if isinstance(part, int) and part not in seen]
            seen.update(below)
            left += below
    return found


def judged(row: Mapping[str, Any]) -> str:
    """How the blame fits what the readers say.

    `named`: nothing but what the tests name, of the statement or around it. `derived`: besides
    what the generated condition names, which knows what values are derived from. `other`: an
    argument that neither names, or none is blamed although tests name some that were given.
    """
    blamed, given = set(row["blamed"]), set(row["given"])
    named, deep = set(row["near"]) | set(row["around"]), set(row["row"])
    if not blamed:
        return "other" if set(row["near"]) & given else "model alone"
    if blamed <= named:
        return "named"
    return "derived" if blamed <= named | deep else "other"


def left_out(row: Mapping[str, Any]) -> set[str]:
    """Arguments that were given, and that the deciding test names, and nobody is told of: it would
    be the same refusal without them."""
    return set(row["near"]) & set(row["given"]) - set(row["blamed"]) - set(row["told"])


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """What a file holds, compressed or not."""
    data = file.read_bytes()
    text = lzma.decompress(data) if file.suffix == ".xz" else data
    return (json.loads(one) for one in text.decode().splitlines())


def compare(args: argparse.Namespace) -> int:
    """Print counts, and all that is not `named`."""
    found = list(rows(args.file))
    for row in found:
        if judged(row) != "named":
            kept = ("number", "machine", "place", "said", "blamed", "near", "around", "words")
            print(json.dumps({"judged": judged(row)} | {name: row[name] for name in kept}))
    complete = sum(not left_out(row) for row in found)
    print(f"{len(found)} refusals: {dict(Counter(map(judged, found)))}; {complete} complete")
    return 0


def store(args: argparse.Namespace) -> int:
    """Write the test's data."""
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows(args.file))
    STORED.write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{STORED.name}: {STORED.stat().st_size} bytes")
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    verbs = parser.add_subparsers(required=True)
    for verb in (ask, read, compare, store):
        added = verbs.add_parser(verb.__name__, help=str(verb.__doc__).partition("\n")[0])
        added.set_defaults(verb=verb)
        added.add_argument("file", type=Path)
        if verb is ask:
            added.add_argument("--configs", type=Path, required=True)
            added.add_argument("--count", type=int, default=200)
        if verb is read:
            added.add_argument("--sources", type=Path, required=True)
    args = parser.parse_args()
    return int(args.verb(args))
