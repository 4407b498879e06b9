"""Commands that a script puts together in branches: what is certain, what depends on a condition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.deployments.sources.files import read_shell
from speclaunch.deployments.sources.interface import Word
from tests.support.deployments.sources.helpers import SERVER, at, dropped, shell, texts
from tests.support.loops import rows


def certain(words: tuple[Word, ...]) -> list[str]:
    return [word.text for word in words if word.evaluated and word.condition is None]


def test_an_array_that_branches_fill() -> None:
    found = shell(
        'ARGS=(--a 1)\nif [ "$X" ]; then\n  ARGS+=(--b 2)\nelse\n  ARGS+=(--c 3)\nfi\n'
        f'case $Y in x) ARGS+=(--d 4);; esac\n{SERVER} "${{ARGS[@]}}" --e 5\n'
    )
    assert certain(found.words) == ["--a", "1", "--e", "5"]
    conditions = {word.text: word.condition for word in found.words}
    assert "the condition of line 2; another branch may add different arguments" in (
        conditions["--b"] or ""
    )
    assert "line 7" in (conditions["--d"] or "")


@rows(
    "script, known",
    [
        ('if [[ -n "${X}" ]]; then A+=(--b "$X"); fi', False),
        ('[ "$X" ] && A+=(--b "$X")', False),
        ('if [ ! -z $X ]; then A+=(--b "$X"); fi', False),
        ('if [ -z "$X" ]; then A+=(--b "$X"); fi', True),
        ('if [ -n "$Y" ]; then A+=(--b "$X"); fi', True),
    ],
)
def test_a_tested_variable_is_not_empty_in_its_branch(script: str, known: bool) -> None:
    found = shell(f'X="${{X:-}}"\nA=()\n{script}\n{SERVER} "${{A[@]}}" --c "$X"\n')
    assert [word.text for word in found.words] == ["--b", "" if known else "$X", "--c", ""]
    assert found.words[1].evaluated is known
    assert found.words[3].evaluated


@rows(
    "script, known",
    [
        ('if [[ -z "$X" || -z "$Y" ]]; then\n  echo no >&2\n  exit 1\nfi', False),
        ('[ -z "${X}" ] && { echo no; exit 2; }', False),
        ('[[ -n "$X" ]] || exit 1', False),
        ('stop() { echo no; exit 1; }\nif [ -z "$X" ]; then stop; fi', False),
        ('if y; then if [ -z "$X" ]; then exit 1; fi; fi', False),
        ('if [ -z "$X" ]; then echo no; fi', True),
        ('if [ -n "$X" ]; then exit 1; fi', True),
        ('[ -n "$X" ] || echo no', True),
        ('stop() { stop; }\nif [ -z "$X" ]; then stop; fi', True),
    ],
)
def test_a_required_variable_is_not_empty(script: str, known: bool) -> None:
    """A script that stops without a value never starts the server with its empty default."""
    word = shell(f'X="${{X:-}}"\n{script}\n{SERVER} --model-path m --tp "$X"\n').words[-1]
    assert (word.text, word.evaluated) == ("" if known else "$X", known)


def test_a_text_that_branches_end_in_different_ways() -> None:
    found = shell(
        f'CMD="{SERVER} --a 1"\nif x; then CMD="$CMD --tp 2"; else CMD="$CMD --tp 4"; fi\n'
        '[ -n "$B" ] && CMD+=" --b 3"\nadd() { CMD="$CMD $1"; }\nadd "--c 4"\n$CMD\n'
    )
    assert texts(found) == ["--a", "1", "--tp", "2", "--b", "3", "--c", "4"]
    assert certain(found.words) == ["--a", "1", "--tp", "--c", "4"], found.words
    value = found.words[3]
    assert not value.evaluated
    assert value.inside
    assert found.words[4].condition == "only under the condition of line 3"


def test_different_arguments_of_a_text() -> None:
    found = shell(f'C="{SERVER} --a"\nif x; then C="$C --b 1"; else C="$C --c 2"; fi\neval $C\n')
    assert certain(found.words) == ["--a"]
    assert "another branch may add different arguments" in (found.words[1].condition or "")


def test_branches_of_a_text_inside_a_quoted_script() -> None:
    branches = "if x; then F='--a 1'; {}else F=''; fi\n"
    script = branches + f'bash -c "{SERVER} --tp 2 $F --b 3"\n'
    found = shell(script.format(""))
    assert certain(found.words) == ["--tp", "2", "--b", "3"]
    assert {word.condition for word in found.words[2:4]} == {"only under the condition of line 1"}
    several = shell(script.format("elif y; then F='--c 2'; "))
    (unknown,) = (word for word in several.words if not word.evaluated)
    assert unknown.text == "$F"
    assert "depends on a condition (--a 1, --c 2" in (unknown.why or "")


def test_a_branch_that_wraps_the_command() -> None:
    found = shell(
        f"cmd=$(cat <<- EOF\n{SERVER} --model $M \\\n  --tp 1\nEOF\n)\n"
        'if [ "$1" = -d ]; then cmd="nohup $cmd > log 2>&1 &"; fi\neval $cmd\n'
    )
    assert texts(found) == ["--model", "$M", "--tp", "1"]
    assert at(found.words[2]) == (3, 3)


def test_one_value_is_no_beginning_of_another() -> None:
    found = shell(f'A="--x 1"\nif y; then A="--x 16"; fi\n{SERVER} $A\n')
    assert texts(found)[0] == "--x"
    assert not found.words[1].evaluated


@rows("head", ["bash", "ssh host", "sbatch", "docker exec -i c sh", "sudo -u x sh"])
def test_a_script_on_standard_input(head: str) -> None:
    found = shell(f"export TP=2\n{head} <<'EOF'\nM=a\n{SERVER} --model $M --tp 2\nEOF\n")
    assert texts(found) == ["--model", "a", "--tp", "2"]
    assert [at(word) for word in found.words] == [(4, 33), (3, 3), (4, 44), (4, 49)]


def test_what_the_shell_around_puts_into_a_here_document() -> None:
    script = f'M=a\nbash <<EOF\nN=1\n{SERVER} --model $M --n \\$N --q "x" --r $(hostname)\nEOF\n'
    found = shell(script)
    assert texts(found) == ["--model", "a", "--n", "1", "--q", "x", "--r", "$(hostname)"]
    assert at(found.words[1]) == (1, 3)


@pytest.mark.parametrize("head", ["cat > run.sh <<EOF", "cat <<EOF >run.sh", "tee run.sh <<EOF"])
def test_a_script_that_is_written_is_read(head: str) -> None:
    found = shell(f"{head}\n#!/bin/bash\n{SERVER} --tp 2 --x \\$Y\nEOF\n")
    assert texts(found) == ["--tp", "2", "--x", "$Y"]
    assert any("cat" in text or "tee" in text for text in dropped(found))


@rows("head", ["cat <<EOF", "cat > notes.md <<EOF", "grep x <<EOF", "cat > pod.yaml <<EOF"])
def test_a_text_that_is_shown_is_not_run(head: str) -> None:
    assert not read_shell(f"{head}\n{SERVER} --tp 2\nEOF\n", "x.sh").invocations


WRAPPERS = [
    "uv run", "docker run --gpus all img:v1", "docker exec -it c", "nohup", "srun -N1", "numactl -N 0",
    "torchrun --nproc_per_node 8", "CUDA_VISIBLE_DEVICES=0", "ssh host", "kubectl exec -it p --",
    "tmux new -d -s x", "screen -dmS x", "xargs -I%", "timeout -k 5 30m", "env -u http_proxy", "poetry run",
    "conda run -n x --no-capture-output", "apptainer exec --nv i.sif", "podman run --rm i", "ray job submit --",
]  # fmt: skip
QUOTING = [
    "bash -c {}", "bash -lc {}", "sbatch --wrap {}", "sbatch --wrap={}", "ssh -p 22 u@h {}", "eval {}",
    "tmux send-keys -t x {} Enter", "tmux send-keys -t x {} C-m", "screen -dmS x bash -c {}", "su - u -c {}",
    "docker exec c bash -c {}", "kubectl exec p -- sh -c {}", "tmux new-session -d -s x {}",
]  # fmt: skip


@rows("wrapper", WRAPPERS)
def test_what_stands_before_a_command(wrapper: str) -> None:
    program = "-m sglang.launch_server" if wrapper.startswith("torchrun") else SERVER
    assert texts(shell(f"{wrapper} {program} --model a/b --tp 2\n")) == [
        "--model",
        "a/b",
        "--tp",
        "2",
    ]


@pytest.mark.parametrize("wrapper", QUOTING)
@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_command_in_quotes(wrapper: str, quote: str) -> None:
    script = wrapper.format(f"{quote}{SERVER} --model a/b --tp 2{quote}") + "\n"
    found = shell(script)
    assert texts(found) == ["--model", "a/b", "--tp", "2"]
    assert at(found.words[3])[1] == script.index("2" + quote) + 1


def test_what_screen_types_ends_with_the_line() -> None:
    assert texts(shell(f"screen -S x -X stuff '{SERVER} --tp 2\\n'\n")) == ["--tp", "2"]
    assert texts(shell(f"screen -S x -X stuff '{SERVER} --tp 2^M'\n")) == ["--tp", "2"]


def test_a_router_that_starts_its_servers() -> None:
    found = shell(
        "python -m sglang_router.launch_server --model a/b --dp-size 4 --tp 2 --router-policy random "
        "--router-eviction-interval=5 --port 1\n"
    )
    assert texts(found) == ["--model", "a/b", "--tp", "2", "--port", "1"]
    assert dropped(found)[-3:] == [
        "--dp-size 4", "--router-policy random", "--router-eviction-interval=5"
    ]  # fmt: skip
    assert not read_shell(
        "python -m sglang_router.launch_router --worker-urls x\n", "x"
    ).invocations


BODIES = st.lists(
    st.sampled_from(
        ["if x; then\n", "else\n", "fi\n", "A+=(--x 1)\n", "A=(--y)\n", 'C="$C --z 1"\n', "C=\n", "case $1 in\na) C+=x;;\n*) A=();; esac\n",
         "for i in 1 2; do\n", "done\n", "f() {\n", "}\n", "f\n", "cat <<EOF > x.sh\n",
         "EOF\n", "$C\n", "x && C=1\n", "(\n", ")\n", "`", "'", '"', "$(", "\\\n"]
    ),
    max_size=25,
)  # fmt: skip


@pytest.mark.thorough
@given(BODIES)
def test_a_literal_command_behind_any_branches_is_found(parts: list[str]) -> None:
    before = "".join(parts)
    if any(before.count(char) % 2 for char in "`'\"") or "$(" in before or "\\\n" in before:
        return
    if any(word in before for word in ("EOF", "(\n", ")\n", "{\n", "}\n")):
        return
    found = read_shell(f"C='{SERVER}'\n{before}\n{SERVER} --tp 77\n", "x.sh")
    assert ["--tp", "77"] in [texts(one) for one in found.invocations]


def test_empty_under_a_condition_is_not_known() -> None:
    """Whoever starts the script may have set the variable."""
    start = f"{SERVER} --model-path m --api-key $KEY\n"
    for script in ('if x; then\nKEY=""\nfi\n', 'x || KEY=""\n', 'for i in $X; do KEY=""; done\n'):
        word = shell(script + start).words[-1]
        assert (word.text, word.evaluated) == ("$KEY", False), script
    assert texts(shell(f'if x; then\nKEY=""\nelse\nKEY=""\nfi\n{start}'))[-1] == "--api-key"


@rows(
    "test, words",
    [
        ('[ "$T" = 1 ] &&', ["m", "--tp", "2"]),
        ('[ "$T" = 2 ] &&', ["m"]),
        ('[ "$T" = 1 ] ||', ["m"]),
        ('[ "$T" = 2 ] ||', ["m", "--tp", "2"]),
        ('[ -n "${U:-}" ] &&', ["m"]),
        ('[ -z "${U:-}" ] &&', ["$@"]),
        ("[ -f x ] &&", ["$@"]),
    ],
)
def test_arguments_that_a_test_sets(test: str, words: list[str]) -> None:
    text = f'T=1\nset -- m\n{test} set -- "$@" --tp 2\nsglang serve "$@"\n'
    assert texts(shell(text)) == words
