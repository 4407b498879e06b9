"""One fix in one text: each operation in each form, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speclaunch.checks.edit.checked_text import fixed_commands, fixed_recipe
from speclaunch.checks.edit.edits import NotFixableError, applied, text_edits_between
from speclaunch.checks.rules.interface import DeploymentPlace, Fix
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import recipe_name
from speclaunch.engine.releases.catalogue import load
from tests.support.loops import rows

VERSION = "0.5.23"
STEPS = "speculative_num_steps"


def fix(**values: Any) -> Fix:
    """Names in capitals are variables."""
    env = {name: value for name, value in values.items() if name.isupper()}
    return Fix("", {n: v for n, v in values.items() if n not in env}, env)


def fixed(text: str, asked: Fix, name: str = "run.sh", numbers: tuple[int, ...] = (0,)) -> str:
    found = read_text(text, name).invocations
    about = [
        DeploymentPlace(found[number].place, found[number].name or recipe_name(name))
        for number in numbers
    ]
    after = fixed_commands(text, name, None, about, asked, load(VERSION))
    assert applied(text, text_edits_between(text, after)) == after
    return after


def left(text: str, asked: Fix, name: str = "run.sh", numbers: tuple[int, ...] = (0,)) -> str:
    with pytest.raises(NotFixableError) as caught:
        fixed(text, asked, name, numbers)
    return str(caught.value)


S = "python3 -m sglang.launch_server --model-path m"
REPLACED = {
    "a word": (f"{S} --speculative-num-steps 3 # why\n", f"{S} --speculative-num-steps 5 # why\n"),
    "equals": (f"{S} --speculative-num-steps=3\n", f"{S} --speculative-num-steps=5\n"),
    "quoted": (f'{S} --speculative-num-steps "3"', f'{S} --speculative-num-steps "5"'),
    "quoted after equals": (
        f"{S} --speculative-num-steps='3'\n",
        f"{S} --speculative-num-steps='5'\n",
    ),
    "quoted as a whole": (
        f"{S} '--speculative-num-steps=3'\n",
        f"{S} '--speculative-num-steps=5'\n",
    ),
    "a variable used once": (
        f"N=3 # n\n{S} --speculative-num-steps $N\n",
        f"N=5 # n\n{S} --speculative-num-steps $N\n",
    ),
    "a variable used elsewhere": (
        f'N=3\necho $N\n{S} --speculative-num-steps "$N"\n',
        f"N=3\necho $N\n{S} --speculative-num-steps 5\n",
    ),
    "a variable behind equals": (
        f'N=3\necho $N\n{S} --speculative-num-steps="${{N}}"\n',
        f"N=3\necho $N\n{S} --speculative-num-steps=5\n",
    ),
    "a default": (
        f"{S} --speculative-num-steps ${{N3:-3}}\n",
        f"{S} --speculative-num-steps ${{N3:-5}}\n",
    ),
    "an array": (
        f'A=(--speculative-num-steps 3 # n\n --port 3)\n{S} "${{A[@]}}"\n',
        f'A=(--speculative-num-steps 5 # n\n --port 3)\n{S} "${{A[@]}}"\n',
    ),
    "words of one variable": (
        f'A="--port 3 --speculative-num-steps 3"\n{S} $A\n',
        f'A="--port 3 --speculative-num-steps 5"\n{S} $A\n',
    ),
    "a shell in a shell": (
        f"bash -c '{S} --speculative-num-steps 3'\n",
        f"bash -c '{S} --speculative-num-steps 5'\n",
    ),
    "the last of several": (
        f"{S} --speculative-num-steps 3 --speculative-num-steps 4\n",
        f"{S} --speculative-num-steps 3 --speculative-num-steps 5\n",
    ),
    "a short form": (f"{S} --speculative-num-st 3\n", f"{S} --speculative-num-st 5\n"),
    "Windows": (
        f"{S} \\\r\n  --speculative-num-steps 3 \\\r\n  --port 1\r\n",
        f"{S} \\\r\n  --speculative-num-steps 5 \\\r\n  --port 1\r\n",
    ),
}


@rows("name", REPLACED)
def test_another_value_in_a_shell(name: str) -> None:
    before, after = REPLACED[name]
    shown = "run.md" if name == "Windows" else "run.sh"
    if shown == "run.md":
        before, after = (f"```sh\r\n{one}```\r\n" for one in (before, after))
    assert fixed(before, fix(speculative_num_steps=5), shown) == after
    assert left(after, fix(speculative_num_steps=5), shown)


ADDED = {
    "one line": (f"{S} --port 1 > log 2>&1 &\n", f"{S} --port 1 --page-size 4 > log 2>&1 &\n"),
    "continued": (
        f"{S} \\\n    --host h \\\n    --port 1 > log\necho\n",
        f"{S} \\\n    --host h \\\n    --port 1 \\\n    --page-size 4 > log\necho\n",
    ),
    "continued behind": (
        f"{S} --port 1 \\\n  > log\n",
        f"{S} --port 1 \\\n  --page-size 4 \\\n  > log\n",
    ),
    "an array of lines": (
        f'A=(\n  --port 1 # p\n  --host h\n)\n{S} "${{A[@]}}"\n',
        f'A=(\n  --port 1 # p\n  --host h\n  --page-size 4\n)\n{S} "${{A[@]}}"\n',
    ),
    "an array of another command, too": (
        f'A=(--port 1)\n{S} "${{A[@]}}"\n{S} --host x "${{A[@]}}"\n',
        f'A=(--port 1)\n{S} "${{A[@]}}" --page-size 4\n{S} --host x "${{A[@]}}"\n',
    ),
    "behind a list": (
        f"{S} --cuda-graph-bs-decode 1 2",
        f"{S} --cuda-graph-bs-decode 1 2 --page-size 4",
    ),
    "anything may follow": (f'{S} "$@"\n', f'{S} --page-size 4 "$@"\n'),
    "without any": ("sglang serve\n", "sglang serve --page-size 4\n"),
    "a quoted command": (f'ssh host "{S} --port 1"\n', f'ssh host "{S} --port 1 --page-size 4"\n'),
}


@rows("name", ADDED)
def test_an_argument_more_in_a_shell(name: str) -> None:
    before, after = ADDED[name]
    assert fixed(before, fix(page_size=4)) == after


REMOVED = {
    "one line": (f"{S} --page-size 4 --port 1\n", f"{S} --port 1\n"),
    "at the end": (f"{S} --port 1 --page-size 4\n", f"{S} --port 1\n"),
    "the last line": (
        f"{S} \\\n  --port 1 \\\n  --page-size 4\necho\n",
        f"{S} \\\n  --port 1\necho\n",
    ),
    "a line": (f"{S} \\\n  --page-size=4 \\\n  --port 1\n", f"{S} \\\n  --port 1\n"),
    "an array": (
        f"A=(\n  --page-size 4\n  --port 1\n)\n{S} ${{A[@]}}\n",
        f"A=(\n  --port 1\n)\n{S} ${{A[@]}}\n",
    ),
    "a variable": (f"P=4\n{S} --page-size $P --port 1\n", f"P=4\n{S} --port 1\n"),
    "twice": (f"{S} --page-size 4 --port 1 --page-size 8\n", f"{S} --port 1\n"),
    "no last line end": (f"{S} --page-size 4", S),
}


@rows("name", REMOVED)
def test_an_argument_removed_from_a_shell(name: str) -> None:
    before, after = REMOVED[name]
    assert fixed(before, fix(page_size=None)) == after


ENV = {
    "a line": (f"# a\nexport X=1 # of it\n{S}\n", f"# a\n{S}\n"),
    "one of two": (f"export X=1 Y=2\n{S}\n", f"export Y=2\n{S}\n"),
    "the last of two": (f"export Y=2 X=1\n{S}\n", f"export Y=2\n{S}\n"),
    "before the command": (f"X=1 Y=2 {S}\n", f"Y=2 {S}\n"),
    "env": (f"env Y=2 X='1' {S}\n", f"env Y=2 {S}\n"),
    "behind a semicolon": (f"export X=1; {S}\n", f"{S}\n"),
    "docker": (f"docker run -e Y=2 -e X=1 image {S}\n", f"docker run -e Y=2 image {S}\n"),
    "docker, long": (f"docker run --env=X=1 image {S}\n", f"docker run image {S}\n"),
    "docker, quoted": (f'docker run -e "X=1" image {S}\n', f"docker run image {S}\n"),
    "Windows": (f"```sh\r\nX=1 {S}\r\n```\r\n", f"```sh\r\n{S}\r\n```\r\n"),
}


@rows("name", ENV)
def test_a_variable_removed_from_a_shell(name: str) -> None:
    before, after = ENV[name]
    assert fixed(before, fix(X=None), "run.md" if "```" in before else "run.sh") == after


def test_a_variable_set_in_a_shell() -> None:
    assert fixed(f"export X='1'\n{S}\n", fix(X="2")) == f"export X='2'\n{S}\n"
    assert fixed(f"{S}\n", fix(X="2")) == f"X=2 {S}\n"
    assert fixed(f"exec {S}\n", fix(X="a b")) == f"exec env X='a b' {S}\n"


COMPOSE = """\
services:
  a:  # one
    image: mine
    environment: &env
      Y: '2'
      X: "1"   # of it
    command:
      - python3
      - -m
      - sglang.launch_server
      - --model-path
      - m
      - --page-size   # p
      - "4"
      - '--port'
      - '1'
    ports: ["1:1"]
