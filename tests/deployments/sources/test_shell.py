"""What the shell reader finds, feature by feature, with the places of the words."""

from __future__ import annotations

import pytest

from speclaunch.core.errors import InputError
from speclaunch.deployments.sources.files import read_shell
from speclaunch.deployments.sources.interface import InvocationKind
from tests.support.deployments.sources.helpers import SERVER, at, dropped, env, shell, slices, texts
from tests.support.loops import over, rows


def test_a_command_over_several_lines() -> None:
    script = (
        "#!/bin/bash\n\n"
        "SGLANG_ENABLE_SPEC_V2=1 python3 -m sglang.launch_server \\\n"
        "  --model-path meta-llama/Llama-3.1-8B-Instruct \\\n"
        "  --speculative-algorithm 'EAGLE3' \\\n"
        '  --json "{\\"a\\": 1}" --tp=8\n'
    )
    found = shell(script)
    assert found.kind is InvocationKind.LAUNCH_SERVER
    assert texts(found) == [
        "--model-path", "meta-llama/Llama-3.1-8B-Instruct", "--speculative-algorithm", "EAGLE3",
        "--json", '{"a": 1}', "--tp=8",
    ]  # fmt: skip
    assert [at(word) for word in found.words] == [
        (4, 3), (4, 16), (5, 3), (5, 27), (6, 3), (6, 10), (6, 23),
    ]  # fmt: skip
    assert slices(script, found)[3] == "'EAGLE3'"
    assert slices(script, found)[5] == '"{\\"a\\": 1}"'
    assert env(found) == {"SGLANG_ENABLE_SPEC_V2": "1"}
    assert at(found.env["SGLANG_ENABLE_SPEC_V2"]) == (3, 23)
    assert (found.place.line, found.place.column) == (3, 25)
    assert [word.text for word in found.program] == ["python3", "-m", "sglang.launch_server"]


@rows(
    "program",
    [
        "python -m sglang.launch_server",
        "/opt/venv/bin/python3.12 -m sglang.launch_server",
        "python3 -u -X faulthandler -m sglang.launch_server",
        "python -Wignore -W error -um sglang.launch_server",
        "$PYTHON -m sglang.launch_server",
        "python3 -msglang.launch_server",
        "torchrun --nproc 2 -m sglang.launch_server",
        "python3 /sgl/python/sglang/launch_server.py",
        "sglang serve",
        "/usr/local/bin/sglang serve",
        "uv run sglang serve",
        "exec python -m sglang.launch_server",
        "time nice -n 5 python -m sglang.launch_server",
        "if ! python -m sglang.launch_server",
        "[[ -n $X && ( a < b ) ]] && python -m sglang.launch_server",
        "(( X > 1 )) || python -m sglang.launch_server",
        "cd /x && ( python -m sglang.launch_server",
        "srun --nodes 2 --ntasks 2 python -m sglang.launch_server",
        "some_tool_nobody_knows --flag -- python -m sglang.launch_server",
    ],
)
def test_programs_and_wrappers(program: str) -> None:
    closing = "; then :; fi" if program.startswith("if") else " )" if "( py" in program else ""
    found = shell(f"{program} --tp 2{closing}\n")
    assert texts(found) == ["--tp", "2"]
    assert found.kind is (
        InvocationKind.SERVE if program.endswith("serve") else InvocationKind.LAUNCH_SERVER
    )


@rows(
    "line",
    [
        "echo python -m sglang.launch_server --tp 2",
        'pkill -f "python -m sglang.launch_server"',
        "# python -m sglang.launch_server --tp 2",
        "python -m sglang.bench_serving --backend sglang",
        "python -m sglang_router.launch_router",
        "pip install 'sglang[all]'",
        "cat <<EOF\npython -m sglang.launch_server --tp 2\nEOF",
        'git commit -m "run python -m sglang.launch_server now"',
    ],
)
def test_no_server(line: str) -> None:
    assert read_shell(line + "\n", "x.sh").invocations == ()


def test_variables_point_to_where_they_are_written() -> None:
    script = f'MODEL="/models/a b"\nPORT=30000\nTP=8 # gpus\n{SERVER} --model "$MODEL" --port ${{PORT}} --x $TP/y\n'
    found = shell(script)
    assert texts(found) == ["--model", "/models/a b", "--port", "30000", "--x", "8/y"]
    assert [at(word) for word in found.words][1::2] == [(1, 7), (2, 6), (4, 69)]
    used = found.words[1].used_at
    assert used is not None
    assert (used.line, used.column) == (4, 41)
    assert slices(script, found)[1] == '"/models/a b"'
    assert found.words[5].used_at is None  # put together here


