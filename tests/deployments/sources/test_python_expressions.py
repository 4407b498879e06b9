"""Expressions of Python programs that make the arguments of a server."""

from __future__ import annotations

from speclaunch.deployments.sources.interface import Invocation
from speclaunch.deployments.sources.python_files import read_python
from tests.support.deployments.sources.helpers import only
from tests.support.loops import over

HEAD = """\
import argparse, itertools, os, shlex, subprocess
from dataclasses import dataclass
"""


def read(text: str) -> Invocation:
    return only(read_python(HEAD + text, "x.py"))


def shown(found: Invocation) -> str:
    """The arguments after the model; `?` for each that is unknown."""
    assert [word.text for word in found.words[:2]] == ["--model-path", "m"]
    return " ".join(word.text if word.evaluated else "?" for word in found.words[2:])


FORMATS = """\
tp = 8
fraction = 0.8
words = ["--tp", "8"]
base = "--tp 8 --dp 2"
subprocess.run("sglang serve --model-path m " + {}, shell=True)
"""


@over(
    [
        ('"--tp {} --dp {}".format(tp, 2)', "--tp 8 --dp 2"),
        ('"--tp {0} --dp {0}".format(tp)', "--tp 8 --dp 8"),
        ('"--tp {size} --x {other}".format(size=tp, other=f())', "--tp 8 --x ?"),
        ('"--tp {} --dp {}".format(*sizes)', "--tp ? --dp ?"),
        ('"--x {{}} --mem {:.2f}".format(fraction)', "--x {} --mem 0.80"),
        ('"--tp %d --mem %.2f%%" % (tp, fraction)', "--tp 8 --mem 0.80%"),
        ('"--tp %(tp)s --dp %(dp)s" % {"tp": tp}', "--tp 8 --dp ?"),
        ('"--tp %s" % sizes', "--tp ?"),
        ('"--tp %d" % True', "--tp 1"),
        ('f"--tp {tp!s} --dp {tp:d} --mem {fraction:.2f}"', "--tp 8 --dp 8 --mem 0.80"),
        ("f\"--x {'a'!r}\"", "--x a"),
        ('f"--tp {tp:>{width}}"', "--tp ?"),
        ('f"--tp {tp:999999999}"', "--tp ?"),
        ("f\"{' '.join(words)} --dp 2\"", "--tp 8 --dp 2"),
        ("f\"--x {','.join(['a', 'b'])}\"", "--x a,b"),
        ("f\"{shlex.join(['--x', 'a b'])}\"", "?"),
        ("f\"{'--x a ' if flag else ''}--tp {tp}\"", "? --tp 8"),
        ("f\"--tp {tp}{' --x a' if flag else ''} --dp 2\"", "--tp 8 ? --dp 2"),
        ("f\"{'' if flag else f'--x {a} '}\" '--tp 8'", "? --tp 8"),
        ("f\"--served-model-name m{'x' if flag else ''} --tp 8\"", "--served-model-name ? --tp 8"),
        ("'--tp ' + ('8 ' if flag else '4 ') + '--dp 2'", "--tp ? 2"),
    ]
)
def test_formatted_texts(case: tuple[str, str]) -> None:
    expression, expected = case
    assert shown(read(FORMATS.replace("{}", expression, 1))) == expected


SELECTED = """\
parser = argparse.ArgumentParser()
parser.add_argument("name", nargs="?", default="n")
parser.add_argument("port", type=int)
parser.add_argument("--quantization", default="")
parser.add_argument("--big", default=False)
parser.add_argument("--digits", type=int, default="0")
args = parser.parse_args()
tp, zero, mode = 8, 0, "fast"
number = int(os.environ.get("N", "0"))
subprocess.run(["sglang", "serve", "--model-path", "m", {}])
"""


@over(
    [
        ('"--tp", str(tp or 2)', "--tp 8"),
        ('"--tp", str(zero or 2)', "--tp 2"),
        ('"--tp", str(zero and 2)', "--tp 0"),
        ('"--tp", str(tp and 2)', "--tp 2"),
        ('"--tp", str(unset or 2)', "--tp ?"),
        ('"--tp", str(number or 2)', "--tp 2"),
        ('"--tp", str(number + 1)', "--tp 1"),
        ('"--tp", str(float(tp))', "--tp 8.0"),
        ('"--tp", str(int("08"))', "--tp 8"),
        ('"--tp", str(int("x"))', "--tp ?"),
        ('"--tp", str(tp) + "0"', "--tp 80"),
        ('"--x", "x4x".strip("x")', "--x ?"),
        ('"--x", *list("text")', "--x ?"),
        ('"--x", str(args.digits or 2)', "--x 2"),
        ('"--x", str(zero) or "2"', "--x 0"),
        ('"--tp", os.getenv("TP") or "2"', "--tp 2"),
        ('"--tp", os.getenv("TP", "") or "2"', "--tp 2"),
        ('"--tp", os.getenv("TP") and "2"', "--tp ?"),
        ('"--tp", os.getenv("A") or os.getenv("B") or "2"', "--tp ?"),
        ('"--quantization", args.quantization or "fp8"', "--quantization fp8"),
        ('"--served-model-name", args.name', "--served-model-name n"),
        ('"--port", str(args.port)', "--port ?"),
        ('"--tp", "4" if args.big else "2"', "--tp 2"),
        ('"--tp", "4" if not args.big else "2"', "--tp 4"),
        ('"--tp", "4" if mode == "fast" else "2"', "--tp 4"),
        ('"--tp", "4" if mode != "fast" else "2"', "--tp 2"),
        ('"--tp", "4" if tp == "8" else "2"', "--tp 2"),
        ('"--tp", "4" if tp is None else "2"', "--tp 2"),
        ('"--tp", "4" if tp is not None and 2 <= tp < 9 else "2"', "--tp 4"),
        ('"--tp", "4" if mode in ("fast", "x") else "2"', "--tp 4"),
        ('"--tp", "4" if mode not in {"fast", unset} else "2"', "--tp ?"),
        ('"--tp", "4" if "as" in mode else "2"', "--tp 4"),
        ('"--tp", "4" if isinstance(tp, (int, float)) else "2"', "--tp 4"),
        ('"--tp", "4" if unset and tp == 1 else "2"', "--tp 2"),
        ('"--tp", "4" if unset or tp == 1 else "2"', "--tp ?"),
        ('"--tp", "4" if tp > mode else "2"', "--tp ?"),
        ('"--tp", "4" if {"a": 1}.get("b") is None else "2"', "--tp 4"),
        ('"--tp", "4" if [unset] else "2"', "--tp 4"),
        ('"--tp", "4" if unset else "2"', "--tp ?"),
        ('"--tp", str(max(1, int(tp)))', "--tp 8"),
        ('"--tp", str(min(4, tp))', "--tp 4"),
        ('"--tp", str(max(1, unset))', "--tp ?"),
        ('"--tp", str(max(1, "8"))', "--tp ?"),
        ('"--x", " Fast ".strip().lower()', "--x fast"),
        ('"--x", (" ".strip() or "y")', "--x y"),
        ('"--x", str(bool(tp))', "--x True"),
        ('"--x", str(bool(unset))', "--x ?"),
    ]
)  # fmt: skip
def test_values_that_an_expression_selects(case: tuple[str, str]) -> None:
    assert shown(read(SELECTED.replace("{}", case[0]))) == case[1]


