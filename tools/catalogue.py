"""Make and check the catalogue of engine arguments that ships with speclaunch.

    python tools/catalogue.py add VERSION …       a new release: fetch its wheel, rebuild the data
    python tools/catalogue.py build               every held version again, from cached wheels
    python tools/catalogue.py check --against F   compare with a dump of the real parsers

Wheels are kept in a cache directory (`--cache`, else SPECLAUNCH_WHEELS, else the user's cache).
What is written is a function of the wheels alone: building twice gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from catalogue_check import Difference, compare  # noqa: E402

from speclaunch.core.files import replace_file, speclaunch_home  # noqa: E402
from speclaunch.engine.releases import argument as timeline  # noqa: E402
from speclaunch.engine.releases.argument import Record, decode_argument, name_of  # noqa: E402
from speclaunch.engine.releases.catalogue import DATA, Catalogue  # noqa: E402
from speclaunch.engine.releases.extraction.release import catalogue_records, extract  # noqa: E402
from speclaunch.engine.releases.versions import ascending  # noqa: E402

T = TypeVar("T")

#: The newest post release of every line from 0.4.6 on.  `add` extends the list by what it is told.
LINES = [
    "0.4.6.post5",
    "0.4.7.post1",
    "0.4.8.post1",
    "0.4.9.post6",
    "0.4.10.post2",
    "0.5.1.post3",
    "0.5.2",
    "0.5.3.post3",
    "0.5.4.post3",
    "0.5.5.post3",
    "0.5.6.post2",
    "0.5.7",
    "0.5.8.post1",
    "0.5.9",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12.post1",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="hold another release")
    add.add_argument("versions", nargs="+", metavar="VERSION")
    commands.add_parser("build", help="regenerate everything")
    check = commands.add_parser("check", help="compare with a dump of the real parsers")
    check.add_argument("--against", type=Path, required=True, metavar="FLAGS_JSON")
    chosen = parser.parse_args(arguments)
    if chosen.command == "add":
        return add_releases(chosen.versions, chosen.cache, chosen.jobs)
    if chosen.command == "build":
        return _build(held() or LINES, chosen.cache, chosen.jobs)
    return _check(chosen.against, chosen.cache, chosen.jobs)


def held() -> tuple[str, ...]:
    """The versions that the shipped data holds."""
    file = DATA / "versions.json"
    return tuple(json.loads(file.read_text("utf-8"))) if file.is_file() else ()


def wheel(version: str, cache: Path) -> Path:
    """The wheel of a release, fetched with pip unless it is in the cache."""
    found = sorted(cache.glob(f"sglang-{version}-*.whl"))
    if not found:
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(cache), f"sglang=={version}"]
        subprocess.run(command, check=False)  # pip says itself what went wrong
        found = sorted(cache.glob(f"sglang-{version}-*.whl"))
    if not found:
        raise SystemExit(f"{cache} has no wheel of sglang {version}, and pip got none")
    return found[0]


def write(arguments: dict[str, dict[str, Record]], variables: dict[str, dict[str, Record]]) -> None:
    """Write the data files for records by version."""
    versions = ascending(arguments)
    DATA.mkdir(parents=True, exist_ok=True)
    _write("versions.json", json.dumps(versions) + "\n")
    _write("arguments.json", timeline.encode(versions, arguments))
    _write("variables.json", timeline.encode(versions, variables))
    names = {version: _names(version, arguments[version]) for version in versions}
    _write("history.json", history_text(versions, names))


def history_text(versions: Sequence[str], names: dict[str, frozenset[str]]) -> str:
    """The index of names: the runs of versions that have each; the last run open if current."""
    lines = []
    for name in sorted(frozenset().union(*names.values())):
        spans: list[list[str]] = []
        inside = False
        for version in versions:
            if name in names[version]:
                spans = (
                    [*spans[:-1], [spans[-1][0], version]] if inside else [*spans, [version] * 2]
                )
            inside = name in names[version]
        if inside:
            spans[-1] = spans[-1][:1]
        lines.append(f"{json.dumps(name)}:{json.dumps(spans, separators=(',', ':'))}")
    head = json.dumps(list(versions), separators=(",", ":"))
    return f'{{"versions":{head},\n"names":{{\n' + ",\n".join(lines) + "\n}}\n"


def _names(version: str, records: dict[str, Record]) -> frozenset[str]:
    arguments = {flag: decode_argument(flag, record) for flag, record in records.items()}
    known = set(Catalogue(version, arguments, DATA).names)
    for argument in arguments.values():
        known.update(name_of(alias) for alias in argument.aliases if alias.startswith("--"))
    return frozenset(known)


def _write(name: str, text: str) -> None:
    target = DATA / name
    replace_file(target, text, 0o666)
    print(f"{name}: {target.stat().st_size} bytes")


def _read(version: str, cache: Path) -> tuple[str, dict[str, Record], dict[str, Record]]:
    release = extract(wheel(version, cache))
    if release.version != version:
        raise SystemExit(f"the wheel of {version} says that it is {release.version}")
    return (version, *catalogue_records(release))


def _build(versions: Iterable[str], cache: Path, jobs: int) -> int:
    wanted = ascending(versions)
    for version in wanted:
        wheel(version, cache)
    made = _in_parallel(jobs, _read, wanted, [cache] * len(wanted))
    write({v: arguments for v, arguments, _ in made}, {v: variables for v, _, variables in made})
    return 0


def add_releases(versions: Sequence[str], cache: Path, jobs: int) -> int:
    """Hold releases, read from their wheels."""
    if not held():
        return _build({*LINES, *versions}, cache, jobs)
    arguments, variables = stored("arguments.json"), stored("variables.json")
    for version in versions:
        _, arguments[version], variables[version] = _read(version, cache)
    write(arguments, variables)
    return 0


def remove_release(version: str) -> None:
    """Hold a release no longer."""
    arguments, variables = stored("arguments.json"), stored("variables.json")
    write(_without(arguments, version), _without(variables, version))


def stored(name: str) -> dict[str, dict[str, Record]]:
    """The records of a data file, by version."""
    return timeline.decode(json.loads((DATA / name).read_text("utf-8")))


def _without(records: dict[str, dict[str, Record]], version: str) -> dict[str, dict[str, Record]]:
    return {held: found for held, found in records.items() if held != version}


def _check(against: Path, cache: Path, jobs: int) -> int:
    expected: dict[str, Any] = json.loads(against.read_text("utf-8"))
    versions = ascending(expected)
    missing = [version for version in versions if version not in held()]
    for version in versions:
        wheel(version, cache)
    dumps = [expected[version] for version in versions]
    reports = _in_parallel(jobs, _compare, versions, [cache] * len(versions), dumps)
    for version, (count, differences) in zip(versions, reports, strict=True):
        print(f"{version}: {count} arguments, {len(differences)} differences")
        for difference in differences:
            print(f"  {difference}")
    for version in missing:
        print(f"{version}: not held")
    return 1 if missing or any(differences for _, differences in reports) else 0


def _compare(version: str, cache: Path, expected: dict[str, Any]) -> tuple[int, list[Difference]]:
    release = extract(wheel(version, cache), usage=False)
    shipped = timeline.select(json.loads((DATA / "arguments.json").read_bytes()), version)
    return len(release.arguments), compare(release, shipped, expected)


def _in_parallel(jobs: int, function: Callable[..., T], *columns: Sequence[Any]) -> list[T]:
    if jobs == 1:
        return list(map(function, *columns))
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(function, *columns))


def default_cache() -> Path:
    chosen = os.environ.get("SPECLAUNCH_WHEELS")
    return Path(chosen) if chosen else speclaunch_home() / "wheels"


if __name__ == "__main__":
    sys.exit(main())
