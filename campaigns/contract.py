"""Check request contracts of sound servers, and of servers that break one request field.

    python -m campaigns contract sound --pairs 1000 --store
    python -m campaigns contract planted --store
    python -m campaigns contract engine --store
    python -m campaigns contract show

* sound: pairs of scripted servers (tests/support/measure/contract_server.py), each of its own
  model; no field may differ.
* planted: the same with each planted bug; exactly the fields that it breaks must differ.
* engine: the CPU engine with bugs planted in SGLang's own functions
  (tests/support/measure/contract_faults.py); of the fields that a bug may break, the first must
  differ, and not without the bug.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from speclaunch.app.verbs.prove import Engines
from speclaunch.app.verbs.shared import lookup
from speclaunch.measure.bench.sides import NONE, SideOptions, baseline, candidate
from speclaunch.measure.prove import contract_servers
from speclaunch.measure.prove.contract import FIELDS, check_contract
from speclaunch.measure.prove.contract_servers import Contract, FieldResult
from tests.support.measure.contract_faults import FIELD_FAULTS, RECIPE
from tests.support.measure.contract_server import FAULTS, pair
from tests.support.proof_faults import activate, breakable_shim

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "measure" / "contract" / "campaign.json"


def hurry() -> None:
    """Do not wait before an abort: a scripted server runs until then."""
    contract_servers._STARTED_SECONDS = 0.01
    contract_servers._RELEASE_SECONDS = 0.1


def sound(numbers: Iterable[int], processes: int = 1) -> dict[str, Any]:
    """Check pairs of sound servers; return how many fields were compared, and the alarms."""
    compared, pairs, alarms = 0, 0, []
    with Pool(processes, hurry) as pool:
        for rows in pool.imap_unordered(_rows, numbers):
            pairs += 1
            compared += sum(result == "same" for _, result, _ in rows)
            alarms += [list(row) for row in rows if row[1] == "differs"]
            if pairs % 100 == 0:
                print(f"{pairs}: {compared} fields the same, {len(alarms)} alarms", flush=True)
    return {"pairs": pairs, "same": compared, "alarms": alarms}


def _rows(number: int) -> list[tuple[str, str, str]]:
    found = check_contract(*pair(number=number)).rows
    return [(row.field, row.result.value, row.reason) for row in found]


def planted(number: int) -> dict[str, list[str]]:
    """Return the fields that differ for each planted bug, in servers of one model."""
    return {fault.name: differing(check_contract(*pair(fault.name, number))) for fault in FAULTS}


def differing(contract: Contract) -> list[str]:
    """Return the names of fields that differ."""
    return [row.field for row in contract.rows if row.result is FieldResult.DIFFERS]


def engine(only: str, known: Collection[str]) -> dict[str, Any]:
    """Return the fields that differ on the CPU engine: all without a bug, and with each bug those
    that it may break."""
    faults = [each.fault for each in FIELD_FAULTS]
    options = SideOptions((), None, lookup((), None))
    found = {}
    with tempfile.TemporaryDirectory(prefix="contract-campaign-") as text:
        folder = Path(text)
        shim = breakable_shim(folder, faults)
        words = [f"recipe={RECIPE}", *_WORDS]
        ours = candidate([*words, f"+engine.env.PYTHONPATH={shim}"], options)
        plain = baseline(NONE, words, ours, options)
        with Engines(folder, print) as engines:
            for side in (ours, plain):
                engines.begin(side)
            with engines.serving(ours) as served, engines.serving(plain) as other:
                pair_ = served.contract_server, other.contract_server
                for fault in (None, *faults):
                    name = "as it is" if fault is None else fault.name
                    if only in name and name not in known:
                        activate(shim, fault, faults)
                        pair_[0].post("/flush_cache", {})
                        own = [f for each in FIELD_FAULTS for f in each.breaks]
                        if fault is not None:
                            own = [*FIELD_FAULTS[faults.index(fault)].breaks]
                        fields = [field for field in FIELDS if field.name in own]
                        contract = check_contract(*pair_, fields=fields)
                        found[name] = differing(contract)
                        print(name, *contract.rows, sep="\n  ", flush=True)
    return found


_WORDS = ("args.reasoning_parser=deepseek-r1", "args.tool_call_parser=qwen25")


def objections(results: dict[str, Any]) -> Iterator[str]:
    """Yield each result that is not as required."""
    found = results.get("sound", {})
    if found.get("pairs", 0) < 1000:
        yield f"only {found.get('pairs', 0)} sound pairs"
    yield from (f"a false alarm: {alarm}" for alarm in found.get("alarms", ()))
    seen = results.get("planted", {})
    for fault in FAULTS:
        if not fault.explains(seen.get(fault.name, ())):
            yield f"{fault.name}: {seen.get(fault.name)}, not {list(fault.breaks)}"
    yield from _of_engine(results.get("engine", {}))


def _of_engine(found: dict[str, Any]) -> Iterator[str]:
    known = set(found.get("as it is", ()))
    for planted_bug in FIELD_FAULTS:
        name, first = planted_bug.fault.name, planted_bug.breaks[0]
        new = set(found.get(name, ())) - known
        if first not in new:
            yield f"engine: {name}: {sorted(new)}, not {first}"


def stored() -> dict[str, Any]:
    """Return the results of the last campaign."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["sound", "planted", "engine", "show"])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--only", default="", help="planted bugs whose name has this text")
    parser.add_argument("--missing", action="store_true", help="planted bugs without a result")
    parser.add_argument("--store", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    args = parser.parse_args()
    if args.what != "engine":
        hurry()
    began = time.monotonic()
    found: Any = None
    if args.what == "sound":
        found = sound(range(1, args.pairs + 1), processes=2)
    elif args.what == "planted":
        found = planted(1)
    elif args.what == "engine":
        known = stored().get("engine", {}) if args.missing else {}
        found = {**known, **engine(args.only, known)}
    if found is not None:
        found_at = {args.what: found}
        print(json.dumps(found_at, indent=1), f"{time.monotonic() - began:.0f} s")
        if args.store:
            RESULTS.write_text(json.dumps({**stored(), **found_at}, indent=1) + "\n")
    bad = list(objections(stored()))
    print("\n".join(f"not as it must be: {text}" for text in bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