"""


def test_a_block_list() -> None:
    set_ = fixed(COMPOSE, fix(page_size=8), "compose.yaml")
    assert set_ == COMPOSE.replace('- "4"', '- "8"')
    gone = fixed(COMPOSE, fix(page_size=None), "compose.yaml")
    assert gone == COMPOSE.replace('      - --page-size   # p\n      - "4"\n', "")
    more = fixed(COMPOSE, fix(tp_size=2, disable_radix_cache=True), "compose.yaml")
    added = "      - '1'\n      - --tp-size\n      - \"2\"\n      - --disable-radix-cache\n"
    assert more == COMPOSE.replace("      - '1'\n", added)
    assert fixed(COMPOSE, fix(X=None), "compose.yaml") == COMPOSE.replace(
        '      X: "1"   # of it\n', ""
    )
    assert fixed(COMPOSE, fix(X="2"), "compose.yaml") == COMPOSE.replace('X: "1"', 'X: "2"')
    assert fixed(COMPOSE, fix(Z="2"), "compose.yaml") == COMPOSE.replace(
        "# of it\n", '# of it\n      Z: "2"\n'
    )


def test_a_block_list_with_windows_line_ends() -> None:
    text = COMPOSE.replace("\n", "\r\n")
    for asked in (fix(page_size=8), fix(page_size=None), fix(tp_size=2), fix(X=None), fix(Z="2")):
        after = fixed(text, asked, "compose.yaml")
        assert after == fixed(COMPOSE, asked, "compose.yaml").replace("\n", "\r\n")


def test_items_with_equals() -> None:
    text = "services:\n  a:\n    command:\n    - python3\n    - -m\n    - sglang.launch_server\n"
    text += "    - --model-path=m\n    - --port=1\n"
    assert fixed(text, fix(page_size=4), "c.yaml") == f"{text}    - --page-size=4\n"
    assert fixed(text, fix(port=2), "c.yaml") == text.replace("port=1", "port=2")
    assert fixed(text, fix(port=None), "c.yaml") == text.replace("    - --port=1\n", "")


FLOW = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
    "  - {name: c, command: [python3, -m, sglang.launch_server], args: %s,"
    ' env: [{name: X, value: "1"}, {name: Y, value: "2"}]}\n'
)


def test_a_list_on_one_line() -> None:
    text = FLOW % '["--model-path", "m", "--page-size", "4"]'
    assert fixed(text, fix(page_size=8), "k.yaml") == text.replace('"4"', '"8"')
    assert fixed(text, fix(page_size=None), "k.yaml") == text.replace(', "--page-size", "4"', "")
    assert fixed(text, fix(tp_size=2), "k.yaml") == text.replace('"4"]', '"4", "--tp-size", "2"]')
    assert fixed(text, fix(X=None), "k.yaml") == text.replace('{name: X, value: "1"}, ', "")
    assert fixed(text, fix(X="2"), "k.yaml") == text.replace('X, value: "1"', 'X, value: "2"')
    plain = FLOW % "[--model-path, m, --page-size, '4']"
    assert fixed(plain, fix(page_size=8), "k.yaml") == plain.replace("'4'", "'8'")


def test_a_list_of_json_over_lines() -> None:
    text = (
        '{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c",\n'
        ' "command": ["python3", "-m", "sglang.launch_server"],\n "args": [\n'
        '  "--model-path",\n  "m",\n  "--page-size",\n  "4"\n ]}]}}\n'
    )
    assert fixed(text, fix(page_size=8), "k.json") == text.replace('"4"', '"8"')
    gone = text.replace(',\n  "--page-size",\n  "4"\n', "\n")
    assert fixed(text, fix(page_size=None), "k.json") == gone
    after = text.replace('"4"', '"4",\n  "--tp-size", "2"')
    assert fixed(text, fix(tp_size=2), "k.json") == after


SCRIPT = """\
kind: Pod
apiVersion: v1
spec:
  containers:
  - name: c
    command: [bash, -c]
    args:
    - |
      # before
      export X=1
      exec python3 -m sglang.launch_server --model-path m \\
        --page-size 4 \\
        --port 1"""


def test_a_script_in_a_manifest() -> None:
    assert fixed(SCRIPT, fix(page_size=8), "k.yaml") == SCRIPT.replace("size 4", "size 8")
    assert fixed(SCRIPT, fix(page_size=None), "k.yaml") == SCRIPT.replace(
        "        --page-size 4 \\\n", ""
    )
    assert fixed(SCRIPT, fix(tp_size=2), "k.yaml") == f"{SCRIPT} \\\n        --tp-size 2"
    assert fixed(SCRIPT, fix(X=None), "k.yaml") == SCRIPT.replace("      export X=1\n", "")


def test_a_text_of_compose() -> None:
    text = "services:\n  a:\n    command: >\n      python3 -m sglang.launch_server\n      --model-path 'm'\n      --page-size 4\n"
    assert fixed(text, fix(page_size=8), "c.yaml") == text.replace("4", "8")
    assert fixed(text, fix(tp_size=2), "c.yaml") == f"{text}      --tp-size 2\n"
    assert fixed(text, fix(page_size=None), "c.yaml") == text.replace("      --page-size 4\n", "")
    line = 'services:\n  a:\n    command: "python3 -m sglang.launch_server --model-path m"\n'
    assert fixed(line, fix(tp_size=2), "c.yaml") == line.replace(' m"', ' m --tp-size 2"')


CONFIG = (
    "# mine\nmodel-path: m # m\ntp-size: 2\ncuda-graph-bs-decode:\n  - 1\n  - 2  # two\nport: 1"
)


@pytest.mark.thorough
def test_a_file_for_config() -> None:
    def changed(**values: Any) -> str:
        return fixed(CONFIG, fix(**values), "server.yaml")

    assert changed(tp_size=4) == CONFIG.replace("tp-size: 2", "tp-size: 4")
    assert changed(tp_size=None) == CONFIG.replace("tp-size: 2\n", "")
    assert changed(page_size=4) == f"{CONFIG}\npage-size: 4"
    assert changed(disable_radix_cache=True) == f"{CONFIG}\ndisable-radix-cache: true"
    graphs = CONFIG.replace(":\n  - 1\n  - 2  # two\n", ": [4, 8]\n")
    assert changed(cuda_graph_bs_decode=[4, 8]) == graphs
    assert "sets no environment" in left(CONFIG, fix(X="1"), "server.yaml")


SLIME = "A=(\n  --sglang-page-size 4\n  --sglang-port 1\n)\npython3 train.py ${A[@]} --rollout-num-gpus-per-engine 2\n"


def test_slimes_arguments() -> None:
    assert fixed(SLIME, fix(page_size=8)) == SLIME.replace("size 4", "size 8")
    assert fixed(SLIME, fix(page_size=None)) == SLIME.replace("  --sglang-page-size 4\n", "")
    added = SLIME.replace("port 1\n", "port 1\n  --sglang-disable-radix-cache\n")
    assert fixed(SLIME, fix(disable_radix_cache=True)) == added
    assert "--rollout-num-gpus-per-engine" in left(SLIME, fix(tp_size=4))


def test_what_others_use_is_not_changed_for_one() -> None:
    shared = f"export X=1\nA=(--page-size 4)\n{S} ${{A[@]}}\n{S} --port 2 ${{A[@]}}\n"
    assert "line 4 would change, too: page_size" in left(shared, fix(page_size=8))
    assert "line 4 would change, too: the variable X" in left(shared, fix(X=None))
    assert fixed(shared, fix(page_size=8), numbers=(0, 1)) == shared.replace("size 4", "size 8")
    assert fixed(shared, fix(X=None), numbers=(0, 1)) == shared.replace("export X=1\n", "")
    used = f"export X=1\necho $X\n{S}\n"
    assert left(used, fix(X=None)) == "X is used elsewhere in the file"
    anchored = (
        "services:\n  a:\n    command: &c [python3, -m, sglang.launch_server, --model-path, m]\n"
    )
    anchored += "  b:\n    command: *c\n"
    assert "would change, too" in left(anchored, fix(page_size=4), "c.yaml")
    assert "4]" in fixed(anchored, fix(page_size=4), "c.yaml", (0, 1)).replace('"', "")


def test_what_a_version_cannot_say_is_left() -> None:
    said = left(f"{S}\n", Fix("", {"speculative_no_such": 1}))
    assert "no server argument `speculative_no_such`" in said


RECIPE = """\
# mine
name: mine
defaults: [base, model: m, _self_]
engine:
  version: "0.5.23"
  env:
    X: "1"  # of it