@rows("search", ["$(command -v sglang)", "`which sglang`", '"$SGLANG_BIN"', "${sglang}"])
def test_program_found_on_the_path(search: str) -> None:
    assert texts(shell(f'BIN="{search}"\nnohup "$BIN" serve m --port 1\n'))[-2:] == ["--port", "1"]


def test_words_of_an_array() -> None:
    script = (
        "SGLANG_ARGS=(\n"
        "   --model-path m   # the model\n"
        "   # --tp 4\n"
        "   --cuda-graph-bs $(seq 1 3) `seq 8 8 24` {32..64..16}\n"
        ")\n"
        "SGLANG_ARGS+=(--port 1)\n"
        f'{SERVER} "${{SGLANG_ARGS[@]}}" --host 0.0.0.0\n'
    )
    found = shell(script)
    assert texts(found) == (
        [
            "--model-path",
            "m",
            "--cuda-graph-bs",
            "1",
            "2",
            "3",
            "8",
            "16",
            "24",
            "32",
            "48",
            "64",
            "--port",
            "1",
            "--host",
            "0.0.0.0",
        ]
    )
    assert at(found.words[1]) == (2, 17)
    assert [at(word) for word in found.words[3:6]] == [(4, 20)] * 3
    assert at(found.words[12]) == (6, 15)
    assert [(c.text, c.place.line) for c in found.comments] == [("the model", 2), ("--tp 4", 3)]


def test_words_of_a_text_that_is_split() -> None:
    script = f'ARGS="--tp 8 --port $PORT"\nARGS="$ARGS\n  --dp 2"\n{SERVER} $ARGS\n'
    found = shell(script)
    assert texts(found) == ["--tp", "8", "--port", "$PORT", "--dp", "2"]
    assert [at(word) for word in found.words] == [(1, 7), (1, 12), (1, 14), (1, 21), (3, 3), (3, 8)]
    assert [word.evaluated for word in found.words] == [True, True, True, False, True, True]


@rows(
    "word, text, why",
    [
        ("$MODEL", "$MODEL", "`MODEL` is not set in this file"),
        ('"${BASE}/x"', "${BASE}/x", "`BASE` is not set in this file"),
        ("$KNOWN/$UNKNOWN", "k/$UNKNOWN", "`UNKNOWN` is not set"),
        ("$(rm -rf /)", "$(rm -rf /)", "`$(rm -rf /)` is not run"),
        ("`hostname`", "`hostname`", "is not run"),
        ("$(seq 1 1000000)", "$(seq 1 1000000)", "is not run"),
        ("{1..1000000}", "{1..1000000}", "more than 10000 words"),
        ('"$@"', "$@", "the arguments of the script"),
        ("$1", "$1", "argument 1 of the script"),
        ("$?", "$?", "known only at run time"),
        ("~/models/x", "~/models/x", "home directory"),
        ("/models/*", "/models/*", "file name pattern"),
        ("$((N + 1))", "$((N + 1))", "cannot be computed"),
        ("${!NAME}", "${!NAME}", "indirect"),
        ("${KNOWN@Q}", "${KNOWN@Q}", "is not evaluated"),
        ("<(echo a)", "<(echo a)", "is not run"),
        ("'$x'$y", "'$x'$y", "`y` is not set"),
    ],
)
def test_what_is_not_evaluated_stays(word: str, text: str, why: str) -> None:
    found = shell(f"KNOWN=k\n{SERVER} --x {word} --y 1\n")
    assert texts(found) == ["--x", text, "--y", "1"]
    assert not found.words[1].evaluated
    assert why in (found.words[1].why or "")
    assert found.words[2].evaluated


def test_defaults_are_taken_and_said() -> None:
    found = shell(f': "${{TP:=4}}"\n{SERVER} --model ${{MODEL:-meta/x}} --tp $TP ${{EXTRA:-}}\n')
    assert texts(found) == ["--model", "meta/x", "--tp", "4"]
    assert found.words[1].evaluated
    assert "the default of `MODEL`" in (found.words[1].why or "")


