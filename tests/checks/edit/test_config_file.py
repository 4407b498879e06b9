"""Files for the engine's own `--config`: keys and values stay keys and values."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from speclaunch.checks.edit.migrate import Migration, migrate_commands
from speclaunch.checks.edit.migrate_file import following, migrate_config
from speclaunch.deployments.sources.files import read_text
from tests.support import program
from tests.support.loops import rows

CONFIG = """\
# keep this
model-path: x
collect-tokens-histogram: true
'cuda-graph-max-bs': 8  # small
disable-piecewise-cuda-graph: true
cuda-graph-bs: [1, 2]
torchao-config: int4
tp-size: 2
"""


def test_keys_are_renamed_converted_and_removed() -> None:
    migration = migrate_config(CONFIG, "c.yaml", "0.5.23")
    assert not migration.problems
    assert migration.text == (
        "# keep this\nmodel-path: x\n"
        "# removed collect-tokens-histogram: SGLang 0.5.23 has no such argument (last in 0.5.19)\n"
        "'cuda-graph-max-bs-decode': 8  # small\n"
        "cuda-graph-backend-prefill: disabled\n"
        "cuda-graph-bs-decode: [1, 2]\n"
        "# removed torchao-config: 0.5.18 removed torchao quantization\n"
        "tp-size: 2\n"
    )
    again = migrate_config(migration.text, "c.yaml", "0.5.23")
    assert again.text == migration.text and not again.problems


@pytest.mark.thorough
@rows(
    "text",
    [
        "{model-path: x, torchao-config: int4}\n",
        "model-path: x\ntorchao-config: &a int4\nserved-model-name: *a\n",
        "model-path: x\nattention-backend: nope\ncuda-graph-max-bs: 8\n",
        "model-path: x\nmy-fork: 1\ncuda-graph-max-bs: 8\n",
    ],
)
def test_what_cannot_be_done_changes_nothing(text: str) -> None:
    migration = migrate_config(text, "c.yaml", "0.5.23")
    assert migration.problems and migration.text == text


def test_a_value_of_several_lines_goes_with_its_key() -> None:
    text = "model-path: x\ntorchao-config: >-\n  int4\n  wo\n\ntp-size: 2\n"
    migration = migrate_config(text, "c.yaml", "0.5.23")
    assert yaml.safe_load(migration.text) == {"model-path": "x", "tp-size": 2}


Completed = subprocess.CompletedProcess[str]


def carried(directory: Path, text: str) -> Migration:
    reading = read_text(text, "x.sh", ".sh")
    return migrate_commands(text, reading, "0.5.23", follow=following(directory, "0.5.23"))


SCRIPT = "python3 -m sglang.launch_server --config c.yaml --port 3\n"
OLD_SCRIPT = "python3 -m sglang.launch_server --config c.yaml --cuda-graph-max-bs 8\n"


@pytest.mark.thorough
def test_the_file_that_a_command_names_goes_along(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG)
    done = carried(tmp_path, SCRIPT + OLD_SCRIPT)
    assert not done.problems and "--cuda-graph-max-bs-decode 8" in done.text
    assert config.read_text() == CONFIG  # whoever asked writes both
    (also,) = done.also
    assert also.path == config and also.text == migrate_config(CONFIG, "c.yaml", "0.5.23").text
    assert any(step.text.startswith("removed collect-tokens") for step in done.steps)
    config.write_text(also.text)
    done = carried(tmp_path, SCRIPT)
    assert not done.problems and not done.steps and not done.also


def migrate(directory: Path, *options: str, text: str | None = None) -> Completed:
    file = "x.sh" if text is None else "-"
    return program.run("migrate", file, "--to", "0.5.23", *options, cwd=directory, given=text or "")


@pytest.mark.thorough
@pytest.mark.parametrize("script", [SCRIPT, OLD_SCRIPT])
def test_both_files_are_shown_and_written(script: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "x.sh").write_text(script)
    shown = migrate(tmp_path, "--diff")
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "c.yaml").read_text() == CONFIG
    subprocess.run(["git", "apply", "-p1"], input=shown.stdout, text=True, cwd=tmp_path, check=True)
    patched = {name: (tmp_path / name).read_text() for name in ("c.yaml", "x.sh")}
    assert patched["c.yaml"] != CONFIG
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "x.sh").write_text(script)
    assert migrate(tmp_path).returncode == 0
    assert {name: (tmp_path / name).read_text() for name in patched} == patched


@pytest.mark.thorough
def test_what_stands_in_the_way_of_one_changes_neither(tmp_path: Path) -> None:
    for config, script in (
        (CONFIG, f"{OLD_SCRIPT[:-1]} --attention-backend nope\n"),
        (CONFIG + "nope: 1\n", OLD_SCRIPT),
    ):
        (tmp_path / "c.yaml").write_text(config)
        (tmp_path / "x.sh").write_text(script)
        assert migrate(tmp_path).returncode == 1
        assert (tmp_path / "c.yaml").read_text() == config
        assert (tmp_path / "x.sh").read_text() == script


@pytest.mark.thorough
def test_what_is_not_ours_to_change_is_named_with_the_command(tmp_path: Path) -> None:
    inner = tmp_path / "in ner"
    inner.mkdir()
    (tmp_path / "c.yaml").write_text(CONFIG)
    (problem,) = carried(inner, SCRIPT.replace("c.yaml", "../c.yaml")).problems
    assert problem.message.startswith("../c.yaml must be migrated, too: removed collect-")
    command = (problem.help or "").split("`")[1]
    assert shlex.split(command)[1:] == [
        "migrate", str(inner / "../c.yaml"), "--to", "0.5.23",
    ]  # fmt: skip
    piped = migrate(tmp_path, text=SCRIPT)
    assert piped.returncode == 1 and "first run `speclaunch migrate c.yaml" in piped.stderr
    assert (tmp_path / "c.yaml").read_text() == CONFIG


def test_a_file_in_a_container_is_not_the_one_beside(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    text = (
        "services:\n  e:\n    image: lmsysorg/sglang:v0.5.23\n"
        "    command: [python3, -m, sglang.launch_server, --config, c.yaml]\n"
    )
    reading = read_text(text, "compose.yaml", ".yaml")
    done = migrate_commands(text, reading, "0.5.23", follow=following(tmp_path, "0.5.23"))
    assert not done.problems and not done.also
    assert "it is in the container" in done.steps[0].text


def test_a_file_that_is_not_there_is_told() -> None:
    done = carried(Path("nowhere"), "python3 -m sglang.launch_server --config c.yaml --port 3\n")
    assert not done.problems
    assert "c.yaml was not read" in done.steps[0].text