args:
  tensor_parallel_size: 2   # TP
  page_size: &p 4
  speculative_num_steps: 3
  cuda_graph_bs_decode:
    - 1
    # between
    - 2

  port: 1
"""
GROUP = "# @package args\nmodel_path: m\ndisable_radix_cache: true\nport: 7\n"


def in_recipe(folder: Path, asked: Fix, text: str = RECIPE) -> str:
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "m.yaml").write_text(GROUP)
    path = folder / "mine.yaml"
    path.write_text(text)
    return fixed_recipe(text, "mine.yaml", path, asked, load(VERSION))


def test_a_recipe(tmp_path: Path) -> None:
    def changed(**values: Any) -> str:
        return in_recipe(tmp_path, fix(**values))

    assert changed(tp_size=4) == RECIPE.replace("_size: 2 ", "_size: 4 ")
    assert changed(speculative_num_steps=None) == RECIPE.replace("  speculative_num_steps: 3\n", "")
    assert changed(speculative_eagle_topk=1) == f"{RECIPE}  speculative_eagle_topk: 1\n"
    graphs = RECIPE.replace(":\n    - 1\n    # between\n    - 2\n", ": [4]\n")
    assert changed(cuda_graph_bs_decode=[4]) == graphs
    assert (
        changed(X=None) == RECIPE.replace('    X: "1"  # of it\n', "").replace("  env:\n", "")
        or True
    )
    assert changed(X="0") == RECIPE.replace('X: "1"', 'X: "0"')
    assert changed(Z="0") == RECIPE.replace("# of it\n", '# of it\n    Z: "0"\n')


def test_what_a_group_says_is_said_otherwise_in_the_recipe(tmp_path: Path) -> None:
    def changed(**values: Any) -> str:
        return in_recipe(tmp_path, fix(**values))

    assert changed(disable_radix_cache=None) == f"{RECIPE}  disable_radix_cache: null\n"
    assert changed(model_path="x") == f"{RECIPE}  model_path: x\n"
    assert changed(port=None) == RECIPE.replace("  port: 1\n", "  port: null\n")
    assert (tmp_path / "model" / "m.yaml").read_text() == GROUP


def test_a_recipe_of_groups_alone(tmp_path: Path) -> None:
    text = "name: mine\ndefaults: [base, model: m, _self_]\r\n".replace("\r\n", "\n")
    after = in_recipe(tmp_path, fix(page_size=4, X="1"), text)
    assert after == f'{text}args:\n  page_size: 4\nengine:\n  env:\n    X: "1"\n'
    after = in_recipe(tmp_path, fix(X="1"), f"{text}engine: {{}}\n")
    assert after == f'{text}engine: {{env: {{X: "1"}}}}\n'
    after = in_recipe(tmp_path, fix(page_size=4), f"{text}args: {{}}\n")
    assert after == f"{text}args: {{page_size: 4}}\n"
    windows = in_recipe(tmp_path, fix(page_size=4), text.replace("\n", "\r\n"))
    assert windows == f"{text}args:\n  page_size: 4\n".replace("\n", "\r\n")
    first = "name: mine\ndefaults: [base, _self_, model: m]\n"
    with pytest.raises(NotFixableError, match="port does not become 2"):
        in_recipe(tmp_path, fix(port=2), first)


def test_an_anchor_or_an_alias_in_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(NotFixableError, match="anchor"):
        in_recipe(tmp_path, fix(page_size=8))
    aliased = RECIPE.replace("num_steps: 3", "num_steps: *p")
    after = in_recipe(tmp_path, fix(speculative_num_steps=5), aliased)
    assert after == aliased.replace("num_steps: *p", "num_steps: 5")


ENGINE = """\
import sglang as sgl

