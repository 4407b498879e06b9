"""Break the tiny drafts in many ways, and run each on the real engine: what does it cost?

    python -m campaigns checkpoint_mutants run [WORD …]    those with a WORD in their name; store
    python -m campaigns checkpoint_mutants list [WORD …]   only their names
    python -m campaigns checkpoint_mutants judge [WORD …]  findings of the rules, against the runs
    python -m campaigns checkpoint_mutants stand-ins       names and shapes of healthy drafts; store

The acceptance lengths of the healthy drafts, of all mutants and of the harmless changes go to
tests/engine/checkpoints/runs.json; those that are not asked for keep theirs. Two seconds each on a
core.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from speclaunch.core.files import replace_file, speclaunch_home
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.cpu_engine.programs import MAKE_MODELS, engine_environment
from tests.support.engine.checkpoints import safetensors_bytes, stand_ins
from tests.support.engine.checkpoints.harmless import harmless
from tests.support.engine.checkpoints.judging import findings, is_harmed
from tests.support.engine.checkpoints.mutants import BASES, Mutant, mutants
from tests.support.engine.checkpoints.safetensors_bytes import Model

REPOSITORY = Path(__file__).resolve().parent.parent

RUNS = REPOSITORY / "tests" / "engine" / "checkpoints" / "runs.json"
MEASURE = REPOSITORY / "tests" / "engine" / "checkpoints" / "measure_acceptance.py"


def healthy(engine: CpuEngine, scratch: Path) -> dict[str, Path]:
    """The tiny models, written anew: the engine's own are not touched."""
    found = {}
    names = {name for base in BASES.values() for name in (base.target, base.draft) if name}
    for name in sorted(names):
        command = [engine.python, "-P", MAKE_MODELS, name, scratch / name]
        subprocess.run(command, check=True, env=engine_environment(engine))
        found[name] = scratch / name
    return found


def all_mutants(models: dict[str, Path], words: Sequence[str]) -> Iterator[tuple[Mutant, Model]]:
    """Those that are asked for, each with its healthy checkpoint."""
    for base, pair in BASES.items():
        model = safetensors_bytes.read(models[pair.changed])
        for one in [*mutants(base, model), *harmless(base, model)]:
            if not words or any(word in f"{one.key} {one.kind}" for word in words):
                yield one, model


def write(mutant: Mutant, model: Model, folder: Path) -> None:
    """The changed checkpoint."""
    changed = copy.deepcopy(model)
    mutant.change(changed)
    changed.write(folder)


def arguments(base: str, changed: Path | None, models: dict[str, Path]) -> dict[str, str]:
    """What the engine is asked; `changed` stands in for the draft."""
    pair = BASES[base]
    if pair.draft is None:
        target = changed or models[pair.target]
        return {"model_path": str(target), "speculative_algorithm": pair.algorithm}
    return {
        "model_path": str(models[pair.target]),
        "speculative_algorithm": pair.algorithm,
        "speculative_draft_model_path": str(changed or models[pair.draft]),
    }


