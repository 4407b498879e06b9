"""Compare all that two versions of speclaunch say of the same, byte for byte.

    python tools/net.py BASE [--now FOLDER] [--quick] [--only PART,PART…] [--match TEXT] [--facts]
    make net BASE=… [QUICK=1] [ONLY=…]

BASE is a commit, which is built in its own environment, or the folder of a checkout whose
`.venv` is ready; the other version is the checkout of this tool, or that of `--now`. Both run
the same command lines (`netting/cases.py`) in the same folders with an empty HOME: exit code, both
streams and all files that a command changes must be the same. `--quick` takes a tenth of the
cases. With `--facts` words may differ: codes, places, severities, numbers and the lines of written
files besides comments may not; of a help, options and defaults may not. The answers of the base
are stored for the next time.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import lzma
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]

from netting.cases import PARTS, Verbs, dealt, read_help, read_verbs, settle  # noqa: E402
from netting.sides import Answer, Case, Side, contents  # noqa: E402

JOBS = os.cpu_count() or 1
QUICK_SHARE = 10
FIRST = frozenset({"all", "all once more"})
"""Cases of a part that its others, or another part, rely on."""
SHOWN_CASES, SHOWN_LINES, SHOWN_WIDTH = 12, 14, 300
STORED = Path(tempfile.gettempdir()) / f"speclaunch-net-{os.getuid()}"
FORMAT = 3
"""Raise this when the same case would be run in another way: what is stored is then asked anew."""

WORDS = frozenset(
    {"message", "why", "help", "fix", "title", "note", "notes", "text", "reason", "because", "url"}
    | {"hardware_note", "markdown", "unknown", "doubt", "end"}
)
"""Keys of JSON whose values are words; numbers in them still count."""
WRITERS = frozenset({"render", "import"})
"""Verbs whose standard output is a file: only its comments are words."""
FACT = re.compile(
    r"SP[LA]-?\d[\d-]*|\b(?:error|warning|info)\[|[\w./-]+:\d+(?::\d+)?|\d+(?:\.\d+)*"
)
"""Facts of a text for people: codes, severities, places and numbers."""
COMMENT = re.compile(r"(?:^|\s+)#(?: .*)?$")
DEFAULT = re.compile(r"\[(?:default: |required|\w?[<>=])[^]]*\]")


class Net:
    """The comparison of two sides."""

    def __init__(self, base: Side, ours: Side, *, is_quick: bool, words_may_differ: bool) -> None:
        self.base, self.ours = base, ours
        self.is_quick, self.words_may_differ = is_quick, words_may_differ
        self.key = f"{FORMAT} {base.digest()}"

    def verbs(self) -> Verbs:
        """Return the verbs of the base and their options."""

        def ask(cases: Sequence[Case]) -> dict[str, Answer]:
            with workplace() as net:
                (net / "scenes/empty").mkdir(parents=True)
                return self.base.answers(cases, net, JOBS)

        return _stored("verbs", self.key, lambda: read_verbs(ask))

    def compare(self, part: str, match: str, net: Path, verbs: Verbs) -> tuple[int, int]:
        """Run a part with both; how many cases it has, and how many answers differ."""
        scenes = net / "scenes"
        shutil.rmtree(scenes, ignore_errors=True)
        (scenes / "empty").mkdir(parents=True)
        about = PARTS[part]
        about.scenes(scenes, self.is_quick)
        if part != "changed":
            settle(scenes)
        cases = [case for case in about.cases(scenes, verbs) if match in case.name]
        if self.is_quick and part != "changed":
            cases = [case for case in cases if case.name in FIRST or dealt(case.name, QUICK_SHARE)]
        jobs = about.jobs or JOBS
        before = self._base_answers(part, cases, net, jobs)
        after = self.ours.answers(cases, net, jobs)
        found = 0
        for case in cases:
            is_file = bool(case.args) and case.args[0] in WRITERS
            lines = list(self.differences(before[case.name], after[case.name], is_file=is_file))
            found += bool(lines)
            if lines and found <= SHOWN_CASES:
                print(f"{part}: {case.name}", *lines, sep="\n  ", flush=True)
        return len(cases), found

    def _base_answers(
        self, part: str, cases: Sequence[Case], net: Path, jobs: int
    ) -> dict[str, Answer]:
        digest = hashlib.sha256(self.key.encode())
        for name, content in contents(net / "scenes").items():
            digest.update(f"{name}\0".encode() + hashlib.sha256(content).digest())
        known: dict[str, Answer] = _stored(part, digest.hexdigest(), dict)
        new = [case for case in cases if repr(case) not in known]
        if new:
            found = self.base.answers(new, net, jobs)
            known |= {repr(case): found[case.name] for case in new}
            _store(part, digest.hexdigest(), known)
        return {case.name: known[repr(case)] for case in cases}

    def differences(self, before: Answer, after: Answer, *, is_file: bool = False) -> Iterator[str]:
        """Yield what differs, line by line; nothing if the answers are the same.

        `is_file`: standard output is a written file.
        """
        if before.code != after.code:
            yield f"exit code {before.code}, now {after.code}"
        texts = {
            "standard output": (before.out, after.out),
            "standard error": (before.err, after.err),
        }
        for name in sorted(before.files.keys() | after.files.keys()):
            texts[name] = before.files.get(name, ""), after.files.get(name, "")
        for name, (old, new) in texts.items():
            if old == new:
                continue
            is_text = name == "standard error" or (name == "standard output" and not is_file)
            one, other = (self._lines(text, is_text=is_text) for text in (old, new))
            if self.words_may_differ and one == other:
                continue
            yield f"{name}:"
            diff = list(difflib.unified_diff(one, other, "before", "now", lineterm="", n=1))
            for line in diff[2 : 2 + SHOWN_LINES] or [f"  {old[:80]!r}", f"  {new[:80]!r}"]:
                yield f"  {line[:SHOWN_WIDTH]}"

    def _lines(self, text: str, *, is_text: bool) -> list[str]:
        try:
            document = json.loads(text)
        except ValueError:
            if not self.words_may_differ:
                return text.splitlines()
            is_text = is_text or text.startswith("Usage: ")
            return text_facts(text) if is_text else _without_comments(text)
        if self.words_may_differ:
            document = facts(document)
        return json.dumps(document, indent=1, ensure_ascii=False).splitlines()


def _numbers(text: str) -> list[str]:
    return re.findall(r"SPL\d+|\d+(?:\.\d+)*", text)


def _without_comments(text: str) -> list[str]:
    """Return the lines of a written file without comments and, if it is Python, docstrings."""
    lines = text.splitlines()
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                lines[node.lineno - 1 : node.lineno - 1 + count] = [""] * count
    return [line for full in lines if (line := COMMENT.sub("", full))]


def text_facts(text: str) -> list[str]:
    """Return the facts of a text for people, line by line; of a help its options and defaults."""
    if text.startswith("Usage: "):
        options, verbs = read_help(text)
        rows = [" ".join((*sorted(one.ways), one.metavar)) for one in options]
        return sorted(rows) + sorted(verbs) + sorted(DEFAULT.findall(" ".join(text.split())))
    return [" ".join(found) for line in text.splitlines() if (found := sorted(FACT.findall(line)))]


def facts(value: Any, key: str = "") -> Any:
    """Return a document without its words: of these the numbers stay."""
    if isinstance(value, dict):
        return {name: facts(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [facts(inner, key) for inner in value]
    return sorted(_numbers(value)) if isinstance(value, str) and key in WORDS else value


def _stored(name: str, key: str, make: Any) -> Any:
    path = _place(name, key)
    if path.exists():
        return pickle.loads(lzma.decompress(path.read_bytes()))  # noqa: S301 - written by us
    return _store(name, key, make())


def _store(name: str, key: str, value: Any) -> Any:
    path = _place(name, key)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(lzma.compress(pickle.dumps(value), preset=1))
    beside.rename(path)
    return value


def _place(name: str, key: str) -> Path:
    return STORED / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.xz"


@contextmanager
def workplace() -> Iterator[Path]:
    """Provide a folder whose name has always the same length."""
    with tempfile.TemporaryDirectory(prefix="speclaunch-net-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


def installation(base: str) -> Path:
    """Return the folder of a ready checkout: BASE itself, or that of a commit, which is built."""
    if (Path(base) / "speclaunch").is_dir():
        return Path(base)
    git = ["git", "-C", str(ROOT)]
    done = subprocess.run(
        [*git, "rev-parse", "--verify", f"{base}^{{commit}}"],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"BASE={base} is neither a checkout nor a commit")
    commit = done.stdout.strip()
    folder = STORED / f"base-{commit[:12]}"
    if not (folder / ".venv/bin/.ready").exists():
        STORED.mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([*git, "worktree", "prune"], check=True)
        subprocess.run([*git, "worktree", "add", "--detach", folder, commit], check=True)
        subprocess.run(["make", "-C", folder, ".venv/bin/.ready"], check=True)
    return folder


def main() -> int:
    """The command line; exit 1 where anything differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", help="a commit, or the folder of a ready checkout")
    parser.add_argument("--now", default=str(ROOT), help="the other version, like BASE")
    parser.add_argument("--quick", action="store_true", help="a tenth of the cases")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--facts", action="store_true", help="words may differ")
    args = parser.parse_args()
    base, ours = (
        Side(root, root / ".venv/bin/python", is_base=is_base)
        for is_base, root in ((True, installation(args.base)), (False, installation(args.now)))
    )
    net = Net(base, ours, is_quick=args.quick, words_may_differ=args.facts)
    verbs = net.verbs()
    differ = 0
    with workplace() as place:
        for part in args.only.split(","):
            begin = time.monotonic()
            count, found = net.compare(part, args.match, place, verbs)
            differ += found
            took = time.monotonic() - begin
            print(f"{part}: {count} cases, {found} differ ({took:.0f} s)", flush=True)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