def test_what_reads_variables_makes_them_unknown() -> None:
    found = shell(f"source env.sh\nA=1\nread A\nfor B in 1 $Z; do :; done\n{SERVER} $A $B $C\n")
    whys = [word.why or "" for word in found.words]
    assert "`read` sets it" in whys[0]
    assert "several values" in whys[1]
    assert "it reads env.sh" in whys[2]


def test_exports_and_env() -> None:
    found = shell(
        "export A=1 B='2 3'\nC=4\nD=5\nexport D\nexport E=6\nunset E\nF=7\n"
        f"set -a\nH=8\nset +a\nG=9 env -u B I=10 {SERVER}\n"
    )
    assert env(found) == {"A": "1", "D": "5", "H": "8", "G": "9", "I": "10"}
    assert dropped(found) == ["-u B"]


def test_wrappers_and_redirections_are_dropped_with_a_reason() -> None:
    found = shell(f"nohup numactl --cpunodebind=0 -m 0 {SERVER} --tp 8 2>&1 | tee log &\n")
    assert texts(found) == ["--tp", "8"]
    assert dropped(found) == ["nohup", "numactl --cpunodebind=0 -m 0", "2>&1", "| tee log"]
    assert all(item.why for item in found.dropped)
    assert "&" in dropped(shell(f"{SERVER} > log &\n"))


def test_docker_run() -> None:
    script = (
        "export HF_TOKEN=secret OTHER=1\n"
        "sudo docker run -d --rm --gpus '\"device=0,1\"' -it --shm-size 32g -p 1:2 \\\n"
        "  -e A=1 --env 'B=2 3' -eC=4 --env=D=5 -e HF_TOKEN -e NONE --env-file f \\\n"
        "  --name srv --ipc=host lmsysorg/sglang:latest \\\n"
        "  python3 -m sglang.launch_server --tp 2\n"
    )
    found = shell(script)
    assert texts(found) == ["--tp", "2"]
    assert found.name == "srv"
    assert env(found) == {
        "HF_TOKEN": "secret", "NONE": "NONE", "A": "1", "B": "2 3", "C": "4", "D": "5",
    }  # fmt: skip
    assert not found.env["NONE"].evaluated
    assert at(found.env["A"]) == (3, 8)
    assert "lmsysorg/sglang:latest" in dropped(found)
    assert '--gpus "device=0,1"' in dropped(found)
    entry = shell("docker run --entrypoint python3 img -m sglang.launch_server --tp 2\n")
    assert texts(entry) == ["--tp", "2"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--env B=2", {"A": "1", "B": "2"}),
        ("--nv --env=B=2,C=3 -B /x:/y", {"A": "1", "B": "2", "C": "3"}),
        ('--env B=0,1,2 --env "C=x y"', {"A": "1", "B": "0,1,2", "C": "x y"}),
        ("--env B=1,2,C=$A,D=", {"A": "1", "B": "1,2", "C": "1", "D": ""}),
        ("--env A=2", {"A": "2"}),
        ("-e --env B=2", {"B": "2"}),
        ("--env B=2 --cleanenv", {"B": "2"}),
        ("--containall", {}),
        ("--env B=/opt/conda --pwd /", {"A": "1", "B": "/opt/conda"}),
    ],
)
@pytest.mark.parametrize("tool", ["apptainer", "singularity"])
def test_the_environment_of_apptainer(tool: str, options: str, expected: dict[str, str]) -> None:
    found = shell(f"export A=1\n{tool} exec {options} i.sif {SERVER} --tp 2\n")
    assert texts(found) == ["--tp", "2"]
    assert env(found) == expected
    assert not any("--env" in text for text in dropped(found))


def test_variables_of_apptainer_have_places_and_its_file_is_reported() -> None:
    script = f"apptainer exec --env B=2,C=3 --env-file x.env i.sif bash -c '{SERVER} --tp $C'\n"
    found = shell(script)
    assert [at(word) for word in found.env.values()] == [(1, 24), (1, 28)]
    assert texts(found) == ["--tp", "3"]
    (file,) = (item for item in found.dropped if item.text == "--env-file x.env")
    assert "the variables in that file are not read" in file.why


