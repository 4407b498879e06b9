"""Write what is derived from advisories/*.yaml, and compare their markers with the releases.

    python tools/advisories.py build              the data that speclaunch reads, and the pages
    python tools/advisories.py build --check      exit 1 if they are outdated
    python tools/advisories.py check [ID…] [--wheels DIR] [--from DIR]

`check` evaluates each marker in every release and compares the result with the advisory's range;
then it runs the advisory's cases. DIR of `--wheels` holds wheels, or unpacked releases as
DIR/VERSION/sglang; missing wheels are fetched with pip. DIR of `--from` holds `advisories/` and
`cases/` before they are in the repository. Exit code 1: a marker, a range or a case is wrong.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import catalogue  # noqa: E402
from releasing.sources import squeezed, wheel_or_folder  # noqa: E402

from speclaunch.checks.advisory import DATA, UNKNOWN, Advisory, page_text  # noqa: E402
from speclaunch.checks.advisory_database import defects, encode_advisories  # noqa: E402
from speclaunch.checks.advisory_records import Confidence, SourceMark  # noqa: E402
from speclaunch.engine.releases.catalogue import held_versions  # noqa: E402
from speclaunch.engine.releases.extraction.source import PackageSource  # noqa: E402
from speclaunch.engine.releases.versions import within  # noqa: E402
from tests.support.checks.rules.harness import CASES, complaint, load_cases  # noqa: E402

FOLDER = REPOSITORY / "advisories"
PAGES = REPOSITORY / "docs" / "advisories"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="write the data and the pages")
    build.add_argument("--check", action="store_true")
    check = commands.add_parser("check", help="compare markers with the releases")
    check.add_argument("ids", nargs="*", metavar="ID")
    check.add_argument("--wheels", type=Path, default=catalogue.default_cache())
    check.add_argument("--from", dest="folder", type=Path, metavar="DIR")
    chosen = parser.parse_args(arguments)
    if chosen.command == "build":
        return _build(check=chosen.check)
    folder = FOLDER if chosen.folder is None else chosen.folder / "advisories"
    cases = CASES if chosen.folder is None else chosen.folder / "cases"
    return _check(folder, cases, chosen.wheels, chosen.ids)


def read(path: Path) -> Advisory:
    """Return the advisory of a file. Raises ValueError."""
    found = yaml.safe_load(path.read_text("utf-8"))
    if isinstance(found, dict):
        found = {key: _plain(value) for key, value in found.items()}
    return msgspec.convert(found, Advisory)


def _plain(value: Any) -> Any:
    """Return a date as text: YAML reads it as a date."""
    return value.isoformat() if hasattr(value, "isoformat") else value


def all_defects(advisory: Advisory, path: Path) -> Iterator[str]:
    """Yield what is wrong with an advisory by itself."""
    if advisory.id != path.stem:
        yield f"its ID is not the file's name: {advisory.id}"
    yield from defects(advisory)
    yield from _marker_defects(advisory)


def _marker_defects(advisory: Advisory) -> Iterator[str]:
    """Yield the reasons why an advisory's marker contradicts its confidence or range."""
    if (advisory.marker is not None) != (advisory.confidence is Confidence.MARKER):
        yield f"confidence {advisory.confidence} with{'' if advisory.marker else 'out'} a marker"
    if advisory.marker and UNKNOWN in (advisory.introduced, advisory.fixed):
        yield "a marker, but an unknown range"


class Release:
    """The source of a release, in which marks are searched."""

    def __init__(self, version: str, wheels: Path) -> None:
        self.version = version
        found = wheel_or_folder(wheels, version) or catalogue.wheel(version, wheels)
        self._source = PackageSource(found)
        self._squeezed: dict[tuple[str, str], str] = {}

    def has(self, mark: SourceMark) -> bool:
        """True if one of a mark's files has it."""
        return any(self._has(f"sglang/{file}", mark) for file in mark.files)

    def _has(self, file: str, mark: SourceMark) -> bool:
        text = self._text(file, mark.scope)
        if text is None:
            return False
        if mark.name and self._definition(file, mark.name) is None:
            return False
        if mark.pattern and not re.search(mark.pattern, text, re.MULTILINE):
            return False
        return not mark.text or squeezed(mark.text) in self._layout_free(file, mark.scope, text)

    def _layout_free(self, file: str, scope: str, text: str) -> str:
        if (file, scope) not in self._squeezed:
            self._squeezed[file, scope] = squeezed(text)
        return self._squeezed[file, scope]

    def _text(self, file: str, scope: str) -> str | None:
        text = self._source.read(file)
        if text is None or not scope:
            return text
        node = self._definition(file, scope)
        if node is None:
            return None
        return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])

    def _definition(self, file: str, dotted: str) -> ast.stmt | None:
        """The class or function of a dotted name, also inside `if`."""
        node: ast.AST | None = self._source.tree(file)
        for name in dotted.split("."):
            inside = ast.walk(node) if node is not None else ()
            node = next((one for one in inside if getattr(one, "name", None) == name
                         and isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                         ), None)  # fmt: skip
        return node if isinstance(node, ast.stmt) else None


