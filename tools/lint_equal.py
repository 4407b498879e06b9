"""Compare what two installations of speclaunch say of the same files, byte for byte.

    python tools/lint_equal.py OTHER [--files 2000] [--seed N] [--quick] [--keep-corpus DIR]

OTHER is the `python` or the `speclaunch` of the other installation; this one is the checkout that
the tool is run from. Both lint one corpus (the repository's own test data, the cases of the rules
with their checkpoints, and generated files) in the same folder with the same empty HOME: standard
output, standard error and the exit code must be the same, with a cold and a warm cache, and after
groups, checkpoints and files have changed. What the other one says is kept for the next time.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import lzma
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
sys.path.insert(0, str(TOOLS))

from corpora.everything import ROOT, Size, change, write_everything  # noqa: E402

SHOWN_LINES = 16
SHOWN_WIDTH = 500
KEPT = Path(tempfile.gettempdir()) / f"speclaunch-equal-{os.getuid()}"
HOW_ASKED = 1
"""Raise this when the same call would be made in another way: what was kept then is asked anew."""
PROGRESS = re.compile(r"^\d+ files? checked in .*\n", re.MULTILINE)
"""What a lint that takes long says of where it is: it depends on the machine."""


@dataclass(frozen=True, slots=True)
class Run:
    """One call of `lint` on the corpus."""

    name: str
    words: tuple[str, ...]
    given: str | None = None
    """A file for standard input."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a call wrote, and how it ended."""

    code: int
    out: str
    err: str


class Installation:
    """One installation of speclaunch, asked as its users ask it."""

    def __init__(self, python: Path, options: Sequence[str] = ()) -> None:
        self.python = python
        self.options = list(options)
        place = "import speclaunch; print(speclaunch.__path__[0])"
        found = subprocess.run(
            [python, "-c", place], cwd="/", check=True, capture_output=True, text=True
        )
        self.package = Path(found.stdout.strip())
        self.seconds = 0.0

    def digest(self) -> str:
        """A fingerprint of its code and its data, and of how it is asked."""
        known = hashlib.sha256(f"{HOW_ASKED} {self.python}".encode())
        root = self.package.parent
        for folder in (self.package, root / "conf", root / "recipes", root / "models"):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    known.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
        return known.hexdigest()

    def ask(self, run: Run, corpus: Path, home: Path) -> Said:
        """Run it in the corpus, with an empty or a used HOME.

        Both are imported through one link, so that the paths of their files are the same: a text
        is wrapped by its length.
        """
        code = home.with_name("code")
        code.unlink(missing_ok=True)
        code.symlink_to(self.package.parent)
        command = [str(self.python), "-m", "speclaunch", "lint", *run.words, *self.options]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
        environment["PYTHONPATH"] = str(code)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with (corpus / run.given if run.given else Path(os.devnull)).open("rb") as given:
            done = subprocess.run(
                command, cwd=corpus, env=environment, stdin=given, capture_output=True, check=False
            )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        names = {code: "CODE", self.package.parent: "CODE", corpus: "CORPUS", home: "HOME"}
        out, err = (_plain(text, names) for text in (done.stdout, done.stderr))
        return Said(done.returncode, out, PROGRESS.sub("", err))


def _plain(text: bytes, names: Mapping[Path, str]) -> str:
    said = text.decode("utf-8", "backslashreplace")
    for path, name in names.items():
        said = said.replace(str(path), name)
    return said