@over(
    [
        ('"4" if args.big else "2"', "the default of the option big"),
        ("str(args.digits * 2)", "the default of the option digits"),
        ("str(max(args.digits, 2))", "the default of the option digits"),
        ('os.getenv("TP") or "2"', "the default of `TP`, which comes from the environment"),
        ("str(number * 2)", "the default of `N`, which comes from the environment"),
    ]
)
def test_a_selected_or_computed_value_states_the_assumption(case: tuple[str, str]) -> None:
    assert read(SELECTED.replace("{}", f'"--tp", {case[0]}')).words[-1].why == case[1]


COMPREHENSIONS = """\
flags = {"tp": 8, "dp": None, "metrics": True}
pairs = [("--tp", 8), ("--dp", 2)]
k = "wrong"
subprocess.run(["sglang", "serve", "--model-path", "m", *{}])
"""


@over(
    [
        ("[str(n) for n in range(3)]", "0 1 2"),
        ("[w for k, v in pairs for w in (k, str(v))]", "--tp 8 --dp 2"),
        ('[f"--{k}={v}" for k, v in flags.items() if v is not None]', "--tp=8 --metrics=True"),
        ('[f"--{k}" for k, v in flags.items() if isinstance(v, bool)]', "--metrics"),
        ('" ".join(f"--{k} {v}" for k, v in pairs[:1]).split()', "----tp 8"),
        ('[f"--{k}" for k in unset]', "?"),
        ('[f"--{k}" for k in ("a", "b") if unset]', "?"),
        ("[str(n) for n in range(1000)]", "?"),
        ("[f(k) for k in ('a', 'b')]", "? ?"),
    ]
)
def test_comprehensions_over_known_elements(case: tuple[str, str]) -> None:
    program = COMPREHENSIONS.replace("{}", case[0], 1)
    if "f(k)" in case[0]:
        program = f"def f(x):\n    print(x)\n    return unset\n{program}"
    assert shown(read(program)) == case[1]


def test_a_joined_comprehension_is_a_text() -> None:
    joined = '" ".join(f"{k} {v}" for k, v in pairs)'
    program = COMPREHENSIONS.partition("subprocess")[0] + (
        f'subprocess.run("sglang serve --model-path m " + {joined}, shell=True)\n'
    )
    assert shown(read(program)) == "--tp 8 --dp 2"


METHODS = """\
class Server:
    def __init__(self, model="m", port=30000):
        self.model, self.port = model, port
        self.start(4)

    def _args(self, tp, *, host=None):
        found = ["--model-path", self.model, "--port", str(self.port), "--tp", str(tp)]
        return found

    def start(self, tp):
        subprocess.run(["sglang", "serve", *self._args({})])
"""


@over(
    [
        ("2", "--port 30000 --tp 2"),
        ("tp=2", "--port 30000 --tp 2"),
        ("tp", "--port 30000 --tp 4"),
        ("*more", "--port 30000 --tp ?"),
    ]
)
def test_the_result_of_a_method_with_arguments(case: tuple[str, str]) -> None:
    assert shown(read(METHODS.replace("{}", case[0]))) == case[1]
    twice = f"{METHODS}class Other<>:\n    def _args(self, tp):\n        return []\n"
    twice = HEAD + twice.replace("{}", case[0])
    assert shown(only(read_python(twice.replace("<>", ""), "x.py"))) == case[1]
    found = read_python(twice.replace("<>", "(Server)"), "x.py").invocations
    assert all(word.text != "--port" for one in found for word in one.words)


ALIASES = """\
@dataclass
class Config:
    tp: int = 1
a, d, n = Config(tp=2), {"tp": 2, "sub": {"tp": 2}}, [2, 3]
objects, mode, text = [Config(tp=2)], 2, "2"
parser = argparse.ArgumentParser()
parser.add_argument("--tp", default=2)
args = parser.parse_args()
<>
subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str({})])
"""


@over(
    [
        ("b = a\nb.tp = 4", "a.tp", "4"),
        ("b = a\nb.tp += 2", "a.tp", "4"),
        ("if x:\n    a.tp = 4", "a.tp", "?"),
        ("e = d\ne['tp'] = 4", "d['tp']", "4"),
        ("e = d['sub']\ne['tp'] = 4", "d['sub']['tp']", "4"),
        ("e = d\ne.pop('tp')", "d.get('tp', 8)", "8"),
        ("d['tp'] += 2", "d['tp']", "4"),
        ("d |= {'tp': 4}", "d['tp']", "?"),
        ("d.setdefault('tp', 4)", "d['tp']", "?"),
        ("d.clear()", "d['tp']", "?"),
        ("m = n\nm[0] = 4", "n[0]", "4"),
        ("n.insert(0, 4)", "n[0]", "?"),
        ("pass", "n[-1]", "3"),
        ("pass", "n[9]", "?"),
        ("pass", "n['a']", "?"),
        ("objects[0].tp = 4", "objects[0].tp", "4"),
        ("for o in objects:\n    o.tp = 4", "objects[0].tp", "4"),
        ("vars(args)['tp'] = 4", "args.tp", "4"),
        ("args.tp = 4", "args.tp", "4"),
        ("args.tp *= 2", "args.tp", "4"),
        ("mode *= 2", "mode", "4"),
        ("text *= 2", "text", "?"),
        ("if (mode := 4):\n    pass", "mode", "4"),
        ("x and (mode := 4)", "mode", "?"),
    ]
)
def test_a_value_that_the_program_changes(case: tuple[str, str, str]) -> None:
    changed, expression, expected = case
    found = read(ALIASES.replace("<>", changed).replace("{}", expression))
    assert shown(found) == f"--tp {expected}"


def test_a_variable_that_an_inner_function_sets() -> None:
    inner = "    def g():\n        nonlocal tp\n        tp = 8\n    g()\n"
    start = '    subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(tp)])\n'
    assert shown(read(f"def f():\n    tp = 4\n{inner}{start}f()\n")) == "--tp ?"


CALLED = """\
@dataclass
class Config:
    tp: int = 1
D, L, c = {"tp": 2}, ["--x"], Config()
def set_tp(d, value):
    d["tp"] = value
def outer(d):
    set_tp(d, 4)
def add(words):
    words.append("--y")
    return words
def add_some(words):
    if unknown:
        return
    words.append("--y")
def override():
    D["tp"] = 4
def configure(config):
    config.tp = 4
def by_default(words=[]):
    words.append("--y")
    return words
<>
"""
START = 'subprocess.run(["sglang", "serve", "--model-path", "m", {}])'


