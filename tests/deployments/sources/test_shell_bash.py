"""The shell reader against bash itself, on scripts that do nothing but print their words."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from speclaunch.deployments.sources.files import read_shell

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")

EXAMPLES = int(os.environ.get("SPECLAUNCH_SHELL_EXAMPLES", "120"))
PRELUDE = "set -f\npython3() { printf '%s\\0' \"$@\"; }\n"
MODULE = ["-m", "sglang.launch_server"]


def bash_words(script: str, directory: Path) -> list[str]:
    """What bash passes to `python3`, which is a function that prints its arguments."""
    assert BASH is not None
    done = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", PRELUDE + script],
        capture_output=True,
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    words = done.stdout.decode().split("\0")[:-1]
    assert words[:2] == MODULE
    return words[2:]


def our_words(script: str) -> list[str]:
    reading = read_shell(script, "x.sh")
    (found,) = reading.invocations
    lines = script.split("\n")
    for word in found.words:
        # what matches a pattern is not looked up, and bash is told not to (`set -f`)
        assert word.evaluated or "file name pattern" in (word.why or ""), (word, script)
        assert 1 <= word.place.line <= len(lines)
        assert 1 <= word.place.column <= len(lines[word.place.line - 1]) + 1
    return [word.text for word in found.words]


VISIBLE = "abzAZ019_./:,@%+=-é世"
plain = st.text(VISIBLE, min_size=1, max_size=5).filter(lambda t: not t.startswith("~"))
anything = st.text(VISIBLE + " \t\n$`\"\\'#!&|;<>()[]{}*?~^", max_size=6)


def in_double_quotes(text: str) -> str:
    for char in '\\"$`':
        text = text.replace(char, "\\" + char)
    return '"' + text + '"'


def in_ansi_quotes(text: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "'": "\\'"}
    return "$'" + "".join(named.get(char, char) for char in text) + "'"


escaped = st.sampled_from(list(" \t$`\"\\'#!&|;<>()[]{}*?~^a1")).map(lambda char: "\\" + char)
quoted = st.one_of(
    anything.filter(lambda t: "'" not in t).map(lambda t: f"'{t}'"),
    anything.map(in_double_quotes),
    anything.map(in_ansi_quotes),
    st.sampled_from(
        ['""', "''", '"\\n"', '"a\\\nb"', '"\\a"', "$'\\x41\\101\\u00e9\\e'", '$"x y"']
    ),
)
number = st.integers(-12, 12)
braces = st.one_of(
    st.lists(plain.filter(lambda t: "," not in t) | st.just(""), min_size=2, max_size=3).map(
        lambda parts: "{" + ",".join(parts) + "}"
    ),
    st.builds("{{{}..{}}}".format, number, number),
    st.builds("{{{}..{}..{}}}".format, number, number, number),
    st.sampled_from(["{a..e}", "{E..A..2}", "{01..11}", "{a}", "{}", "{a,{b,c}}", "{a,b", "a}",
                     "{{a,b}", "{a,b}}", "{a,'b c'}", "{1..x}", "{a..}", "{,}", "{-05..5}", "{a,b}{1..2}"]),
)  # fmt: skip
computed = st.one_of(
    st.builds("$(seq {} {})".format, number, number),
    st.builds("$( seq {} 3 {} )".format, number, number),
    st.builds('"$(seq {} {})"'.format, number, number),
    st.builds("`seq {} {}`".format, number, number),
    st.builds("$(seq -s , {} {})".format, number, number),
    st.builds("$(({} + 2 * {}))".format, number, number),
    st.builds("$(( ({} - 7) / 3 % 5 ))".format, number),
    st.builds("$(echo {} {})".format, plain, plain),
)
used = st.sampled_from(
    ["$V/", "${V}", '"$V"', "${W}", '"${W}"', "${V}x", "x${W}", '"$V$W"', '"$E"', "${E}", "$E/",
     '"${A[@]}"', "${A[@]}", "${A[*]}", '"${A[*]}"', 'p"${A[@]}"s', "p${A[@]}s", "$A/", "${A[0]:-}",
     '"${EMPTY[@]}"', "${EMPTY[@]}", '"x${EMPTY[@]}"', "${#A[@]}", "${#V}", "${B[@]}", '"${B[@]}"',
     "${V:-none}", "${NOT:-a b}", '"${NOT:-a b}"', '${NOT:-"a b"}', "${E:-x}", "${E-x}", "${NOT-x}",
     "${V:+y}", '"${V:+y z}"', "${V+y z}", "${E:+y}", "${NOT:-$V}", "${V:2}", "${V:1:2}",
     "${P##*/}", "${P%/*}", "${P%%/*}", "${P#*/}", "${P/b/x}", "${P//b/x}", "${P%.gz}", "${P^^}", "${P,,}",
     "${A[@]:1}", '"${A[@]:0:1}"', "${NOT:=set}", "${NOT2:=later}", "${V}{a,b}", "${V}{1..3}"]
)  # fmt: skip
fragment = st.one_of(plain, quoted, escaped, braces, computed, used, st.just("\\\n"))
alone = st.sampled_from(["$V", "$W", "$E", "${A}", "$V$W", "$V.$W", "${EMPTY[*]}", "a$", "$/x$"])
word = st.lists(fragment, min_size=1, max_size=4).map("".join) | alone
gap = st.sampled_from([" ", "  ", "\t", " \\\n", " \\\n  "])
value = st.lists(st.one_of(plain, quoted, escaped, computed), max_size=3).map("".join)
element = st.lists(st.one_of(plain, quoted, escaped, braces, computed), min_size=1, max_size=3).map(
    "".join
)
between = st.sampled_from([" ", "\n", "\n   ", " # a comment $( ' \n", "\n# one (\n# two\n"])


def joined(words: Sequence[str], gaps: Sequence[str]) -> str:
    return "".join(gap + word for gap, word in zip(gaps, words, strict=True))


@st.composite
def scripts(draw: st.DrawFn) -> str:
    def array(name: str, operator: str) -> str:
        elements = draw(st.lists(element, max_size=3))
        inside = "".join(draw(between) + item for item in elements)
        return f"{name}{operator}({inside}{draw(between)})\n"

    lines = ["#!/bin/bash\n", "P=/a/b.b/c.tar.gz\n", "EMPTY=()\n", "E=\n"]
    lines.append(f"V={draw(value)}\n")
    lines.append(
        f"W={draw(value)}{draw(st.sampled_from(['', '$V', '${V}', chr(34) + '$V' + chr(34)]))}\n"
    )
    lines.append(array("A", "="))
    if draw(st.booleans()):
        lines.append(array("A", "+="))
    if draw(st.booleans()):
        lines.append(f"W+={draw(value)}\n")
    lines.append('B=("${A[@]}" $W)\n')
    words = draw(st.lists(word, min_size=1, max_size=5))
    gaps = [draw(gap) for _ in words]
    tail = draw(st.sampled_from(["", " # done", " 2>/dev/null", " | cat", " ;", "\n: $V"]))
    return "".join(lines) + "python3 -m sglang.launch_server" + joined(words, gaps) + tail + "\n"


@pytest.mark.thorough
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=scripts())
@example(script="V='a  b'\npython3 -m sglang.launch_server x$V\"$V\"$V\n")
def test_words_are_those_of_bash(script: str, tmp_path: Path) -> None:
    assert our_words(script) == bash_words(script, tmp_path)


name = st.sampled_from(["X", "Y", "Z"])
simple_value = st.sampled_from(
    ["a", "'b c'", '"d $X"', "$Y", "${Z}e", "$(seq 1 2)", '""', "f=g", "${1-}"]
)
argument = simple_value | st.sampled_from(
    ['"$@"', "$@", "$*", '"$*"', "$2", '"${2:-none}"', "${X:+x}", "${1%b}", "$X$Y"]
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Scripts without conditions: assignments, functions, subshells, other shells."""
    counter = iter(range(1000))

    def server() -> str:
        words = draw(st.lists(argument, max_size=3))
        return " ".join(["python3 -m sglang.launch_server", f"--id{next(counter)}", *words])

    def block(depth: int) -> str:
        return "\n".join(statement(depth) for _ in range(draw(st.integers(1, 4)))) + "\n"

    def statement(depth: int) -> str:
        values = draw(st.lists(simple_value, min_size=1, max_size=3))
        match draw(st.integers(0, 14 if depth else 7)):
            case 0:
                return f"{draw(name)}={values[0]}"
            case 1:
                return f"export {draw(name)}={values[0].replace('$(seq 1 2)', 'h')} # note"
            case 2:
                return f"{draw(name)}+={values[0]}; export {draw(name)}"
            case 3 | 4:
                return server()
            case 5:
                return f"set -- {' '.join(values)}"
            case 6:
                return f"{draw(name)}={values[0]} {server()}"
            case 7:
                return f"eval '{server().replace(chr(39), chr(34))}'"
            case 8:
                return f"( {block(depth - 1)} )"
            case 9:
                return f"{{ {block(depth - 1)} }}"
            case 10 | 11:
                label = f"f{next(counter)}"
                start = draw(st.sampled_from(["", "local X=$1\n", "local Y=\n", "shift\n"]))
                calls = "".join(f"{label} {value} z\n" for value in values[:2])
                return f"{label}() {{\n{start}{block(depth - 1)}}}\n{calls}"
            case 12:
                return f"for {draw(name)} in one; do {block(depth - 1)} done"
            case 13:
                inner = server().replace("'", '"')
                return f"X=q bash -c '{inner}' name {values[0]} w"
            case _:
                return f"true && {server()}; false || {server()} | cat"

    return "X=1 Y='2 3' Z=\nset -- p 'q r'\n" + block(2)


