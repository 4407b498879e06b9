"""`speclaunch models pull | ls | show | check` against a hub of our own."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speclaunch.engine.facts.checkpoint_file import read_file
from tests.support.hub_server import COMMIT, Answer, Handler, HubServer, serving
from tests.support.program import run

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 2}
TARGET, DRAFT = "my-org/target", "my-org/draft"
RECIPE = f"""\
defaults: [base, _self_]
args:
  model_path: {TARGET}
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: {DRAFT}
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "recipes").mkdir()
    (tmp_path / "repo" / "recipes" / "mine.yaml").write_text(RECIPE)
    return tmp_path / "repo"


@pytest.fixture
def served() -> Iterator[HubServer]:
    page = {"sha": COMMIT, "gated": False, "siblings": []}
    with serving({"config.json": CONFIG, "api": page}) as server:
        yield server


@pytest.fixture
def speclaunch(repo: Path, served: HubServer, tmp_path: Path) -> Any:
    """Runs it in the repository, with an empty home, on one day."""
    (tmp_path / "home").mkdir()

    def call(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        same = ("PATH", "PYTHON", "LC_", "LANG")
        environment = {name: v for name, v in os.environ.items() if name.startswith(same)}
        environment |= {
            "HOME": str(tmp_path / "home"),
            "SPECLAUNCH_HOME": str(tmp_path / "home" / "ours"),
            "HF_ENDPOINT": served.url,
            "SOURCE_DATE_EPOCH": "1795305600",
        }
        return run("models", *words, cwd=repo, env=environment | variables)

    return call


def kept(repo: Path, below: str = "recipes") -> list[str]:
    folder = repo / below / ".speclaunch" / "models"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json"))


def local(tmp_path: Path) -> Path:
    """A private checkpoint on the disk."""
    folder = tmp_path / "data" / "my-model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"_name_or_path": str(folder)}))
    header = json.dumps({"d2t": {"dtype": "I64", "shape": [4], "data_offsets": [0, 32]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + bytes(32)
    (folder / "model.safetensors").write_bytes(weights)
    return folder


@pytest.mark.thorough
def test_a_recipe_means_its_target_and_its_draft(repo: Path, speclaunch: Any) -> None:
    done = speclaunch("pull", "recipes/mine.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "recipes/.speclaunch/models/my-org/target.json: written",
        "recipes/.speclaunch/models/my-org/draft.json: written",
    ]
    assert kept(repo) == ["my-org/draft.json", "my-org/target.json"]
    path = repo / "recipes" / ".speclaunch" / "models" / f"{TARGET}.json"
    found = read_file(path, TARGET)
    assert (found.source, found.read, found.revision) == ("hub", "2026-11-22", COMMIT)
    before = path.read_bytes()
    again = speclaunch("pull", "recipe=recipes/mine.yaml", SOURCE_DATE_EPOCH="1800000000")
    assert {line.rpartition(": ")[2] for line in again.stdout.splitlines()} == {"unchanged"}
    assert path.read_bytes() == before


@pytest.mark.thorough
def test_overrides_change_what_a_recipe_means(repo: Path, speclaunch: Any) -> None:
    words = ("recipes/mine.yaml", "args.model_path=other/model", "+args.revision=v2")
    assert speclaunch("pull", *words).returncode == 0
    assert kept(repo) == ["my-org/draft.json", "other/model.json"]
    path = repo / "recipes" / ".speclaunch" / "models" / "other" / "model.json"
    assert read_file(path, "other/model").source == "hub@v2"


@pytest.mark.thorough
def test_the_nearest_folder_takes_it(repo: Path, speclaunch: Any) -> None:
    (repo / ".speclaunch" / "models").mkdir(parents=True)
    assert speclaunch("pull", "recipes/mine.yaml", "single").returncode == 0
    assert kept(repo, ".") == ["my-org/draft.json", "my-org/target.json", "single.json"]
    assert not (repo / "recipes" / ".speclaunch").exists()


@pytest.mark.thorough
def test_into_a_folder_of_ones_own(repo: Path, speclaunch: Any, tmp_path: Path) -> None:
    into = tmp_path / "facts"
    assert speclaunch("pull", "org/a", "--into", into, "--revision", COMMIT).returncode == 0
    assert read_file(into / "org" / "a.json", "org/a").source == f"hub@{COMMIT}"
    assert not (repo / ".speclaunch").exists()


@pytest.mark.thorough
def test_one_that_fails_does_not_keep_the_others(
    repo: Path, speclaunch: Any, served: HubServer
) -> None:
    def answer(handler: Handler) -> Answer:
        if "draft" in handler.path:
            return Answer(403, headers={"x-error-code": "GatedRepo"})
        return Answer(200, json.dumps(CONFIG).encode())

    served.answers["config.json"] = answer
    done = speclaunch("pull", "recipes/mine.yaml")
    assert done.returncode == 1
    assert kept(repo) == ["my-org/target.json"]
    assert "my-org/draft: it is gated on the hub" in done.stderr
    assert "accept its license there, and set HF_TOKEN" in done.stderr


def test_a_private_checkpoint_on_the_disk(repo: Path, speclaunch: Any, tmp_path: Path) -> None:
    folder = local(tmp_path)
    done = speclaunch("pull", folder, "--as", "org/my-model", HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stderr) == (0, "")
    path = repo / ".speclaunch" / "models" / "org" / "my-model.json"
    found = read_file(path, "org/my-model")
    assert (found.source, found.has_token_map) == ("directory", True)
    assert str(tmp_path) not in path.read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{local}"], 2, "is a directory and needs a name"),
        (["{local}", "--as", "../out"], 2, "not in the form ORGANIZATION/NAME"),
        (["{local}", "x/y", "--as", "a/b"], 2, "--as needs exactly one directory"),
        (["{local}", "--as", "a/b", "--revision", "v1"], 2, "cannot be combined with --as"),
        (["nowhere", "--as", "a/b"], 2, "not a directory with a config.json"),
        (["/no/such"], 2, "does not exist on this machine"),
        (["../../x"], 2, "does not exist on this machine"),
        (["eagle3_lama8b"], 2, "did you mean `eagle3_llama8b`?"),
        (["recipes/none.yaml"], 2, "recipes/none.yaml"),
        (["recipes/mine.yaml", "--revision", "v1"], 2, "--revision needs a checkpoint name"),
        (["org/a", "args.tp_size=2"], 2, "an override needs a recipe"),
        (["recipes/mine.yaml", "args.model_path=/data/x"], 1, "does not exist on this machine"),
        (["org/a--b"], 1, "its name is not a valid hub name"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_pulled(
    words: list[str], code: int, said: str, speclaunch: Any, tmp_path: Path, repo: Path
) -> None:
    words = [
        word.replace("{local}", str(local(tmp_path))) if "{" in word else word for word in words
    ]
    done = speclaunch("pull", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert not (repo / ".speclaunch").exists()


@pytest.mark.thorough
def test_without_a_network(speclaunch: Any, repo: Path) -> None:
    for variables, why in (
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "127.0.0.1:9 cannot be reached"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set: nothing is fetched"),
    ):
        done = speclaunch("pull", "org/a", **variables)
        assert done.returncode == 1
        assert f"error: org/a: {why}" in done.stderr
    assert not (repo / ".speclaunch").exists()


@pytest.mark.thorough
def test_nothing_is_written_outside_of_the_repository(
    repo: Path, speclaunch: Any, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo / ".speclaunch").symlink_to(outside)
    done = speclaunch("pull", "org/a")
    assert done.returncode == 1
    assert "links outside .speclaunch/models" in done.stderr
    assert list(outside.iterdir()) == []


@pytest.mark.thorough
def test_no_weights_and_nothing_in_the_home(
    repo: Path, speclaunch: Any, served: HubServer, tmp_path: Path
) -> None:
    served.answers["model.safetensors"] = struct.pack("<Q", 2) + b"{}" + bytes(1 << 20)
    assert speclaunch("pull", "org/a").returncode == 0
    asked = [one for one in served.asked if one.file == "model.safetensors"]
    assert [one.headers.get("range") for one in asked] == ["bytes=0-7", "bytes=0-131071"]
    home = tmp_path / "home"
    assert [path for path in home.rglob("*") if "ours" not in str(path)] == []
    assert all("/api/models/" in one.path or "/resolve/" in one.path for one in served.asked)


@pytest.mark.thorough
def test_the_tensors_of_a_pulled_draft_are_judged_without_it(
    repo: Path, speclaunch: Any, served: HubServer, tmp_path: Path
) -> None:
    """SPL951 finds the missing `fc` of a draft whose header alone was ever read."""
    shapes = {
        "norm.weight": [8],
        "midlayer.self_attn.q_proj.weight": [8, 16],
        "midlayer.self_attn.k_proj.weight": [4, 16],
        "midlayer.self_attn.v_proj.weight": [4, 16],
        "midlayer.self_attn.o_proj.weight": [8, 8],
        "midlayer.mlp.gate_proj.weight": [6, 8],
        "midlayer.mlp.up_proj.weight": [6, 8],
        "midlayer.mlp.down_proj.weight": [8, 6],
        "midlayer.hidden_norm.weight": [8],
        "midlayer.input_layernorm.weight": [8],
        "midlayer.post_attention_layernorm.weight": [8],
        "lm_head.weight": [16, 8],
    }
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    data = json.dumps(header).encode()
    draft = {
        **{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 8},
        **{"vocab_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4},
        **{"num_key_value_heads": 1, "intermediate_size": 6, "torch_dtype": "float32"},
    }
    weights = struct.pack("<Q", len(data)) + data + bytes(at)
    listed = [{"rfilename": "model.safetensors", "size": len(weights)}]

    def config(handler: Handler) -> Answer:
        told = draft if "draft" in handler.path else CONFIG
        return Answer(200, json.dumps(told).encode(), {"x-repo-commit": COMMIT})

    served.answers |= {
        "config.json": config,
        "model.safetensors": weights,
        "api": {"sha": COMMIT, "siblings": listed},
    }
    assert speclaunch("pull", "recipes/mine.yaml").returncode == 0
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    words = ("lint", "recipes", "--engine", "0.5.23", "--select", "SPL951")
    done = run(*words, cwd=repo, env=environment)
    assert "1 of 12 tensors that LlamaForCausalLMEagle3 loads are missing: fc.weight" in done.stdout


# --- ls, show, check


@pytest.mark.thorough
def test_ls(speclaunch: Any, repo: Path) -> None:
    assert speclaunch("ls").returncode == 3
    speclaunch("pull", "org/a", "org/b")
    done = speclaunch("ls", "recipes/mine.yaml")
    assert done.returncode == 0
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        ["org/a", "2026-11-22", COMMIT[:12], "hub"],
        ["org/b", "2026-11-22", COMMIT[:12], "hub"],
    ]
    (repo / ".speclaunch" / "models" / "org" / "b.json").write_text("{}")
    done = speclaunch("ls", "--output-format", "json")
    assert done.returncode == 2
    one, other = json.loads(done.stdout)["models"]
    assert (one["model"], one["source"], one["revision"]) == ("org/a", "hub", COMMIT)
    assert other["error"] == "b.json does not have format 1: update speclaunch"


@pytest.mark.thorough
def test_ls_lists_the_index(speclaunch: Any) -> None:
    done = speclaunch("ls", "--index", "--output-format", "json")
    rows = json.loads(done.stdout)["models"]
    assert done.returncode == 0
    assert len(rows) > 300 and {row["folder"] for row in rows} == {"index"}


@pytest.mark.thorough
def test_show(speclaunch: Any, tmp_path: Path) -> None:
    speclaunch("pull", "Qwen/Qwen3-8B")
    done = speclaunch("show", "Qwen/Qwen3-8B", "--output-format", "json")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert said["facts"]["hidden_size"] == {"value": 8, "from": "repository"}
    assert said["origin"]["read"] == "2026-11-22"
    (index,) = said["others"]
    assert index["facts"]["hidden_size"] == {"value": 4096, "from": "index"}
    shown = speclaunch("show", "Qwen/Qwen3-8B").stdout
    assert "hidden_size        8" in shown and "hidden_size: 4096" in shown
    nearer = speclaunch("show", str(local(tmp_path)), "--output-format", "json")
    assert json.loads(nearer.stdout)["origin"]["provenance"] == "directory"


@pytest.mark.thorough
def test_show_what_is_not_known(speclaunch: Any, repo: Path) -> None:
    done = speclaunch("show", "org/none")
    assert done.returncode == 1
    assert "error: org/none: no config.json in the Hugging Face cache" in done.stderr
    speclaunch("pull", "org/a")
    (repo / ".speclaunch" / "models" / "org" / "a.json").write_text("{")
    done = speclaunch("show", "org/a")
    assert done.returncode == 1
    assert "not JSON" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_check(speclaunch: Any, repo: Path, served: HubServer, tmp_path: Path) -> None:
    assert speclaunch("check").returncode == 3
    speclaunch("pull", "org/a")
    speclaunch("pull", local(tmp_path), "--as", "org/local")
    done = speclaunch("check")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "current  org/a",
        "local    org/local  from directory",
    ]
    served.answers["config.json"] = CONFIG | {"hidden_size": 16}
    done = speclaunch("check", "--output-format", "json")
    assert done.returncode == 1
    stale = json.loads(done.stdout)["models"][0]
    assert (stale["state"], stale["differences"]) == ("stale", ["hidden_size: 8 -> 16"])
    assert speclaunch("check", "--update").returncode == 0
    path = repo / ".speclaunch" / "models" / "org" / "a.json"
    assert read_file(path, "org/a").config["hidden_size"] == 16
    assert speclaunch("check").returncode == 0


@pytest.mark.thorough
def test_check_asks_for_the_revision_that_was_pulled(
    speclaunch: Any, repo: Path, served: HubServer
) -> None:
    speclaunch("pull", "org/a", "--revision", "v1")
    served.asked.clear()
    assert speclaunch("check").returncode == 0
    assert served.asked[0].path == "/org/a/resolve/v1/config.json"


@pytest.mark.thorough
@pytest.mark.parametrize("gone", ["hub", "model", "file"])
def test_check_says_what_it_cannot_tell(
    gone: str, speclaunch: Any, repo: Path, served: HubServer
) -> None:
    speclaunch("pull", "org/a")
    path = repo / ".speclaunch" / "models" / "org" / "a.json"
    variables = {"HF_ENDPOINT": "http://127.0.0.1:9"} if gone == "hub" else {}
    if gone == "model":
        served.answers["config.json"] = Answer(404, headers={"x-error-code": "RepoNotFound"})
    if gone == "file":
        path.write_text("[]")
    before = path.read_bytes()
    done = speclaunch("check", "--update", **variables)
    assert done.returncode == 1
    assert done.stdout.startswith("unknown  org/a")
    assert path.read_bytes() == before


# --- what a repository of strangers may hold


@pytest.mark.thorough
def test_a_hostile_folder(speclaunch: Any, repo: Path, tmp_path: Path) -> None:
    """Links, pipes, endless files, other names, deep nesting: told, in time, nothing followed."""
    folder = repo / ".speclaunch" / "models" / "org"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret.json"
    secret.write_text('{"format": 1, "model": "org/link", "source": "x", "read": "2026-01-01"}')
    (folder / "link.json").symlink_to(secret)
    (folder / "zero.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.json")
    (folder / "dir.json").mkdir()
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "other.json").write_text(secret.read_text())
    (folder / "big.json").write_text(" " * (2 << 20))
    done = speclaunch("ls", "--output-format", "json")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    rows = {row["model"]: row.get("error", "") for row in json.loads(done.stdout)["models"]}
    assert sorted(rows) == [
        f"org/{n}" for n in sorted(("big", "deep", "dir", "link", "other", "pipe", "zero"))
    ]
    assert all(rows.values())
    assert "links outside" in rows["org/link"] and "links outside" in rows["org/zero"]
    for name in rows:
        done = speclaunch("show", name)
        assert done.returncode == 1 and "Traceback" not in done.stderr
    assert speclaunch("check").returncode == 1


@pytest.mark.thorough
def test_what_a_file_says_does_not_act_on_the_terminal(speclaunch: Any, repo: Path) -> None:
    speclaunch("pull", "org/a")
    path = repo / ".speclaunch" / "models" / "org" / "a.json"
    said = json.loads(path.read_text())
    said["config"] |= {"model_type": "x\x1b]0;y\x07", "architectures": ["\x1b[2J"]}
    path.write_text(json.dumps(said | {"source": "hub@\x1b[31m", "read": "2026-11-22"}))
    for words in (["ls"], ["show", "org/a"], ["check"]):
        done = speclaunch(*words)
        assert "\x1b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