@over(
    [
        ("set_tp(D, 4)", 'str(D["tp"])', "4"),
        ("x = set_tp(D, 4)", 'str(D["tp"])', "4"),
        ("outer(D)", 'str(D["tp"])', "4"),
        ("if x:\n    outer(D)", 'str(D["tp"])', "?"),
        ("override()", 'str(D["tp"])', "4"),
        ("print(override())", 'str(D["tp"])', "4"),
        ("configure(c)", "str(c.tp)", "4"),
        ("b = add(L)", "*L, *b", "--x --y --x --y"),
        ("L = add(L)", "*L", "--x --y"),
        ("b = len(add(L)), add(L)", "*L", "--x --y --y"),
        ("add_some(L)", "*L[1:]", "?"),
        ("if x:\n    add(L)", "*L[1:]", "?"),
        ("for y in z:\n    add(L)", "*L[1:]", "?"),
        ("by_default()", "*by_default()", "?"),
    ]
)
def test_a_value_that_a_called_function_changes(case: tuple[str, str, str]) -> None:
    call, words, expected = case
    assert shown(read(CALLED.replace("<>", call) + START.replace("{}", words))) == expected


@over(
    [
        ("override()\nmain()", 'str(D["tp"])', "?"),
        ("main()", 'str(D["tp"])', "?"),
        ("D['tp'] = 4\nmain()", 'str(D["tp"])', "?"),
        ("configure(c)\nmain()", "str(c.tp)", "4"),
        ("add(L)\nmain()", "*L", "--x --y"),
    ]
)
def test_a_global_that_another_function_may_change(case: tuple[str, str, str]) -> None:
    call, words, expected = case
    main = f"def main():\n    {START.replace('{}', words)}\n"
    assert shown(read(CALLED.replace("<>", main + call))) == expected


def test_a_function_that_calls_itself_may_change_a_value() -> None:
    change = "def f(d, n):\n    d['tp'] = n\n    f(d, n - 1)\nd = {'tp': 2}\nf(d, 9)\n"
    assert shown(read(change + START.replace("{}", 'str(d["tp"])'))) == "?"


DECIDED = """\
parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=2)
parser.add_argument("--kind", default="a")
parser.add_argument("--none", default=None)
args = parser.parse_args()
ON, OFF, tp, c = True, False, 1, ["sglang", "serve", "--model-path", "m"]
<>
subprocess.run(c + ["--tp", str(tp)])
"""


@over(
    [
        ("if ON:\n    tp = 2", "--tp 2", ""),
        ("if OFF:\n    tp = 2", "--tp 1", ""),
        ("if not OFF and tp < 3:\n    c.append('--x')", "--x --tp 1", ""),
        ("if OFF:\n    c.append('--x')\nelif ON:\n    c.append('--y')", "--y --tp 1", ""),
        ("if args.size > 1:\n    tp = args.size", "--tp 2", "size"),
        ("if args.size > 1:\n    tp = 4", "--tp 4", "size"),
        ("if args.size == 1:\n    tp = 4", "--tp 1", "size"),
        ("if args.none is None:\n    tp = 4", "--tp 4", "none"),
        ("if args.kind == 'b':\n    tp = 2\nelif args.kind == 'a':\n    tp = 4", "--tp 4", "kind"),
        ("if args.kind == 'b':\n    tp = 2\nelse:\n    tp = 4", "--tp 4", "kind"),
        ("if args.kind in unknown:\n    tp = 4", "--tp ?", None),
        ("if args.kind == 'a':\n    sys.exit(1)\ntp = 4", "--tp 4", ""),
        ("if os.environ.get('A', '1') == '1':\n    tp = 4", "--tp ?", None),
        ("tp = 4 if os.environ.get('A', '1') == '1' else 2", "--tp 4", "comes from the environment"),
        ("d = {'tp': 2}\nif args.size > 2:\n    d['tp'] = 4\ntp = d['tp']", "--tp 2", "size"),
        ("d = {'a': {'tp': 2}}\nif args.none:\n    d['a'].update(tp=4)\ntp = d['a']['tp']", "--tp 2", "none"),
        ("d = {'tp': 2}\nif unknown:\n    d['tp'] = 4\ntp = d['tp']", "--tp ?", None),
        ("for tp in (2, unknown):\n    if tp == 2:\n        c.append('--x')", "--x --x --tp ?", None),
    ]
)  # fmt: skip
def test_a_branch_that_known_values_decide(case: tuple[str, str, str | None]) -> None:
    branch, expected, note = case
    found = read(DECIDED.replace("<>", branch))
    assert shown(found) == expected
    if note is not None:
        assert (found.words[-1].why or "").endswith(note)
        assert bool(note) == bool(found.words[-1].why)


def test_the_branch_that_a_default_does_not_select_is_conditional() -> None:
    branch = "if args.kind == 'b':\n    c.append('--x')\nelse:\n    c.append('--y')"
    _, _, other, taken, *_ = read(DECIDED.replace("<>", branch)).words
    assert (other.text, other.condition) == ("--x", "only under the condition of line 9")
    assert (taken.text, taken.condition) == ("--y", None)
    assert taken.why == "the default of the option kind"


OBJECTS = """\
@dataclass
class Base:
    tp: int = 1
    dp: int = 2
@dataclass
class Server(Base):
    model: str = "m"
    dp: int = 4
    def start(self):
        subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(self.tp), "--dp", str(self.dp)])
@dataclass
class Changing(Base):
    def __post_init__(self):
        self.tp = 8
class Counter:
    tp = 2
    def __init__(self, dp=2):
        self.dp = dp
    def double(self):
        self.dp *= 2
    def start(self):
        subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(self.tp), "--dp", str(self.dp)])
    def run(self):
        self.double()
        subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(self.tp), "--dp", str(self.dp)])
<>
"""
USE = (
    'subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(s.tp), "--dp", str(s.dp)])'
)


@over(
    [
        (f"s = Server()\n{USE}", "--tp 1 --dp 4"),
        (f"s = Server(2)\n{USE}", "--tp 2 --dp 4"),
        (f"s = Server(2, 8)\n{USE}", "--tp 2 --dp 8"),
        (f"s = Server(2, dp=8)\n{USE}", "--tp 2 --dp 8"),
        (f"s = Server(*x)\n{USE}", "--tp ? --dp ?"),
        (f"s = Changing(2)\n{USE}", "--tp ? --dp 2"),
        ("Server(2).start()", "--tp 2 --dp 4"),
        ("Server(tp=2, dp=x).start()", "--tp 2 --dp ?"),
        ("Server(2).start()\nServer(4).start()", "--tp ? --dp 4"),
    ]
)
def test_the_fields_of_an_object(case: tuple[str, str]) -> None:
    use, expected = case
    found = read_python(HEAD + OBJECTS.replace("<>", use), "x.py").invocations
    assert expected in map(shown, found)