@pytest.mark.parametrize("wrapper", ["env", "docker run -e", "apptainer exec --env"])
def test_an_empty_default_before_a_command(wrapper: str) -> None:
    image = "" if wrapper == "env" else "image"
    found = shell(f'{wrapper} TOKEN="${{TOKEN:-}}" {image} {SERVER} --tp 2\n').env["TOKEN"]
    assert found.text == "" and [default.name for default in found.defaults] == ["TOKEN"]


def test_a_shell_in_a_command() -> None:
    script = (
        "export TP=8\nLOCAL=1\n"
        'docker run -e X=2 img bash -lc "cd /x && python3 -m sglang.launch_server \\\n'
        "  --model 'a b' --x \\$X --tp $TP --y \\$LOCAL\"\n"
        "bash -c 'sglang serve --tp $TP --local $LOCAL --arg $1' name one\n"
    )
    first, second = read_shell(script, "x.sh").invocations
    assert texts(first) == ["--model", "a b", "--x", "2", "--tp", "8", "--y", "$LOCAL"]
    assert at(first.words[1]) == (4, 11)
    assert env(first) == {"X": "2"}
    assert texts(second) == ["--tp", "8", "--local", "$LOCAL", "--arg", "one"]
    assert at(second.words[0]) == (5, 23)
    assert env(second) == {"TP": "8"}


def test_quotes_of_an_unknown_value_do_not_end_a_script_in_a_word() -> None:
    inner = f"docker exec node bash -c '{SERVER} $ARGS --tp 2'"
    reading = read_shell(f'ARGS=$(printf \'%q \' "$@")\nsrun bash -c "{inner}"\n', "x.sh")
    (found,) = reading.invocations
    assert not reading.misread
    assert texts(found)[-2:] == ["--tp", "2"]
    assert not found.words[0].evaluated


def test_an_unknown_value_in_the_single_quotes_of_an_inner_script() -> None:
    script = (
        "IP=$(hostname)\n"
        "bash -c \"sglang serve --model '$MODEL' --x '$IP:5000' --tp 2"
        " && bash -c 'sglang serve --y $Y --z 3'\"\n"
    )
    first, second = read_shell(script, "x.sh").invocations
    assert texts(first) == ["--model", "$MODEL", "--x", "$(hostname):5000", "--tp", "2"]
    assert [word.evaluated for word in first.words] == [True, False, True, False, True, True]
    assert "`MODEL` is not set" in (first.words[1].why or "")
    assert "is not run" in (first.words[3].why or "")
    assert texts(second) == ["--y", "$Y", "--z", "3"]
    assert [word.evaluated for word in second.words] == [True, False, True, True]


def test_commands_in_variables_and_eval() -> None:
    script = f'CMD="{SERVER} --tp 8"\neval "$CMD --dp 2"\nRUN=({SERVER} --tp 4)\n"${{RUN[@]}}"\nnohup $CMD &\n'
    found = read_shell(script, "x.sh").invocations
    assert [texts(one) for one in found] == [
        ["--tp", "8", "--dp", "2"],
        ["--tp", "4"],
        ["--tp", "8"],
    ]
    assert at(found[0].words[1]) == (1, 43)
    assert at(found[0].words[3]) == (2, 17)


def test_commands_of_an_interpreter_in_a_variable_have_places() -> None:
    start = '"$PY" -m sglang.launch_server --port {}\n'
    found = read_shell(f"PY=/opt/bin/python\n{start.format(1)}{start.format(2)}", "x.sh")
    assert [(one.place.line, one.place.column) for one in found.invocations] == [(2, 1), (3, 1)]


def test_several_commands_in_a_file() -> None:
    script = (
        f"{SERVER} --disaggregation-mode prefill --port 1 &\n"
        f"{SERVER} --disaggregation-mode decode --port 2 & {SERVER} --port 3; ({SERVER} --port 4)\n"
        f"PID=$({SERVER} --port 5 & echo $!)\nX=$(nohup {SERVER} --port 6 & echo $!) true\n"
    )
    found = read_shell(script, "x.sh").invocations
    assert [texts(one)[-1] for one in found][:4] == ["1", "2", "3", "4"]


