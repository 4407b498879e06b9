"""Make the metrics data that ships with speclaunch, from released wheels.

    python tools/metrics.py build     every version of the catalogue
    python tools/metrics.py check     compare the data with the wheels; exit code 1 if they differ

Wheels are stored where tools/catalogue.py stores them; a release may also lie there unpacked, as
DIR/VERSION/sglang. Nothing of a wheel is run: names, kinds, labels, help texts and conditions come
from the syntax trees of the calls that declare a metric. The same wheels give the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from catalogue import default_cache, held, wheel  # noqa: E402
from releasing.sources import wheel_or_folder  # noqa: E402

from speclaunch.core.files import replace_file  # noqa: E402
from speclaunch.engine.releases import argument  # noqa: E402
from speclaunch.engine.releases.argument import Record  # noqa: E402
from speclaunch.engine.releases.extraction.source import PackageSource  # noqa: E402
from speclaunch.engine.releases.metrics import DATA  # noqa: E402
from speclaunch.engine.releases.versions import ascending  # noqa: E402

Records = dict[str, Record]
KINDS = {
    "Counter": "counter",
    "Gauge": "gauge",
    "GaugeHistogram": "gauge",
    "Histogram": "histogram",
    "Summary": "summary",
}
PREFIX = "sglang:"
SHARED_MODES = {"mostrecent", "sum", "livesum", "max", "livemax", "min", "livemin"}
"""Modes of a gauge that join the processes; any other adds the label `pid` (prometheus_client)."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or check the data; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["build", "check"])
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are")
    chosen = parser.parse_args(arguments)
    found = {version: read_release(version, chosen.cache) for version in held()}
    if chosen.command == "build":
        store(found)
        return 0
    differing = [version for version in found if found[version] != stored().get(version)]
    for version in differing:
        print(f"{version}: the data differ from the wheel", file=sys.stderr)
    return bool(differing)


def add_release(version: str, cache: Path) -> None:
    """Store the metrics of another release."""
    store({**stored(), version: read_release(version, cache)})


def remove_release(version: str) -> None:
    """Remove a release from the data."""
    store({held: found for held, found in stored().items() if held != version})


def stored() -> dict[str, Records]:
    """Return the data in the repository, by version."""
    return argument.decode(json.loads(DATA.read_text("utf-8"))) if DATA.is_file() else {}


def store(records: dict[str, Records]) -> None:
    """Write the data."""
    replace_file(DATA, argument.encode(ascending(records), records), 0o666)
    print(f"{DATA.name}: {DATA.stat().st_size} bytes")


def read_release(version: str, cache: Path) -> Records:
    """Return the metrics in the wheel of a release."""
    with PackageSource(wheel_or_folder(cache, version) or wheel(version, cache)) as source:
        found = read(source)
    print(f"{version}: {sum(name.startswith(PREFIX) for name in found)} metrics")
    return found


def read(source: PackageSource) -> Records:
    """Return every metric by name, and the labels of every collector by class name."""
    trees = {}
    for file in source.server_files():
        text = source.read(file) or ""
        if PREFIX in text or "MetricsCollector" in text or "metric_labels" in text:
            trees[file] = source.parse(file, text)
    found: Records = {}
    files: dict[str, str] = {}
    for file, tree in trees.items():
        for record in _declared(tree, file):
            _join(found, record.pop("name"), record)
            files.setdefault(record["of"], file.removeprefix("sglang/srt/"))
    functions = {
        node.name: node
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, Function)
    }
    labelled = {record["of"] for record in found.values() if record.get("base")}
    for collector, file in sorted(files.items()):
        sets = [_labels(call, at, functions) for call, at in _made(trees.values(), collector)]
        if collector in labelled and not sets:
            raise SystemExit(f"{source.path}: nothing makes a {collector} with labels")
        if collector not in labelled:
            found[collector] = {"file": file}
            continue
        always = set.intersection(*(always for always, _ in sets))
        some = set.union(*(always | optional for always, optional in sets)) - always
        optional = {"optional": sorted(some)} if some else {}
        found[collector] = {"file": file, "labels": sorted(always), **optional}
    return found