def test_attributes_that_other_methods_or_functions_set() -> None:
    found = read_python(HEAD + OBJECTS.replace("<>", ""), "x.py").invocations
    assert [*map(shown, found)][1:] == ["--tp 2 --dp ?", "--tp 2 --dp ?"]
    found = read_python(HEAD + OBJECTS.replace("<>", "c = Counter()\nc.tp = 4"), "x.py").invocations
    assert [*map(shown, found)][1:] == ["--tp ? --dp ?", "--tp ? --dp ?"]


def test_values_that_a_program_sets_for_options_and_variables() -> None:
    found = read(CHOICES + "parser.set_defaults(tp=4)\n" + START.replace("{}", "str(args.tp)"))
    assert shown(found) == "?"
    found = read('os.environ["TP"] = "4"\n' + START.replace("{}", 'os.environ.get("TP", "2")'))
    assert shown(found) == "4"


CHOICES = """\
parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int, default=2)
args = parser.parse_args()
"""


EXCLUDED = """\
p = argparse.ArgumentParser()
p.add_argument("--tp", type=int, default=0)
p.add_argument("--dtype", default="")
a = p.parse_args()
X = os.environ.get("X", "")
cmd = ["sglang", "serve", "--model-path", "m"]
{}
subprocess.run(cmd)
"""


@over(
    [
        ('if X: cmd += ["--x", X]', "--x ?"),
        ('if a.tp > 0: cmd += ["--tp", str(a.tp)]', "--tp ?"),
        ('if a.dtype: cmd += ["--dtype", a.dtype]', "--dtype ?"),
        ('if not X: cmd += ["--y"]\nelse: cmd += ["--x", X]', "? ?"),
        ('if a.tp > 0: cmd += ["--n", "1"]\ncmd += ["--tp", str(a.tp)]', "--n 1 --tp 0"),
        ('if a.tp > 0: a.tp = 4\ncmd += ["--tp", str(a.tp)]', "--tp 0"),
    ]
)
def test_a_default_that_a_condition_excludes_is_unknown_under_it(case: tuple[str, str]) -> None:
    changed, expected = case
    assert shown(read(EXCLUDED.replace("{}", changed))) == expected


PATHS = """\
from pathlib import Path
root, part, names = "/models", os.getenv("PART", "b"), ["a", "b"]
def f():
    subprocess.run(["sglang", "serve", "--model-path", "m", {}])
"""


@over(
    [
        ('"--x", os.path.join(root, "a", part)', "--x /models/a/b"),
        ('"--x", os.path.join(root, "/a")', "--x /a"),
        ('"--x", os.path.join("a/", "b")', "--x a/b"),
        ('"--x", os.path.join(root, unset)', "--x ?"),
        ('"--x", os.path.join(root, *names)', "--x ?"),
        ('"--x", str(Path(root) / "a" / part)', "--x /models/a/b"),
        ('"--x", str(Path(root) / f"a/{part}")', "--x /models/a/b"),
        ('"--x", str(Path(__file__).parent / "a")', "--x ?"),
        ('"--x", str(unset / 2)', "--x ?"),
        ('"--x", str(len(names))', "--x 2"),
        ('"--x", str(len(names + unset))', "--x ?"),
    ]
)
def test_paths_and_lengths(case: tuple[str, str]) -> None:
    assert shown(read(PATHS.replace("{}", case[0]))) == case[1]


def test_a_later_part_of_a_path_may_become_absolute() -> None:
    """A deployment that sets its variable must not get the part before it."""
    found = read(PATHS.replace("{}", '"--x", os.path.join(root, part)'))
    assert not found.words[3].defaults


LOOKED_UP = """\
class Server:
    def __init__(self, name, **kwargs):
        self.kwargs, config = kwargs, load(name)
        section = config.get("server", {})
        own = {"tp": 4}
        kwargs["port"] = free_port()
        subprocess.run(["sglang", "serve", "--model-path", "m", {words}])
"""


@over(
    [
        ('"--tp", str(kwargs.get("tp_size", 2))', "--tp 2"),
        ('"--tp", str(kwargs.pop("tp_size", 2))', "--tp 2"),
        ('"--tp", str(self.kwargs.pop("tp_size", 2))', "--tp 2"),
        ('"--tp", str(section.get("tp_size", 2))', "--tp 2"),
        ('"--tp", str(config.get("server", {}).get("tp_size", 2))', "--tp 2"),
        ('"--tp", str(kwargs.get("tp_size"))', "--tp ?"),
        ('"--tp", str(kwargs.get("tp_size", None))', "--tp ?"),
        ('"--tp", str(kwargs.get("tp_size", unset))', "--tp ?"),
        ('"--port", str(kwargs.get("port", 30000))', "--port ?"),  # the program sets it
        ('"--x", requests.get("http://x/y", "z")', "--x ?"),
        ('"--tp", str(own.get("tp", 2))', "--tp 4"),
        ('"--tp", str(own.get(unset, 2))', "--tp ?"),
        ('"--tp", str(own.pop("tp", 2))', "--tp 4"),
        ('"--tp", str(own.pop("dp", 2))', "--tp 2"),
    ]
)
def test_defaults_of_unknown_dictionaries(case: tuple[str, str]) -> None:
    found = read(LOOKED_UP.replace("{words}", case[0]))
    assert shown(found) == case[1]


def test_the_default_of_an_unknown_dictionary_is_an_assumption() -> None:
    text = LOOKED_UP.replace("{words}", '"--tp", str(config.get("a-b", 2))')
    assert read(text).words[3].why == "the default of `a-b`, which comes from outside the program"


def test_the_default_of_an_unknown_dictionary_decides_no_branch() -> None:
    found = read("""\
def start(config):
    port = 1
    if config.get("fast", False):
        port = 2
    subprocess.run(["sglang", "serve", "--model-path", "m", "--port", str(port)])
""")
    assert shown(found) == "--port ?"


def test_the_length_of_a_default_is_an_assumption() -> None:
    found = read("""\
parser = argparse.ArgumentParser()
parser.add_argument("--gpus", nargs="*", default=["0", "1"])
args = parser.parse_args()
subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(len(args.gpus))])
""")
    assert (found.words[3].text, found.words[3].why) == ("2", "the default of the option gpus")


UNSET = """\
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--model", required=True)
parser.add_argument("--big", action="store_true")
parser.add_argument("--algorithm")
parser.set_defaults(algorithm=choose())
args = parser.parse_args()
words = []
if args.port is None:
    words = ["--tp", "2"]
else:
    words = ["--tp", "4"]
subprocess.run(["sglang", "serve", "--model-path", "m", {}])
"""


@over(
    [
        ('"--port", str(args.port or 30000)', "--port 30000"),
        ('"--port", str(30000 if args.port is None else args.port)', "--port 30000"),
        ('"--port", str(args.port)', "--port ?"),
        ("*words", "--tp 2"),
        ('"--x", args.model or "a"', "--x ?"),
        ('"--x", "a" if args.big else "b"', "--x ?"),
        ('"--x", args.algorithm or "a"', "--x ?"),
    ]
)
def test_options_without_a_default(case: tuple[str, str]) -> None:
    found = read(UNSET.replace("{}", case[0]))
    assert shown(found) == case[1]
    notes = {word.why for word in found.words[2:] if word.evaluated} - {None}
    assert notes <= {"the default of the option port"}
    assert notes or "?" in case[1]