def runs(corpus: Path, *, quick: bool) -> Iterator[Run]:
    """What is asked about the corpus, before and after it is changed."""
    as_json = ("--output-format", "json")
    beside = ("--models", "models", "--hardware", "h200:8")
    yield Run("default", (".", *as_json))
    yield Run("default, as text", (".",))
    yield Run("pinned, checkpoints", (".", "--engine", "0.5.10.post1", *beside, *as_json))
    files = sorted(
        str(path.relative_to(corpus))
        for path in (corpus / "generated").rglob("*")
        if path.is_file() and path.name != "engine.yaml"
    )
    for name in files[:: len(files) // (3 if quick else 25)]:
        yield Run(f"alone: {name}", (name,))
    if not quick:
        yield Run("pinned to two, as text", (".", "--engine", "0.5.11,0.5.23"))
        yield Run("pinned to the oldest", (".", "--engine", "0.4.6.post5", *as_json))
        yield Run("chosen rules", (".", "--select", "SPL3,SPL8", "--ignore", "SPL301", "--strict"))
        yield Run("named one by one", (*files[::3], *as_json))
    scripts = [name for name in files if name.endswith(".sh")]
    yield Run("standard input", ("-", *as_json), given=scripts[0])


def digest_of(corpus: Path) -> str:
    """A fingerprint of every file in it."""
    known = hashlib.sha256()
    for path in sorted(corpus.rglob("*")):
        if path.is_file():
            known.update(f"{path.relative_to(corpus)}\0".encode() + path.read_bytes())
    return known.hexdigest()


def kept(other: Installation, run: Run, corpus: Path, home: Path, digest: str) -> Said:
    """What the other one says; asked once for the same files, code and words."""
    key = hashlib.sha256(repr((digest, run)).encode()).hexdigest()[:32]
    path = KEPT / f"{key}.xz"
    if path.exists():
        found = pickle.loads(lzma.decompress(path.read_bytes()))  # noqa: S301 - written by us
        assert isinstance(found, Said)
        return found
    said = other.ask(run, corpus, home)
    KEPT.mkdir(mode=0o700, exist_ok=True)
    whole = path.with_suffix(f".{os.getpid()}")
    whole.write_bytes(lzma.compress(pickle.dumps(said), preset=1))
    whole.rename(path)
    return said


def findings(said: Said) -> list[str]:
    """The findings of a JSON report, one line each; of a text, its lines."""
    try:
        files = json.loads(said.out)["files"]
    except (ValueError, KeyError):
        return said.out.splitlines()
    return [
        f"{file['path']} ({file['engine']}) {key}: {json.dumps(one, ensure_ascii=False)}"
        for file in files
        for key, value in file.items()
        if key not in {"path", "engine"}
        for one in (value if isinstance(value, list) else [value])
    ]


def compare(name: str, before: Said, after: Said) -> int:
    """Say what differs, if anything; how many lines or findings that are."""
    count = 0
    if before.code != after.code:
        print(f"{name}: exit code {before.code}, now {after.code}")
        count += 1
    if before.err != after.err:
        count += _show(f"{name}: standard error", before.err.splitlines(), after.err.splitlines())
    if before.out != after.out:
        found = _show(f"{name}: findings", findings(before), findings(after))
        count += found or _show(name, before.out.splitlines(), after.out.splitlines()) or 1
    return count


def _show(title: str, before: list[str], after: list[str]) -> int:
    left, right = Counter(before), Counter(after)
    differ = (left - right).total() + (right - left).total()
    moved = before != after and not differ
    if not differ and not moved:
        return 0
    print(f"{title}: {differ or 'the order'} differ{'s' if moved else ''}")
    first = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    begin = max(0, first - 2)
    window = slice(begin, begin + 200)
    lines = difflib.unified_diff(before[window], after[window], "before", "now", lineterm="", n=2)
    for number, line in enumerate(lines):
        if number >= SHOWN_LINES:
            print("  …")
            break
        print(f"  {line[:SHOWN_WIDTH]}")
    return differ or 1


def main() -> int:
    """Write the corpus, ask both, and tell what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path, help="the other installation's python or speclaunch")
    parser.add_argument("--files", type=int, default=2000, help="how many are generated")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--quick", action="store_true", help="about 300 files, and fewer calls")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="this one's")
    parser.add_argument(
        "--option", action="append", default=[], help="a word for this one's lint alone; repeatable"
    )
    parser.add_argument("--keep-corpus", type=Path, help="leave the corpus in this new folder")
    given = parser.parse_args()
    python = given.other
    if python.name == "speclaunch":
        python = python.with_name("python")
    other = Installation(python.absolute())
    ours = Installation(given.python.absolute(), given.option)
    print(f"the other one: {other.package}\nthis one:      {ours.package}", flush=True)
    size = Size(150, 40, 12) if given.quick else Size(given.files, 1, 1)
    with tempfile.TemporaryDirectory(prefix="speclaunch-equal-") as name:
        corpus, home = Path(name) / "corpus", Path(name) / "home"
        corpus.mkdir()
        # the other one's test data where it has some: what it said is kept longer then
        data = [one.package.parent for one in (other, ours)]
        checkout = next((one for one in data if (one / "tests/rules/cases").is_dir()), ROOT)
        count = write_everything(corpus, size, given.seed, checkout)
        print(f"{count} files", flush=True)
        differ = _compare_all(ours, other, corpus, home, quick=given.quick)
        changed = change(corpus, given.seed)
        print(f"{changed} files changed", flush=True)
        differ += _compare_all(ours, other, corpus, home, quick=given.quick, again="changed, ")
        if given.keep_corpus:
            shutil.copytree(corpus, given.keep_corpus)
    print(
        f"{differ or 'nothing'} differ{'' if differ else 's'}; CPU seconds of this one: "
        f"{ours.seconds:.1f}, of the other one: {other.seconds:.1f} (what was kept not counted)"
    )
    return 1 if differ else 0


def _compare_all(
    ours: Installation,
    other: Installation,
    corpus: Path,
    home: Path,
    *,
    quick: bool,
    again: str = "",
) -> int:
    """The differences of all calls.

    This one's HOME keeps its cache from call to call, the other's is always empty.
    """
    digest = other.digest() + digest_of(corpus)
    differ = 0
    mine = home.with_name("kept")
    for run in list(runs(corpus, quick=quick))[: 1 if quick and again else None]:
        with _HomeAt(home, None):
            before = kept(other, run, corpus, home, digest)
        for number in range(2 if run.name == "default" and not again else 1):
            with _HomeAt(home, mine):
                after = ours.ask(run, corpus, home)
            differ += (found := compare(f"{again}{run.name}", before, after))
            if found:
                break
            print(f"{again}{run.name}{', once more' if number else ''}: the same", flush=True)
    return differ


class _HomeAt:
    """A home at one path for both: an empty one, or one that is put aside until the next time."""

    def __init__(self, home: Path, aside: Path | None) -> None:
        self._home, self._aside = home, aside

    def __enter__(self) -> None:
        if self._aside is not None and self._aside.exists():
            self._aside.rename(self._home)
        else:
            self._home.mkdir()

    def __exit__(self, *_: object) -> None:
        if self._aside is None:
            shutil.rmtree(self._home)
        else:
            self._home.rename(self._aside)


if __name__ == "__main__":
    sys.exit(main())
