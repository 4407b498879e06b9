"""Files carried to another version: what changes, what does not, and what the parser says."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.edit.migrate import Migration, migrate_commands
from speclaunch.checks.edit.migrate_recipe import is_recipe, migrate_recipe
from speclaunch.deployments.sources.files import read_text
from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import load
from tests.support.loops import rows


def migrate(text: str, to: str, source: str | None = None, name: str = "x.sh") -> Migration:
    return migrate_commands(text, read_text(text, name, Path(name).suffix), to, source)


SCRIPT = """\
#!/bin/bash
# keep this
ARGS=( --cuda-graph-bs $(seq 1 4)   # graph
  --nsa-prefill-backend fa3 )
SGLANG_ENABLE_SPEC_V2=True python3 -m sglang.launch_server \\
  --model $MODEL \\
  --speculative-algorithm EAGLE "${ARGS[@]}" \\
  --disable-piecewise-cuda-graph \\
  --speculative-ngram-branch-length 12 \\
  --cuda-graph-max-bs=8 --torchao-config x \\
  --tp 2
"""
MIGRATED = """\
#!/bin/bash
# keep this
ARGS=( --cuda-graph-bs-decode $(seq 1 4)   # graph
  --dsa-prefill-backend fa3 )
# removed --speculative-ngram-branch-length: 0.5.10 stores suffixes in a trie; speculative_ngram_max_trie_depth limits their length
# removed --torchao-config: 0.5.18 removed torchao quantization
SGLANG_ENABLE_SPEC_V2=True python3 -m sglang.launch_server \\
  --model $MODEL \\
  --speculative-algorithm EAGLE "${ARGS[@]}" \\
  --cuda-graph-backend-prefill=disabled \\
  --cuda-graph-max-bs-decode=8 \\
  --tp 2
"""


@pytest.mark.thorough
def test_a_script_is_changed_where_it_has_to_be() -> None:
    migration = migrate(SCRIPT, "0.5.23")
    assert migration.text == MIGRATED
    assert not migration.problems
    assert any("SGLANG_ENABLE_SPEC_V2 has no effect" in step.text for step in migration.steps)
    (invocation,) = read_text(migration.text, "x.sh", ".sh").invocations
    opaque = {i for i, word in enumerate(invocation.words) if not word.evaluated}
    words = [word.text for word in invocation.words]
    assert not parse_argv(words, load("0.5.23"), opaque=opaque).problems


def test_a_renamed_list_takes_what_may_follow_it_before_and_after() -> None:
    script = 'ARGS=(--model-path m --cuda-graph-bs 8 64)\nsglang serve "${ARGS[@]}" "$@"\n'
    migration = migrate(script, "0.5.22", "0.5.6.post2")
    assert not migration.problems
    assert migration.text == script.replace("--cuda-graph-bs", "--cuda-graph-bs-decode")


def test_what_follows_a_removed_argument_is_not_taken_by_the_list_before_it() -> None:
    script = """\