@pytest.mark.thorough
@settings(
    max_examples=EXAMPLES // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=programs())
def test_commands_are_those_of_bash(script: str, tmp_path: Path) -> None:
    assert BASH is not None
    prelude = "set -f\npython3() { printf '%s\\0' \"$@\" $'\\n'; }\nexport -f python3\n"
    done = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", prelude + script],
        capture_output=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        timeout=60,
    )
    theirs = [tuple(call.split("\0")[2:-1]) for call in done.stdout.decode().split("\n\0")[:-1]]
    found = read_shell(script, "x.sh").invocations
    # what is not exported is unknown in a child shell: such a command only has to be there
    ours = [
        tuple(w.text for w in one.words) for one in found if all(w.evaluated for w in one.words)
    ]
    unknown = {one.words[0].text for one in found if not all(w.evaluated for w in one.words)}
    known = set(ours)
    assert list(dict.fromkeys(ours)) == list(dict.fromkeys(c for c in theirs if c in known))
    assert {call[0] for call in theirs if call not in ours} <= unknown


default = st.sampled_from(
    ["a", "'b c'", '"$V d"', "$V", "0.80", "true", "a/b-c", '""', "it\\'s", "{x,y}", "$(seq 1 2)"]
)


@st.composite
def defaulted(draw: st.DrawFn) -> str:
    """Scripts whose words come from variables with defaults, in the ways people write them."""
    names = draw(st.lists(st.sampled_from(["N", "M", "V2"]), min_size=1, max_size=3))
    lines, words = ["V=set E="], []
    for number, name in enumerate(names):
        text = draw(default)
        operator = draw(st.sampled_from([":-", "-", ":="]))
        form = f"${{{name}{operator}{text}}}"
        match draw(st.integers(0, 3)):
            case 0:
                words.append(f'"p{form}s"')
            case 1:
                words.append(f"--f={form}")
            case 2:
                lines.append(f"O{number}={form}")
                words.append(f'"$O{number}"')
            case _:
                words.append(f'"${{E:-{text}}}"')
    command = "python3 -m sglang.launch_server " + " ".join(words)
    return "\n".join([*lines, command]) + "\n"