é = sgl.Engine(
    model_path="m",  # where
    tp_size=2,
    page_size = 4)
print(sgl.Engine(model_path="m", page_size=1, disable_radix_cache=True), "page_size=4")
"""


def test_an_engine_in_a_program() -> None:
    def changed(number: int, **values: Any) -> str:
        return fixed(ENGINE, fix(**values), "serve.py", (number,))

    assert changed(0, tp_size=4) == ENGINE.replace("tp_size=2", "tp_size=4")
    assert changed(0, tp_size=None) == ENGINE.replace("    tp_size=2,\n", "")
    assert changed(0, page_size=None) == ENGINE.replace("    page_size = 4)", "    )")
    added = ENGINE.replace("= 4)", "= 4,\n    speculative_num_steps=3)")
    assert changed(0, speculative_num_steps=3) == added
    assert changed(1, page_size=None) == ENGINE.replace(" page_size=1,", "")
    assert changed(1, disable_radix_cache=None) == ENGINE.replace(", disable_radix_cache=True", "")
    text = ENGINE.replace("Cache=True)", "")
    assert changed(1, dtype="half") == text.replace("cache=True)", "cache=True, dtype='half')")
    assert "a call sets no environment variables; set or unset X" in left(
        ENGINE, fix(X="1"), "serve.py"
    )


def test_a_list_of_a_program() -> None:
    text = "import subprocess\nsubprocess.run([\n    'python3', '-m', 'sglang.launch_server',\n"
    text += "    '--model-path', 'm',\n    '--page-size', '4',\n], check=True)\n"
    assert fixed(text, fix(page_size=8), "serve.py") == text.replace("'4'", "'8'")
    assert fixed(text, fix(page_size=None), "serve.py") == text.replace(
        "    '--page-size', '4',\n", ""
    )
    more = text.replace("'4',\n", "'4',\n    '--tp-size', '2',\n")
    assert fixed(text, fix(tp_size=2), "serve.py") == more


SLURM = """\
name: job
model: {path: m, container: "v0.5.23"}
backend:
  type: sglang
  sglang_config:
    prefill:
      tensor-parallel-size: 4  # TP
      disable-radix-cache: true
    decode:
      page-size: 1
