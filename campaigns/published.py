"""Score what speclaunch reads of published files against what a person read there.

    python -m campaigns published score MIRROR [--family NAME]… [--show] [--lint] [--store NOTE]
    python -m campaigns published read MIRROR REPOSITORY PATH

`tests/published/NAME.json` holds, for each file of a family, where it was published (repository,
path, commit) and what a person read in it: its server commands with the line of each and the values
of its arguments. Facts only; the files themselves are not kept. MIRROR is a directory with them:
`OWNER/NAME/PATH`, or a git repository in `OWNER+NAME` or `OWNER+NAME/repo` that has the commit.

`score` says how many of the commands are found, how many of their values are read right, and (with
`--lint`) on which files that worked an error is reported. `--store` writes the sums to
`tests/published/scores.json`. `read` writes what speclaunch reads in one file, in the manifest's
form, for a person to compare with the file.

A manifest::

    {"family": "dockerfiles",
     "files": [{"repository": "owner/name", "commit": "…", "path": "Dockerfile",
                "form": "dockerfile", "engine": "0.5.9",
                "commands": [{"line": 7, "values": {"--tp": "8", "--trust-remote-code": true}}]}]}

A value is a text, a list of texts, `true` for an argument without one, and `null` where the file
does not say it (a variable that it does not set). The name `""` has the words before the first
argument. `maybe` are arguments that the command has under a condition of the script. `engine` is
the release that the file was written for, where it says so. `broken` says why an error is right.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speclaunch.core.errors import SpeclaunchError
from speclaunch.core.files import replace_file
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation, Word

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ROOT / "tests" / "published"
SCORES = MANIFESTS / "scores.json"

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class PublishedFile:
    """One file and what a person read in it."""

    repository: str
    commit: str
    path: str
    form: str
    commands: tuple[Mapping[str, Any], ...]
    engine: str | None = None
    broken: str | None = None

    @property
    def name(self) -> str:
        """How it is told."""
        return f"{self.repository}/{self.path}"


@dataclass(slots=True)
class Score:
    """Sums over files."""

    files: int = 0
    missing: int = 0
    """Files that the mirror does not have: they count nowhere else."""
    commands: int = 0
    found: int = 0
    placed: int = 0
    """Commands found at the line where they stand."""
    extra: int = 0
    """Commands that are not in the file."""
    values: int = 0
    right: int = 0
    invented: int = 0
    """Values read for a command that it does not have."""
    worked: int = 0
    errors: int = 0
    """Files that worked and get an error."""
    said: list[str] = field(default_factory=list)

    def add(self, other: Score) -> None:
        """Count another one in."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.said += other.said

    def sums(self) -> dict[str, int]:
        """The numbers alone."""
        return {name: getattr(self, name) for name in SUMS}

    def line(self, name: str) -> str:
        """One line for people."""
        return (
            f"{name}: {self.files} files, commands {self.found}/{self.commands}"
            f" ({_percent(self.found, self.commands)}), at their line {self.placed},"
            f" extra {self.extra};"
            f" values {self.right}/{self.values} ({_percent(self.right, self.values)}),"
            f" invented {self.invented}; errors on {self.errors}/{self.worked}"
            + (f"; {self.missing} files missing" if self.missing else "")
        )


SUMS = (
    "files", "missing", "commands", "found", "placed", "extra", "values", "right", "invented",
    "worked", "errors",
)  # fmt: skip


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def load(name: str) -> tuple[PublishedFile, ...]:
    """The files of a family. Raises KeyError or TypeError for a manifest of another form."""
    data = json.loads((MANIFESTS / f"{name}.json").read_text())
    return tuple(
        PublishedFile(**{**one, "commands": tuple(one["commands"])}) for one in data["files"]
    )


def families() -> list[str]:
    """The names of the manifests."""
    others = {SCORES.stem, "shell_scripts"}
    return sorted(path.stem for path in MANIFESTS.glob("*.json") if path.stem not in others)