PARSED = """\
import sys
def build():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=3)
    return parser
def serve(args, more=()):
    subprocess.run(["sglang", "serve", "--model-path", "m", "--port", str(args.port), *more])
def parse(argv=None):
    return build().parse_args(argv)
def parse_all(argv=None, space=None):
    return build().parse_args(args=argv, namespace=space)
def main(argv=None):
    {}
main({})
"""


@over(
    [
        ("serve(parse(argv))", "", "--port 3"),
        ("serve(parse())", "", "--port 3"),
        ("serve(build().parse_args(argv))", "sys.argv[1:]", "--port 3"),
        ("serve(build().parse_args(sys.argv[2:]))", "", "--port 3"),
        ("serve(build().parse_args([]))", "", "--port 3"),
        ("serve(parse_all(argv))", "", "--port 3"),
        ("serve(*build().parse_known_args())", "", "--port ? ?"),
        ("args, more = build().parse_known_args()\n    serve(args)", "", "--port 3"),
        ("args, more = build().parse_known_args()\n    serve(args, more)", "", "--port 3 ?"),
        ("serve(parse(argv))", "['--port', '4']", "--port ?"),
        ("serve(build().parse_args(argv))", "['--port', port]", "--port ?"),
        ("serve(build().parse_args(choose()))", "", "--port ?"),
        ("serve(build().parse_args(namespace=ready))", "", "--port ?"),
        ("serve(parse_all(argv, ready))", "", "--port ?"),
    ]
)
def test_options_that_another_function_parses(case: tuple[str, str, str]) -> None:
    body, argv, expected = case
    found = read(PARSED.replace("{}", body, 1).replace("{}", argv))
    assert shown(found) == expected
    assert found.words[3].evaluated == (found.words[3].why == "the default of the option port")


REMOTE = """\
def serve(port, tp=8):
    subprocess.run(["sglang", "serve", "--model-path", "m", "--port", str(port), "--tp", str(tp)])
def main(port=3):
    serve.{}
"""


@over(
    [
        ("remote(port, 2)", "--port 3 --tp 2"),
        ("spawn(port)", "--port 3 --tp 8"),
        ("starmap([(port, 2)])", "--port ? --tp ?"),
    ]
)
def test_a_function_that_another_function_starts_remotely(case: tuple[str, str]) -> None:
    assert shown(read(REMOTE.replace("{}", case[0]))) == case[1]


INNER = """\
port = 9
def outer(port, tp=2):
    def serve(port, size=2, rank=port):
        words = ["--port", str(port), "--tp", str(tp), "--dp", str(size), "--node-rank", str(rank)]
        subprocess.run(["sglang", "serve", "--model-path", "m", *words])
    {}
def main(tp):
    {}
"""


@over(
    [
        ("serve(port)", "outer(3)", ["--port 3 --tp 2 --dp 2 --node-rank ?"]),
        ("serve(port, tp, 0)\n    serve(port, size=tp, rank=0)", "outer(3)",
         ["--port 3 --tp 2 --dp 2 --node-rank 0"]),
        ("serve(port, 4)\n    port += 1\n    serve(port)", "outer(3)",
         ["--port 3 --tp 2 --dp 4 --node-rank ?", "--port 4 --tp 2 --dp 2 --node-rank ?"]),
        ("serve(port, tp)", "outer(3, 4)\n    outer(5, 6)",
         ["--port 3 --tp 4 --dp 4 --node-rank ?", "--port 5 --tp 6 --dp 6 --node-rank ?"]),
        ("for port in ports:\n        serve(port, 4)", "outer(3)",
         ["--port ? --tp 2 --dp 4 --node-rank ?"]),
        ("serve(port)\n    run(serve)", "outer(3)", ["--port ? --tp 2 --dp ? --node-rank ?"]),
        ("serve(port)\n    def other():\n        serve(4)", "outer(3)",
         ["--port ? --tp 2 --dp ? --node-rank ?"]),
        ("serve = wrap(serve)\n    serve(port)", "outer(3)",
         ["--port ? --tp 2 --dp ? --node-rank ?"]),
        ("pass", "outer(3)", ["--port ? --tp 2 --dp ? --node-rank ?"]),
    ]
)  # fmt: skip
def test_calls_of_a_function_that_another_defines(case: tuple[str, str, list[str]]) -> None:
    body, calls, expected = case
    text = HEAD + INNER.replace("{}", body, 1).replace("{}", calls)
    assert list(map(shown, read_python(text, "x.py").invocations)) == expected


SELF = """\
port = 9
class Server:
    def serve(self, port, tp=2, key=None):
        if not key:
            key = "k"
        words = ["--port", str(port), "--tp", str(tp), "--api-key", key]
        subprocess.run(["sglang", "serve", "--model-path", "m", *words])
    def start(self, port=3, key=None):
        {}
"""


@over(
    [
        ("self.serve(port)", ["--port 3 --tp 2 --api-key k"]),
        ("self.serve(port, key=key)", ["--port 3 --tp 2 --api-key k"]),
        ("self.serve(port, tp=4, key='a')", ["--port 3 --tp 4 --api-key a"]),
        ("self.serve(port)\n        return self.serve(4, key=choose())",
         ["--port 3 --tp 2 --api-key k", "--port 4 --tp 2 --api-key ?"]),
        ("self.serve(port)\n        other.serve(4)", ["--port ? --tp ? --api-key ?"]),
        ("self.serve(*words)", ["--port ? --tp ? --api-key ?"]),
        ("run(self.serve)", ["--port ? --tp ? --api-key ?"]),
        ("pass", ["--port ? --tp 2 --api-key k"]),
        ("pass\nclass Other:\n    def serve(self):\n        pass", ["--port ? --tp ? --api-key ?"]),
    ]
)  # fmt: skip
def test_calls_of_a_method(case: tuple[str, list[str]]) -> None:
    found = read_python(HEAD + SELF.replace("{}", case[0]), "x.py").invocations
    assert list(map(shown, found)) == case[1]


def test_a_default_is_evaluated_at_the_definition() -> None:
    found = read("""\
tp = 2
def serve(tp=tp):
    subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(tp)])
def main():
    tp = 4
    serve()
""")
    assert shown(found) == "--tp 2"


SHOWN = """\
def port_of(args):
    return args.port + args.words[0]
def store(args):
    saved.append(args)
def alias(args):
    same = args
    same.port = 4
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", default=3)
    args = parser.parse_args()
    {}
    subprocess.run(["sglang", "serve", "--model-path", "m", "--port", str(args.port)])
"""


@over(
    [
        ("print(args)", "3"),
        ("port_of(args)", "3"),
        ("store(args)", "3"),
        ("alias(args)", "?"),
        ("other(args)", "?"),
    ]
)
def test_options_that_a_function_only_reads(case: tuple[str, str]) -> None:
    assert shown(read(SHOWN.replace("{}", case[0]))) == f"--port {case[1]}"


