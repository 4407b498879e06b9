"""Feed the readers, the importer and the verbs that write with texts that nobody would write.

    python -m campaigns fuzz --minutes 5 --only lint,migrate

Texts are those of the corpora, cut, joined, repeated and spoiled; hypothesis draws them and makes
what fails as short as it can. A target fails when it crashes, takes too long, or breaks a promise:
a place that is not in the text, a translation that does not prove itself. What failed is kept in
tests/fuzz/<target>/, where a test runs it from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from campaigns.fuzzing.targets import TARGETS, Target
from campaigns.fuzzing.texts import texts

ROOT = Path(__file__).resolve().parent.parent

KEPT = ROOT / "tests/fuzz"
SECONDS = 20
"""A text of a few kilobytes that takes longer hangs."""
MEMORY = 4 << 30
"""Bytes; a text of a few hundred kilobytes that takes more is a bomb."""
SLICE = 200
"""Examples between two looks at the clock."""


class HangError(Exception):
    """A text took too long."""


@contextmanager
def bounded(seconds: int = SECONDS) -> Iterator[None]:
    """Raise HangError inside of what takes longer."""

    def late(*_: object) -> None:
        raise HangError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(
    target: Target, seconds: float, number: int, *, bombs: bool = False
) -> tuple[int, list[str]]:
    """Try texts for so long: how many, and the texts that failed."""
    tried, failed = 0, dict[str, str]()
    last = ""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1

        @seed(number)
        @settings(
            max_examples=SLICE,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        @given(texts(target.suffixes, bombs=bombs))
        def one(drawn: tuple[str, str]) -> None:
            nonlocal tried, last
            tried += 1
            suffix, last = drawn
            if time.monotonic() < end + 60:  # what failed is made shorter for so long
                with bounded():
                    ask(target.ask, last, suffix)

        try:
            one()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
            if key not in failed:
                print(f"{target.name}: {key}: {str(error)[:300]}", flush=True)
                failed[key] = last
                keep(target.name, last)
    return tried, list(failed)


def ask(target: Callable[[Path], None], text: str, suffix: str) -> None:
    """Ask a target about a file with this text. Raises what it raises."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        target(path)


def keep(name: str, text: str) -> None:
    """Keep a text that failed, as a case of tests/fuzz."""
    data = text.encode("utf-8", "surrogatepass")
    home = KEPT / name
    home.mkdir(parents=True, exist_ok=True)
    (home / f"{hashlib.sha256(data).hexdigest()[:16]}.txt").write_bytes(data)


def main() -> int:
    """Fuzz all targets, or some, one after the other; 1 where something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="of each target")
    parser.add_argument("--only", default="", help=f"of {', '.join(one.name for one in TARGETS)}")
    parser.add_argument("--bombs", action="store_true", help="Repeat pieces thousands of times.")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))  # noqa: S311
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    names = [name for name in asked.only.split(",") if name]
    bad = False
    for target in TARGETS:
        if names and target.name not in names:
            continue
        tried, failed = fuzz(target, asked.minutes * 60, asked.seed, bombs=asked.bombs)
        print(f"{target.name}: {tried:,} texts (seed {asked.seed}), {len(failed)} failures")
        bad = bad or bool(failed)
    return int(bad)