def test_conditions_are_not_evaluated() -> None:
    script = (
        "ARGS=(--a)\n"
        'if [ "$FAST" = 1 ]; then\n  ARGS+=(--fast)\n  MODE=x\nelif y; then MODE=y; else MODE=z; fi\n'
        "case $1 in\n  a|b) TP=1;;\n  *) TP=1 ;;\nesac\n"
        f'while true; do\n  {SERVER} "${{ARGS[@]}}" --mode $MODE --tp $TP\ndone\n'
    )
    found = shell(script)
    assert texts(found) == ["--a", "--fast", "--mode", "$MODE", "--tp", "1"]
    assert found.words[0].why is None
    assert found.words[1].condition == "only under the condition of line 2"
    assert "depends on a condition (x, y, z)" in (found.words[3].why or "")
    assert [(item.text, item.place.line) for item in found.dropped] == [("while true", 10)]


def test_one_number_is_no_longer_version_of_another() -> None:
    found = shell(f"TP=1\nif x; then TP=16; fi\n{SERVER} --tp $TP\n")
    assert not found.words[1].evaluated


def test_functions_are_read_where_they_are_called() -> None:
    script = (
        "launch() {\n  local port=$1; shift\n"
        f'  CUDA_VISIBLE_DEVICES=$GPU {SERVER} --port $port "$@" --model $MODEL\n}}\n'
        "MODEL=m GPU=0\nlaunch 1 --disaggregation-mode prefill\nlaunch 2 --x 'a b'\n"
        f"function unused {{ {SERVER} --port $1; }}\n"
    )
    found = read_shell(script, "x.sh").invocations
    assert [texts(one) for one in found] == [
        ["--port", "1", "--disaggregation-mode", "prefill", "--model", "m"],
        ["--port", "2", "--x", "a b", "--model", "m"],
        ["--port", "$1"],
    ]
    assert at(found[0].words[1]) == (6, 8)
    assert env(found[0]) == {"CUDA_VISIBLE_DEVICES": "0"}


def test_a_comment_ends_a_continued_command() -> None:
    reading = read_shell(f"{SERVER} \\\n  --tp 2 \\\n  # --dp 2 \\\n  --port 1\n", "x.sh")
    assert texts(reading.invocations[0]) == ["--tp", "2"]
    (problem,) = reading.problems
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (4, 3)
    assert "a comment ended the command" in (problem.help or "")


def test_a_blank_after_the_backslash_ends_a_command() -> None:
    reading = read_shell(f"{SERVER} --tp 2 \\ \n  --port 1\n", "x.sh")
    assert len(reading.problems) == 1


def test_comments_above_belong_to_a_command() -> None:
    found = shell(f"#!/bin/sh\n# not this\n\n# one\n# two\n{SERVER} --tp 2  # three\n# four\n")
    assert [comment.text for comment in found.comments] == ["one", "two", "three"]


def test_a_here_document_of_a_python_in_a_container_is_no_script() -> None:
    program = 'assert any(\n    "sglang serve" in line\n    for line in lines\n)\n'
    reading = read_shell(f"sudo docker exec -i c python3 - <<'PY'\n{program}PY\n", "x.sh")
    assert (reading.invocations, reading.problems) == ((), ())


def test_here_documents_are_stepped_over() -> None:
    found = shell(
        f"cat <<'A' <<-B > f\n'\nA\n\"\n\tB\n{SERVER} --x \"$(cat <<EOF\n{{\"a\": 1}}\nEOF\n)\" --y <<< '('\n"
    )
    assert texts(found) == ["--x", '{"a": 1}', "--y"]


@pytest.mark.parametrize("redirect", ["> >(tee log)", "2> >(tee -a 'x y' >&2)", "< <(true | cat)"])
def test_a_process_behind_a_redirection_is_no_word(redirect: str) -> None:
    assert texts(shell(f"{SERVER} --tp 2 {redirect} --port 1\n")) == ["--tp", "2", "--port", "1"]
    found = shell(f"while read a; do true; done {redirect}\n{SERVER} --tp 2\n")
    assert texts(found) == ["--tp", "2"]


def test_windows_line_ends_and_a_byte_order_mark() -> None:
    found = shell(f"A=1\r\n{SERVER} \\\r\n  --tp $A\r\n")
    assert texts(found) == ["--tp", "1"]
    assert at(found.words[0]) == (3, 3)
    (told,) = read_shell(f"# a\r\nA=1\r\n{SERVER} \\\r\n  --tp $A\r\n", "x.sh").misread
    assert told.place is not None
    assert (told.place.line, told.place.column) == (2, 3)


