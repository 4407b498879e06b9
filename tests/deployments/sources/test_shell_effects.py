"""What commands and conditions leave in variables: the value that bash passes, or an unknown one."""

from __future__ import annotations

from speclaunch.deployments.sources.files import read_shell, read_text
from speclaunch.deployments.sources.requests import from_invocation
from speclaunch.engine import load
from tests.support.deployments.sources.helpers import SERVER, shell
from tests.support.loops import rows

OPTIONS = "M=\nwhile [ $# -gt 0 ]; do case $1 in --m) M=$2; shift 2;; esac; done\n"
UNKNOWN = [
    OPTIONS + 'TP="${M:-$(x)}"\n[ -z "$TP" ] && TP=4',
    OPTIONS[3:] + "if [ -d /x ]; then :; else M=8; fi\nTP=${M:-4}",
    OPTIONS[3:] + "if [ -d /x ]; then M=8; fi\nTP=${M:-4}",
    'TP=1\neval "TP=4"',
    "TP=1\neval TP=4",
    'TP=1\nV=A\nA=4\neval "TP=\\$$V"',
    "IFS=,\nTP=4,8",
    "TP=4\ndeclare -n R=TP\nR=8",
    "declare -i TP=2+2",
    "declare -l TP=A",
    "A=(1 2)\nunset 'A[0]'\nTP=${A[0]}",
    "A=([2]=a)\nTP=${A[2]}",
    "A=(1 2)\nA=3\nTP=${A[0]}",
    "A=([2]=a)\nfor i in ${!A[@]}; do TP=$i; done",
    "declare -A A=([2]=a)\nfor i in ${!A[@]}; do TP=$i; done",
    "[ -d /x ] && A=(1 2)\nfor i in ${!A[@]}; do TP=$i; done",
    "TP=${RANDOM:-4}",
    "N=010\nTP=$((N+1))",
    "TP=2\nf() { [ -d /x ] && return; TP=4; }\nf",
    "TP=2\nf() { if [ -d /x ]; then return 0; fi; TP=4; }\nf",
    "TP=2\nf() { [ -d /x ] || return 0; TP=4; }\nf",
    "TP=2\nf() { if a; then if b; then return; fi; fi; TP=4; }\nf",
    "TP=2\nf() { for x in a b; do [ $x = b ] && return 0; done; TP=4; }\nf",
    "[ -d /x ] && D=/x/4\nTP=${D##*/}",
    "A=()\n[ -d /x ] && A+=(y)\nTP=${#A[@]}",
    "X=$(false) && TP=4 || TP=8",
    "N=0\nTP=2\nfor g in 0 $Z; do\nif [ $N = 1 ]; then TP=4; fi\nN=1\ndone",
    "f() { if [ $# -gt 1 ]; then TP=1; else TP=2; fi; }\nf ${X}",
    "if [ -f /x ]; then TP=2; else TP=4; fi",
    'if [ -z "$X" ]; then TP=2; else TP=4; fi',
    "case b in [a-z]) TP=2;; *) TP=4;; esac",
    "case a in a) TP=2;;& *) TP=4;; esac",
    "if [[ b > a ]]; then TP=2; else TP=4; fi",
    "N=3\nif (( N > 2 && N < 3 )); then TP=2; else TP=4; fi",
    "A=(1 $X)\nTP=${#A[@]}",
    "A=($X)\n[ ${#A[@]} -gt 0 ] && TP=2",
    "read -a A\nA+=(1)\nTP=${A[0]}",
    "read -d , TP <<< 4,5",
    "read TP B <<< '4 5 6'",
    "read TP <<< '4\\\\'",
    "IFS=', ' read TP B <<< 4,5",
    "IFS= read TP <<< 4",
    "mapfile TP <<< 4",
    "[ -d /x ] && L=4\nread TP <<< $L",
    "read TP < /x",
    "export TP={1,2}",
    "X=$(x)\nTP=${X:+4}",
    "[ -d /x ] && X=1\nTP=${X:+4}",
    "TP=1\nf() { while [ $# -gt 0 ]; do case $1 in a) shift;; b) TP=$2; shift 2;; esac; done; }\nf a b 4",
    "f() { TP=$1; while [ $# -gt 0 ]; do TP=$1; shift; done; }\nf 2 4",
    'set -- ${#A[@]} 4\nTP=2\nfor TP in "$@"; do x; done',
    "if a; then TP=7; fi\nif b; then TP=7; fi",
    "for i in a b; do if [ -d $i ]; then TP=7; fi; done",
    "declare -A T=([a]=2)\nT[$Z]=4\nTP=${T[a]}",
    "declare -A T=([a]=2)\nTP=${T[b]}",
    "declare -A T=([a]=2)\n[ -d /x ] && T[a]=4\nTP=${T[a]}",
    "declare -A T=([a]=2)\nT[a]+=4\nTP=${T[a]}",
    "declare -A T=([a]=2)\nunset 'T[a]'\nTP=${T[a]}",
    "declare -A T=([a]=2)\nT=([a]=4)\nTP=${T[a]}",
    "declare -A T=([a]=2)\nTP=${T[$Z]}",
    "f() { local -A T=([a]=2); }\nf\nTP=${T[a]}",
    "declare -A T=([$Z]=2 [a]=4)\nTP=${T[a]}",
    "declare -Ai T=([a]=2+2)\nTP=${T[a]}",
]