def affected(advisory: Advisory, release: Release) -> bool:
    """True if a release has every mark of the bug and none of the fix."""
    marker = advisory.marker
    assert marker is not None
    return all(map(release.has, marker.bug)) and not any(map(release.has, marker.fix))


def disagreements(advisory: Advisory, releases: Iterable[Release]) -> Iterator[str]:
    """Yield each release in which the marker and the range disagree."""
    for release in releases:
        shown = affected(advisory, release)
        if shown != within(release.version, advisory.versions):
            yield f"{release.version}: the marker shows {'the bug' if shown else 'no bug'}"


def changes(release: Release) -> Iterator[str]:
    """Yield the advisories whose marker disagrees with their range in one release.

    For a new release these are the bugs that it fixes or has again.
    """
    for advisory in _all():
        if advisory.marker is not None:
            for disagreement in disagreements(advisory, [release]):
                yield f"{advisory.id} {advisory.name}: {disagreement}"


def _wrong_cases(advisory: Advisory, path: Path) -> Iterator[str]:
    if not path.is_file():
        yield f"no cases: {path.name}"
        return
    cases = load_cases(path)
    kinds = {case.name.partition("_")[0] for case in cases}
    if "fail" not in kinds or not kinds & {"pass", "fixed"}:
        yield "no matching case, or no near miss"
    rule = advisory.rule()
    for case in cases:
        wrong = complaint(rule, case)
        if wrong is not None:
            yield f"{case.name}: {wrong}"


def _check(folder: Path, cases: Path, wheels: Path, ids: Sequence[str]) -> int:
    paths = [path for path in sorted(folder.glob("*.yaml")) if not ids or path.stem in ids]
    releases = [Release(version, wheels) for version in held_versions()]
    wrong, marked = 0, 0
    for path in paths:
        try:
            advisory = read(path)
            found = list(all_defects(advisory, path))
        except (ValueError, yaml.YAMLError) as error:
            advisory, found = None, [str(error)]
        if advisory is not None:
            if advisory.marker is not None and not found:
                marked += 1
                found += disagreements(advisory, releases)
            found += _wrong_cases(advisory, cases / path.name)
        wrong += bool(found)
        for defect in found:
            print(f"{path.name}: {defect}")
    print(f"{len(paths)} advisories, {marked} with a marker, {wrong} wrong")
    return 1 if wrong or not paths else 0


def _all() -> list[Advisory]:
    return [read(path) for path in sorted(FOLDER.glob("*.yaml"))]


_INTRODUCTION = """\
# Advisories

Known bugs of SGLang's speculative decoding, by release and configuration. Generated by
`tools/advisories.py` from `advisories/`.

{proven} of {all} have a marker: a line of SGLang's source that shows the bug or its fix, checked in
every release that speclaunch knows.

```bash
speclaunch advisories check recipe=R | PATH…       # bugs that affect each server
speclaunch advisories ls --engine 0.5.16           # bugs of a release
speclaunch plan recipe=R --engine 0.5.16,0.5.23    # bugs that an upgrade fixes and introduces
speclaunch advisories export --osv > sglang.json   # for other scanners
speclaunch advisories update FILE|DIR|URL          # newer advisories, with a checksum
```

`lint`, `plan`, `doctor`, `launch`, `migrate`, `diagnose` and editors report them by ID;
`# speclaunch: ignore[ID] reason` suppresses one. An advisory that depends on an unknown fact
(hardware, checkpoint) is not reported; `advisories check` lists it.

*error*: the engine certainly does not start. *warning*: a hang, a crash, wrong output, or a proven
loss of acceptance. *info*: a single report, a loss of speed, or a bug that affects only some
requests or some of these deployments.

| ID | Symptom | Severity | Releases | Summary |
|---|---|---|---|---|"""


def index(found: Sequence[Advisory]) -> str:
    """The Markdown page that lists all advisories."""
    proven = sum(advisory.marker is not None for advisory in found)
    lines = [_INTRODUCTION.format(proven=proven, all=len(found))]
    lines += [
        f"| [{advisory.id}]({advisory.id}.md) | {advisory.symptom.value} "
        f"| {advisory.severity.value} | {advisory.versions} | {advisory.summary} |"
        for advisory in found
    ]
    return "\n".join(lines) + "\n"


def _build(*, check: bool) -> int:
    found = _all()
    outputs = {DATA: encode_advisories(found), PAGES / "README.md": index(found).encode()}
    outputs |= {PAGES / f"{advisory.id}.md": page_text(advisory).encode() for advisory in found}
    stale = [p for p, text in outputs.items() if not p.is_file() or p.read_bytes() != text]
    stale += [path for path in PAGES.glob("*.md") if path not in outputs]
    for path in stale:
        print(f"{'outdated' if check else 'wrote'}: {path.relative_to(REPOSITORY)}")
        if not check and path not in outputs:
            path.unlink()
        elif not check:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(outputs[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