def test_fragments_with_slips_still_give_their_commands() -> None:
    assert texts(shell(f"fi; done }} ) ;;\n{SERVER} --tp 2\n")) == ["--tp", "2"]
    assert texts(shell(f"if x; then\n{SERVER} --tp 2\n")) == ["--tp", "2"]


@rows(
    "script, line, column, message",
    [
        ("a\nb 'c\nd", 2, 3, "a single quote is not closed"),
        ('x "a\n', 1, 3, "a double quote is not closed"),
        ("x $'a\\'", 1, 3, "a single quote is not closed"),
        ("A=( a b\n", 1, 1, "an array `( … )` is not closed"),
        ("x $(a", 1, 3, "`$(` is not closed"),
        ("x ${a:-b", 1, 3, "`${` is not closed"),
        ("x `a", 1, 3, "a backtick is not closed"),
        ("(a", 1, 1, "`(` is not closed"),
        ("a\n[[ b", 2, 1, "`[[` is not closed"),
    ],
)
def test_what_cannot_be_read_hides_nothing_else(
    script: str, line: int, column: int, message: str
) -> None:
    template = f"{SERVER} --port 1\n{{}}\n{SERVER} --port 2 --served-model-name 'it is'\n"
    reading = read_shell(template.format(script), "x.sh")
    assert [texts(found)[1] for found in reading.invocations] == ["1", "2"]
    (problem,) = reading.unread
    assert problem.place is not None
    assert problem.place.line == line + 1
    (problem,) = read_shell(script, "x.sh").unread
    assert message in problem.message
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (line, column)


def test_a_nul_byte_is_no_text() -> None:
    with pytest.raises(InputError) as caught:
        read_shell("a\n\0", "x.sh")
    (problem,) = caught.value.problems
    assert problem.place is not None
    assert (problem.message[:10], problem.place.line) == ("a NUL byte", 2)


def test_asking_for_help_starts_nothing() -> None:
    for script in (
        f"{SERVER} --help | grep speculative",
        "sglang serve -h",
        f"docker run image {SERVER} --model-path m --help",
        f"bash -c '{SERVER} --help'",
    ):
        assert not read_shell(script + "\n", "x.sh").invocations, script


def test_models_of_images_have_another_server() -> None:
    """`sglang serve` chooses it by the checkpoint; its options are not ours."""
    for words in (
        "--num-gpus 4",
        "--ulysses-degree=2",
        "--model-type=diffusion",
        "--dit-cpu-offload true",
    ):
        assert not read_shell(f"sglang serve --model-path Wan/x {words}\n", "x.sh").invocations
    assert read_shell(f"{SERVER} --model-path m --num-gpus 4\n", "x.sh").invocations


def test_a_function_is_read_for_the_arguments_of_its_call() -> None:
    script = f"""\
start() {{
  kind=$1
  shift
  if [ "$kind" = "sglang" ]; then
    {SERVER} --model-path "$@"
  elif [[ "$kind" == vllm ]]; then
    vllm serve "$@"
  fi
}}
"""
    reading = read_shell(f"{script}start vllm a --max-model-len 8\nstart sglang b --tp 2\n", "x.sh")
    assert [texts(one) for one in reading.invocations] == [["--model-path", "b", "--tp", "2"]]
    for call in ("start $KIND c\n", 'start "${1:-vllm}" c\n', ""):  # it is not known
        assert read_shell(script + call, "x.sh").invocations, call
    toggled = f'USE=0\nf() {{\n[ "$USE" = 1 ] && true\nif [ "$USE" = 1 ]; then {SERVER} --tp 2; fi\n}}\nf x\n'
    assert read_shell(toggled, "x.sh").invocations, "a switch in the file is no argument"


def test_manifests_in_here_documents() -> None:
    pod = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [python3, -m, sglang.launch_server, --tp, "2", --host, "\\$(IP)"]
EOF
"""
    for start in (
        "cat <<EOF | kubectl apply -f -",
        "kubectl apply -f - <<EOF",
        "cat > x.yaml <<EOF",
    ):
        text = f"#!/bin/bash\n{start}\n{pod}"
        found = shell(text)
        assert texts(found)[:3] == ["--tp", "2", "--host"], start
        assert at(found.words[1]) == (7, 57)
        assert not found.words[3].evaluated
        assert found.read_only
    assert not read_shell(f"cat <<EOF\n{pod}", "x.sh").invocations
    broken = read_shell("kubectl apply -f - <<EOF\na: [\n- sglang.launch_server\nEOF\n", "x.sh")
    assert broken.problems
    assert not broken.invocations


def test_a_function_that_starts_its_arguments_elsewhere() -> None:
    script = f"""\