BUILT = """\
port = 9
class Server:
    def __init__(self, port, tp=2):
        self.port, self.tp = port, tp
    def start(self):
        words = ["--port", str(self.port), "--tp", str(self.tp)]
        subprocess.run(["sglang", "serve", "--model-path", "m", *words])
def main(port, tp=8):
    {}
"""


@over(
    [
        ("Server(port)", "--port ? --tp 2"),
        ("Server(port, tp)", "--port ? --tp 8"),
        ("port = 3\n    Server(port, tp=tp).start()", "--port 3 --tp 8"),
        ("Server(3, tp)\n    Server(4, tp)", "--port 3 --tp 8|--port 4 --tp 8"),
        ("Server(3, tp)\n    Server(3, *sizes)", "--port 3 --tp 8|--port ? --tp ?"),
        ("Server(f'{port}')\n    Server(f'{port}')", "--port ? --tp 2"),
        ("pass", "--port ? --tp 2"),
    ]
)
def test_values_of_a_constructor(case: tuple[str, str]) -> None:
    """A variable of the caller is not the module's, even with the same name."""
    found = read_python(HEAD + BUILT.replace("{}", case[0]), "x.py").invocations
    assert "|".join(map(shown, found)) == case[1]


CLOSURE = """\
def tweak(args):
    args.port = 4
def main(tp=2):
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", default=3)
    args = parser.parse_args()
    def serve(more=()):
        words = ["--port", str(args.port), "--tp", str(tp)]
        subprocess.run(["sglang", "serve", "--model-path", "m", *words])
    def change(port):
        {}
    change(4)
    {}
"""


@over(
    [
        ("print(port)", "serve()", "--port 3 --tp 2"),
        ("args.port = port", "serve()", "--port ? --tp 2"),
        ("tweak(args)", "serve()", "--port ? --tp 2"),
        ("print(port)", "serve()\n    tp = 4", "--port 3 --tp ?"),
        ("print(port)", "tp = 4\n    serve()", "--port 3 --tp ?"),
    ]
)
def test_variables_that_a_function_shares_with_an_inner_one(case: tuple[str, str, str]) -> None:
    text = CLOSURE.replace("{}", case[0], 1).replace("{}", case[1])
    assert shown(read(text)) == case[2]


def test_a_parameter_with_the_name_of_a_function() -> None:
    text = """\
def serve(port):
    subprocess.run(["sglang", "serve", "--model-path", "m", "--port", str(port)])
def main(serve):
    serve(4)
serve(3)
"""
    assert shown(read(text)) == "--port ?"


ARGV = """\
import sys
tp = 2
paths = {"2": "4", "b": 3}
{}
subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(tp), "--port", port])
"""


@over(
    [
        ("port = sys.argv[1] if len(sys.argv) > 1 else '3'", "--tp 2 --port 3"),
        ("if len(sys.argv) > 1:\n    tp = sys.argv[1]\nport = paths[str(tp)]", "--tp 2 --port 4"),
        ("if len(sys.argv) < 2:\n    sys.exit(1)\nport = sys.argv[1]", "--tp 2 --port ?"),
        ("port = sys.argv[len(sys.argv) - 1]", "--tp 2 --port ?"),
        ("port = '3'\nif sys.argv[1:]:\n    tp = 4", "--tp ? --port 3"),
    ]
)
def test_a_program_without_arguments(case: tuple[str, str]) -> None:
    assert shown(read(ARGV.replace("{}", case[0]))) == case[1]


@over(
    [
        "port = '3' if len(sys.argv) == 1 else '4'",
        "port = paths[str(len(sys.argv) + 1)]",
        "port = paths.get(str(len(sys.argv)), '3')",
    ]
)
def test_that_a_program_has_no_arguments_is_an_assumption(text: str) -> None:
    found = read(ARGV.replace("{}", text))
    assert found.words[5].evaluated
    assert found.words[5].why == "the program has no arguments"


ANNOTATED = """\
@dataclass
class Base:
    port: int = field(default=30000)
    model: str = "m"
class Mode(str, Enum):
    FAST = "fast"
@dataclass
class Config(Base):
    tp: int = 1
    ctx: Optional[int] = None
    dtype: str = Field("auto", description="x")
    extra: list = field(default_factory=lambda: ["--log-level", "info"])
    more: list = field(default_factory=list)
    env: Path = Path("e")
    name: str = Field(..., description="x")
    seed: int = find_seed()
    host: Annotated[str, "x"] = "h"
    changing: str = "c"
    def change(self):
        self.changing = "d"
class Server:
    def __init__(self, config: "Config", mode: Mode):
        self.config, self.mode = config, mode
    def start(self):
        cmd = ["sglang", "serve", "--model-path", "m"]
        if self.mode == "fast":
            cmd += ["--fast"]
        {}
        subprocess.run(cmd)
"""


@over(
    [
        ('cmd += ["--port", str(self.config.port)]', "--port 30000"),
        ('cmd += ["--x", self.config.env, "--y", self.config.host]', "--x e --y h"),
        ('cmd += ["--x", self.config.name, "--y", self.config.seed]', "--x ? --y ?"),
        ('cmd += ["--x", self.config.changing]', "--x ?"),
        ('cmd += ["--x", self.config.absent]', "--x ?"),
        ("if self.config.dtype: cmd += ['--dtype', self.config.dtype]", "--dtype auto"),
        ("if self.config.ctx is not None: cmd += ['--ctx', str(self.config.ctx)]", "--ctx ?"),
        ("cmd += self.config.extra + self.config.more", "--log-level info"),
        ("self.config.port = free()\n        cmd += ['--port', self.config.port]", "--port ?"),
    ]
)
def test_an_object_of_the_class_in_an_annotation(case: tuple[str, str]) -> None:
    """Its values are the defaults of the class, as an assumption."""
    statement, expected = case
    found = read(ANNOTATED.replace("{}", statement))
    assert shown(found) == f"--fast {expected}"
    values = [word for word in found.words if word.evaluated and not word.condition]
    notes = {word.why for word in values[2:] if word.text[:2] != "--"}
    assert all((note or "").startswith("the default of Config.") for note in notes)
    assert all(word.condition for word in found.words if word.text in ("--fast", "--ctx"))
    assert all(word.text and word.place.line > 3 for word in found.words)


@over(
    [
        ("Config(port=1)", "1"),
        ("Config(port=1)\nConfig(port=1, tp=4)", "1"),
        ("Config(port=1)\nConfig(port=2)", "?"),
        ("Config(**load())", "?"),
        ("config.port = 3", "?"),
        ("def main(c: Config):\n    Server(c).start()\nmain(tyro.cli(Config))", "30000"),
        ("Config(**parse_argv())", "30000"),
    ]
)
def test_the_values_of_an_annotated_object_that_the_program_makes(case: tuple[str, str]) -> None:
    statement, expected = case
    program = ANNOTATED.replace("{}", 'cmd += ["--port", str(self.config.port)]') + statement
    found = read(program)
    assert shown(found) == f"--fast --port {expected}"
    assert [word.text for word in found.words if word.text == "Config.port"] == (
        ["Config.port"] if expected == "?" else []
    )
    notes = {"30000": "the default of Config.port", "?": "the program computes it"}
    assert found.words[-1].why == notes.get(expected, "the value of `Config.port` in the program")