def text_of(mirror: Path, file: PublishedFile) -> bytes | None:
    """A file as it was published, None where the mirror does not have it."""
    plain = mirror / file.repository / file.path
    if plain.is_file():
        return plain.read_bytes()
    flat = mirror / file.repository.replace("/", "+")
    for place in (flat / "repo", flat, flat / ".git"):
        if place.is_dir():
            shown = subprocess.run(
                ["git", "-C", str(place), "show", f"{file.commit}:{file.path}"],
                capture_output=True,
                check=False,
            )
            if shown.returncode == 0:
                return shown.stdout
    return None


# -- what speclaunch reads -----------------------------------------------------------------


def values_of(words: Sequence[Word]) -> Values:
    """The arguments of a command by name; a later one of the same name counts, as in argparse."""
    found: Values = {}
    name, texts = "", list[str | None]()
    for word in words:
        is_name = word.text.startswith("-") and not _is_number(word.text)
        if is_name and (word.evaluated or word.text.startswith("--")):
            _put(found, name, texts)
            name, equals, value = word.text.partition("=")
            texts = [value if word.evaluated else None] if equals else []
        else:
            texts.append(word.text if word.evaluated else None)
    _put(found, name, texts)
    return found


def _put(found: Values, name: str, texts: list[str | None]) -> None:
    if name:
        found[name] = True if not texts else texts[0] if len(texts) == 1 else list(texts)
    elif any(text is not None for text in texts):
        found[""] = [text for text in texts if text is not None]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read(data: bytes, path: str) -> tuple[Invocation, ...]:
    """The commands that speclaunch finds in a file; none where it cannot be read."""
    try:
        return read_text(data, path).invocations
    except SpeclaunchError:
        return ()


# -- comparing -----------------------------------------------------------------------------


def compare(file: PublishedFile, invocations: Sequence[Invocation]) -> Score:
    """How far what was found is what a person read."""
    score = Score(files=1, commands=len(file.commands))
    left = list(invocations)
    for command in file.commands:
        wanted: Values = {**command["values"]}
        maybe: Values = command.get("maybe", {})
        score.values += len(wanted) + len(maybe)
        found = _match(command, wanted, left)
        if found is None:
            score.said.append(f"{file.name}:{command['line']}: not found")
            continue
        left.remove(found)
        score.found += 1
        score.placed += found.place.line == command["line"]
        _compare_values(file, command["line"], {**wanted, **maybe}, values_of(found.words), score)
    score.extra += len(left)
    score.said += [f"{file.name}:{one.place.line}: not a command" for one in left]
    return score


def _match(
    command: Mapping[str, Any], wanted: Values, left: Sequence[Invocation]
) -> Invocation | None:
    def likeness(found: Invocation) -> tuple[int, int]:
        given = values_of(found.words)
        alike = sum(_is_right(value, given.get(name)) for name, value in wanted.items())
        return found.place.line == command["line"], alike

    best = max(left, key=likeness, default=None)
    if best is None:
        return None
    at_line, alike = likeness(best)
    return best if at_line or (wanted and 2 * alike >= len(wanted)) else None


def _compare_values(
    file: PublishedFile, line: int, wanted: Values, given: Values, score: Score
) -> None:
    for name, value in wanted.items():
        if name in given and _is_right(value, given[name]):
            score.right += 1
        else:
            shown = json.dumps(given[name]) if name in given else "nothing"
            score.said.append(f"{file.name}:{line}: {name or 'words'} {json.dumps(value)}: {shown}")
    for name, value in given.items():
        if name not in wanted and any(text is not None for text in _texts(value)):
            score.invented += 1
            score.said.append(f"{file.name}:{line}: {name or 'words'} {json.dumps(value)} invented")


def _texts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _is_right(wanted: Any, given: Any) -> bool:
    """Whether a value is the one that was read. Words behind it may be left open by the file."""
    if given is None:
        return wanted in (None, True)  # `--flag $EXTRA`: the word need not be its value
    if wanted is None:
        return None in _texts(given)
    if wanted is True:
        return given is True or all(text is None for text in _texts(given))
    texts, least = _texts(given), _texts(wanted)
    return texts[: len(least)] == least and all(text is None for text in texts[len(least) :])


