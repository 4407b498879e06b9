"""No output shows a secret, whatever its name or form; harmless values stay as they are."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from speclaunch.app.verbs.options import LintFormat
from speclaunch.core.safe_text import VALUE_PATTERNS
from speclaunch.deployments.targets.assemble import RENDERERS
from speclaunch.serving.launch.guard import Log
from tests.support import program

HEX = "9f2c1e7ab04d58c36fe1a2b3"
SECRETS = {
    "DB_URL": (f"postgres://u:{HEX}@db:5432/x", HEX),
    "HTTPS_PROXY": ("http://u:PaWo9@proxy:3128", "PaWo9"),
    "GITHUB_PAT": (HEX, HEX),
    "WANDB_APIKEY": (HEX, HEX),
    "AUTHORIZATION": (f"Bearer {HEX}", HEX),
    "COOKIE": (f"session={HEX}", HEX),
    "SENTRY_DSN": (f"https://{HEX}@o1.ingest.sentry.io/2", HEX),
    "SLACK_WEBHOOK": ("https://hooks.slack.com/services/T01/B02/Qz8Rk3", "Qz8Rk3"),
    "STORE": (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={HEX}==;", HEX),
    "SIGNED": (f"https://b.s3.aws.com/x?X-Amz-Signature={HEX}", HEX),
    "NOTE": ("use hf_qWmZkTbYcRdLsVpNuXoJ1234 here", "qWmZkTbYcRdLsVpNuXoJ1234"),
    "OTHER": ("ghp_q1WmZkTbYcRdLsVpNuXoJ1234q1WmZkTbYcRd", "q1WmZkTbYcRdLsVpNu"),
    "FINE": (f"github_pat_{HEX}_{HEX}", HEX),
    "CLAUDE": (f"sk-ant-api03-{HEX}", HEX),
    "CHAT": (f"xoxb-123456789012-{HEX}", HEX),
    "AMAZON": ("AKIAQ3WZ7RTYUIOPLK4J", "Q3WZ7RTYUIOPLK4J"),
    "LAB": ("glpat-8Jq2vR5t1ZkQwErTyUiO", "8Jq2vR5t1ZkQwErTyUiO"),
    "NGC": (f"nvapi-{HEX}", HEX),
    "HUB": (f"dckr_pat_{HEX}", HEX),
    "PYPI": (f"pypi-AgEIcHlwaS5vcmc{HEX}", HEX),
    "NPM": ("npm_q1WmZkTbYcRdLsVpNuXoJ1234q1WmZkTbYc", "q1WmZkTbYcRdLsVpNu"),
    "MAPS": (f"AIzaSy{HEX}{HEX}", HEX),
    "OAUTH": (f"ya29.{HEX}", HEX),
    "ASSERTION": (f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{HEX}", HEX),
    "PEM": (f"-----BEGIN PRIVATE KEY-----\n{HEX}{HEX}\n-----END PRIVATE KEY-----", HEX),
    "ENVELOPE": (f'{{"api_token": "{HEX}"}}', HEX),
    "MYSQL": ("Server=db;Uid=me;Password=corrEct9horse;", "corrEct9horse"),
}
"""Variables: their values, and the part that nothing may show."""
ARGUMENTS = {
    "api_key": ("corr3ct-horse", "corr3ct-horse"),
    "model_loader_extra_config": (f'{{"api_token": "{HEX}"}}', HEX),
    "otlp_traces_endpoint": ("http://u:PaWo9@collector:4317", "PaWo9"),
}
HARMLESS = {
    "A_MODEL": "meta-llama/Llama-3.1-8B-Instruct",
    "A_COMMIT": "0e9e39f249a16976918f6564b8830bc894c89659",
    "A_DIGEST": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "A_UUID": "GPU-3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "A_PATH": "/models/hf_cache/risk-assessment-model-v2",
    "AN_ADDRESS": "http://proxy.example.com:3128/a?max_tokens=4096",
    "A_USER": "ssh://git@github.com/sgl-project/sglang",
    "A_PLACEHOLDER": "http://user:changeme@proxy",
    "A_SENTENCE": "Basic usage: Bearer authentication",
    "A_SETTING": "num_draft_tokens=4;tokenizer_path=/t",
}
WANTED = (*(part for _, part in SECRETS.values()), *(part for _, part in ARGUMENTS.values()))


def shows_none(text: str | bytes) -> None:
    if isinstance(text, bytes):
        text = text.decode()
    shown = [name for name, (_, part) in (SECRETS | ARGUMENTS).items() if part in text]
    assert not shown, text


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that holds all of them."""
    path = tmp_path_factory.mktemp("recipe") / "mine.yaml"
    env = {name: value for name, (value, _) in SECRETS.items()} | HARMLESS
    args = {name: value for name, (value, _) in ARGUMENTS.items()}
    text = {
        "defaults": ["base", {"model": "llama31_8b"}, {"speculation": "eagle3_tree"}, "_self_"],
        "description": "secrets",
        "engine": {"version": ">=0.5.20", "env": env},
        "args": {"speculative_draft_model_path": "lmsys/d", **args},
    }
    path.write_text(yaml.safe_dump(text, sort_keys=False, width=1000))
    return path