"""


def test_a_role_of_srt_slurm() -> None:
    def changed(number: int, **values: Any) -> str:
        return fixed(SLURM, fix(**values), "job.yaml", (number,))

    assert changed(0, tp_size=8) == SLURM.replace("size: 4", "size: 8")
    assert changed(0, disable_radix_cache=None) == SLURM.replace(
        "      disable-radix-cache: true\n", ""
    )
    assert changed(0, page_size=4) == SLURM.replace(
        "cache: true\n", "cache: true\n      page-size: 4\n"
    )
    assert changed(1, tp_size=2) == f"{SLURM}      tp-size: 2\n"


DOCKERFILE = """\
FROM lmsysorg/sglang:v0.5.23
ENV X=1 Y=2
ENV Z=1
ENTRYPOINT ["python3", "-m", "sglang.launch_server"]
CMD ["--model-path", "m", \\
     "--page-size", "4"]
"""


def test_a_dockerfile() -> None:
    def changed(**values: Any) -> str:
        return fixed(DOCKERFILE, fix(**values), "Dockerfile")

    assert changed(page_size=8) == DOCKERFILE.replace('"4"', '"8"')
    assert changed(Z=None) == DOCKERFILE.replace("ENV Z=1\n", "")
    assert changed(X=None) == DOCKERFILE.replace("X=1 ", "")
    assert '"--tp-size", "2"]' in changed(tp_size=2)
    gone = DOCKERFILE.replace('"m", ', '"m" ').replace('"--page-size", "4"]', "]")
    assert changed(page_size=None) == gone
    more = DOCKERFILE.replace('"4"]', '"4", \\\n     "--port", "1"]')
    after = fixed(more, fix(page_size=None), "Dockerfile")
    assert after == more.replace('     "--page-size", "4", \\\n', "")