def _declared(tree: ast.Module, file: str) -> Iterator[Record]:
    """Yield a record for each call that declares a metric."""

    def visit(node: ast.AST, owner: str, conditions: tuple[str, ...]) -> Iterator[Record]:
        if isinstance(node, ast.ClassDef) or (isinstance(node, Function) and not owner):
            owner = node.name
        if isinstance(node, ast.Call) and (record := _metric(node)):
            yield {
                **record,
                "of": owner,
                **({"if": " and ".join(conditions)} if conditions else {}),
            }
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            for part in node.body:
                yield from visit(part, owner, (*conditions, test))
            for part in node.orelse:
                yield from visit(part, owner, (*conditions, f"not ({test})"))
            return
        for part in ast.iter_child_nodes(node):
            yield from visit(part, owner, conditions)

    for record in visit(tree, "", ()):
        yield {**record, "of": record["of"] or Path(file).stem}


def _metric(call: ast.Call) -> Record | None:
    kind = KINDS.get(ast.unparse(call.func).rpartition(".")[2])
    arguments = dict(zip(("name", "documentation", "labelnames"), call.args, strict=False))
    arguments.update({part.arg: part.value for part in call.keywords if part.arg})
    match arguments.get("name"):
        case ast.Constant(value=str(name)) if kind and name.startswith(PREFIX):
            pass
        case _:
            return None
    record: Record = {"name": name, "kind": kind}
    if "labelnames" in arguments:
        base, extra = _labelnames(arguments["labelnames"])
        record |= {"base": 1} if base else {}
        record |= {"labels": extra} if extra else {}
    if ast.unparse(call.func).endswith("GaugeHistogram"):
        record["labels"] = [*record.get("labels", ()), "gt", "le"]
    elif kind == "gauge":
        mode = arguments.get("multiprocess_mode")
        if not (isinstance(mode, ast.Constant) and mode.value in SHARED_MODES):
            record["labels"] = [*record.get("labels", ()), "pid"]
    record["help"] = _text(arguments["documentation"])
    return record


def _text(node: ast.expr) -> str:
    """Return a text; what is known only at run time is a name in braces."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return str(ast.literal_eval(node))


def _labelnames(node: ast.expr) -> tuple[bool, list[str]]:
    """Return whether the labels of the collector are among them, and the other labels."""
    named = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    named |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    constants = [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return "labels" in named, constants


def _join(found: Records, name: str, record: Record) -> None:
    """Add a metric; of two declarations, the labels of both may appear."""
    if name in found:
        before = found[name]
        if before["kind"] != record["kind"]:
            raise SystemExit(f"{name} is a {before['kind']} and a {record['kind']}")
        labels = dict.fromkeys([*before.get("labels", ()), *record.get("labels", ())])
        found[name] = {**before, **({"labels": list(labels)} if labels else {})}
        if "if" not in record:
            found[name].pop("if", None)
        return
    found[name] = record


def _made(trees: Any, collector: str) -> Iterator[tuple[ast.Call, Function]]:
    """Yield each call that makes a collector, with its function."""
    for tree in trees:
        for owner in ast.walk(tree):
            for node in owner.body if isinstance(owner, ast.ClassDef | ast.Module) else ():
                if isinstance(node, Function):
                    for call in _makes(node, collector, getattr(owner, "name", "")):
                        yield call, node


def _makes(function: Function, collector: str, owner: str) -> Iterator[ast.Call]:
    classes = {collector}
    for node in ast.walk(function):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="resolve_collector_class"), args=[*_, chosen]),
            ):
                if ast.unparse(chosen) == collector or (
                    ast.unparse(chosen) == "cls" and owner == collector
                ):
                    classes.add(name)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in classes:
            yield node


def _labels(
    call: ast.Call, function: Function, functions: dict[str, Function]
) -> tuple[set[str], set[str]]:
    """Return the labels of a made collector that are always there, and those sometimes there."""
    value = next((part.value for part in call.keywords if part.arg == "labels"), None)
    value = value or (call.args[0] if call.args else ast.Dict(keys=[], values=[]))
    return _keys(value, function, functions)


def _keys(
    value: ast.expr, function: Function, functions: dict[str, Function]
) -> tuple[set[str], set[str]]:
    if isinstance(value, ast.Dict):
        return {key.value for key in value.keys if isinstance(key, ast.Constant)}, set()
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        called = functions[value.func.id]
        (returned,) = [node for node in ast.walk(called) if isinstance(node, ast.Return)]
        assert returned.value is not None
        return _keys(returned.value, called, functions)
    if not isinstance(value, ast.Name):
        return set(), set()
    always: set[str] = set()
    optional: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=value.id)]):
                more = _keys(node.value, function, functions)
                always |= more[0]
                optional |= more[1]
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=value.id), slice=ast.Constant(value=key))]
            ):
                (always if node in function.body else optional).add(key)
    return always, optional - always


if __name__ == "__main__":
    sys.exit(main())