PLANS = (
    ("plan",),
    ("plan", "--all"),
    ("plan", "--output-format", "json"),
    ("plan", "--engine", "0.5.22,0.5.23", "--output-format", "json"),
    ("--dry-run", "--force"),
    ("--dry-run", "--force", "--output-format", "json"),
)


@pytest.mark.thorough
@pytest.mark.parametrize("words", PLANS, ids=" ".join)
def test_a_plan_and_a_dry_run_show_none(words: tuple[str, ...], recipe: Path) -> None:
    done = program.run(*words, f"recipe={recipe}")
    assert done.returncode in (0, 1) and "llama" in done.stdout.lower(), done.stderr
    shows_none(done.stdout + done.stderr)
    for value in HARMLESS.values():
        assert "--all" in words or value in done.stdout.replace("\\u003d", "="), value


@pytest.mark.thorough
def test_a_page_shows_none(recipe: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    program.run("plan", f"recipe={recipe}", "--html", page)
    shows_none(page.read_text())


@pytest.mark.thorough
@pytest.mark.parametrize("target", sorted(RENDERERS))
@pytest.mark.parametrize("form", [(), ("--bare",)], ids=["own", "bare"])
def test_no_target_shows_one(target: str, form: tuple[str, ...], recipe: Path) -> None:
    done = program.run("render", f"recipe={recipe}", "--to", target, *form)
    assert done.returncode != 4, done.stderr
    shows_none(done.stdout + done.stderr)


@pytest.mark.thorough
@pytest.mark.parametrize("shown", LintFormat)
def test_no_format_of_lint_shows_one(shown: LintFormat, recipe: Path, tmp_path: Path) -> None:
    env = " ".join(f"{n}='{v}'" for n, (v, _) in SECRETS.items() if "\n" not in v)
    args = " ".join(f"--{n.replace('_', '-')} '{v}'" for n, (v, _) in ARGUMENTS.items())
    script = tmp_path / "serve.sh"
    command = "python3 -m sglang.launch_server --model-path a/b --tp 3 --speculative-num-steps two"
    script.write_text(f"{env} {command} {args}\n")
    file = tmp_path / "found"
    words = ("lint", script, recipe, "--output-format", shown, "--no-cache")
    done = program.run(*words, "--output-file", f"{shown}={file}", cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    shows_none(done.stdout + done.stderr + file.read_text())


FAILURE = """[2026-01-01 00:00:00] server_args=ServerArgs(model_path='a/b')
Traceback (most recent call last):
  File "/x/sglang/launch_server.py", line 3, in <module>
    run()
RuntimeError: {}
"""


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(("name", "value", "part"), [(n, *found) for n, found in SECRETS.items()])
def test_a_diagnosis_shows_none(
    name: str, value: str, part: str, form: str, tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    value = value.replace("\n", "\\n")
    log.write_text(FAILURE.format(f"{name}={value}"))
    done = program.run("diagnose", log, "--output-format", form)
    assert part not in done.stdout + done.stderr, done.stdout


@pytest.mark.thorough
def test_a_diff_shows_none(tmp_path: Path) -> None:
    args = " ".join(f"--{n.replace('_', '-')} '{v}'" for n, (v, _) in ARGUMENTS.items())
    env = "".join(f"export {n}='{v}'\n" for n, (v, _) in SECRETS.items() if "\n" not in v)
    script = tmp_path / "serve.sh"
    command = f"python3 -m sglang.launch_server --model-path a/b {args} --speculative-algo NEXTN"
    script.write_text(f"{env}{command}\n")
    done = program.run("migrate", script, "--to", "0.5.23", "--diff")
    assert done.returncode != 4, done.stderr
    shows_none(done.stdout + done.stderr)


def test_the_log_of_an_engine_has_none(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = Log(str(path), [], 1 << 20, 1, VALUE_PATTERNS)
    told = "".join(
        f"{value} {name}\n" for name, (value, _) in SECRETS.items() if name not in BY_NAME
    ).encode()
    for at in range(0, len(told), 7):  # in pieces
        log.write(told[at : at + 7])
    log.close()
    written = path.read_text()
    assert not [n for n, (_, part) in SECRETS.items() if n not in BY_NAME and part in written]
    assert all(name in written for name in SECRETS if name not in BY_NAME)


BY_NAME = {"GITHUB_PAT", "WANDB_APIKEY", "COOKIE", "PEM", "MYSQL"}


def test_a_crash_file_is_private_and_has_none(tmp_path: Path) -> None:
    told = "; ".join(f"{name}={value}" for name, (value, _) in SECRETS.items())
    code = (
        "import sys; from speclaunch.app.verbs import app\n"
        f"def fail(words): raise RuntimeError({told!r})\n"
        "app._answer = fail; sys.argv = ['speclaunch', 'ps']; app.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SPECLAUNCH_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 4
    (file,) = tmp_path.glob("crash-*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shows_none(file.read_text() + done.stderr)


@pytest.mark.thorough
@pytest.mark.parametrize("value", HARMLESS.values())
def test_harmless_values_are_shown(value: str, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(FAILURE.format(value))
    done = program.run("diagnose", log, "--output-format", "json")
    assert value in json.dumps(json.loads(done.stdout), ensure_ascii=False)
