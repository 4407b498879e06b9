"""`prove` and engines that are broken on purpose; the whole table is in campaigns/proof.py."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Marked
from tests.support.measure.contract_faults import FIELD_FAULTS
from tests.support.proof_faults import FAULTS, activate, breakable_shim

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def words(shim: Path) -> tuple[str, ...]:
    return (
        *("prove", "recipe=cpu_standalone", f"+engine.env.PYTHONPATH={shim}"),
        *("--workload", "chat", "--concurrency", "1,3", "--context", "0"),
        *("--output-tokens", "32", "--output-format", "json"),
    )


def broken(folder: Path, *, makes_wrong: bool) -> tuple[str, ...]:
    """A command line whose engine has the first fault of that kind."""
    shim = breakable_shim(folder)
    fault = next(
        one for one in FAULTS if one.recipe == "cpu_standalone" and one.makes_wrong == makes_wrong
    )
    activate(shim, fault)
    return words(shim)


def test_a_broken_verification_is_found_also_after_ctrl_c(
    first_home: Path, marked: Marked, tmp_path: Path
) -> None:
    asked = broken(tmp_path, makes_wrong=True)
    begun = marked.begin(*asked)
    assert begun.stderr is not None
    seen = []
    for line in begun.stderr:
        seen.append(line)
        if "answers at concurrency 1 " in line:
            break
    begun.send_signal(signal.SIGINT)
    _, told = begun.communicate(timeout=120)
    assert begun.returncode == 130, "".join([*seen, told])
    assert marked.left() == []
    assert "interrupted: engines stopped" in told
    (folder,) = first_home.glob("proofs/*")
    kept = json.loads((folder / "proof.json").read_text())
    assert (len(kept["greedy"]["1"]), kept["result"]) == (20, None)

    done = marked.run(*asked)
    assert f"resuming {folder.name}" in done.stderr
    said = json.loads(done.stdout)
    assert (done.returncode, said["lossless"]) == (1, False), done.stderr
    assert said["wrong"][0]["got"] != said["wrong"][0]["expected"]
    assert said["wrong"][0]["gap_nats"] > said["tolerance_nats"]
    assert json.loads((folder / "proof.json").read_text())["result"] == said
    assert marked.left() == []


def test_a_broken_draft_is_lossless(marked: Marked, tmp_path: Path) -> None:
    done = marked.run(*broken(tmp_path, makes_wrong=False))
    said = json.loads(done.stdout)
    assert (done.returncode, said["lossless"], said["unspeculated"]) == (0, True, 0), done.stderr
    assert all(one["accept_length"] < 1.3 for one in said["concurrencies"])  # 2.0 to 3.4 as it is
    assert marked.left() == []


def test_a_contract_names_the_broken_fields_of_a_release(first_home: Path, marked: Marked) -> None:
    """SGLang 0.5.23 has SPA-2026-0002; the planted bug misses stop strings within a step."""
    fault = next(each.fault for each in FIELD_FAULTS if "end of a step" in each.fault.name)
    faults = [each.fault for each in FIELD_FAULTS]
    shim = breakable_shim(first_home, faults)
    activate(shim, fault, faults)
    done = marked.run(
        *("prove", "recipe=cpu_standalone", f"+engine.env.PYTHONPATH={shim}"),
        *("--requests", "--output-format", "json"),
    )
    document = json.loads(done.stdout)
    rows = {row["field"]: row for row in document["fields"]}
    assert (done.returncode, document["same"]) == (1, False), done.stderr
    assert rows["stop"]["result"] == rows["min_new_tokens"]["result"] == "differs"
    assert rows["min_new_tokens"]["advisories"] == ["SPA-2026-0002"]
    assert "relaxed version" in rows["frequency_penalty"]["documented"]
    same = ("stop_token_ids", "end_at_max_new_tokens", "logit_bias", "n", "regex", "abort")
    assert [rows[name]["result"] for name in same] == ["same"] * len(same)
    (folder,) = first_home.glob("contracts/*")
    assert json.loads((folder / "contract.json").read_text())["result"] == document
    assert marked.left() == []