@rows("script", UNKNOWN)
def test_a_value_that_the_reader_cannot_prove(script: str) -> None:
    found = shell(f"{script}\n{SERVER} --a $TP\n")
    assert not found.words[1].evaluated or found.words[1].condition, found.words[1]


KNOWN = [
    ("TP=4\n{ TP=8; true; } | cat", "4"),
    ("TP=4\nf() { TP=8; }\nf | cat", "4"),
    ("TP=4\nf() { TP=8; }\nf &", "4"),
    ("TP=4\ntrue | TP=8", "4"),
    ("f() { TP=8; return 0; TP=9; }\nf", "8"),
    ("set -e\nset 4\nTP=$1", "4"),
    ("set -eo pipefail\nset -e 4 5\nTP=$#", "2"),
    ("IFS=,\nA=(1 2)\nTP=\"${A[*]}\"", "1,2"),
    ("X=1\nif ! [ $X = 1 ]; then TP=2; else TP=4; fi", "4"),
    ("X=1\nif [[ $X == 2 || ( -z $Z && $X == 1 ) ]]; then TP=2; else TP=4; fi\nTP=4", "4"),
    ("X=1\nif [[ $X == 2 || ( $X == 1 ) ]]; then TP=2; else TP=4; fi", "2"),
    ("X=1\nif [ $X -ge 2 ]; then TP=2; elif (( X >= 1 )); then TP=4; fi", "4"),
    ("M=Qwen/x\nif [[ $M == Qwen* ]]; then TP=2; else TP=4; fi", "2"),
    ("M=Qwen/x\nif [[ $M == \"Qwen*\" ]]; then TP=2; else TP=4; fi", "4"),
    ("case Q3.8 in *[Qq]3.[5-9]*) TP=2;; *) TP=4;; esac", "2"),
    ("case 3 in [!0-2]) TP=2;; *) TP=4;; esac", "2"),
    ("M=b\ncase $M in (a) TP=1;; b|c) TP=2;; *) TP=4;; esac", "2"),
    ("case \"$X\" in a) TP=2;; *) exit 1;; esac", "2"),
    ("D=false\nif $D; then TP=1; else TP=2; fi", "2"),
    ("X=2\n[ $X = 1 ] && TP=2 || TP=4", "4"),
    ("TP=4\nfalse && TP=8", "4"),
    ("X=a\nTP=${X: -2}4", "4"),
    ("A=(\"$X\" \"$Y\")\nTP=${#A[@]}", "2"),
    ("IFS=',' read -ra A <<< 1,2,4,\nTP=${A[2]}${#A[@]}", "43"),
    ("L='4  5 '\nread -r A B C <<< \"$L\"\nTP=$A$B$C", "45"),
    ("IFS=: read -r A B <<< a::\nTP=$A${B}4", "a4"),
    ("A=4\nread A <<< ''\nTP=${A:-8}", "8"),
    ("read -ra A <<< ''\nTP=${#A[@]}", "0"),
    ("mapfile -t A <<< $'1\\n4'\ni=1\nTP=${A[$i]}", "4"),
    ("IFS=, read -ra A <<< 1,2\nB='4 5'\nfor b in $B; do TP=$b; done", "5"),
    ("A=(7 8)\nfor i in \"${!A[@]}\"; do TP=$i${A[$i]}; done", "18"),
    ("f() { case $1 in a) TP=2;; *) TP=4;; esac; }\nf a", "2"),
    ("declare -A T=([a]=2 [b-1]=4)\nK=b-1\nTP=${T[$K]}", "4"),
    ("declare -A T\nT[a]=2\nT[b]=4\nTP=${T[b]}", "4"),
    ('declare -A T=(["a"]="2")\nf() { TP="${T[$1]}"; }\nf a', "2"),
    ("declare -A T=([a]=2)\ndeclare -A T\nTP=${T[a]:-4}", "2"),
    ("declare -A T=([a]=2)\nunset T\ndeclare -A T=([a]=4)\nTP=${T[a]}", "4"),
]  # fmt: skip