ARGS=(--model-path m --lora-target-modules q_proj)
ARGS+=(--pdlb-url x)
python3 -m sglang.launch_server "${ARGS[@]}" "$@"
"""
    migration = migrate(script, "0.5.4.post3", "0.4.10.post2")
    assert not migration.problems
    assert "--pdlb-url x" not in migration.text
    assert migration.text.rstrip().endswith('"${ARGS[@]}" "$@"')


@pytest.mark.thorough
def test_a_second_migration_changes_nothing() -> None:
    once = migrate(SCRIPT, "0.5.23").text
    again = migrate(once, "0.5.23")
    assert again.text == once
    assert all("no effect" in step.text for step in again.steps)


def test_it_also_goes_back() -> None:
    text = "sglang serve --model-path x --cuda-graph-max-bs-decode 8\n"
    assert "--cuda-graph-max-bs 8" in migrate(text, "0.5.11").text


def test_what_nobody_knows_or_does_not_exist_yet_is_left_and_named() -> None:
    text = "sglang serve --model-path x --my-fork-flag 3 --speculative-adaptive\n"
    migration = migrate(text, "0.5.7")
    assert migration.text == text
    assert [problem.message for problem in migration.problems] == [
        "no known SGLang version has --my-fork-flag",
        "--speculative-adaptive: it exists from SGLang 0.5.11 on",
    ]


@pytest.mark.parametrize("prefix", ["", "-"])
def test_a_variable_of_a_unit_is_set_by_env(prefix: str) -> None:
    command = "/bin/python -m sglang.launch_server --model-path x --speculative-algorithm EAGLE\n"
    migration = migrate(f"ExecStart={prefix}{command}", "0.5.12", source="0.5.7")
    expected = f"ExecStart={prefix}/usr/bin/env SGLANG_ENABLE_SPEC_V2=False {command}"
    assert migration.text == expected


@rows(
    "head, changed",
    [("Exec=", "Exec=env SGLANG_ENABLE_SPEC_V2=False "), ("Entrypoint=", "Entrypoint=")],
)
def test_a_variable_of_a_quadlet_is_set_in_its_command(head: str, changed: str) -> None:
    between = "\nExec=" if head == "Entrypoint=" else " "
    command = f"python3{between}-m sglang.launch_server --model-path x"
    command += " --speculative-algorithm EAGLE\n"
    text = f"[Container]\nImage=sglang\n{head}{command}"
    migration = migrate(text, "0.5.12", source="0.5.7")
    assert migration.text == f"[Container]\nImage=sglang\n{changed}{command}"


@rows("to, pinned", [("0.5.10", False), ("0.5.12", True), ("0.5.14", False), ("0.5.23", False)])
def test_spec_v2_stays_off_where_it_can(to: str, pinned: bool) -> None:
    text = "python -m sglang.launch_server --model-path x --speculative-algorithm EAGLE\n"
    migration = migrate(text, to, source="0.5.7")
    assert ("SGLANG_ENABLE_SPEC_V2=False python" in migration.text) is pinned
    assert any("SpecV2" in step.text for step in migration.steps) is (to != "0.5.10")
    assert migrate(text, to).text == text  # not knowing where it comes from, nothing is said


def test_slime_keeps_its_prefix() -> None:
    text = "SGLANG_ARGS=(\n  --sglang-cuda-graph-bs $(seq 1 3)\n  --sglang-mem-fraction-static 0.8\n)\n"
    assert migrate(text, "0.5.23").text == text.replace("graph-bs", "graph-bs-decode")


MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
        - name: engine
          command: [python3, -m, sglang.launch_server]
          args:
            - --model-path
            - x  # the model
            - --cuda-graph-max-bs
            - "8"
            - --disable-piecewise-cuda-graph
            - --torchao-config
            - int4
"""


def test_a_manifest_stays_a_manifest() -> None:
    migration = migrate(MANIFEST, "0.5.23", name="x.yaml")
    assert "- --cuda-graph-max-bs-decode\n" in migration.text
    assert "- --cuda-graph-backend-prefill=disabled\n" in migration.text
    assert "torchao" not in migration.text.replace("# removed --torchao-config", "").replace(
        "torchao quantization", ""
    )
    (invocation,) = read_text(migration.text, "x.yaml", ".yaml").invocations
    words = [word.text for word in invocation.words]
    assert parse_argv(words, load("0.5.23")).error is None
    assert "# the model" in migration.text


def test_items_of_a_list_on_one_line_go_with_their_comma() -> None:
    text = MANIFEST.replace("            - --torchao-config\n            - int4\n", "").replace(
        "command: [python3, -m, sglang.launch_server]",
        "command: [python3, -m, sglang.launch_server, --torchao-config, int4]",
    )
    migration = migrate(text, "0.5.23", name="x.yaml")
    assert "command: [python3, -m, sglang.launch_server]" in migration.text
    assert not migration.problems


def test_quotes_go_with_an_item_of_a_list_on_one_line() -> None:
    text = (
        'kind: Pod\nspec:\n  containers:\n  - name: a\n    args: ["python3","-m",\n'
        '      "sglang.launch_server","--model-path","m","--torchao-config", \'int4\',"--tp","2"]\n'
    )
    migration = migrate(text, "0.5.23", name="x.yaml")
    assert not migration.problems
    assert '"m","--tp","2"]' in migration.text


def test_a_recipe_has_its_arguments_renamed(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "defaults: [base]\nargs:\n  model_path: x\n  cuda_graph_max_bs: 8  # small\n"
        "  enable_breakable_cuda_graph: true\n  torchao_config: x\n"
    )
    assert is_recipe(path.read_text()) and not is_recipe(MANIFEST)
    migration = migrate_recipe(path, "mine.yaml", "0.5.23")
    assert migration.text == (
        "defaults: [base]\nargs:\n  model_path: x\n  cuda_graph_max_bs_decode: 8  # small\n"
        "  cuda_graph_backend_prefill: breakable\n"
        "  # removed torchao_config: 0.5.18 removed torchao quantization\n"
        "  # torchao_config: x\n"
    )


RECIPE = "defaults: [base]\nengine:\n  version: '{version}'\nargs:\n  model_path: x\n  {line}\n"


def recipe(tmp_path: Path, line: str, version: str = "0.5.10.post1") -> Migration:
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE.format(line=line, version=version))
    return migrate_recipe(path, "mine.yaml", "0.5.23")