# -- linting -------------------------------------------------------------------------------


def lint_errors(texts: Sequence[tuple[PublishedFile, bytes]]) -> list[list[str]]:
    """The errors that `lint` reports for files, each at the release that it was written for."""
    errors: list[list[str]] = [[] for _ in texts]
    for engine in sorted({file.engine or "" for file, _ in texts}):
        with tempfile.TemporaryDirectory() as folder:
            paths: dict[str, int] = {}
            for number, (file, data) in enumerate(texts):
                if (file.engine or "") == engine:
                    path = f"{number}/{file.path}"
                    (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                    (Path(folder) / path).write_bytes(data)
                    paths[path] = number
            for path, said in _lint(folder, sorted(paths), engine):
                errors[paths[path]].append(said)
    return errors


def _lint(folder: str, paths: Sequence[str], engine: str) -> Iterator[tuple[str, str]]:
    command = [sys.executable, "-m", "speclaunch", "lint", "--no-cache", "--output-format", "json"]
    command += ["--engine", engine] if engine else []
    done = subprocess.run([*command, *paths], cwd=folder, capture_output=True, check=False)
    for report in json.loads(done.stdout or b"{}").get("files", ()):
        for finding in report.get("findings", ()):
            if finding.get("severity") == "error":
                yield report["path"], f"{finding.get('code')}: {finding.get('message')}"
        for problem in report.get("problems", ()):
            yield report["path"], f"unreadable: {problem.get('message')}"


# -- the command ---------------------------------------------------------------------------


def score_family(name: str, mirror: Path, *, lint: bool) -> Score:
    """The sums of one family."""
    total = Score()
    texts: list[tuple[PublishedFile, bytes]] = []
    for file in load(name):
        data = text_of(mirror, file)
        if data is None:
            total.missing += 1
            continue
        total.add(compare(file, read(data, file.path)))
        texts.append((file, data))
    if lint:
        for (file, _), said in zip(texts, lint_errors(texts), strict=True):
            if file.broken is None and file.engine is not None:
                total.worked += 1
                total.errors += bool(said)
                total.said += [f"{file.name}: {one}" for one in said]
    return total


def _store(note: str, scores: Mapping[str, Score]) -> None:
    held = json.loads(SCORES.read_text()) if SCORES.exists() else []
    today = datetime.now(UTC).date().isoformat()
    held = [one for one in held if (one["date"], one["note"]) != (today, note)] + [
        {
            "date": today,
            "note": note,
            "families": {name: one.sums() for name, one in scores.items()},
        }
    ]
    replace_file(SCORES, json.dumps(held, indent=1) + "\n", 0o666)


def main() -> int:
    """Carry out the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    verbs = parser.add_subparsers(dest="verb", required=True)
    score = verbs.add_parser("score")
    score.add_argument("mirror", type=Path)
    score.add_argument("--family", action="append")
    score.add_argument("--show", action="store_true", help="write each difference")
    score.add_argument("--lint", action="store_true", help="lint the files, too")
    score.add_argument("--store", metavar="NOTE", help="keep the sums, under this note")
    reading = verbs.add_parser("read")
    reading.add_argument("mirror", type=Path)
    reading.add_argument("repository")
    reading.add_argument("path")
    given = parser.parse_args()
    if given.verb == "read":
        return _read(given.mirror, given.repository, given.path)
    scores: dict[str, Score] = {}
    for name in given.family or families():
        scores[name] = score_family(name, given.mirror, lint=given.lint)
        print(scores[name].line(name))
        if given.show:
            print("".join(f"  {said}\n" for said in scores[name].said), end="")
    if given.store is not None:
        _store(given.store, scores)
    return 0


def _read(mirror: Path, repository: str, path: str) -> int:
    data = text_of(mirror, PublishedFile(repository, "HEAD", path, "", ()))
    if data is None:
        print(f"{repository}/{path} is not in {mirror}", file=sys.stderr)
        return 2
    commands = [
        {"line": found.place.line, "values": values_of(found.words)} for found in read(data, path)
    ]
    print(json.dumps(commands, indent=1, ensure_ascii=False))
    return 0