@rows("script, value", KNOWN)
def test_a_value_that_the_file_decides(script: str, value: str) -> None:
    found = shell(f'{script}\n{SERVER} --a "$TP"\n').words[1]
    assert (found.text, found.evaluated, found.condition, found.why) == (value, True, None, None)


GETOPT = 'O=$(getopt -o t: --long tp: -- "$@") || exit 1\neval set -- "$O"\nwhile true; do case'
DEFAULTS = [
    (f"TP=2\n{GETOPT} $1 in --tp) TP=$2; shift 2;; --) shift; break;; esac; done", "2", "arguments"),
    (f'TP=2\n{GETOPT} "${{1}}" in -t|--tp)\nTP=$2\n;; -- )\nbreak ;; esac; shift; done', "2", "arg"),
    ('MODE="${MODE:-fast}"\ncase "$MODE" in fast) TP=4;; slow) TP=8;; esac', "4", "MODE"),
    ("X=${X:-0}\nif [ $X = 1 ]; then TP=2; else TP=4; fi", "4", "`X`"),
    ("X=${X:-}\nTP=2\n[[ -n $X ]] && TP=4", "2", "`X`"),
    ("M=${1:-a}\ncase $M in a) TP=2;; *) TP=4;; esac", "2", "argument 1"),
    ("TP=2\nwhile [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; esac; done", "2", "argum"),
    ("TP=2\nwhile getopts t: o; do TP=$OPTARG; done", "2", "arguments"),
    ('TP=2\nfor a in "$@"; do TP=$a; done', "2", "arguments"),
    ('TP=2\np() { while [ $# -gt 0 ]; do TP=$1; shift; done; }\np "$@"', "2", "arguments"),
    ("if [ -n \"$1\" ]; then TP=$1; else TP=4; fi", "4", "arguments"),
    ("N=${N:-3}\nTP=$((N + 1))", "4", "`N`"),
    ("N=${N:-4}\nTP=$(echo $N)", "4", "`N`"),
    ("A=(${L:-1 2})\nTP=${#A[@]}", "2", "`L`"),
    (OPTIONS + "TP=${M:-4}", "4", "arguments"),
    (OPTIONS + 'TP="4${M:+8}"', "4", "arguments"),
    ("D=${D:-0,1}\nIFS=, read -ra A <<< $D\nTP=${TP:-$(( ${#A[@]} * 2 ))}", "4", "`D`"),
    ("M=${1:-}\nTP=${M:-4}", "4", "argument 1"),
    (OPTIONS[3:] + "TP=${M:-4}", "4", "arguments"),
    (OPTIONS[3:].replace("--m", "--t").replace("M", "TP") + ': "${TP:=4}"', "4", "arguments"),
    ("while getopts t: o; do TP=$OPTARG; done\nTP=${TP:-4}", "4", "arguments"),
]  # fmt: skip


@rows("script, value, why", DEFAULTS)
def test_the_branch_that_the_defaults_select(script: str, value: str, why: str) -> None:
    found = shell(f"{script}\n{SERVER} --a $TP\n").words[1]
    assert (found.text, found.evaluated, found.condition) == (value, True, None)
    assert why in (found.why or "")


def test_what_another_branch_would_add_by_default() -> None:
    script = 'X=${X:-}\nA=(--a 1)\nif [ -n "$X" ]; then A+=(--b 2); fi\n'
    words = shell(f'{script}{SERVER} "${{A[@]}}"\n').words
    assert [word.condition is None for word in words] == [True, True, False, False]
    assert "line 3; by default it does not hold" in (words[2].condition or "")
    assert (
        shell(f"{script}if [ ${{#A[@]}} = 2 ]; then B=1; else B=2; fi\n{SERVER} $B\n").words[0].text
        == "1"
    )


def test_the_variable_before_a_function_and_a_command_of_several_words() -> None:
    assert shell(f"f() {{ {SERVER} --a $X; }}\nX=1\nX=2 f\n").words[1].text == "2"
    assert shell(f"C=\"{SERVER} --a 'b c'\"\neval $C\n").words[1].text == "b c"
    calls = read_shell(
        f"f() {{ case $1 in a) {SERVER} --a;; b) {SERVER} --b;; esac; }}\nf b\n", "x.sh"
    )
    assert [word.text for one in calls.invocations for word in one.words] == ["--b"]