def test_a_pin_goes_along_and_a_range_has_to_hold_the_version(tmp_path: Path) -> None:
    migration = recipe(tmp_path, "tp_size: 2")
    assert migration.text == RECIPE.format(line="tp_size: 2", version="0.5.23")
    ranged = recipe(tmp_path, "tp_size: 2", ">=0.5.9,<0.5.14")
    (problem,) = ranged.problems
    assert "excludes SGLang 0.5.23" in problem.message
    assert problem.place is not None and problem.place.line == 3


@pytest.mark.parametrize("line", ["attention_backend: nope", "tp_size: two", "my_fork_arg: 1"])
def test_a_recipe_that_the_target_refuses_is_left_as_it_is(tmp_path: Path, line: str) -> None:
    migration = recipe(tmp_path, line)
    (problem,) = migration.problems
    assert migration.text == RECIPE.format(line=line, version="0.5.10.post1")
    assert problem.place is not None and problem.place.line == 6


def test_a_switch_that_was_off_does_not_come_on(tmp_path: Path) -> None:
    migration = recipe(tmp_path, "enable_breakable_cuda_graph: false")
    assert "breakable" not in migration.text.replace("# removed enable_breakable", "").replace(
        "# enable_breakable", ""
    )
    assert "it was off" in migration.text and not migration.problems


NEW = "--cuda-graph-max-bs-decode"
OLD = "--cuda-graph-max-bs"
COMMAND = f"python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B {OLD} 16"
WORDS = '"python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B"'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Dockerfile", f'FROM a\nCMD [{WORDS}, \\\n # c\n "{OLD}", "16"]\n'),
        ("Dockerfile", f'FROM a\nENTRYPOINT [{WORDS}]\nCMD ["{OLD}", "16"]\nFROM b\nCMD {COMMAND}\n'),
        ("x.md", f"Use `{COMMAND}`.\n\n```yaml\nservices:\n  s:\n    command: {COMMAND}\n```\n\n{COMMAND}\n"),
        ("x.md", f"> ```dockerfile\n> FROM a\n> CMD [{WORDS}, \"{OLD}\", \"16\"]\n> ```\n"),
        ("x.rst", f".. code-block:: sh\n\n   {COMMAND}\n"),
        ("x.html", f"<pre>{COMMAND.replace('Qwen/', '&quot;Qwen&quot;/')}</pre>\n"),
        ("x.ipynb", f'{{"cells": [{{"cell_type": "code", "source": ["!{COMMAND} \\\\\\n", " --tp 1"]}}]}}\n'),
        ("x.sh", f'cat > run.sh <<EOF\n{COMMAND} --port \\$PORT\nEOF\nsbatch --wrap="{COMMAND}"\n'),
        ("x.sh", f"python -m sglang_router.launch_server --dp 4 {OLD} 16 --router-policy random\n"),
    ],
    ids=range(9),
)  # fmt: skip
def test_every_form_is_changed_in_its_own_way(name: str, text: str) -> None:
    done = migrate(text, "0.5.23", "0.5.9", name)
    assert not done.problems
    assert done.text == text.replace(OLD, NEW)


def test_a_document_whose_images_become_equal_is_migrated() -> None:
    block = "## A\n```bash\ndocker run -it lmsysorg/sglang:v0.5.3 bash\n{}\n```\n".format
    text = block(COMMAND) + block(COMMAND).replace("0.5.3", "0.5.9") + f"## B\n`{COMMAND}`\n"
    done = migrate(text, "0.5.23", None, "x.md")
    expected = text.replace("0.5.3", "0.5.23").replace("0.5.9", "0.5.23").replace(OLD, NEW)
    assert not done.problems and done.text == expected


@pytest.mark.parametrize(
    "text",
    [
        f"A=()\nif x; then A+=({OLD} 16); else A+=({OLD} 32); fi\npython3 -m sglang.launch_server ${{A[@]}}\n",
        f"A=()\nif x; then A+=({OLD} 16); else A+=({OLD} 16); fi\npython3 -m sglang.launch_server ${{A[@]}}\n",
        f'C="{COMMAND[:-3]}"\nif x; then C="$C 16"; else C="$C 32"; fi\n$C\n',
        f'C="python3 -m sglang.launch_server"\nif x; then C="$C {OLD} 16"; else C="$C {OLD} 32"; fi\n$C\n',
    ],
    ids=range(4),
)
def test_branches_that_differ_are_left_to_the_reader(text: str) -> None:
    done = migrate(text, "0.5.23", "0.5.9")
    assert "between branches" in done.problems[0].message
    assert done.text == text
