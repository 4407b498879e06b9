"""Hold the memory verdict against real CPU engines: random memory settings of the `cpu_*` recipes.

    python -m campaigns memory_verdict --starts 20 [--seed 1]

For each setting `plan` states the verdict, then a launch without recovery starts it unchanged.
A setting that fits must serve, and one that does not fit must not. Exit code 1: one is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

RECIPES = ("cpu_ngram", "cpu_standalone", "cpu_eagle3", "cpu_mtp_glm")
_SPECLAUNCH = (sys.executable, "-P", "-m", "speclaunch")
_LAUNCHED = ("launch", "--smoke", "--fresh", "--force", "--max-attempts", "1")
_EXPECTED = {"fits": True, "fails": False}


def setting(chance: random.Random) -> list[str]:
    """Return a recipe with random memory settings, as arguments."""
    fraction = math.exp(chance.uniform(math.log(1e-4), math.log(0.99)))
    tokens = chance.choice((None, 8, 64, 1024, 8192, 65536))
    return [
        f"recipe={chance.choice(RECIPES)}",
        f"args.mem_fraction_static={fraction:.4g}",
        f"args.max_total_tokens={'null' if tokens is None else tokens}",
        f"args.max_running_requests={chance.choice((1, 2, 4, 16))}",
        f"args.port={chance.randrange(20_000, 30_000)}",
    ]


def verdict(words: Sequence[str]) -> str:
    """Return the memory verdict of `plan`."""
    done = subprocess.run(
        [*_SPECLAUNCH, "plan", *words, "--output-format", "json"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return str(json.loads(done.stdout)["budget"]["fit"])


def serves(words: Sequence[str]) -> tuple[bool, str]:
    """Start the engine; return whether it serves, and the end of the output."""
    done = subprocess.run(
        [*_SPECLAUNCH, *_LAUNCHED, *words], capture_output=True, text=True, check=False
    )
    return done.returncode == 0, (done.stdout + done.stderr)[-1500:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    chance, wrong = random.Random(chosen.seed), 0  # noqa: S311 - a repeatable choice
    counts = Counter[tuple[str, bool]]()
    for number in range(chosen.starts):
        words = setting(chance)
        stated, (served, output) = verdict(words), serves(words)
        counts[stated, served] += 1
        print(
            f"{number} {stated}: {'serves' if served else 'fails'}  {' '.join(words)}", flush=True
        )
        if _EXPECTED.get(stated, served) is not served:
            wrong += 1
            print(output, flush=True)
    for (stated, served), count in sorted(counts.items()):
        print(f"{stated}, {'serves' if served else 'fails'}: {count}")
    print(f"{wrong} of {chosen.starts} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
