"""A recipe of several roles on the command line: lint, --fix, launch, plan, render, doctor."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

from speclaunch.app.verbs.completing import overrides
from tests.support.loops import rows
from tests.support.program import run

Done = subprocess.CompletedProcess[str]

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"
PD = """\
args:
  model_path: deepseek-ai/DeepSeek-V3
  page_size: 64
engine: {version: "0.5.23"}
hardware: {name: h200:8}
roles:
  prefill:
    args: {tp_size: 16, nnodes: 2}
    hardware: {name: h100:8}
  decode:
    replicas: 2
    args:
      tp_size: 8
"""
TREE = """\
args:
  model_path: meta-llama/Llama-3.1-8B-Instruct
  speculative_algorithm: EAGLE
  speculative_draft_model_path: lmsys/sglang-EAGLE-LLaMA3-Instruct-8B
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 8
engine: {version: "0.5.23"}
hardware: {name: h100:8}
roles:
  prefill:
    replicas: 2
  decode:
    args:
      tp_size: 2
"""


def written(tmp_path: Path, text: str = PD) -> str:
    path = tmp_path / "pd.yaml"
    path.write_text(text)
    return str(path)


def findings(done: Done, code: str) -> list[dict[str, object]]:
    return [
        one
        for file in json.loads(done.stdout)["files"]
        for one in file["findings"]
        if one["code"] == code
    ]


def lint(path: str, *words: str) -> Done:
    return run("lint", path, "--no-cache", "--output-format", "json", *words)


@pytest.mark.thorough
def test_lint_judges_each_role_and_all_together(tmp_path: Path) -> None:
    done = lint(written(tmp_path, PD.replace("tp_size: 8", "tp_size: 8\n      page_size: 1")))
    assert done.returncode == 1
    (found,) = findings(done, "SPL820")
    assert (found["line"], found["severity"]) == (14, "error")
    assert [one["line"] for one in found["others"]] == [3]  # type: ignore[attr-defined]
    assert not findings(lint(written(tmp_path)), "SPL820")


@pytest.mark.thorough
def test_lint_says_of_which_role_a_shared_line_is_wrong(tmp_path: Path) -> None:
    text = TREE.replace("tp_size: 2", "tp_size: 2\n      speculative_num_steps: 7")
    (found,) = findings(lint(written(tmp_path, text)), "SPL105")
    assert found["line"] == 7
    assert str(found["why"]).startswith("of prefill: ")
    (both,) = findings(lint(written(tmp_path, TREE)), "SPL105")
    assert not str(both["why"]).startswith("of ")


@pytest.mark.thorough
def test_roles_of_other_versions_are_judged_for_their_own(tmp_path: Path) -> None:
    text = PD.replace("replicas: 2", 'engine: {version: "0.5.18"}')
    done = lint(written(tmp_path, text))
    assert {file["engine"] for file in json.loads(done.stdout)["files"]} == {"0.5.18", "0.5.23"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("role", "old", "new"),
    [
        ("", "", ""),
        ("decode", "tp_size: 2", "tp_size: 2\n      speculative_num_steps: 7"),
        ("other", "tp_size: 2", "tp_size: 2\n      speculative_num_draft_tokens: 4"),
    ],
)
def test_fix_edits_the_shared_line_or_the_role(
    tmp_path: Path, role: str, old: str, new: str
) -> None:
    text = TREE.replace(old, new) if old else TREE
    path = written(tmp_path, text)
    run("lint", path, "--no-cache", "--fix", "--select", "SPL105")
    made = Path(path).read_text()
    shared = "  speculative_num_draft_tokens: 8\n"
    if role == "decode":  # which takes 8, and keeps it
        own = "    replicas: 2\n    args:\n      speculative_num_draft_tokens: 4\n"
        assert made == text.replace("    replicas: 2\n", own)
    else:
        assert made == text.replace(shared, shared.replace("8", "4"))


@pytest.mark.thorough
def test_fix_of_what_a_role_says(tmp_path: Path) -> None:
    text = TREE.replace("  speculative_num_draft_tokens: 8\n", "").replace(
        "tp_size: 2", "tp_size: 2\n      speculative_num_draft_tokens: 8"
    )
    path = written(tmp_path, text)
    run("lint", path, "--no-cache", "--fix", "--select", "SPL105")
    assert Path(path).read_text() == text.replace("tokens: 8", "tokens: 4")


def test_a_launch_needs_a_role(tmp_path: Path) -> None:
    done = run("launch", written(tmp_path))
    assert done.returncode == 2
    assert "several roles" in done.stderr
    assert "prefill, decode" in done.stderr
    assert "--role prefill" in done.stderr


def test_a_role_that_there_is_not(tmp_path: Path) -> None:
    done = run("launch", written(tmp_path), "--role", "decod", "--dry-run")
    assert done.returncode == 2
    assert "did you mean `decode`?" in done.stderr
    done = run("launch", "eagle3_llama8b", "--role", "decode", "--dry-run")
    assert done.returncode == 2
    assert "has no roles" in done.stderr


@pytest.mark.thorough
def test_a_dry_run_shows_all_roles_or_one(tmp_path: Path) -> None:
    path = written(tmp_path)
    done = run("launch", path, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sglang.launch_server") == 2
    assert "# pd/prefill for SGLang 0.5.23" in done.stdout
    one = run("launch", path, "--dry-run", "--role=decode", "--output-format", "json")
    assert "decode" in json.loads(one.stdout)["argv"]
    assert run("launch", path, "--dry-run", "--output-format", "json").returncode == 2


@pytest.mark.thorough
def test_a_launch_stops_where_the_roles_do_not_fit(tmp_path: Path) -> None:
    path = written(tmp_path, PD.replace("tp_size: 8", "tp_size: 8\n      page_size: 1"))
    done = run("launch", path, "--dry-run", "--role", "prefill")
    assert done.returncode == 1
    assert "SPL820" in done.stderr


@pytest.mark.thorough
def test_a_server_of_several_hosts_needs_its_rank(tmp_path: Path) -> None:
    path = written(tmp_path)
    done = run("launch", path, "--role", "prefill")
    assert done.returncode == 2
    assert "runs on 2 hosts, but node_rank and dist_init_addr are not set" in done.stderr
    assert "args.node_rank=0 args.dist_init_addr=HOST:20000" in done.stderr
    given = ("args.node_rank=1", "args.dist_init_addr=head:20000")
    shown = run("launch", path, *given, "--role", "prefill", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "--node-rank 1" in shown.stdout


@pytest.mark.thorough
def test_a_rank_on_the_command_line_is_no_mistake(tmp_path: Path) -> None:
    path = written(tmp_path)
    words = ("--role", "prefill", "--output-format", "json")
    shown = run("plan", path, "args.node_rank=1", *words)
    assert "SPL831" not in {one["code"] for one in json.loads(shown.stdout)["findings"]}
    fixed = PD.replace("nnodes: 2", "nnodes: 2, node_rank: 1")
    assert findings(lint(written(tmp_path, fixed)), "SPL831")


@pytest.mark.thorough
def test_a_plan_shows_the_roles_side_by_side(tmp_path: Path) -> None:
    done = run("plan", written(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "pd on SGLang 0.5.23: 3 servers, 4 hosts, 32 GPUs" in done.stdout
    assert re.search(r"hosts per server +2 +1\n", done.stdout)
    assert re.search(r"tp_size +16 +8\n", done.stdout)
    assert "Memory per GPU: decode" in done.stdout


@pytest.mark.thorough
def test_a_plan_of_roles_as_json_and_as_a_page(tmp_path: Path) -> None:
    path = written(tmp_path, PD.replace("tp_size: 8", "tp_size: 8\n      page_size: 1"))
    page = tmp_path / "plan.html"
    done = run("plan", path, "--output-format", "json", "--html", str(page))
    assert done.returncode == 1
    found = json.loads(done.stdout)
    schema = json.loads((DOCS / "plan.schema.json").read_text())["roles"]
    jsonschema.Draft202012Validator(schema).validate(found)
    assert (found["servers"], found["hosts"], found["gpus"]) == (3, 4, 32)
    assert [one["role"] for one in found["roles"]] == ["prefill", "decode"]
    assert [one["code"] for one in found["findings"]] == ["SPL820"]
    text = page.read_text()
    assert "prefill" in text
    assert "SPL820" in text


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [("--fit",), ("--best", "--requests", "8", "--context", "4096"), ("--engine", "0.5.22,0.5.23")],
)
def test_a_plan_of_one_role_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = written(tmp_path, PD.replace('"0.5.23"', '">=0.5.22"'))
    assert run("plan", path, *words).returncode == 2
    assert run("plan", path, *words, "--role", "decode").returncode in (0, 1)


@pytest.mark.thorough
def test_render_takes_one_role(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert run("render", path, "--to", "shell").returncode == 2
    done = run("render", path, "--to", "shell", "--role", "decode")
    assert done.returncode == 0, done.stderr
    assert "--disaggregation-mode decode" in done.stdout


@pytest.mark.thorough
def test_doctor_looks_at_one_role_and_judges_all(tmp_path: Path) -> None:
    path = written(tmp_path, PD.replace("tp_size: 8", "tp_size: 8\n      page_size: 1"))
    assert run("doctor", path).returncode == 2
    done = run("doctor", path, "--role", "decode")
    assert "SPL820" in done.stdout


@pytest.mark.thorough
def test_migrate_carries_the_arguments_of_roles(tmp_path: Path) -> None:
    text = PD.replace("tp_size: 8", "cuda_graph_max_bs: 8").replace('"0.5.23"', '"0.5.9"')
    path = written(tmp_path, text)
    done = run("migrate", path, "--to", "0.5.23")
    assert done.returncode == 0, done.stderr
    made = text.replace("cuda_graph_max_bs", "cuda_graph_max_bs_decode").replace("0.5.9", "0.5.23")
    assert Path(path).read_text() == made


def test_migrate_tells_where_a_role_says_what_is_refused(tmp_path: Path) -> None:
    done = run(
        "migrate", written(tmp_path, PD.replace("nnodes: 2", "no_such: 2")), "--to", "0.5.23"
    )
    assert done.returncode == 1
    assert ":8:" in done.stderr + done.stdout


@rows(
    "begun, expected",
    [
        ("roles.", ["roles.prefill.", "roles.decode."]),
        ("roles.decode.rep", ["roles.decode.replicas="]),
        ("roles.prefill.args.page_s", ["roles.prefill.args.page_size="]),
        ("roles.prefill.hardware.name=h20", ["roles.prefill.hardware.name=h20-96gb"]),
        ("router.po", ["router.port="]),
    ],
)
def test_completion_of_roles(begun: str, expected: list[str]) -> None:
    told = [word for word, _ in overrides(["recipe=pd_mtp_deepseek_v3"], begun, needs_key=True)]
    assert [word for word in told if word.startswith(begun)][: len(expected)] == expected
