"""`speclaunch advisories`, and what lint, plan, migrate and diagnose report of known bugs."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from speclaunch.checks.advisory import all_advisories
from speclaunch.core import recipes_dir
from tests.app.output.formats.lint_schema import FILE
from tests.support.program import run

STOP = "SPA-2026-0005"
"""Of requests with stop strings: SpecV2, fixed in 0.5.14."""
COMMAND = (
    "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct "
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --attention-backend fa3 "
    "--page-size 1\n"
)


@pytest.fixture
def speclaunch(tmp_path: Path) -> Any:
    home = tmp_path / "home"
    home.mkdir()

    def call(*words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        same = ("PATH", "PYTHON", "LC_", "LANG")
        environment = {name: v for name, v in os.environ.items() if name.startswith(same)}
        environment |= {"HOME": str(home), "SPECLAUNCH_HOME": str(home / "ours")}
        return run(*words, cwd=tmp_path, env=environment, given=stdin)

    return call


@pytest.mark.thorough
def test_they_are_listed_by_release(speclaunch: Any) -> None:
    every = speclaunch("advisories")
    assert every.returncode == 0
    assert len(every.stdout.splitlines()) >= len(all_advisories())
    some = json.loads(
        speclaunch("advisories", "ls", "--engine", "0.5.23", "--output-format", "json").stdout
    )["advisories"]
    assert {"none"} >= {one["fixed"] for one in some if one["fixed"] != "unknown"}
    assert STOP not in {one["id"] for one in some}


@pytest.mark.thorough
def test_one_is_shown(speclaunch: Any) -> None:
    shown = speclaunch("advisories", "show", STOP.lower())
    assert "fixed in 0.5.14" in shown.stdout
    assert "https://github.com/sgl-project/sglang/" in shown.stdout
    assert shown.stdout == speclaunch("explain", STOP).stdout
    unknown = speclaunch("advisories", "show", "SPA-2026-000")
    assert unknown.returncode == 2
    assert "unknown advisory 'SPA-2026-000'" in unknown.stderr
    assert "did you mean" in unknown.stderr


@pytest.mark.thorough
def test_a_recipe_is_checked(speclaunch: Any) -> None:
    words = ("advisories", "check", "recipe=eagle3_llama8b", "--hardware", "h100")
    chain = "args.speculative_eagle_topk=1", "args.speculative_num_draft_tokens=6"
    old = speclaunch(*words, *chain, "--engine", "0.5.12.post1")
    assert old.returncode == 0, old.stderr
    assert STOP in old.stdout
    both = speclaunch(*words, *chain, "--engine", "0.5.12.post1,0.5.23", "--output-format", "json")
    engines = json.loads(both.stdout)["engines"]
    assert [one["engine"] for one in engines] == ["0.5.12.post1", "0.5.23"]
    found = [{advisory["id"] for advisory in one["advisories"]} for one in engines]
    assert STOP in found[0] - found[1]
    assert speclaunch("advisories", "check", "recipe=nothing").returncode == 2


@pytest.mark.thorough
def test_each_server_of_files_and_roles_is_checked(speclaunch: Any, tmp_path: Path) -> None:
    def servers(*words: str) -> dict[str, set[str]]:
        done = speclaunch("advisories", "check", *words, "--output-format", "json")
        assert done.returncode == 0, done.stderr
        return {
            one["server"]: {advisory["id"] for advisory in one["advisories"]}
            for one in json.loads(done.stdout)["engines"]
        }

    roles = servers("recipe=pd_mtp_deepseek_v3", "--engine", "0.5.12.post1", "--hardware", "h200:8")
    name = "pd_mtp_deepseek_v3"
    assert roles.keys() == {f"{name}/prefill", f"{name}/decode"}
    assert "SPA-2026-0011" in roles[f"{name}/decode"] - roles[f"{name}/prefill"]
    (tmp_path / "run.sh").write_text(COMMAND + COMMAND.replace("EAGLE3", "NGRAM"))
    (tmp_path / "compose.yaml").write_text(
        "services:\n  a:\n    image: lmsysorg/sglang:v0.5.12\n    command: " + COMMAND
    )
    (tmp_path / "own.yaml").write_text((recipes_dir() / f"{name}.yaml").read_text())
    found = servers("run.sh", "compose.yaml", "--hardware", "h100")
    assert list(found) == ["run.sh:1:1", "run.sh:2:1", "compose.yaml:4:14"]
    assert [STOP in ids for ids in found.values()] == [False, False, True]
    assert servers(".", "--hardware", "h100").keys() == {*found, "own/prefill", "own/decode"}
    text = speclaunch("advisories", "check", "run.sh")
    assert text.stderr.count("the hardware is unknown") == 1


@pytest.mark.thorough
def test_files_without_a_server_are_refused(speclaunch: Any, tmp_path: Path) -> None:
    def check(*words: str) -> tuple[int, str]:
        done = speclaunch("advisories", "check", *words)
        return done.returncode, done.stderr

    (tmp_path / "run.sh").write_text(COMMAND)
    (tmp_path / "notes.txt").write_text("nothing\n")
    (tmp_path / "bad.yaml").write_text("args:\n  modelpath: 3\n")
    assert check("notes.txt") == (3, "error: no SGLang deployment in notes.txt\n")
    code, text = check("bad.yaml", "run.sh")
    assert code == 2
    assert "has no server argument `modelpath`" in text
    assert check("run.sh", "--role", "decode")[0] == 2
    assert "unknown recipe 'missing.sh'" in check("missing.sh")[1]


@pytest.mark.thorough
def test_lint_reports_one_of_requests_once_a_file(speclaunch: Any, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(COMMAND + COMMAND)
    words = ("lint", "run.sh", "--engine", "0.5.12.post1", "--hardware", "h100")
    brief = speclaunch(*words)
    assert f"{STOP}" in brief.stdout
    assert (
        "known engine bugs that affect only certain requests or have weak evidence" in brief.stdout
    )
    assert "info[" not in brief.stdout
    full = speclaunch(*words, "--info")
    assert full.stdout.count(f"info[{STOP}]") == 1
    assert "affects requests with stop" in full.stdout
    assert STOP not in speclaunch(*words, "--ignore", "SPA").stdout
    only = json.loads(speclaunch(*words, "--select", STOP, "--output-format", "json").stdout)
    assert [one["code"] for file in only["files"] for one in file["findings"]] == [STOP]


@pytest.mark.thorough
def test_an_ignore_comment_takes_an_id(speclaunch: Any, tmp_path: Path) -> None:
    reason = "no client sends stop strings"
    (tmp_path / "run.sh").write_text(f"# speclaunch: ignore[{STOP}] {reason}\n{COMMAND}")
    words = ("lint", "run.sh", "--engine", "0.5.12.post1", "--hardware", "h100", "--info")
    assert STOP not in speclaunch(*words).stdout
    unused = speclaunch("lint", "run.sh", "--engine", "0.5.23", "--hardware", "h100")
    assert "SPL091" in unused.stdout
    (tmp_path / "run.sh").write_text(f"# speclaunch: ignore[SPA-2026-99] {reason}\n{COMMAND}")
    assert "unknown rule code SPA-2026-99" in speclaunch(*words).stdout


@pytest.mark.thorough
def test_a_comparison_names_what_an_upgrade_fixes(speclaunch: Any) -> None:
    chain = "args.speculative_eagle_topk=1", "args.speculative_num_draft_tokens=6"
    shown = speclaunch(
        *("plan", "recipe=eagle3_llama8b", "--engine", "0.5.12.post1,0.5.23"),
        *("--hardware", "h100", *chain),
    )
    line = next(line for line in shown.stdout.splitlines() if line.startswith("known engine bugs"))
    assert "fixes" in line
    assert STOP in " ".join(shown.stdout.split("known engine bugs")[1].split())


def test_migrate_names_what_it_fixes(speclaunch: Any, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(COMMAND)
    done = speclaunch("migrate", "run.sh", "--from", "0.5.12.post1", "--to", "0.5.23")
    assert "known engine bugs: fixes" in done.stderr, done.stderr


@pytest.mark.thorough
def test_diagnose_names_known_bugs(speclaunch: Any) -> None:
    crash = next(one for one in all_advisories() if one.id == "SPA-2026-0017")
    log = (
        "[2026-07-01 10:00:00] server_args=ServerArgs(model_path='m', tp_size=1, "
        "speculative_algorithm='EAGLE', speculative_draft_model_path='d', "
        "speculative_adaptive=True, max_running_requests=4, cuda_graph_max_bs_decode=4, "
        "speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4, "
        "cuda_graph_bs_decode=None, device='cuda')\n"
        "[2026-07-01 10:01:00] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process\n'
        "    scheduler.run_event_loop()\n"
        "RuntimeError: something new\n\n"
    )
    found = speclaunch("diagnose", "-", "--engine", "0.5.17", "--output-format", "json", stdin=log)
    assert json.loads(found.stdout)["advisories"] == [crash.id]
    text = speclaunch("diagnose", "-", "--engine", "0.5.17", stdin=log).stdout
    assert "Known bugs of SGLang 0.5.17 that may explain it" in text
    assert crash.id in text
    config = log.replace("adaptive=True", "adaptive=True, speculative_adaptive_config={'a': 1}")
    unread = speclaunch(
        "diagnose", "-", "--engine", "0.5.17", "--output-format", "json", stdin=config
    )
    assert json.loads(unread.stdout)["advisories"] == []
    after = speclaunch("diagnose", "-", "--engine", "0.5.20", "--output-format", "json", stdin=log)
    assert json.loads(after.stdout)["advisories"] == []


class TestUpdate:
    @pytest.fixture
    def exported(self, speclaunch: Any, tmp_path: Path) -> Path:
        text = speclaunch("advisories", "export").stdout
        one = {**json.loads(text)[0], "id": "SPA-2027-0001", "name": "a-new-bug"}
        path = tmp_path / "advisories.json"
        path.write_text(json.dumps([one]))
        return path

    @staticmethod
    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    @pytest.mark.thorough
    def test_a_file_is_stored(self, speclaunch: Any, exported: Path) -> None:
        done = speclaunch("advisories", "update", exported, "--sha256", self.digest(exported))
        assert done.returncode == 0, done.stderr
        assert "1 new, 0 changed" in done.stderr
        assert "a-new-bug" in speclaunch("advisories", "show", "SPA-2027-0001").stdout
        assert "SPA-2027-0001" in speclaunch("advisories").stdout

    @pytest.mark.thorough
    def test_a_directory_with_a_checksum_file(
        self, speclaunch: Any, exported: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "advisories.json.sha256").write_text(
            f"{self.digest(exported)}  advisories.json\n"
        )
        assert speclaunch("advisories", "update", tmp_path).returncode == 0
        assert "SPA-2027-0001" in speclaunch("advisories").stdout

    @pytest.mark.thorough
    def test_it_needs_its_checksum(self, speclaunch: Any, exported: Path) -> None:
        without = speclaunch("advisories", "update", exported)
        assert without.returncode == 2
        assert "no checksum" in without.stderr
        wrong = speclaunch("advisories", "update", exported, "--sha256", "0" * 64)
        assert wrong.returncode == 2
        assert f"its SHA-256 is {self.digest(exported)}" in wrong.stderr
        assert "SPA-2027-0001" not in speclaunch("advisories").stdout

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"when": {"arguments": {"no_such_argument": 1}}}, "unknown argument no_such"),
            ({"when": {"features": ["magic"]}}, "unknown feature magic"),
            ({"introduced": "9.9.9"}, "unknown release 9.9.9"),
            ({"symptom": "odd"}, "Invalid enum value 'odd'"),
            ({"extra": 1}, "unknown field `extra`"),
            ({"id": "SPA-1"}, "invalid ID SPA-1"),
        ],
    )
    def test_an_invalid_one_is_refused(
        self, speclaunch: Any, exported: Path, change: dict[str, object], reason: str
    ) -> None:
        exported.write_text(json.dumps([{**json.loads(exported.read_text())[0], **change}]))
        done = speclaunch("advisories", "update", exported, "--sha256", self.digest(exported))
        assert done.returncode == 2
        assert reason in done.stderr
        assert "SPA-2027-0001" not in speclaunch("advisories").stdout

    def test_a_missing_file_and_an_insecure_address(self, speclaunch: Any) -> None:
        missing = speclaunch("advisories", "update", "missing.json", "--sha256", "0" * 64)
        assert missing.returncode == 2
        assert "cannot read missing.json" in missing.stderr
        address = speclaunch("advisories", "update", "http://127.0.0.1/a.json")
        assert address.returncode == 2
        assert "use an https URL" in address.stderr

    @pytest.mark.thorough
    def test_a_second_update_keeps_the_first(self, speclaunch: Any, exported: Path) -> None:
        assert self.updated(speclaunch, exported).returncode == 0
        (one,) = json.loads(exported.read_text())
        other = {**one, "id": "SPA-2027-0002", "name": "another-bug"}
        exported.write_text(json.dumps([other]))
        assert "1 new, 0 changed" in self.updated(speclaunch, exported).stderr
        shown = speclaunch("advisories").stdout
        assert "SPA-2027-0001" in shown
        assert "SPA-2027-0002" in shown

    def test_an_older_version_replaces_nothing(self, speclaunch: Any, exported: Path) -> None:
        (one,) = json.loads(exported.read_text())
        newer = {**one, "checked": "2027-02-01", "summary": "The newer summary."}
        exported.write_text(json.dumps([newer]))
        assert self.updated(speclaunch, exported).returncode == 0
        exported.write_text(json.dumps([one]))
        assert "0 new, 0 changed" in self.updated(speclaunch, exported).stderr
        assert "The newer summary" in speclaunch("explain", "SPA-2027-0001").stdout

    def test_an_id_occurs_once(self, speclaunch: Any, exported: Path) -> None:
        (one,) = json.loads(exported.read_text())
        exported.write_text(json.dumps([one, one]))
        done = self.updated(speclaunch, exported)
        assert done.returncode == 2
        assert "the ID SPA-2027-0001 occurs twice" in done.stderr

    @pytest.mark.thorough
    def test_a_damaged_store_stops_nothing_and_can_be_replaced(
        self, speclaunch: Any, exported: Path, tmp_path: Path
    ) -> None:
        store = tmp_path / "home" / "ours" / "advisories" / "advisories.json"
        store.parent.mkdir(parents=True)
        store.write_text("[{")
        listed = speclaunch("advisories")
        assert listed.returncode == 0
        assert STOP in listed.stdout
        assert f"note: {store} is ignored" in listed.stderr
        assert self.updated(speclaunch, exported).returncode == 0
        assert not speclaunch("advisories").stderr

    def test_credentials_and_malformed_addresses_are_refused(self, speclaunch: Any) -> None:
        for address in ("https://me:hunter2@example.com/a.json", "https://[::1/a.json"):
            done = speclaunch("advisories", "update", address)
            assert done.returncode == 2
            assert "use an https URL without credentials" in done.stderr
            assert "hunter2" not in done.stderr

    def updated(self, speclaunch: Any, path: Path) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = speclaunch(
            "advisories", "update", path, "--sha256", self.digest(path)
        )
        return done


@pytest.mark.thorough
def test_json_has_its_schema_and_sarif_its_help(speclaunch: Any, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(COMMAND)
    words = ("lint", "run.sh", "--engine", "0.5.12.post1", "--hardware", "h100", "--select", "SPA")
    found = json.loads(speclaunch(*words, "--output-format", "json").stdout)
    assert found["files"][0]["findings"]
    jsonschema.validate(found, json.loads(FILE.read_text()))
    sarif = json.loads(speclaunch(*words, "--output-format", "sarif").stdout)
    rules = {rule["id"]: rule for rule in sarif["runs"][0]["tool"]["driver"]["rules"]}
    assert "known-bug" in rules[STOP]["properties"]["tags"]
