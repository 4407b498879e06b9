"""Input that was made to hurt: a clear error or an answer, soon, and nothing is run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.core.errors import InputError
from speclaunch.deployments.sources.files import read_markdown, read_shell, read_text, read_yaml
from speclaunch.deployments.sources.interface import Reading
from speclaunch.deployments.sources.sglang_yaml import read_sglang_yaml
from tests.deployments.sources.test_containers import COMPOSE, KUBERNETES
from tests.deployments.sources.test_slime import ARRAY

SERVER = "\npython -m sglang.launch_server --model x\n"
MEGA = 1 << 20
EXAMPLES = int(os.environ.get("SPECLAUNCH_SHELL_EXAMPLES", "120"))
FEW_SECONDS = 10.0
"""Far more than any of these takes, so that a busy machine does not fail them."""

SCRIPTS = {
    "substitutions": "$(" * 100_000,
    "expansions": "${a:-" * 100_000,
    "subshells": "(" * 100_000,
    "groups": "{ " * 100_000,
    "conditions": "if " * 100_000,
    "cases": "case x in " * 50_000,
    "loops": "for i in 1 2; do " * 5_000,
    "sums": "$((" * 100_000,
    "processes": "<(" * 100_000,
    "braces": "{" * 100_000 + SERVER,
    "brace lists": "a " + "{a," * 5_000 + "}" * 5_000 + SERVER,
    "brace products": "python -m sglang.launch_server " + "{1..9}" * 40,
    "a long range": "python -m sglang.launch_server {1..99999999999} $(seq 1 99999999999)",
    "many ranges": "python -m sglang.launch_server" + " $(seq 1 9000)" * 500,
    "doubling": "A=x\n" + "A=$A$A\n" * 60 + SERVER,
    "doubling arrays": "A=(x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60 + SERVER,
    "appending": "A=\n" + "A+=' --x'\n" * 30_000 + SERVER,
    "conditional appending": "A=()\n" + "if x; then A+=(a b c d); fi\n" * 5_000 + SERVER,
    "long values": "A=" + "a" * 60_000 + "\nx " + "$A " * 4_000 + SERVER,
    "printing": "X=$(printf '%s" + "a" * 60_000 + "' {1..4000})" + SERVER,
    "printing in loops": "X=$("
    + "for i in {1..16}; do for j in {1..16}; do for k in {1..16}; do printf '%s' "
    + "a" * 5_000
    + "; done; done; done)"
    + SERVER,
    "functions": "f0() { python -m sglang.launch_server; }\n"
    + "".join(f"f{i}() {{ f{i - 1}; f{i - 1}; }}\n" for i in range(1, 40))
    + "f39\n",
    "itself": "f() { f; f; python -m sglang.launch_server; }\nf\n",
    "eval of itself": 'A=\'eval "$A" python -m sglang.launch_server\'\neval "$A"\n',
    "shells": "bash -c " * 10_000 + SERVER,
    "commands": "python -m sglang.launch_server --model x\n" * 20_000,
    "exports": "".join(f"export V{i}=1\n" for i in range(5_000)) + SERVER * 2_000,
    "comments": "# c\n" * 50_000 + "python -m sglang.launch_server\n" * 2_000,
    "here documents": "a" + " <<E" * 50_000 + "\n" + "x\n" * 50_000,
    "lines": "x=1\n" * (2 * MEGA) + SERVER,
    "one word": "x" * (10 * MEGA - 100) + SERVER,
    "blanks": " " * (10 * MEGA - 100) + SERVER,
    "continuations": "\\\n" * (5 * MEGA - 100) + SERVER,
    "escapes": "\\a" * (5 * MEGA - 100) + SERVER,
    "quotes": "''" * (5 * MEGA - 100) + SERVER,
    "dollars": "$" * (10 * MEGA - 100) + SERVER,
    "too large": "a b " * (3 * MEGA),
    "patterns": "A=" + "a" * 60_000 + "\n" + "x ${A//a/bbbb} ${A%%*a*}\n" * 500 + SERVER,
    "json": f"ray job submit --runtime-env-json='{'[' * 30_000}' -- python train.py --sglang-x 1\n",
    "slime": "A=(--sglang-x)\n" * 20_000,
}
YAMLS = {
    "itself": "a: &a [*a]\nservices: &b {x: *b}\n",
    "billion laughs": "a: &a [x, x]\n"
    + "".join(
        f"a{i}: &a{i} [{', '.join(['*a' if i == 0 else f'*a{i - 1}'] * 9)}]\n" for i in range(40)
    ),
    "deep": "[" * 50_000,
    "deep blocks": "".join("  " * i + "a:\n" for i in range(500)),
    "many": "- a\n" * 300_000,
    "merges": "a: &a {x: 1}\n" + "".join(f"b{i}: &a\n  <<: *a\n" for i in range(2_000)),
    "merge of itself": "services:\n  a: &a\n    <<: *a\n    command: sglang serve\n",
    "environment": "kind: Pod\nspec:\n  containers:\n  - env:\n    - {name: A, value: xx}\n"
    + "    - {name: A, value: $(A)$(A)}\n" * 60
    + "    command: [sglang, serve, $(A)]\n",
    "interpolation": "services: {a: {command: '" + "sglang serve " + "${A:-" * 20_000 + "'}}",
    "tabs": "a:\n\tb: sglang serve\n",
    "tags": "a: !!python/object/apply:os.system ['true']\nb: !!binary x\nc: !foo sglang serve\n",
}


def quickly(read: Callable[[], Reading]) -> Reading | None:
    start = time.process_time()
    try:
        return read()
    except InputError as error:
        assert error.problems
        assert all(problem.message for problem in error.problems)
        return None
    finally:
        assert time.process_time() - start < FEW_SECONDS


@pytest.mark.thorough
@pytest.mark.parametrize("name", SCRIPTS)
def test_hostile_scripts(name: str) -> None:
    quickly(lambda: read_shell(SCRIPTS[name], "x.sh"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", YAMLS)
def test_hostile_yaml(name: str) -> None:
    quickly(lambda: read_yaml(YAMLS[name], "x.yaml"))
    quickly(lambda: read_sglang_yaml(YAMLS[name], "x.yaml"))


OTHERS = {
    "x.json": (("{" + "/*" * MEGA), ('{"' + '\\"' * MEGA), "{\t" + '"a\t": 1,\t' * 50_000),
    "x.ps1": ("`\n" * 100_000 + SERVER, "$a = 'b'\n" * MEGA, SERVER + "'a" * 100_000),
    "x.conf": ("[program:x]" + SERVER + " a\n" * 100_000,),
    "x.md": ("```sh\nA=1\n```\n" * 20_000, "```pwsh\n$a.b @c" + SERVER * 2_000 + "```\n"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", OTHERS)
def test_hostile_texts_of_other_forms(name: str) -> None:
    for text in OTHERS[name]:
        quickly(lambda text=text: read_text(text, name))


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = (
        "touch a\nX=$(touch b)\n`touch c`\ncat <(touch d) > e\n"
        "python -m sglang.launch_server --x $(touch f) `touch g` ${X:-$(touch h)} > i\n"
        "eval 'touch j'\nbash -c 'touch k; python -m sglang.launch_server'\n"
    )
    assert len(read_shell(script, "x.sh").invocations) == 2
    read_yaml("a: !!python/object/apply:os.system ['touch l']\nb: sglang serve\n", "x.yaml")
    assert list(tmp_path.iterdir()) == []


SEEDS = [
    ARRAY,
    COMPOSE,
    KUBERNETES,
    'A=(x "y z" $(seq 1 3))\nif [ -n "$B" ]; then A+=(--q {1,2}); fi\n'
    'f() { local p=$1; python3 -m sglang.launch_server "${A[@]}" --p ${p:-3} "$@" 2>&1 | tee l & }\n'
    "f 1 2\ncase $x in a|b) sglang serve;; *) f;; esac\nbash -c \"sglang serve --x '$B'\"\n"
    "cat <<EOF\nx\nEOF\nfor i in 1 2; do docker run -e A=$i img sglang serve --n $((i + 1)); done\n",
    "# x\n\n```bash\nsglang serve --a b\n```\n\n> ```\n> --sglang-x 1\n> ```\n",
]
TOKENS = [
    "'",
    '"',
    "`",
    "$",
    "$(",
    ")",
    "$((",
    "))",
    "{",
    "}",
    "{a,b}",
    "{1..3}",
    "${",
    "${A[@]}",
    "${A:-x}",
    "\\",
    "\\\n",
    "#",
    ";",
    "&",
    "&&",
    "||",
    "|",
    "(",
    "<<",
    "<<<",
    ">",
    "<",
    "\n",
    "\t",
    "=",
    "A=",
    "A=(",
    "A+=(",
    "if",
    "then",
    "else",
    "fi",
    "for",
    "in",
    "do",
    "done",
    "case",
    "esac",
    "while",
    "function",
    "f()",
    "[[",
    "]]",
    "eval",
    "bash",
    "-c",
    "sglang",
    "serve",
    "python3",
    "-m",
    "sglang.launch_server",
    "--sglang-x",
    "--speculative-x",
    "docker",
    "run",
    "-",
    ":",
    "&",
    "*",
    "!",
    "|",
    ">",
    "%",
    "@",
    "```",
    "~~~",
    "'",
    ":",
    "é",
    "\u2028",
    "\x0b",
    "\x85",
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(TOKENS)) + text[end:]
    return text


soup = st.lists(st.sampled_from(TOKENS), max_size=40).flatmap(
    lambda tokens: st.sampled_from([" ", ""]).map(lambda gap: gap.join(tokens))
)


@pytest.mark.thorough
@settings(max_examples=EXAMPLES, deadline=None)
@given(text=mutated() | soup | st.text(max_size=200))
def test_nothing_but_an_input_error_comes_out(text: str) -> None:
    for read in (
        lambda: read_shell(text, "x.sh"),
        lambda: read_yaml(text, "x.yaml"),
        lambda: read_sglang_yaml(text, "x.yaml"),
        lambda: read_markdown(text, "x.md"),
    ):
        reading = quickly(read)
        lines = text.replace("\r\n", "\n").split("\n")
        for found in reading.invocations if reading is not None else ():
            for word in (*found.words, *found.program, *found.env.values(), *found.extras.values()):
                assert 1 <= word.place.line <= len(lines)
                assert 1 <= word.place.column <= len(lines[word.place.line - 1]) + 1
                assert word.evaluated or word.why


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(data=st.binary(max_size=300))
def test_bytes(data: bytes) -> None:
    for name in ("x.sh", "x.yaml", "x.md", "x"):
        quickly(lambda name=name: read_text(data, name))  # type: ignore[misc]
