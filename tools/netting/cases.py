"""What both versions are run with, part by part: the folders that it is done in, and the cases."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from netting.sides import Answer, Case
from tests.support.conformance import data
from tests.support.corpora.everything import Size, change, write_everything
from tests.support.corpora.recipes import recipe
from tests.support.corpora.scripts import manifest, script
from tests.support.corpora.texts import generate

ROOT = Path(__file__).resolve().parent.parent.parent

JSON = ("--output-format", "json")
RENDER_TARGETS = (
    *("shell", "slime", "docker-compose", "kubernetes", "leaderworkerset", "rolebasedgroup"),
    *("slurm", "srt-slurm", "ray", "prometheus-rules", "prometheus-scrape", "grafana"),
)
RECIPE = "eagle3_llama8b"
"""The recipe that is taken where one is enough."""
CHANGED_AT = 1_700_000_000
"""The modification time of each file in a scene."""

Ask = Callable[[Sequence[Case]], dict[str, Answer]]
Verbs = Mapping[str, Sequence["Option"]]


@dataclass(frozen=True, slots=True)
class Option:
    """An option as the help shows it."""

    ways: tuple[str, ...]
    metavar: str
    """Empty for a flag."""

    @property
    def choices(self) -> list[str]:
        """The values that it accepts; none if it accepts others as well."""
        return self.metavar.strip("<>").split("|") if "|" in self.metavar else []


@dataclass(frozen=True, slots=True)
class Part:
    """Some cases, and who writes their scenes below a folder."""

    cases: Callable[[Path, Verbs], Iterator[Case]]
    scenes: Callable[[Path, bool], None] = lambda folder, quick: None  # noqa: ARG005
    jobs: int = 0
    """How many run at a time; 0: as many as there are processors."""


def dealt(name: str, parts: int) -> bool:
    """True for one of so many names, the same in every process."""
    return random.Random(name).randrange(parts) == 0  # noqa: S311 - not a secret


def read_verbs(ask: Ask) -> Verbs:
    """Return the options of every verb (`bench show`; "" is the program), read from its help."""
    found: dict[str, list[Option]] = {}
    names = [""]
    while names:
        cases = [Case(name, (*name.split(), "--help")) for name in names]
        shown = ask(cases)
        names = []
        for name, answer in shown.items():
            found[name], below = read_help(answer.out)
            names += [f"{name} {one}".strip() for one in below if one != "-m"]
        if "" in shown:
            names.append("sweep")
    return found


def read_help(text: str) -> tuple[list[Option], list[str]]:
    """Return the options of a help, in all of its groups, and its verbs."""
    title, options, below = "", [], []
    for line in text.splitlines():
        if line and line[0] != " ":
            title = line.rstrip(":")
            continue
        row = re.match(r"  (\S.*?)(?:  |$)", line)
        if row is None or title.startswith(("Usage", "Argument", "Example")):
            continue
        words = row[1].replace(" / ", ", ")
        if words.startswith("-") and words != "-m":
            ways = re.match(r"(?:--?[\w-]+(?:, )?)+", words)
            if ways is not None:
                options.append(Option(tuple(ways[0].split(", ")), words[ways.end() :].strip()))
        else:
            below.append(words)
    return options, below


# help, completion, options


def help_cases(_scenes: Path, verbs: Verbs) -> Iterator[Case]:
    """Every help, and what needs no framework."""
    for verb in verbs:
        yield Case(f"{verb} --help", (*verb.split(), "--help"))
        yield Case(f"{verb} -h, wide", (*verb.split(), "-h"), env=(("COLUMNS", "200"),))
        if verb not in STARTS_WITHOUT_ARGUMENTS:
            yield Case(f"{verb} alone", tuple(verb.split()))
    for words in COLD:
        yield Case(shlex.join(words), words, "work", is_cold=True)


STARTS_WITHOUT_ARGUMENTS = frozenset({"lsp", "engine install", "doctor", "engine ls"})
"""Verbs that read the machine or install something if nothing follows."""

COLD = (
    ("--version",),
    ("--help",),
    ("explain", "SPL301"),
    ("explain", "SPL999"),
    ("lint", "serve.sh"),
    ("lint", "mine.yaml"),
    ("lint", "."),
    ("recipe=ngram_qwen7b", "--dry-run"),
    ("launch", "recipe=eagle3_llama8b", "--dry-run"),
    ("plan", "recipe=eagle3_llama8b"),
    ("luanch", "recipe=eagle3_llama8b"),
    ("render", "recipe=eagle3_llama8b", "--to", "kubernetes"),
    ("import", "serve.sh"),
    ("diagnose", "engine.log"),
)
"""What is run in a process of its own: imports that a fork has done already are missing there."""


def completion_cases(_scenes: Path, verbs: Verbs) -> Iterator[Case]:
    """What the word under the cursor can become."""
    lines = [("",), ("l",), ("recipe=",), ("recipe=e",), ("recipe=ngram_qwen7b", "")]
    overrides = ("", "a", "args.", "args.s", "args.tp_size=", "launch.", "engine.", "speculation=")
    overrides += ("+args.", "recipe=", "hardware=", "hardware.", "deploy.", "recovery=", "~", "++")
    for verb, options in verbs.items():
        words = tuple(verb.split())
        lines += [(*words, ""), (*words, "-"), (*words, "--"), (*words, "x")]
        if any("--config-dir" in option.ways for option in options):
            lines += [(*words, word) for word in overrides]
            lines += [(*words, "recipe=ngram_qwen7b", word) for word in overrides]
        for option in options:
            way = option.ways[-1]
            lines.append((*words, f"{way}="))
            if option.metavar:
                lines += [(*words, way, ""), (*words, way, "a,")]
    for words in lines:
        env = (("_SPECLAUNCH_COMPLETE", "bash"),)
        yield Case(json.dumps(words), words, "work", env=env)
    for shell in ("bash", "zsh", "fish", "tcsh", "zhs"):
        yield Case(f"script for {shell}", ("completion", shell))


SAFE_ARGS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("launch", "bench", "bench run", "prove", "tune"), ("recipe=r", "--dry-run")),
    **dict.fromkeys(("plan", "doctor"), ("recipe=r",)),
    "sweep": ("--plan", "recipe=r", "args.tp_size=1,2"),
    "render": ("recipe=r", "--to", "shell"),
    "drafts": ("meta-llama/Llama-3.1-8B-Instruct",),
    "init": ("meta-llama/Llama-3.1-8B-Instruct",),
    "import": ("serve.sh",),
    "migrate": ("serve.sh", "--to", "0.5.22"),
    "lint": ("serve.sh", "mine.yaml"),
    "diagnose": ("engine.log",),
    "explain": ("SPL301",),
    "recipes cp": ("ngram_qwen7b", "copy.yaml"),
    "models show": ("meta-llama/Llama-3.1-8B-Instruct",),
    "models inspect": ("models/other",),
    "bench compare": ("last", "last"),
    "upgrade": ("recipe=r", "--from", "0.5.12", "--to", "0.5.23"),
    "engine catalogue show": ("tp_size",),
    "engine judge rm": ("0.5.1",),
    "logs": ("none",),
    "stop": ("none",),
    "completion": ("bash",),
}
"""Arguments with which a verb is otherwise right, and starts, installs and fetches nothing."""
UNSAFE = frozenset(
    {"", "engine install", "engine judge add", "engine catalogue add", "models pull"}
    | {"models check", "lsp", "ps", "bisect", "engine rm"}
)
"""Verbs that install, remove, fetch, start or wait: their options are only misspelled."""
UNSTEADY = frozenset({"doctor", "engine ls"})
"""Verbs that read the machine: their options are only misspelled, or given no value."""

VALUES: Mapping[str, tuple[str, ...]] = {
    "--engine": ("0.5.12", "0.5.18,0.5.23", "0.4.1", "9.9.9", "latest", "installed", ""),
    "--hardware": ("h100:8", "h200", "cpu", "h1000", "h100:0", "h100:x", ""),
    "--models": ("models", "none", ""),
    "--assume": ("a/b=meta-llama/Llama-3.1-8B-Instruct", "a/b", "=", "a=b"),
    "--select": ("SPL3", "SPL301,SPL8", "SPL999", "X", ""),
    "--ignore": ("SPL3", "SPL999", "no-such", ""),
    "--config-dir": ("groups", "none"),
    "--acceptance": ("3.4", "none"),
    "--role": ("prefill", "none"),
    "--to": ("shell", "0.5.18", "kubernets", "0.5.99", "9.9"),
    "--from": ("0.5.12", "9.9", "x"),
    "--output": ("out.json", "html=out", "xml=out", "none/out.md", "out"),
    "--baseline": ("known.json", "none.json", "serve.sh"),
    "--engine-python": ("0.5.12=none", "x"),
    "--write-baseline": ("new.json", "none/new.json"),
    "--config": ("speclaunch-other.toml", "none.toml"),
    "--exclude": ("*.sh", "[", ""),
    "--workload": ("code", "chats", "prompts.jsonl", "none.jsonl"),
    "--concurrency": ("1,8", "0", "x", "8,8", ""),
    "--context": ("0,100", "-1", "x"),
    "--goodput": ("ttft=500,tpot=50", "ttft", "xyz=1", "ttft=x"),
    "--against": ("none", "recipe=ngram_qwen7b", "engine=0.5.12", "engine=9", "x"),
    "--url": ("http://127.0.0.1:9", "x"),
    "--objective": ("throughput@8", "throughput@1,8", "goodput@4:ttft=1", "x", "throughput@0"),
    "--fail-under": ("1.1", "0", "x"),
    "--max-attempts": ("1", "0", "101"),
    "--dir": ("none",),
    "--reserve": ("10", "x"),
}
"""Values of options by their longest name, right ones and wrong ones."""


def option_cases(_scenes: Path, verbs: Verbs) -> Iterator[Case]:
    """Each option of each verb: without a value, with wrong and right ones, and misspelled."""
    for verb, options in verbs.items():
        words = tuple(verb.split())
        rest = SAFE_ARGS.get(verb, ())
        for option in options:
            names = [way for way in option.ways if way.startswith("--")]
            if "--help" in names:
                continue
            way = names[0]
            lines = [(f"{way[:-1]}{way[-2:]}",), (way + "x", "1"), (way.replace("-", "_"),)]
            if option.metavar:
                lines += [(way,), (*rest, way)]
            if verb not in UNSAFE and not option.metavar:
                lines.append((*rest, f"{way}=1"))
            if verb not in UNSAFE | UNSTEADY:
                lines += [(*rest, *values) for values in _values(option, names)]
            for number, line in enumerate(dict.fromkeys(lines)):
                args = (*words, *line)
                yield Case(f"{number} {shlex.join(args)}", args, "work", writes=True)
        if verb not in UNSAFE | UNSTEADY:
            for more in (("--no-such",), ("extra", "words=1"), ("-z",), ("--", "--engine")):
                args = (*words, *rest, *more)
                yield Case(shlex.join(args), args, "work", writes=True)


def _values(option: Option, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if not option.metavar:
        if {"--online", "--detach", "--follow", "--trust-engine", "--run"}.isdisjoint(names):
            yield from ((way,) for way in option.ways)
            yield names[0], names[0]
        return
    known = next((VALUES[name] for name in names if name in VALUES), ())
    numbers = ("1", "-1", "1.5") if "range" in option.metavar else ()
    for value in (*known, *option.choices, "wrong value", *numbers):
        yield names[0], value
    for way in option.ways[:1]:
        yield (way + known[0],) if known and not way.startswith("--") else (way, "1")
    if known:
        yield (f"{names[0]}={known[0]}",)
        yield names[0], known[0], names[0], known[-1]


# recipes


def recipe_cases(_scenes: Path, verbs: Verbs) -> Iterator[Case]:
    """Every recipe: planned, launched without a start, checked and rendered."""
    formats = _choices(verbs, "lint", "--output-format")
    for name in _recipes():
        recipe_ = f"recipe={name}"
        for words in (
            ("launch", recipe_, "--dry-run"),
            ("launch", recipe_, "--dry-run", "--force", *JSON),
            ("launch", recipe_, "--dry-run", "--hardware", "h100:8"),
            ("plan", recipe_),
            ("plan", recipe_, "--all"),
            ("plan", recipe_, "--all", "--hardware", "h200:8", *JSON),
            ("plan", recipe_, "--hardware", "cpu"),
            ("bench", recipe_, "--dry-run"),
            ("prove", recipe_, "--dry-run"),
            ("tune", recipe_, "--dry-run", "--hardware", "h100:8"),
            ("lint", f"recipes/{name}.yaml", *JSON),
            ("lint", f"recipes/{name}.yaml", "--info", "--hardware", "h100:8"),
            ("models", "show", recipe_),
        ):
            yield Case(shlex.join(words), words, "recipes")
        for verb in ("bench", "prove", "tune"):
            for kind in ("json", "markdown", "html") if name == RECIPE else ("json",):
                words = (verb, recipe_, "--dry-run", "--output-format", kind)
                yield Case(shlex.join(words), words, "recipes")
        for target in RENDER_TARGETS:
            bare = ("--force", "--bare") if name == RECIPE else ()
            for more in dict.fromkeys(((), ("--force", "--hardware", "h200:8"), bare)):
                words = ("render", recipe_, "--to", target, *more)
                yield Case(shlex.join(words), words, "recipes")
    for kind in formats:
        for words in (("recipes",), ("recipes", "--hardware", "h100:8"), (".", "--strict")):
            args = ("lint", *words, "--output-format", kind)
            yield Case(shlex.join(args), args, "work" if "." in words else "recipes")
        args = ("lint", ".", "--output", f"{kind}=out")
        yield Case(shlex.join(args), args, "work", writes=True)


def _recipes() -> list[str]:
    return sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))


def _choices(verbs: Verbs, verb: str, option: str) -> list[str]:
    return next(one.choices for one in verbs[verb] if option in one.ways)


def version_cases(_scenes: Path, _verbs: Verbs) -> Iterator[Case]:
    """Every recipe, planned and checked for every other release with stored verdicts."""
    for name in _recipes():
        for version in data.versions()[::2]:
            engine = ("--engine", version, "--hardware", "h200:8", *JSON)
            for words in (("lint", f"recipes/{name}.yaml"), ("plan", f"recipes/{name}.yaml")):
                more = ("--all",) if words[0] == "plan" else ()
                yield Case(f"{shlex.join(words)} {version}", (*words, *engine, *more), "recipes")


def knowledge_cases(_scenes: Path, _verbs: Verbs) -> Iterator[Case]:
    """What speclaunch knows: rules, catalogues, checkpoints, ways to speculate."""
    codes = sorted(path.stem for path in (ROOT / "docs/rules").glob("SPL*.md"))
    lines = [("explain", code) for code in codes]
    lines += [("explain", word) for word in ("spl301", "301", "SPL3", "no-such-rule")]
    for words in (
        *(("rules",), ("engine", "catalogue", "ls"), ("models", "ls"), ("recipes", "ls")),
        *(("recipes", "schema"), ("runs", "ls"), ("bench", "ls"), ("engine", "judge", "ls")),
        *(("recipes",), ("runs", "show"), ("bench", "show"), ("logs",), ("stop",)),
    ):
        lines += [words, (*words, *JSON)]
    for name in ("tp_size", "speculative_num_steps", "enable_dp_attention", "no_such", "tp_siz"):
        lines += [
            ("engine", "catalogue", "show", name),
            ("engine", "catalogue", "show", name, *JSON),
        ]
    for target in TARGETS:
        for more in ((), ("--hardware", "h100:8"), ("--engine", "0.5.12"), JSON):
            lines += [("drafts", target, *more)]
            lines += [("init", target, *more)] if more != JSON else []
        lines += [("models", "show", target), ("models", "show", target, *JSON)]
    for words in lines:
        yield Case(shlex.join(words), words, "work", writes=words[0] == "init")


TARGETS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "zai-org/GLM-4.6",
    "Qwen/Qwen3-235B-A22B",
    "Qwen/Qwen2.5-7B-Instruct",
    "meta-llama/Llama-3.1-8B-Instuct",
    "nobody/nothing",
    "models/other",
)


def log_cases(_scenes: Path, _verbs: Verbs) -> Iterator[Case]:
    """Every log of the labelled corpus."""
    for path in sorted((ROOT / "tests/serving/launch/diagnosis/corpus").glob("*.log")):
        for more in (JSON, (), ("--engine", "0.5.10.post1")):
            words = ("diagnose", f"logs/{path.name}", *more)
            yield Case(shlex.join(words), words, "logs")


# broken recipes and settings

GOOD = "defaults: [base, _self_]\nargs:\n  model_path: a/b\n  tp_size: 2\n"
BROKEN: Mapping[str, str] = {
    "unknown key": GOOD + "enigne: {version: '0.5.12'}\n",
    "unknown key below": GOOD + "engine: {vesion: '0.5.12'}\nlaunch: {timeuot: 3, prot: 1}\n",
    "unknown argument": GOOD + "  tp_sizes: 3\n  speculative_algoritm: EAGLE\n",
    "wrong types": GOOD + "engine: 3\nlaunch: [1]\nhardware: {count: many, name: 7}\nname: [x]\n",
    "wrong types of args": GOOD + "  context_length: [1]\n  host: {a: b}\n  port: 1.5\n",
    "wrong values": GOOD + "launch: {port: -1, timeout: 0}\nengine: {version: 'x y'}\n",
    "args is a list": "defaults: [base]\nargs: [1, 2]\n",
    "no args": "defaults: [base]\nname: x\n",
    "a list": "- a\n- b\n",
    "a text": "just text\n",
    "empty": "",
    "only a comment": "# nothing\n",
    "bad YAML": GOOD + "engine: {version: [\n",
    "a tab": GOOD + "\tengine: 1\n",
    "not closed": GOOD + 'name: "x\n',
    "a key twice": GOOD + "  tp_size: 4\n",
    "two documents": GOOD + "---\n" + GOOD,
    "an anchor to itself": GOOD + "engine: &a {version: *a}\n",
    "no such anchor": GOOD + "engine: *a\n",
    "a tag": GOOD + "engine: !!python/object:os.system {}\n",
    "no UTF-8": GOOD + "name: \udcff\n",
    "a control character": GOOD + 'name: "a\x07b"\n',
    "no such group": "defaults: [base, speculation: no_such, _self_]\nargs: {model_path: a/b}\n",
    "no such file in defaults": "defaults: [bas, _self_]\nargs: {model_path: a/b}\n",
    "defaults is a text": "defaults: base\nargs: {model_path: a/b}\n",
    "defaults of itself": "defaults: [defaults-of-itself]\nargs: {model_path: a/b}\n",
    "an interpolation": GOOD + "  port: ${launch.prt}\n",
    "an interpolation of itself": GOOD + "name: ${name}\n",
    "a bad interpolation": GOOD + "name: ${oc.env:NO_SUCH}\n  \n",
    "a missing value": GOOD + "  host: ???\n",
    "no such draft": GOOD + "  speculative_algorithm: EAGLE\n  speculative_num_steps: 3\n",
    "unknown algorithm": GOOD + "  speculative_algorithm: EAGEL\n",
    "negative": GOOD + "  speculative_algorithm: NGRAM\n  speculative_num_draft_tokens: -3\n",
    "roles": GOOD + "roles: {prefill: {args: 3}, decod: {}}\n",
    "roles without args": GOOD + "roles: [prefill]\n",
    "deploy": GOOD + "deploy: {image: 3, speclaunch: maybe, replicas: no}\n",
    "recovery": GOOD + "recovery: {ladder: 3, enabled: maybe}\n",
    "env": GOOD + "engine: {env: [A], python: 3, package: {}}\n",
    "env values": GOOD + "engine: {env: {A: [1], 'b c': 1, SGLANG_X: null}}\n",
    "extra args": GOOD + "extra_args: --tp 3\n",
    "extends": GOOD + "extend: other\n",
    "deep": "a: " + "[" * 300 + "]" * 300 + "\n",
    "long": GOOD + f"name: {'x' * 3000}\n",
    "version unknown": GOOD + "engine: {version: '7.8.9'}\n",
    "version too old": GOOD + "engine: {version: '0.1.0'}\n",
    "hardware unknown": GOOD + "hardware: {name: h1000, count: 8}\n",
    "memory": GOOD + "hardware: {name: h100, count: 0, memory_gib: -1}\n",
}
OVERRIDES = (
    *("args.tp_size=x", "args.tp_sise=2", "+args.tp_sise=2", "args.tp_size", "=3", "args.=3"),
    *("speculation=nop", "no_such=1", "+no_such=1", "++args.tp_size=[1", "~args.none", "~args"),
    *("args.tp_size={a: 1}", "args=3", "engine.version=9.9", "launch.port=x", "hydra.x=1", "a b=c"),
    *("args.tp_size=1,2", "recipe=other", "name='x", "+engine.env.A=${oc.env:X}", "launch=none"),
    *("args.speculative_algorithm=EAGEL", "hardware=cpu", "hardware.name=h1000", "recovery=of"),
)
SETTINGS: Mapping[str, str] = {
    "good": 'engine = ["0.5.18", "0.5.23"]\nhardware = "h100:8"\nselect = ["SPL"]\n',
    "all": (
        'engine = "0.5.12"\nhardware = "h200"\nmodels = ["models"]\nask = "never"\n'
        'ignore = ["SPL801"]\nexclude = ["*.yaml"]\nconfig-dir = ["groups"]\n'
        '[assume]\n"a/b" = "meta-llama/Llama-3.1-8B-Instruct"\n'
        '[[overrides]]\npaths = ["*.sh"]\nengine = "0.5.9"\nignore = ["SPL702"]\n'
        '[[overrides]]\npaths = ["mine*"]\nhardware = "h100"\nselect = ["SPL1"]\n'
    ),
    "unknown key": 'engin = "0.5.12"\n',
    "unknown rule": 'ignore = ["SPL999", "X"]\nselect = ["spl3"]\n',
    "unknown version": 'engine = ["x", "9.9.9"]\n',
    "unknown hardware": 'hardware = "h1000:x"\n',
    "wrong types": "engine = 3\nhardware = []\nmodels = 1\nassume = 2\nask = 'maybe'\n",
    "wrong overrides": "overrides = 3\n",
    "wrong override": '[[overrides]]\npath = ["x"]\nengine = 3\n[[overrides]]\npaths = 3\n',
    "no TOML": "engine = \n",
    "a key twice": 'engine = "0.5.12"\nengine = "0.5.13"\n',
    "cyclic": 'extend = "speclaunch.toml"\n',
    "extends": 'extend = "more.toml"\nignore = ["SPL801"]\n',
    "extends none": 'extend = "none.toml"\n',
    "leads out": 'extend = "../../x.toml"\nbaseline = "../../known.json"\n',
    "no models": 'models = ["none"]\nbaseline = "none.json"\nconfig-dir = ["none"]\n',
    "assume": '[assume]\n"a/b" = 3\n"c" = "d"\n"e/f" = "no/such"\n',
    "empty": "",
}


def broken_scenes(folder: Path, quick: bool) -> None:
    """Broken recipes; a folder for each broken file of settings."""
    work_scene(folder, quick)
    for name, text in BROKEN.items():
        place = folder / "broken" / f"{name.replace(' ', '-')}.yaml"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, errors="surrogateescape")
    for name, text in SETTINGS.items():
        home = folder / "settings" / name.replace(" ", "-")
        shutil.copytree(folder / "work", home)
        (home / "more.toml").write_text('hardware = "h200:8"\nextend = "third.toml"\n')
        (home / "third.toml").write_text('engine = "0.5.12"\nignore = ["SPL3"]\n')
        (home / "speclaunch.toml").write_text(text)


def broken_cases(_scenes: Path, _verbs: Verbs) -> Iterator[Case]:
    """Messages for what cannot be read."""
    for name in BROKEN:
        path = f"{name.replace(' ', '-')}.yaml"
        for words in (
            *(("lint", path), ("lint", path, *JSON), ("plan", path), ("plan", path, *JSON)),
            *(("launch", path, "--dry-run"), ("render", path, "--to", "shell"), ("doctor", path)),
            *(("tune", path, "--dry-run"), ("migrate", path, "--to", "0.5.22", "--diff")),
        ):
            if words[0] != "doctor":
                yield Case(shlex.join(words), words, "broken")
    for override in OVERRIDES:
        for verb in ("plan", "launch", "render"):
            words = (verb, "recipe=mine.yaml", override)
            words += {"launch": ("--dry-run",), "render": ("--to", "shell")}.get(verb, ())
            yield Case(shlex.join(words), words, "work")
    for recipe_ in (
        "recipe=none",
        "recipe=none.yaml",
        "recipe=",
        "recipe=.",
        "recipe=ngram_qwen7",
        "x",
    ):
        for verb in ("plan", "launch", "bench", "prove", "tune", "render"):
            words = (verb, recipe_, *(("--to", "shell") if verb == "render" else ("--dry-run",)))
            yield Case(shlex.join(words), words, "work")
    for name in SETTINGS:
        scene = f"settings/{name.replace(' ', '-')}"
        for words in (
            ("lint", "."),
            ("lint", "serve.sh", "mine.yaml", *JSON),
            ("lint", "mine.yaml", "--engine", "0.5.20", "--no-config"),
            ("lint", "--config", "more.toml", "--select", "SPL", "."),
            ("plan", "mine.yaml"),
            ("launch", "mine.yaml", "--dry-run", *JSON),
        ):
            yield Case(f"{name}: {shlex.join(words)}", words, scene)


def work_scene(folder: Path, _quick: bool) -> None:
    """Small files of each kind, in `work`; the recipes of the repository, in `recipes`."""
    work = folder / "work"
    (work / "groups/own").mkdir(parents=True)
    (work / "groups/own/a.yaml").write_text("# @package args\nrandom_seed: 7\n")
    (work / "serve.sh").write_text(script(3))
    (work / "mine.yaml").write_text(recipe(3))
    (work / "r.yaml").write_text((ROOT / "recipes/eagle3_llama8b.yaml").read_text())
    (work / "deployment.yaml").write_text(manifest(3, 900))
    (work / "prompts.jsonl").write_text('{"prompt": "Say hello."}\n' * 4)
    (work / "speclaunch-other.toml").write_text('engine = "0.5.12"\n')
    config = json.loads((ROOT / "tests/conformance/configurations.json").read_text())["models"]
    for name, content in {"other": next(iter(config.values())), **config}.items():
        (work / "models" / name).mkdir(parents=True)
        (work / "models" / name / "config.json").write_text(json.dumps(content))
    corpus = ROOT / "tests/serving/launch/diagnosis/corpus"
    shutil.copyfile(next(iter(sorted(corpus.glob("capture*.log")))), work / "engine.log")
    shutil.copytree(corpus, folder / "logs/logs")
    shutil.copytree(ROOT / "recipes", folder / "recipes/recipes")
    (folder / "empty").mkdir(exist_ok=True)


# many files


def translation_scenes(folder: Path, quick: bool) -> None:
    """A folder for each generated text."""
    for number, text in enumerate(generate(60 if quick else 240, 29)):
        home = folder / f"texts/{number:04}"
        home.mkdir(parents=True)
        for name, content in {text.name: text.text, **text.files}.items():
            (home / name).write_text(content)
        (folder / "texts" / f"{number:04}.json").write_text(
            json.dumps([text.name, text.version, text.to, text.told])
        )


def translation_cases(scenes: Path, _verbs: Verbs) -> Iterator[Case]:
    """Texts of all kinds: imported, carried to another version, fixed."""
    for about in sorted((scenes / "texts").glob("*.json")):
        name, version, to, told = json.loads(about.read_text())
        scene = f"texts/{about.stem}"
        since = ("--from", version) if told else ()
        for words in (
            ("import", name, "--engine", version),
            ("migrate", name, "--to", to, *since),
            ("lint", name, "--engine", version, "--unsafe-fixes", "--diff"),
            ("lint", name, "--engine", to, "--fix"),
        ):
            yield Case(f"{about.stem} {shlex.join(words)}", words, scene, writes=True)


def configuration_scenes(folder: Path, quick: bool) -> None:
    """Commands that the engines were asked about, whose checkpoints are known."""
    dice = random.Random(20261122)  # noqa: S311 - not a secret
    home = folder / "configurations"
    home.mkdir()
    work_scene(folder, quick)
    shutil.copytree(folder / "work/models", home / "models")
    versions = data.versions()
    for version in versions:
        for said in dice.sample(data.load(version), (60 if quick else 500) // len(versions) + 1):
            machine = data.MACHINES[said.machine]
            hardware = f"{said.machine}:{machine['count']}" if machine["count"] else said.machine
            env = "".join(f"{name}={shlex.quote(value)} " for name, value in said.env.items())
            text = f"#!/bin/bash\n{env}sglang serve {shlex.join(said.words)}\n"
            name = re.sub(r"[^\w.-]+", "-", f"{version}+{hardware}+{said.id}")
            (home / f"{name}.sh").write_text(text.replace("\n", f"\n# {hardware}\n", 1))


def configuration_cases(scenes: Path, _verbs: Verbs) -> Iterator[Case]:
    """Each configuration: linted, planned and imported for the version that was asked."""
    for path in sorted((scenes / "configurations").glob("*.sh")):
        engine = ("--engine", path.name.partition("+")[0])
        hardware = path.read_text().splitlines()[1][2:]
        given = ("--hardware", hardware, "--models", "models", *JSON)
        yield Case(f"lint {path.name}", ("lint", path.name, *engine, *given), "configurations")
        words = ("plan", path.name, *engine, "--all", *given)
        yield Case(f"plan {path.name}", words, "configurations")
        yield Case(f"import {path.name}", ("import", path.name, *engine), "configurations")


def corpus_scene(folder: Path, quick: bool) -> None:
    """All that lint reads, in one folder."""
    (folder / "corpus").mkdir()
    write_everything(folder / "corpus", Size(150, 40, 12) if quick else Size(2000, 1, 1), 13, ROOT)


def corpus_cases(scenes: Path, _verbs: Verbs) -> Iterator[Case]:
    """Lint of many files at once and of single ones, in processes of their own.

    The present version takes from its cache what did not change since the case before.
    """
    corpus = scenes / "corpus"
    generated = sorted((corpus / "generated").rglob("*"))
    files = [
        str(path.relative_to(corpus))
        for path in generated
        if path.is_file() and path.name != "engine.yaml"
    ]
    known = ("--models", "models", "--hardware", "h200:8")
    lines = {
        "all": (".", *JSON),
        "all once more": (".", *JSON),
        "all as text": (".",),
        "pinned, with checkpoints": (".", "--engine", "0.5.10.post1", *known, *JSON),
        "pinned to two": ("generated", "--engine", "0.5.11,0.5.23"),
        "pinned to the oldest": ("generated", "--engine", "0.4.6.post5", *JSON),
        "chosen rules": ("generated", "--select", "SPL3,SPL8", "--ignore", "SPL301", "--strict"),
        "one by one": (*files[::3], *JSON),
        **{f"alone: {name}": (name,) for name in files[:: max(1, len(files) // 20)]},
    }
    for name, words in lines.items():
        yield Case(name, ("lint", *words), "corpus", is_cold=True, is_warm=True)
    stdin = next(name for name in files if name.endswith(".sh"))
    words = ("lint", "-", *JSON)
    yield Case("standard input", words, "corpus", stdin=stdin, is_cold=True, is_warm=True)


def changed_scene(folder: Path, quick: bool) -> None:
    """The same, after groups, checkpoints and files have changed."""
    corpus_scene(folder, quick)
    settle(folder)
    change(folder / "corpus", 13)


def changed_cases(scenes: Path, verbs: Verbs) -> Iterator[Case]:
    """The first of these once more: nothing comes from a cache that is no longer true."""
    for case in corpus_cases(scenes, verbs):
        if case.name == "all":
            yield case


LEFT_BY = "/tmp/speclaunch-net-leftbehd"  # noqa: S108 - a text to be replaced
"""The folder that the files of `tests/data/left_behind.tar.xz` were written in."""


def left_scenes(folder: Path, quick: bool) -> None:
    """What release 0.5 of speclaunch left on disk: a HOME, and a repository with baselines."""
    work_scene(folder, quick)
    with tarfile.open(ROOT / "tests/data/left_behind.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    for home in (folder / "left", folder / "leftwork"):
        for path in home.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                path.write_bytes(content.replace(LEFT_BY.encode(), str(folder.parent).encode()))


def left_cases(scenes: Path, verbs: Verbs) -> Iterator[Case]:
    """Everything in it, read and shown again."""
    runs = sorted(path.name for path in (scenes / "left/.cache/speclaunch/runs").iterdir())
    benches = sorted(path.name for path in (scenes / "left/.cache/speclaunch/benches").iterdir())
    lines = [("ps",), ("runs", "ls"), ("bench", "ls"), ("stop",), ("stop", "--all")]
    lines += [("runs", "show", name) for name in (*runs, "last", "fake", "fak")]
    lines += [("logs", name, *more) for name in runs for more in ((), ("-n", "3"))]
    lines += [("logs", name, "--speclaunch") for name in runs]
    lines += [("logs", runs[-1], "--attempt", number) for number in "123"]
    lines += [("diagnose", name) for name in (*runs, "last")]
    lines += [("bench", "show", name) for name in (*benches, "last", "eagle3", "none")]
    lines += [("bench", "compare", one, other) for one in benches[:4] for other in benches[1:4]]
    lines += [(*words, *JSON) for words in lines if words[0] not in ("logs", "stop")]
    for words in [words for words in lines if words[0] == "bench" and words[1] != "ls"]:
        if "--output-format" not in words:
            lines += [(*words, "--output-format", kind) for kind in ("markdown", "html")]
            lines += [(*words, "--output", f"out.{end}") for end in ("md", "html", "json", "txt")]
            lines += [(*words, "--fail-under", ratio) for ratio in ("0.9", "1.2")]
    lines += [("runs", "prune"), ("runs", "prune", "--keep", "1")]
    lines += [("lint", "."), ("lint", ".", "--no-cache"), ("lint", "mine.yaml", "fake.yaml")]
    for name in ("known.json", "known-1.json"):
        known = ("--baseline", name)
        lines += [("lint", ".", *known), ("lint", "run-0.sh", *known, *JSON)]
        lines += [("lint", ".", *known, "--write-baseline", name), ("lint", "serve.sh", *known)]
        for kind in _choices(verbs, "lint", "--output-format"):
            lines.append(("lint", ".", *known, "--output-format", kind))
    lines += [("models", "ls"), ("models", "ls", *JSON)]
    lines += [(*words, "my-org/Nothing-7B") for words in (("models", "show"), ("drafts",))]
    lines += [("plan", "mine.yaml"), ("plan", "fake.yaml", *JSON), ("plan", "run-1.sh")]
    lines += [(verb, "fake.yaml", "--dry-run") for verb in ("launch", "bench", "prove", "tune")]
    lines += [("-m", "recipe=fake.yaml", "args.speculative_num_draft_tokens=4,8", "--plan")]
    for words in lines:
        yield Case(shlex.join(words), words, "leftwork", writes=True, home="left")
    served = ("launch", "recipe=fake.yaml", "args.port=0", "recovery=default", "--smoke")
    yield Case("last known good", served, "leftwork", home="left", env=(FRACTIONS,), serves=True)
    again = (*served, "--fresh")
    yield Case("fresh", again, "leftwork", home="left", env=(FRACTIONS,), serves=True)


FRACTIONS = ("FAKE_FRACTIONS", "0.58:0.8")
"""With which values of mem_fraction_static the scripted engine serves."""


def settle(folder: Path) -> None:
    """Give all files the same time of change, as long as nothing has set another one."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (CHANGED_AT, CHANGED_AT))


PARTS: Mapping[str, Part] = {
    "help": Part(help_cases, work_scene),
    "completion": Part(completion_cases, work_scene),
    "options": Part(option_cases, work_scene),
    "recipes": Part(recipe_cases, work_scene),
    "versions": Part(version_cases, work_scene),
    "knowledge": Part(knowledge_cases, work_scene),
    "logs": Part(log_cases, work_scene),
    "broken": Part(broken_cases, broken_scenes),
    "translations": Part(translation_cases, translation_scenes),
    "left": Part(left_cases, left_scenes),
    "configurations": Part(configuration_cases, configuration_scenes),
    "lint": Part(corpus_cases, corpus_scene, jobs=1),
    "changed": Part(changed_cases, changed_scene, jobs=1),
}