@over(
    [
        "class C:\n    more: dict = field(default_factory=dict)\ndef f(c: C):\n    more = c.more\n",
        "def f(more={}):\n",
    ]
)
def test_a_dictionary_that_is_empty_by_default_is_open(case: str) -> None:
    server = "'python', '-m', 'sglang.launch_server', '--model-path', 'm'"
    found = read(f"{case}    run([{server}, '--tp', str(more.get('tp', 1))])\n")
    assert shown(found) == "--tp ?"


SET_UP = """\
class Server:
    def __init__(self, tp=2):
        self.load(tp)
        {}
    def load(self, tp):
        self.tp = tp
    def start(self):
        subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(self.tp)])
        self.tp = 8
    def other(self):
        subprocess.run(["sglang", "serve", "--model-path", "m", "--dp", str(self.tp)])
    def reload(self):
        {}
"""


@over(
    [
        ("", "", "--tp 2|--dp ?"),
        ("self.start()", "", "--tp ?|--dp 8"),
        ("self.start()", "self.start()", "--tp ?|--dp ?"),
        ("self.start()", "Thread(target=self.start)", "--tp ?|--dp ?"),
        ("", "self.load(4)", "--tp ?|--dp ?"),
    ]
)
def test_attributes_that_the_set_up_calls_a_method_to_set(case: tuple[str, str, str]) -> None:
    in_set_up, later, expected = case
    program = SET_UP.replace("{}", in_set_up or "pass", 1).replace("{}", later or "pass")
    found = read_python(HEAD + program, "x.py").invocations
    assert "|".join(map(shown, found)) == expected


CONSTRUCTED = """\
@ray.remote
class Server:
    def __init__(self, model="m", port: int = 30000, tp=1):
        self.model, self.port, self.tp = model, port, tp
    def start(self):
        sgl.Engine(model_path=self.model, port=self.port + 1, tp_size=self.tp, nccl_port=self.port)
def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=2)
    return parser.parse_args()
def main(port=7):
    args = options()
    {}
if isinstance(x, Server):
    main()
"""


@over(
    [
        ("Server()", ["m 30001 1 30000"]),
        ("Server(model='a', port=1, tp=args.tp)", ["a 2 2 1"]),
        ("Server('a', port)", ["a 8 1 7"]),
        ("Server.options(num_gpus=1).remote(tp=args.tp)", ["m 30001 2 30000"]),
        ("for n in (1, 2): Server(port=n)", ["m 2 1 1", "m 3 1 2"]),
        ("Server(tp=2)\n    Server(tp=4)", ["m 30001 2 30000", "m 30001 4 30000"]),
        ("Server(tp=unset)", ["m 30001 ? 30000"]),
        ("Server(**unset)", ["? ? ? ?"]),
        ("for n in unset: Server(port=n)", ["m ? 1 ?"]),
    ]
)
def test_the_arguments_of_a_constructor_that_a_function_calls(case: tuple[str, list[str]]) -> None:
    call, expected = case
    found = read_python(HEAD + CONSTRUCTED.replace("{}", call), "x.py").invocations
    values = [[word.text if word.evaluated else "?" for word in one.words[1::2]] for one in found]
    assert sorted(map(" ".join, values)) == expected


RESULTS = """\
class Server:
    kind = "a"
    def __init__(self, tp=2):
        self.tp = tp
    def words(self):
        return ["--kind", self.kind, "--tp", str(self.tp)]
    def start(self):
        subprocess.run(["sglang", "serve", "--model-path", "m", *self.words()])
    def change(self):
        {}
"""


@over(
    [
        ("pass", "", "--kind a --tp 2"),
        ("self.tp = 4", "", "--kind a --tp ?"),
        ("pass", "s = Server()\ns.kind = 'b'\ns.start()", "--kind ? --tp 2"),
    ]
)
def test_a_result_that_depends_on_a_changed_attribute(case: tuple[str, str, str]) -> None:
    change, use, expected = case
    assert shown(read(RESULTS.replace("{}", change) + use)) == expected


COUNTED = """\
class Server:
    def __init__(self):
        self.words, self.env, self.tp, self.port = ["--x", "1"], {"dp": 2}, 2, 1
    def next(self):
        self.port += 1
        return str(self.port)
    def start(self):
        {}
        subprocess.run(["sglang", "serve", "--model-path", "m", <>])
s = Server()
"""


@over(
    [
        ("pass", "*self.words", "s.words.append('--y')", "?"),
        ("pass", "*self.words", "", "--x 1"),
        ("pass", "str(self.env['dp'])", "s.env['dp'] = 4", "?"),
        ("pass", "str(self.env['dp'])", "s.env.update(dp=4)", "?"),
        ("pass", "str(self.tp)", "setattr(s, 'tp', 4)", "?"),
        ("pass", "str(self.tp)", "replace(s, tp=4)", "?"),
        ("pass", "str(self.tp)", "s.model_copy(update={'tp': 4})", "?"),
        ("self.tp += 1", "str(self.tp)", "s.start()", "3"),
        ("self.tp += 1", "str(self.tp)", "s.start()\ns.start()", "?"),
        ("self.next()", "self.next()", "", "?"),
        ("self.port = 4\n        self.next()", "self.next(), self.next()", "", "6 7"),
        ("self.port = 4", "*[self.next() for i in x]", "", "?"),
    ]
)
def test_an_attribute_that_is_changed_from_outside_or_twice(
    case: tuple[str, str, str, str],
) -> None:
    statement, words, use, expected = case
    program = COUNTED.replace("{}", statement).replace("<>", words) + use
    assert shown(read(program)) == expected


COPIED = """\
@dataclass
class Config:
    tp: int = 2
    dp: int = 4
def start(c: Config):
    {}
    subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(c.tp), "--dp", str(c.dp)])
<>
"""


@over(
    [
        ("c = replace(c, tp=8)", "", "--tp 8 --dp 4"),
        ("pass", "start(dataclasses.replace(Config(dp=1), tp=8))", "--tp 8 --dp 1"),
        ("pass", "start(Config()._replace(tp=8, dp=x))", "--tp 8 --dp ?"),
        ("pass", "start(Config().model_copy(update={'tp': 8}))", "--tp 8 --dp 4"),
        ("pass", "start(replace(load(), tp=8))", "--tp ? --dp 4"),
        ("pass", "start(replace(Config(), **x))", "--tp ? --dp ?"),
        ("pass", "c = Config()\nreplace(c, tp=8)\nstart(c)", "--tp 2 --dp 4"),
    ]
)
def test_a_copy_of_an_object_with_other_fields(case: tuple[str, str, str]) -> None:
    statement, use, expected = case
    assert shown(read(COPIED.replace("{}", statement).replace("<>", use))) == expected


