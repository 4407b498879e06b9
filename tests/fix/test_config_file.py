"""Files for the engine's own `--config`: keys and values stay keys and values."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from speclaunch.fix.config_file import migrate_config
from speclaunch.fix.followed import following
from speclaunch.fix.migrate import Migration, migrate_commands
from speclaunch.importer.files import read_text

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
        "# removed torchao-config: 0.5.18 removed torchao quantisation\n"
        "tp-size: 2\n"
    )
    again = migrate_config(migration.text, "c.yaml", "0.5.23")
    assert again.text == migration.text and not again.problems


@pytest.mark.parametrize(
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


def carried(directory: Path, text: str) -> Migration:
    reading = read_text(text, "x.sh", ".sh")
    return migrate_commands(text, reading, "0.5.23", follow=following(directory, "0.5.23"))


def test_the_file_that_a_command_names_belongs_to_it(tmp_path: Path) -> None:
    text = "python3 -m sglang.launch_server --config c.yaml --port 3\n"
    (tmp_path / "c.yaml").write_text(CONFIG)
    (problem,) = carried(tmp_path, text).problems
    assert problem.message.startswith("c.yaml has to be carried over, too: removed collect-tokens")
    assert problem.help is not None and "speclaunch migrate" in problem.help
    (tmp_path / "c.yaml").write_text(migrate_config(CONFIG, "c.yaml", "0.5.23").text)
    done = carried(tmp_path, text)
    assert not done.problems and not done.steps


def test_a_file_that_is_not_there_is_told() -> None:
    done = carried(Path("nowhere"), "python3 -m sglang.launch_server --config c.yaml --port 3\n")
    assert not done.problems
    assert "c.yaml was not looked into" in done.steps[0].text