on() {{ ssh "$1" "${{@:2}}"; }}
remote_docker() {{
  local quoted=() word
  for word in "$@"; do quoted+=("$(printf '%q' "$word")"); done
  ssh "$HOST" "docker ${{quoted[*]}}"
}}
say() {{ echo "$*" >> log; }}
on first {SERVER} --tp 1
remote_docker run --entrypoint python3 image -m sglang.launch_server --tp 2
say {SERVER} --tp 3
"""
    found = read_shell(script, "x.sh").invocations
    assert [texts(one) for one in found] == [["--tp", "1"], ["--tp", "2"]]


def test_arguments_of_an_unknown_number_hide_none_before_them() -> None:
    script = (
        f'start() {{ local model=$1 tp=$2; shift; shift; {SERVER} --model $model --tp $tp "$@"; }}\n'
        'first() { local more=("$@"); start a 4 "${more[@]}"; }\n'
        'first "$@"\nstart "$@" 8\n'
    )
    found = read_shell(script, "x.sh").invocations
    assert [texts(one) for one in found] == [
        ["--model", "a", "--tp", "4", "$@"],
        ["--model", "$1", "--tp", "$2", "$@"],
    ]
    assert [[word.text for word in one.words if not word.evaluated] for one in found] == [
        ["$@"],
        ["$1", "$2", "$@"],
    ]


def test_eval_does_not_mistake_the_arguments_of_another_function() -> None:
    script = f"""\
inside="docker exec box bash -c"
track() {{ local command="$1"; eval "$command"; }}
start() {{ track "${{inside}} \\"{SERVER} --model-path $1 --port $2\\"" pattern file; }}
"""
    found = shell(script)
    assert texts(found) == ["--model-path", "$1", "--port", "$2"]
    assert [word.evaluated for word in found.words] == [True, False, True, False]


@over(
    [
        *("((X=9**1))", "((X++, Y++))", "while ((X += 1)); do y; done", "y $((++X))"),
        *("let X=9 Y=1", 'let "X = Y = 1"', "for i in a $Z; do ((X++)); done"),
        *("for ((X=0; X<Z; X++)); do y; done", "Y=$((X <<= 1))", "((X[0]++))", "((X=Z=1))"),
    ]
)
def test_a_variable_that_arithmetic_sets_is_unknown(line: str) -> None:
    assert not shell(f"X=8\n{line}\n{SERVER} --x $X\n").words[1].evaluated


@over(
    [
        *("((X=9))", "((X++))", "(( ++X ))", "if ((X += 1)); then y; fi", "let X=9"),
        *("for i in a; do ((X++)); done", 'let "X += 1"', "X=$((X + 1))"),
    ]
)
def test_a_variable_that_a_command_counts(line: str) -> None:
    assert shell(f"X=8\n{line}\n{SERVER} --x $X\n").words[1].text == "9"


@over(["${X:-2} * 4", "${X-2}*4", "Y + ${Z:-1}"])
def test_arithmetic_with_a_default(expression: str) -> None:
    assert shell(f'Y=7\n{SERVER} --x "$(( {expression} ))"\n').words[1].text == "8"
    assert not shell(f"X=$(date)\n{SERVER} --x $((${{X:-2}}))\n").words[1].evaluated


@over(["((X == 9))", "((X <= 9)) && y", "let Y=X", "((X))", "for ((i=0; i<X; i++)); do y; done"])
def test_a_variable_that_arithmetic_reads_is_known(line: str) -> None:
    assert shell(f"X=8\n{line}\n{SERVER} --x $X\n").words[1].text == "8"


def test_notes_with_commands_are_no_script() -> None:
    """Bash rejects many lines of notes; nobody runs the file."""
    notes = "".join(f"Option {n} (recommended):\n{SERVER} --tp {n}\n" for n in range(6))
    for head, errors in (("", False), ("#!/bin/bash\n", True)):
        reading = read_shell(head + notes, "notes.sh")
        assert bool(reading.unread) is errors
        assert [one.words[1].text for one in reading.invocations] == list("012345")
    assert read_shell(notes[:60], "x.sh").unread