def test_the_variables_of_a_batch_job() -> None:
    head = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=gpu:h100:8 --ntasks=4\n"
    script = f"{SERVER} --a $SLURM_NNODES --b ${{SLURM_NTASKS:-1}} --c $((SLURM_GPUS_ON_NODE*2))"
    words = shell(f"{head}{script} --d $SLURM_NODEID\n").words
    assert [word.text for word in words if word.evaluated][1::2] == ["2", "4", "16"]
    assert "-N" not in (words[1].why or "")
    assert "`--nodes` of this script" in (words[1].why or "")
    step = f"bash -c '{SERVER} --a $SLURM_NNODES'\n"
    assert shell(f"{head}srun {step}").words[1].text == "2"
    assert not shell(f"{head}srun -N1 {step}").words[1].evaluated
    ranged = head.replace("-N 2", "-N 1-4")
    assert not shell(f"{ranged}{SERVER} --a $SLURM_NNODES\n").words[1].evaluated


def test_the_image_of_a_container_that_runs() -> None:
    start = "docker run -d --name sgl -v a:b lmsysorg/sglang:v0.5.5 sleep 9\n"
    for command in (f"docker exec sgl {SERVER}", f"docker exec -it sgl bash -c '{SERVER}'"):
        assert shell(f"{start}{command}\n").image == "lmsysorg/sglang:v0.5.5", command
    assert shell(f"docker exec other {SERVER}\n").image == "other"
    assert shell(f"apptainer exec --nv -B /a /b/sglang.sif {SERVER}\n").image == "/b/sglang.sif"


def test_calls_whose_arguments_differ_by_a_condition() -> None:
    script = f'f() {{ local b=; [ "$1" = x ] && b=--b; {SERVER} --a $b; }}\nf x\nf y\n'
    first, second = read_shell(script, "x.sh").invocations
    assert (first.words[1].condition, second.words[1].condition is None) == (None, False)


@rows(
    "script",
    [
        'X="${X:-0}"\n[ "$X" -gt 0 ] && A+=(--tp "$X")',
        'X="${X:-0}"\nif [[ "$X" -gt 0 ]]; then A+=(--tp "$X"); fi',
        'X="${X:-no}"\nif [ "$X" != no ]; then A+=(--tp "$X"); fi',
    ],
)
def test_a_default_that_a_condition_excludes_is_unknown_under_it(script: str) -> None:
    found = shell(f'A=(--n 1)\n{script}\n{SERVER} "${{A[@]}}" --x $X\n')
    words = {word.text: word.evaluated for word in found.words}
    assert not words["$X"] and words["no" if "no" in script else "0"]


LOOPS = [
    ("for i in 0 1; do {};", "--a $((8 + i))", ["8", "9"]),
    ("for i in {0..1}; do {};", "--a $i", ["0", "1"]),
    ("for i in $(seq 0 1); do P=$((8 + i)); {};", "--a $P", ["8", "9"]),
    ("A=(x y)\nfor i in \"${A[@]}\"; do {};", "--a $i", ["x", "y"]),
    ("N=2\nfor ((i=0; i<N; i++)); do {};", "--a $((8 + i))", ["8", "9"]),
    ("for (( i = 4; i >= 0; i -= 2 )) do {};", "--a $i", ["4", "2", "0"]),
    ("for i in a b; do for j in 1 2; do {}; done;", "--a $i$j", ["a1", "a2", "b1", "b2"]),
    ("for i in a b; do while true; do ready && break; done; {};", "--a $i", ["a", "b"]),
    ("f() { {}; }\nfor i in a b; do f $i;", "--a $1", ["a", "b"]),
    ("n=0\nfor i in a b; do ((n++)); {};", "--a $n", ["1", "2"]),
    ("TP=1\nfor i in a b; do TP=$TP$i; done; {}; for i in; do x;", "--a $TP", ["1ab"]),
    ("for i in a b; do i=x$i; done; {}; for i in; do x;", "--a $i", ["xb"]),
    ("for ((i=0; i<3; i++)); do x; done; {}; for i in; do x;", "--a $i", ["3"]),
    ("N=${N:-2}\nfor ((i=0; i<N; i++)); do {};", "--a $i", ["0", "1"]),
]  # fmt: skip