class Engine:
    """The process that runs one draft after another."""

    def __init__(self, engine: CpuEngine, scratch: Path) -> None:
        self._log = str(scratch / "engine.log")
        self._process = subprocess.Popen(
            [engine.python, MEASURE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=engine_environment(engine),
        )

    def run(self, name: str, said: dict[str, str]) -> dict[str, Any]:
        """`length`, or `refused`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"name": name, "log": self._log, "arguments": said}) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        assert answer.pop("name") == name
        return answer

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run(words: Sequence[str]) -> None:
    """Run and store; after each fifty, so that an interrupted campaign is not lost."""
    cpu = CpuEngine(speclaunch_home())
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else {"healthy": {}, "runs": {}}
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        models = healthy(cpu, scratch / "models")
        engine = Engine(cpu, scratch)
        for base in BASES:
            runs["healthy"][base] = engine.run(base, arguments(base, None, models))["length"]
            print(base, runs["healthy"][base], flush=True)
        for place, (mutant, model) in enumerate(all_mutants(models, words), 1):
            folder = scratch / "changed"
            write(mutant, model, folder)
            result = engine.run(mutant.key, arguments(mutant.base, folder, models))
            about = {"kind": mutant.kind}
            runs["runs"][mutant.key] = about | result
            print(mutant.key, *result.values(), flush=True)
            shutil.rmtree(folder)
            if place % 50 == 0:
                store(runs)
        engine.close()
    if not words:  # those that are no longer made
        cpu_runs = {one.key for one, _ in all_mutants_again(cpu)}
        runs["runs"] = {key: said for key, said in runs["runs"].items() if key in cpu_runs}
    store(runs)


def all_mutants_again(cpu: CpuEngine) -> list[tuple[Mutant, Model]]:
    """All there are."""
    with tempfile.TemporaryDirectory() as temporary:
        return list(all_mutants(healthy(cpu, Path(temporary)), ()))


def store(runs: dict[str, Any]) -> None:
    """One line a run, in the order of their names."""
    lines = [
        f"  {json.dumps(key)}: {json.dumps(runs['runs'][key])}" for key in sorted(runs["runs"])
    ]
    text = '{\n "engine": "0.5.23",\n "healthy": ' + json.dumps(runs["healthy"])
    text += ',\n "runs": {\n' + ",\n".join(lines) + "\n }\n}\n"
    replace_file(RUNS, text, 0o666)


def judge(words: Sequence[str]) -> None:
    """What the rules say of each, against what its run came to."""
    runs = json.loads(RUNS.read_text())
    cpu = CpuEngine(speclaunch_home())
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        models = healthy(cpu, scratch / "models")
        usual = {base: codes(base, None, models) for base in BASES}
        print("healthy:", {base: sorted(found) for base, found in usual.items()})
        harmed, caught, alarms, spared = 0, 0, 0, 0
        for place, (mutant, model) in enumerate(all_mutants(models, words)):
            result = runs["runs"].get(mutant.key)
            if result is None:
                continue
            folder = scratch / f"changed-{place}"
            write(mutant, model, folder)
            found = codes(mutant.base, folder, models) - usual[mutant.base]
            shutil.rmtree(folder)
            bad = is_harmed(result, runs["healthy"][mutant.base])
            length = result.get("length", "refused")
            if mutant.harmless:
                alarms += bool(found)
                spared += 1
                if found or bad:
                    print("FALSE ALARM" if found else "NOT HARMLESS", mutant.key, length, *found)
            else:
                harmed += bad
                caught += bad and bool(found)
                if bad and not found:
                    print("MISSED", mutant.key, f"({mutant.kind})", length, result.get("refused"))
        print(f"{caught} of {harmed} that are harmed are found; {alarms} of {spared} false alarms")


def codes(base: str, changed: Path | None, models: dict[str, Path]) -> set[str]:
    """The codes of errors and warnings."""
    pair = BASES[base]
    if pair.draft is None:
        found = findings(base, changed or models[pair.target], None)
    else:
        found = findings(base, models[pair.target], changed or models[pair.draft])
    return {one.code for one in found}


def describe_stand_ins() -> None:
    """Write stand_ins.json."""
    with tempfile.TemporaryDirectory() as temporary:
        said = stand_ins.describe(healthy(CpuEngine(speclaunch_home()), Path(temporary)))
    text = json.dumps(said, separators=(",", ":")).replace('},"', '},\n"')
    stand_ins.FILE.write_text(text + "\n")


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "list", "judge", "stand-ins"])
    parser.add_argument("words", nargs="*")
    said = parser.parse_args()
    if said.what == "run":
        run(said.words)
    elif said.what == "judge":
        judge(said.words)
    elif said.what == "stand-ins":
        describe_stand_ins()
    elif said.what == "list":
        for one, _ in all_mutants_again(CpuEngine(speclaunch_home())):
            print(one.key)
    return 0
