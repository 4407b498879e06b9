"""Run deployments that the rules speak about on the real engine; keep how far each one comes.

    python tools/load_evidence.py list [WORD …]      names of cases; `-` before what was not run yet
    python tools/load_evidence.py run [WORD …]       run those with a word in their name; store
                              [--missing]            only what was not run, or has changed since
    python tools/load_evidence.py pages [--check]    write "Seen on the engine" into rules' pages
    python tools/load_evidence.py judge              what speclaunch says of each, against its run

One engine after another, 15 seconds to a minute each; what was run is stored after each case, in
tests/evidence/load.yaml, so that an interrupted campaign goes on with `run --missing`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = REPOSITORY / "docs" / "rules"
sys.path[:0] = [str(REPOSITORY)]

from speclaunch.core.files import replace_file, speclaunch_home  # noqa: E402
from speclaunch.engine.facts.cpu_engine import CpuEngine  # noqa: E402
from speclaunch.serving.cpu_engine.programs import ensure_model  # noqa: E402
from tests.support.evidence import judging, models, pages, stored  # noqa: E402
from tests.support.evidence.case import Case  # noqa: E402
from tests.support.evidence.cases import CASES  # noqa: E402
from tests.support.evidence.engine import LOG, Forks, Processes, serve, words  # noqa: E402


def chosen(asked: Sequence[str]) -> list[Case]:
    """The cases whose name has one of the words; all where there is none."""
    return [case for case in CASES if not asked or any(word in case.key for word in asked)]


def run(cases: Sequence[Case], *, missing: bool, keep: Path | None, whole: bool) -> None:
    """Run and store, one after another."""
    engine = CpuEngine(speclaunch_home())
    for name in {made.base for case in cases for made in (case.target, case.draft) if made}:
        ensure_model(engine, name)
    healthy = models.from_engine(engine.models)
    known = stored.load()
    if missing:
        cases = [
            case
            for case in cases
            if case.key not in known or known[case.key].case != stored.identity(case, healthy)
        ]
    modules = sorted({module for case in CASES for module in case.modules})
    starter = Processes(engine, modules) if whole else Forks(engine, modules)
    try:
        for case in cases:
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                judging.write(case, healthy, folder)
                result = serve(
                    starter, words(case.arguments()), folder, case.env, lifted=case.lifted
                )
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    log = (folder / LOG).read_bytes()
                    (keep / f"{case.key.replace('/', '-')}.log").write_bytes(log)
            stored.add(case, result, healthy)
            print(case.key, result.phase, result.exit_code, result.error[:100], flush=True)
    finally:
        if isinstance(starter, Forks):
            starter.close()


def write_pages(runs: Mapping[str, stored.Stored], *, check: bool) -> int:
    """Write the sections into docs/rules/; 1 where `check` finds an old one."""
    old = []
    for path in sorted(PAGES.glob("SPL*.md")):
        text = path.read_text(encoding="utf-8")
        made = pages.with_evidence(text, path.stem, runs)
        if made != text:
            old.append(path.name)
            if not check:
                replace_file(path, made, 0o666)
    if old:
        print(f"{'old' if check else 'written'}: {', '.join(old)}")
    return 1 if check and old else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("what", choices=["list", "run", "pages", "judge"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--missing", action="store_true", help="only what was not run")
    parser.add_argument("--whole", action="store_true", help="a new process each, not a fork")
    parser.add_argument("--check", action="store_true", help="write no page; 1 if one is old")
    parser.add_argument("--logs", type=Path, help="a folder in which whole logs are kept")
    said = parser.parse_intermixed_args()
    cases = chosen(said.words)
    if said.what == "run":
        run(cases, missing=said.missing, keep=said.logs, whole=said.whole)
        return 0
    runs = stored.load()
    if said.what == "pages":
        return write_pages(runs, check=said.check)
    if said.what == "list":
        for case in cases:
            print(" " if case.key in runs else "-", case.key, case.about)
        return 0
    healthy = models.from_stand_ins()
    wrong = 0
    for case in cases:
        if (ran := runs.get(case.key)) is not None:
            problems = judging.problems(case, ran, healthy)
            wrong += bool(problems)
            for problem in problems:
                print(f"{case.key}: {problem} ({ran.phase} {ran.error[:90]})")
    print(f"{wrong} of {len(cases)} are judged otherwise than the engine did")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