@rows("loop, words, values", LOOPS)
def test_a_loop_over_known_items(loop: str, words: str, values: list[str]) -> None:
    script = loop.replace("{}", f"{SERVER} {words}") + " done\n"
    found = read_shell(script, "x.sh").invocations
    assert [one.words[1].text for one in found] == values
    assert all(one.words[1].evaluated and not one.words[1].condition for one in found)
    assert all(
        ("the default of `N`" in (one.words[1].why or "")) == ("N:-" in loop) for one in found
    )


ALTERNATIVES = [
    ('A=(--x "b c")', '"${A[@]+"${A[@]}"}"', ["--x", "b c"]),
    ('A=(--x "b c")', '${A[@]+"${A[@]}"}', ["--x", "b c"]),
    ('A=()', '"${A[@]+"${A[@]}"}" --e', ["--e"]),
    ('A=()', '"${A[@]:+x}" --e', ["--e"]),
    ("A=x", '"${A:+b c}" ${A:+--f $A}', ["b c", "--f", "x"]),
    ("A=", '"${A:+b}"', [""]),
]  # fmt: skip


@rows("script, words, texts", ALTERNATIVES)
def test_the_words_for_a_variable_that_is_set(script: str, words: str, texts: list[str]) -> None:
    found = shell(f"{script}\n{SERVER} {words}\n").words
    assert [word.text for word in found] == texts
    assert all(word.evaluated for word in found)


UNKNOWN_LOOPS = [
    "for i in 1 2 $X; do {}; done",
    "for i in 1 2; do x && break; {}; done",
    "for i in 1 2; do if x; then continue; fi; {}; done",
    "for i in {1..17}; do {}; done",
    "for ((i=0; i<17; i++)); do {}; done",
    "for ((i=0; i<2; j++)); do {}; done",
    "for ((;;)); do {}; done",
    "for ((i=0; i<4; i++)); do x; i=$((i+1)); done; {}",
    "N=2\nfor ((i=0; i<N; i++)); do N=3; done; {}",
]


@rows("loop", UNKNOWN_LOOPS)
def test_a_loop_over_unknown_items_is_read_once(loop: str) -> None:
    found = shell(loop.replace("{}", f"{SERVER} --a $i") + "\n")
    assert not found.words[1].evaluated


def test_loops_of_loops_are_bounded() -> None:
    start = "".join(f"for i{n} in {{1..16}}; do " for n in range(12))
    script = f"{start} {SERVER} --a {{1..20}}; {'done; ' * 12}\n"
    assert read_shell(script, "x.sh").invocations


def test_nesting_too_deep_to_decide() -> None:
    test = "(" * 50 + " $X == 1 " + ")" * 50
    script = f"X=1\nif [[ {test} ]]; then TP=2; else TP=4; fi\n{SERVER} --a $TP --b 8\n"
    assert [word.evaluated for word in shell(script).words] == [True, False, True, True]


@rows(
    "command",
    [
        "{} --model-path ${M:-} --tp 2",
        '{} --model-path "${M:-}" --tp 2',
        'eval "{} --model-path "${M:-}" ${A:-} --tp 2"',
        'bash -c "{} --model-path ${M:-} --tp 2"',
        'M="${M:-}"\n{} --model-path $M --tp 2',
    ],
)
def test_an_empty_default_of_a_value_is_to_be_set(command: str) -> None:
    request = from_invocation(shell(command.replace("{}", SERVER)), "x", load("0.5.23"))
    assert not request.problems
    assert not request.values["model_path"].known and request.values["tp_size"].value == 2


def test_an_empty_default_of_a_class_is_to_be_set() -> None:
    program = (
        "@dataclass\nclass C:\n    model: str | None = None\ndef f(c: C):\n    return ['python', "
        "'-m', 'sglang.launch_server', '--model-path', c.model or '', '--tp', '2']\n"
    )
    (found,) = read_text(program, "x.py").invocations
    request = from_invocation(found, "x", load("0.5.23"))
    assert not request.values["model_path"].known and request.values["tp_size"].value == 2


def test_an_empty_default_in_single_quotes_of_an_inner_script_is_empty() -> None:
    found = shell(f"bash -c \"{SERVER} --model-path m --x '${{A:-}}'\"")
    assert [word.text for word in found.words[-2:]] == ["--x", ""]


def test_a_command_in_a_branch_that_does_not_run_by_default_says_so() -> None:
    script = f"X=${{X:-a}}\nif [ $X = <> ]; then {SERVER} --tp 2; fi\n"
    reasons = [shell(script.replace("<>", value)).dropped[0].why for value in ("b", "$Y")]
    assert reasons[0].startswith("by default the condition does not hold")
    assert reasons[1].startswith("the condition was not evaluated")