COMMAND = """\
@cli.command()
@click.option("--tp-size", {})
def main(tp_size, **kwargs):
    subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(tp_size)])
<>
"""


@over(
    [
        ("default=8", "main()", "8"),
        ("default='8', type=int", "cli()", "8"),
        ("default='8', type=click.Choice(['8'])", "cli.add_command(main)", "8"),
        ("'tp_size', default=8", "main(standalone_mode=False)", "8"),
        ("'size', default=8", "main()", "?"),
        ("default=8", "main(['--tp-size', '4'])", "?"),
        ("default=8", "main(args=['--tp-size', '4'])", "?"),
        ("default=8", "ctx.invoke(main, tp_size=4)", "?"),
        ("default=8, callback=f", "main()", "?"),
        ("required=True", "main()", "?"),
        ("type=int", "main()", "?"),
        ("default=lambda: 8", "main()", "?"),
    ]
)
def test_the_options_of_a_click_command(case: tuple[str, str, str]) -> None:
    option, use, expected = case
    found = read(COMMAND.replace("{}", option).replace("<>", use))
    assert shown(found) == f"--tp {expected}"
    assert expected == "?" or found.words[-1].why == "the default of the option tp_size"


def test_the_default_of_a_click_switch_or_argument() -> None:
    for option in ('option("--x/--no-x", default=True)', 'argument("x", default=True)'):
        start = "subprocess.run(['sglang', 'serve', '--model-path', 'm', '--x', str(x)])"
        assert shown(read(f"@click.{option}\ndef main(x):\n    {start}\nmain()")) == "--x True"


CLASSES = """\
@dataclass
class Args:
    tp: int = field(default=2, metadata={"help": "x"})
@dataclass
class Data:
    dp: int = 4
def main():
    parser = HfArgumentParser({})
    <>
    subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(args.tp)])
"""


@over(
    [
        ("Args", "args = parser.parse_args_into_dataclasses()[0]", "2"),
        ("Args", "(args,) = parser.parse_args_into_dataclasses()", "2"),
        ("[Data, Args]", "_, args = parser.parse_args_into_dataclasses()", "2"),
        ("(Args,)", "args, _ = parser.parse_args_into_dataclasses(return_remaining=True)", "?"),
        ("Args", "args = parser.parse_args_into_dataclasses(['--tp', '4'])[0]", "?"),
        ("Other", "args = parser.parse_args_into_dataclasses()[0]", "?"),
        ("(Other, Args)", "_, args = parser.parse_args_into_dataclasses()", "2"),
    ]
)
def test_options_that_are_fields_of_classes(case: tuple[str, str, str]) -> None:
    kinds, statement, expected = case
    found = read(CLASSES.replace("{}", kinds).replace("<>", statement))
    assert shown(found) == f"--tp {expected}"


@over(["tyro.cli(main)", "CLI(main)", "fire.Fire(main)", "typer.run(main)"])
def test_a_function_that_a_user_calls(use: str) -> None:
    start = "subprocess.run(['sglang', 'serve', '--model-path', 'm', '--tp', str(tp)])"
    found = read(f"def main(tp=2):\n    {start}\n{use}")
    assert (shown(found), found.words[-1].why) == ("--tp 2", "the default of tp")


@over(
    [
        ("a // 3", "2"),
        ("a % 3", "2"),
        ("a / 2", "4.0"),
        ("int(a / 2)", "4"),
        ("-(-a // 3)", "3"),
        ("f * 2", "1.6"),
        ("1 - f", "0.19999999999999996"),
        ("max(1, a // 4)", "2"),
        ("-a", "-8"),
        ("-0.0", "-0.0"),
        ("a / 0", "?"),
        ("a % 0.0", "?"),
        ("2.0 ** 5000", "?"),
        ("1e300 * a", "?"),
        ("(0 - a) ** f", "?"),
        ("unset // 2", "?"),
        ("-unset", "?"),
        ("True + a", "?"),
    ]
)
def test_numbers_that_a_program_computes(case: tuple[str, str]) -> None:
    for text in (f"str({case[0]})", f'f"{{{case[0]}}}"'):
        found = read(
            f'a = 8\nf = 0.8\nsubprocess.run(["sglang", "serve", "--model-path", "m", {text}])'
        )
        assert shown(found) == case[1]


@over(
    [
        ("Optional[Config]", "2"),
        ("Annotated[Config, 'x']", "2"),
        ("Config | None", "2"),
        ("'Config'", "2"),
        ("list[Config]", "?"),
        ("Config | Other", "?"),
        ("Other", "?"),
    ]
)
def test_annotations_that_name_a_class(case: tuple[str, str]) -> None:
    text = f"""\
@dataclass
class Config:
    tp: int = 2
def start(config: {case[0]}):
    subprocess.run(["sglang", "serve", "--model-path", "m", "--tp", str(config.tp)])
"""
    assert shown(read(text)) == f"--tp {case[1]}"


@over(
    [
        ("@lru_cache\n", "2"),
        ("@functools.lru_cache(maxsize=1)\n", "2"),
        ("@override\n", "?"),
        ("", "2"),
    ]
)
def test_the_result_of_a_function_with_a_decorator(case: tuple[str, str]) -> None:
    start = "subprocess.run(['sglang', 'serve', '--model-path', 'm', '--tp', str(size())])"
    assert shown(read(f"{case[0]}def size():\n    return 2\n{start}")) == f"--tp {case[1]}"


@over(
    [
        ("port = 1", "s = start\ndef main(port):\n    Config(port=port)", "?"),
        ("port = 1", "s = start\ndef main():\n    Config(port=port)", "1"),
        ("port = 1", "s = start\nfor port in x:\n    Config(port=port)", "?"),
        ("", "start(Config.make())", "4"),
        ("", "start(Config.other())", "?"),
        ("", "s = start\nConfig.make()", "?"),
    ]
)
def test_an_object_that_a_function_makes(case: tuple[str, str, str]) -> None:
    before, after, expected = case
    text = f"""\
{before}
@dataclass
class Config:
    port: int
    @classmethod
    def make(cls):
        return cls(port=4)
    @classmethod
    def other(cls, size=4):
        return cls(size)
def start(config: Config):
    subprocess.run(["sglang", "serve", "--model-path", "m", "--port", str(config.port)])
{after}
"""
    assert shown(read(text)) == f"--port {expected}"


@over([("show(d)", "2"), ("display_panel(x, d)", "2"), ("logging_of(d)", "?"), ("fill(d)", "?")])
def test_a_function_of_another_module_may_change_what_it_does_not_only_show(
    case: tuple[str, str],
) -> None:
    start = "subprocess.run(['sglang', 'serve', '--model-path', 'm', str(d['tp'])])"
    assert shown(read(f"d = {{'tp': 2}}\n{case[0]}\n{start}")) == case[1]