@pytest.mark.thorough
@settings(
    max_examples=EXAMPLES // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=defaulted(), value=st.sampled_from(["Z", "long/er", ""]))
def test_defaults_give_way_to_the_environment_as_in_bash(
    script: str, value: str, tmp_path: Path
) -> None:
    (found,) = read_shell(script, "x.sh").invocations
    assert [word.text for word in found.words] == bash_words(script, tmp_path)
    names = {name for word in found.words for _, _, name, *_ in word.defaults}
    settled = []
    for word in found.words:
        text = word.text
        for start, end, _, filled, _ in reversed(word.defaults):
            if value or not filled:
                text = text[:start] + value + text[end:]
        settled.append(text)
    given = "".join(f"{name}={value}\n" for name in sorted(names))
    theirs = bash_words(given + script, tmp_path)
    # an unquoted default of several words is as many words; a value without blanks is one
    if len(theirs) == len(settled):
        assert settled == theirs


broken = st.sampled_from(
    ["[INFO] can't open it", 'say "hello', "echo `date", "A=( one", "x $(y", "( cd /tmp", "v=${a:-b",
     "2026-01-01 INFO: (rank 0", "it's | two > three"]
)  # fmt: skip


@pytest.mark.thorough
@settings(
    max_examples=EXAMPLES // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(before=st.integers(1, 3), after=st.integers(0, 2), line=broken)
def test_a_line_that_bash_stumbles_over_hides_no_command(
    before: int, after: int, line: str, tmp_path: Path
) -> None:
    """bash starts what stands before such a line; we read what stands behind it, too."""
    assert BASH is not None
    commands = [
        f"python3 -m sglang.launch_server --id {number} 'a b'" for number in range(before + after)
    ]
    script = "\n".join([*commands[:before], line, *commands[before:]]) + "\n"
    path = tmp_path / "script.sh"
    path.write_text("python3() { printf '%s\\0' \"$@\"; }\n" + script)
    done = subprocess.run([BASH, str(path)], capture_output=True, check=False, timeout=60)
    reading = read_shell(script, "x.sh")
    ours = [word.text for found in reading.invocations for word in found.words]
    assert ours == [text for n in range(before + after) for text in ("--id", str(n), "a b")]
    if done.returncode:
        (problem,) = reading.unread
        assert problem.place is not None and problem.place.line == before + 1
    started = [word for word in done.stdout.decode().split("\0")[:-1] if word not in MODULE]
    assert ours[: len(started)] == started


SOUND = (
    "f() { a; }\n", "function f { a; }\n", "function f () ( a )\n", "f ()\n{\n a\n}\n", "f() (a)\n",
    "f() if a; then b; fi\n", "f() { a; } 2>&1\nf\n", "f() [[ a ]]\n", "f() ((1))\n",
    "A=(a b)\nA+=(c)\n", "declare -a A=(a)\nlocal B=(c)\n", "eval A=(1)\n", "let a=(1+2)\n",
    "A[0]=(b)\n", "A=([0]=a [1]=b)\n", "B=1 A=(a) c\n", "a >(b) <(c)\n", "a 2> >(b)\n",
    "while a; do b; done < <(c)\n", "coproc (a)\n", "coproc X { a; }\n", "echo $((1+(2)))\n",
    'echo $(( "$x" + (2) ))\n', "((a=(1)))\n", "if ((a>(1))); then b; fi\n",
    "[[ $a =~ ^(b|c)$ ]] && d\n", "[[ ( a ) ]]\n",
    "case a in (b) c;; d|e) f;& *) g;; esac\n", "case a in\nesac\n", "x=$(case a in b) c;; esac)\n",
    "case $x in a) if b; then c; fi ;; 'd e' | f ) ;; esac\n", "! (a)\n", "time (a)\n", "time\n",
    "if { a; } then b; fi\n", "if (a) then b; fi\n", "for x; do a; done\n", "for x\ndo a; done\n",
    "for ((i=0;i<3;i++)); do a; done\n", "for ((T = 0; T < $(($3 / 4)); T++))\ndo\n a\ndone\n",
    "for ((i=0;i<3;i++)) { a; }\n", "for x in a; { b; }\n", "select x in a; do b; done\n",
    "&> f a\n", "2>&1 a\n", "exec {fd}>x 3>&1 <&-\n", "{ a & }\n", "cat <<'E' > f\nif x(\nE\nb\n",
    "until a; do b; done &\n", "a |\n b &&\n\n c\n", "a=`b (c)`\n", "a=$( (b) )\n", "a $( )\n",
    'echo ${a:-(b)} "(a)" x\\(y\\) a#b\n', "echo if then fi } { done\n",
    "if [ a ]; then :; elif [ b ]; then c; else d; fi > f 2>&1\n", "$ a b\n",
)  # fmt: skip
UNSOUND = (
    "[2026] x=Y(m='x', k='y')\n", "if true; then\n a\n", "if a\nthen b\nfi\nfi\n", "while a; do b\n",
    "for x in a; do b\n", "case x in a) b;;\n", "{ a;\n", "f() { a\n", "a (b)\n", "a b(c)\n",
    "x=Y(a)\n", "x=Y()\n", "env A=(b)\n", "A=(a)(b)\n", "echo a)\n", "done\n", "a; }\n", "then a\n",
    "a;;\n", "; a\n", "a && | b\n", "(venv) $ a\n", "{ a; } b\n", "if a; then b; fi c\n", "a > \n",
    "if a; b; fi\n", "for x in a; b; done\n", "if a; then b; else c\n", "a $(b (c))\n",
    "echo $(a) (b)\n", "a <<<(b)\n", "a() b\n", "if true; then fi\n", "for x in a; do done\n",
    "while a; do\n# c\ndone\n", "{ }\n", "( )\n", "f() { }\n", "if a; then\n b\nelse\n # c\nfi\n",
    "a \\\n(b)\n", "{ a; b }\n", "if a; then (b; fi\n",
)  # fmt: skip


@pytest.mark.parametrize("script", [*SOUND, *UNSOUND])
def test_what_bash_cannot_parse_is_told_and_nothing_else(script: str) -> None:
    assert BASH is not None
    done = subprocess.run([BASH, "--norc", "-n", "-c", script], capture_output=True, check=False)
    assert (done.returncode == 0) is (script in SOUND)
    server = "python3 -m sglang.launch_server --model-path m\n"
    reading = read_shell(server + script, "x.sh")
    assert len(reading.unread) == (0 if script in SOUND else 1)
    assert [found.words[1].text for found in reading.invocations] == ["m"]
    assert all(p.place is not None and p.place.line > 1 for p in reading.unread)


@pytest.mark.parametrize("name", ["x.sh.j2", "Dockerfile", "x.zsh", "<stdin>"])
def test_what_bash_is_not_given_may_have_slips(name: str) -> None:
    for script in ("if true; then\n a\n", "a (b)\n", "x=Y(a)\n", "fi\n", "(venv) $ a\n"):
        assert not read_shell(script, name).unread
    log = "[10:00:00] args=Args(a=1)\n" * 1000  # costs no more than other lines
    script = f"#!/bin/sh\n{log}python3 -m sglang.launch_server\n"
    assert len(read_shell(script, "x.sh").unread) == 1000
    assert read_shell("#!/bin/sh\na (b)\n", "<stdin>").unread
    assert not read_shell("#!/bin/zsh\na (b)\n", "x.sh").unread