@rows("test", ['[ "$1" = x ] &&', "[ -d /x ] &&", "for i in $X; do"])
def test_an_empty_element_that_a_branch_adds_has_its_condition(test: str) -> None:
    end = "; done" if test.startswith("for") else ""
    found = shell(f'A=(--x)\n{test} A+=("") {end}\n{SERVER} "${{A[@]}}"\n').words
    assert [word.condition is None for word in found] == [True, False]


PRINTED = [
    ("[ $X = 1 ] && echo a || echo b", "a"),
    ("[ $X = 2 ] && echo a || echo b", "b"),
    ("if [ $X = 2 ]; then echo a; else echo b; fi", "b"),
    ("for i in 1 2; do printf '%s,' $i; done", "1,2,"),
    ("log x; echo a", "a"),
    ("named $X", "one"),
    ("{ echo a; echo b; } | wc -l", "2"),
    ("seq 3 | wc -l", "3"),
    ("printf '%d-%s' 3 x", "3-x"),
    ("printf -- '--x %s' $X", "--x 1"),
    ("basename /a/b/", "b"),
    ("dirname $(dirname /a/b/c)", "/a"),
    ("echo a,b,c | cut -d, -f2", "b"),
    ("cut -d ' ' -f2 <<< 'a b'", "b"),
    ("echo a,b | awk -F, '{print $2}'", "b"),
    ("echo a,b | awk -F, '{print NF}'", "2"),
    ("echo '' | awk -F, '{print NF}'", "0"),
    ("echo Org/A | sed 's|/|_|g' | tr A-Z a-z", "org_a"),
    ("tr -d ' ' <<< ' a b'", "ab"),
    ("cat <<< a", "a"),
    ("echo 1,2 | tr , '\\n' | head -1", "1"),
    ("V=2; echo $V", "2"),
]  # fmt: skip


@rows("body, value", PRINTED)
def test_the_output_of_a_substitution(body: str, value: str) -> None:
    functions = "log() { echo $* >&2; }\nnamed() { case $1 in 1) echo one;; *) echo two;; esac; }\n"
    found = shell(f'X=1\n{functions}{SERVER} --a "$({body})"\n').words[1]
    assert (found.text, found.evaluated, found.condition) == (value, True, None)


@rows(
    "body",
    [
        *(
            "echo -e 'a\\nb'",
            "date",
            "echo a; date",
            "echo a | grep b",
            "exit; echo a",
            "cut -f1 x",
        ),
        *("printf %x 3", "tr a-c x <<< ab", "[ -d /x ] && echo a || echo b", "echo $(date)", "pwd"),
        *(
            "head -1 < x",
            "sed s/a.c/x/ <<< abc",
            "date && echo a",
            "basename $X",
        ),
    ],
)
def test_an_output_that_the_reader_cannot_prove(body: str) -> None:
    assert not shell(f'{SERVER} --a "$({body})"\n').words[1].evaluated, body


def test_words_that_a_substitution_prints_only_under_a_condition() -> None:
    words = shell(f"D=${{D:-0}}\n{SERVER} $([ -d /x ] && echo --a) $([ $D = 1 ] && echo --b 2)\n")
    assert [word.text for word in words.words] == ["--a", "--b", "2"]
    assert [(word.condition or "")[-6:] for word in words.words] == [
        "line 2",
        "t hold",
        "t hold",
    ]


def test_the_server_of_a_function_in_a_substitution() -> None:
    found = shell(f"start() {{ {SERVER} --port $1 & echo $!; }}\nPID=$(start 30000)\n").words
    assert [word.text for word in found] == ["--port", "30000"]
    assert [w.text for w in shell(f"C=$(cat <<E\n{SERVER} --a b\nE\n)\n$C\n").words] == ["--a", "b"]


def test_an_evaluated_text_contains_its_unknown_part_once() -> None:
    script = (
        f'c="docker run"\n[ -n "$E" ] && c="$E $c"\nc="$c img {SERVER} --tp 1"\n'
        '[ -n "${A:-}" ] && c="$c --api-key $A"\neval "$c"\n'
    )
    *known, flag, key = shell(script).words
    assert [word.text for word in known] == ["--tp", "1"]
    assert (flag.text, key.evaluated) == ("--api-key", False)
    assert key.condition == flag.condition is not None
