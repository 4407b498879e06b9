"""Style of identifiers, docstrings, messages, help texts and docs: what a test can check.

Imperative, subject first, short: "remove it", "cannot be combined with", "unknown recipe 'x'". The tables below have
words and phrases that came back again and again, each with its replacement; the rest is for a reader.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.engine.releases.nearest import distance, nearest, suggest
from tests.support.loops import over

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for path in (ROOT / "speclaunch").rglob("*.py") if "shim" not in path.parts)
PAGES = sorted(
    path
    for pattern in (
        *("docs/**/*.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
        *("speclaunch/*/README.md", "tools/README.md", "campaigns/README.md"),
    )
    for path in ROOT.glob(pattern)
)

TEXTS = {
    "Verdict": ("message", "at", "why"),
    "Fix": ("text",),
    "Problem": ("message", "place", "help"),
    "UnknownFact": ("what", "why", "help"),
    "CheckLine": ("check", "state", "found", "why", "fix"),
    "Cause": ("name", "title", "meaning", "remedy"),
    "Option": (),
    "Argument": (),
}
"""The calls whose texts users read, and the names of their positional arguments."""

SENTENCES = {("Cause", "meaning"), ("Cause", "remedy"), ("Option", "help"), ("Argument", "help")}
"""Whole sentences: a capital, and a full stop. Everything else is a clause: neither."""

NO_TEXT = {("CheckLine", "check"), ("CheckLine", "state"), ("Cause", "name")}

PHRASES = {
    r"(?<![Tt]here )\b(?:is|are) no (?!longer\b|more\b)": "is not a …; unknown …",
    r"\btak(?:e|es|en) (?:\S+ ){1,4}away\b": "remove …",
    r"\b(?:nothing|no \w+) is called\b": "unknown …",
    r"\b(?:does|do|did) not go (?:with|together)\b|\bgo(?:es)? only with\b": "cannot be combined; does not work with",
    r"\bwithout a word\b": "silently; without a message",
    r"\bat hand\b": "available",
    r"\bin its place\b": "instead",
    r"\b(?:is|are) not there\b": "does not exist; is missing",
    r"\b(?:is|are) none\b|\bis none (?:of|that)\b": "is not one of; is not",
    r"\bwhoever\b|\bwhatever\b|\bnobody\b": "name who or what",
    r"\bthat we know\b|\bwe know\b": "known",
    r"\bmend(?:ed)?\b": "fix",
    r"\banew\b|\bany more\b": "again; no longer",
    r"\bworked out\b": "computed; modelled",
    r"\S  \S": "one space",
}
"""Phrases to avoid, and what to write instead."""

GLOSSARY = {
    "told|tells?|telling": "report, notify, show; is unknown",
    "said|says?|saying": "state, show; a message, a text",
    "ask(?:s|ed|ing)?": "query (the engine), request (an option), prompt (the user)",
    "given": "explicit, set, specified",
    "want(?:s|ed)?|wish(?:es|ed)?": "requested, desired",
    "kept": "stored, cached, saved; unchanged",
    "(?:un)?judged|judging|judge?ment": "checked, evaluated; result",
    "look(?:s|ed|ing)? (?:at|for|into)": "inspect, search, read",
    "besides?": "next to, alongside; in addition",
    "stands|stood": "is, appears",
    "no one|somebody|someone": "name who; unknown, not set, none",
    "whole(?! number)|wholly": "complete, entire",
    "of (?:its|their|your) own": "its own, separate",
    "as written|as (?:it|they) (?:is|are|stands?)": "unchanged, as configured",
    "stay(?:s|ed)?": "remain; wait",
    "(?:is|are) known to(?! fit)": "known",
    r"blot\w*": "redact",
    r"fore(?:see|saw|told)\w*": "predict",
    "surroundings": "server context",
    "go(?:es|ne|ing)? on": "continue, resume",
    "for good|lasting": "permanent",
    "no matter|does no harm": "harmless, ignored",
    "ones": "the noun itself",
    "so often": "a count, a maximum",
    "apart": "separate",
}
"""Words to avoid in messages, help and docs, and what to write instead."""

PHRASES |= {rf"(?i:\b(?:{words})\b)": instead for words, instead in GLOSSARY.items()}

EXCEPTIONS = {
    **{
        (f"docs/advisories/{page}.md", "ones"): "a tensor of ones"
        for page in ("README", "SPA-2026-0036")
    },
    ("docs/advisories/SPA-2026-0134.md", "kept"): "a stable name",
    ("docs/reference/lint.md", "asking"): "an anchor of earlier releases",
    ("docs/reference/recall.md", "judged"): "an outcome in the stored results",
    ("speclaunch/checks/engine_check/query_plans.py", "ask"): "the option --ask",
    ("speclaunch/serving/doctor/checks/environment.py", "ask"): "ask a person",
}
"""Phrases that a file may use, with the reason."""

NAMES = {"Domino", "Gemma", "Hydra", "Python", "Qwen", "Ray"}
"""Words with a capital that may begin a clause."""
SMALL = {"torch", "float16"}
"""Words without one that may begin a sentence."""


_FEW = 2
"""Spaces that make a literal a text."""


_ANY = re.compile("|".join(PHRASES))


class Text(NamedTuple):
    """A text that users read: where it is, what it is (call and argument), and how it reads."""

    where: str
    kind: tuple[str, str]
    text: str


@lru_cache(maxsize=1)
def _nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(source)))


def literals(source: str, where: str) -> Iterator[Text]:
    """All texts of some words in a module, documentation aside: phrases count there, forms do not."""
    nodes = _nodes(source)
    aside = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    aside |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in aside:
            for text in _parts(node):
                if text.count(" ") >= _FEW and "\n" not in text and "  " not in text:
                    yield Text(f"{where}:{node.lineno}", ("page", "literal"), text)


def _parts(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be; what is filled in reads `{}`."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            yield "".join(
                str(one.value) if isinstance(one, ast.Constant) else "{}" for one in values
            )
        case ast.IfExp(body=body, orelse=orelse):
            yield from _parts(body)
            yield from _parts(orelse)
        case ast.BoolOp(values=values):
            for one in values:
                yield from _parts(one)


def texts(source: str, where: str) -> Iterator[Text]:
    """The texts of a module."""
    for node in _nodes(source):
        if not isinstance(node, ast.Call):
            continue
        call = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if call not in TEXTS:
            continue
        given_ = [*zip(TEXTS[call], node.args, strict=False)]
        given_ += [
            (one.arg, one.value) for one in node.keywords if one.arg in (*TEXTS[call], "help")
        ]
        for name, value in given_:
            if name is not None and (call, name) not in NO_TEXT:
                for text in _parts(value):
                    yield Text(f"{where}:{value.lineno}", (call, name), text)


def prose(page: str, where: str) -> Iterator[Text]:
    """Yield the paragraphs of a page, without code, targets of links and sources."""
    text = re.sub(
        r"^ *```.*?^ *```|<!--.*?-->", "", page.partition("## Sources")[0], flags=re.S | re.M
    )
    text = re.sub(r"`[^`]*`", "`…`", text)
    for paragraph in re.sub(r"\]\([^)]*\)", "]", text).split("\n\n"):
        yield Text(where, ("page", "prose"), " ".join(paragraph.split()))


def complaints(text: Text) -> Iterator[str]:
    """Yield what is wrong with the style of a text."""
    own = re.sub(
        r"`[^`]*`|the engine (?:refuses|stops|logs): .*|the draft (?:worker )?stops: .*|\(\?P<\w+>",
        "…",
        text.text,
    )
    file = text.where.partition(":")[0]
    for phrase, instead in PHRASES.items() if _ANY.search(own) else ():
        found = re.search(phrase, own)
        if found and (file, found[0].lower()) not in EXCEPTIONS:
            yield f"{text.where}: {found[0]!r} in {text.text!r}: write {instead!r}"
    if text.kind in SENTENCES:
        first = re.match(r"\w+", text.text)
        small = first is not None and first[0][0].islower() and first[0] not in SMALL
        if small and not re.match(r"\w+[_.]\w", text.text):
            yield f"{text.where}: a sentence starts with a capital: {text.text!r}"
        if text.text and not text.text.rstrip().endswith((".", "}", "`")):
            yield f"{text.where}: a sentence ends with a full stop: {text.text!r}"
    elif text.kind[0] != "page":
        first = re.match(r"[A-Z][a-z]+\b", own)
        if first and first[0] not in NAMES:
            yield f"{text.where}: a clause starts with a small letter: {text.text!r}"
        if re.search(r"[^.]\.$", own) and text.kind[1] in ("message", "help", "text"):
            yield f"{text.where}: a clause ends without a full stop: {text.text!r}"


@cache
def _all() -> tuple[Text, ...]:
    found = [
        one
        for path in MODULES
        for read in (texts, literals)
        for one in read(path.read_text(), str(path.relative_to(ROOT)))
    ]
    return tuple(found)


@pytest.mark.thorough
def test_messages_are_imperative_and_begin_with_their_subject() -> None:
    assert len(_all()) > 3000
    wrong = sorted({one for text in _all() for one in complaints(text)})
    assert not wrong, "\n".join(wrong)


@pytest.mark.thorough
@over(PAGES, lambda path: path.relative_to(ROOT))
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    where = str(page.relative_to(ROOT))
    wrong = [one for text in prose(page.read_text(), where) for one in complaints(text)]
    assert not wrong, "\n".join(wrong)


def test_every_exception_is_needed() -> None:
    for (file, phrase), reason in EXCEPTIONS.items():
        assert phrase in (ROOT / file).read_text().lower() and reason


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ('Fix("take it away")', "remove"),
        ('Fix(f"take {name} away, or set it")', "remove"),
        ('Problem("a folder is no log")', "is not a"),
        ('Problem(f"nothing is called {name!r}")', "unknown"),
        ('Problem("x", help="1 thing could not be told")', "is unknown"),
        ('Verdict("DFLASH does not go with LoRA")', "cannot be combined"),
        ('Verdict("m", why="a" if b else "nobody reads it")', "name who"),
        ('Problem("two  spaces")', "one space"),
        ('Problem("it is not a log.")', "without a full stop"),
        ('Problem("Unknown recipe")', "small letter"),
        ('typer.Option(help="only so many lines.")', "capital"),
        ('typer.Option(help="Only so many lines")', "with a full stop"),
        ('Cause(name="n", title="t", meaning="M.", remedy="lower it.")', "capital"),
    ],
)
def test_a_text_in_another_style_is_refused(source: str, complaint: str) -> None:
    found = [one for text in texts(source, "x") for one in complaints(text)]
    assert len(found) == 1 and complaint in found[0], found


@pytest.mark.parametrize(
    "source",
    [
        'Fix("remove it")',
        'Verdict("UNO is no longer supported", why="the engine refuses: It is no good.")',
        'Problem(f"unknown recipe {name!r}", help="`speclaunch recipes ls` lists them")',
        'typer.Option(help="Output format.")',
        'other("take it away")',
    ],
)
def test_a_text_in_the_style_passes(source: str) -> None:
    assert not [one for text in texts(source, "x") for one in complaints(text)]


def test_a_phrase_is_refused_wherever_it_stands() -> None:
    module = (
        'def f():\n    """Take it away."""\n    said = "it is not there" if x else "fine with me"\n'
    )
    (found,) = [one for text in literals(module, "x") for one in complaints(text)]
    assert "does not exist" in found


def test_a_page_in_another_style_is_refused() -> None:
    page = "# SPL1 x\n\nWhat it does not\ngo with.\n\n```\ntake it away\n```\n\n## Sources\n- we know\n"
    (found,) = [one for text in prose(page, "x") for one in complaints(text)]
    assert "cannot be combined" in found


WORDS = st.text("abcdehlmnpst_-", min_size=1, max_size=12)


@pytest.mark.thorough
@settings(deadline=None)
@given(WORDS, st.lists(WORDS, max_size=12))
def test_did_you_mean_is_within_an_edit_distance(word: str, known: list[str]) -> None:
    for name in nearest(word, known):
        goes_on = name.startswith((f"{word}_", f"{word}-"))
        assert goes_on or distance(word, name) <= max(1, len(word.lstrip("-")) // 4)


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("helm", ["shell", "slime"], None),
        ("shel", ["shell", "slime"], "shell"),
        ("kubernetes", ["shell", "slime"], None),
        ("speculaton", ["speculation", "recovery"], "speculation"),
    ],
)
def test_a_suggestion_is_a_slip_away(word: str, known: list[str], meant: str | None) -> None:
    assert suggest(word, known) == (meant and f"did you mean `{meant}`?")


def test_every_suggestion_comes_from_one_place() -> None:
    """difflib's likeness has no distance: `helm` is like `shell` to it."""
    users = [
        str(path.relative_to(ROOT)) for path in MODULES if "get_close_matches" in path.read_text()
    ]
    assert not users


OPENINGS = re.compile(r"\s*(?:What|Whether|Who|Which|That|How|Where|If)\b")


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield place and text of each docstring, those of attributes too."""
    for node in ast.walk(ast.parse(path.read_text())):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield f"{path.relative_to(ROOT)}:{value.lineno}", value.value


@pytest.mark.thorough
def test_docstrings_start_with_a_noun_or_a_verb() -> None:
    """They say what the caller gets: "Return the findings", "Files with findings", "True if"."""
    found = [
        f"{where}: {text.split(chr(10))[0]}"
        for path in MODULES
        if path.parent.name != "tiny_models"  # a change of these files makes the models anew
        for where, text in docstrings(path)
        if OPENINGS.match(text)
    ]
    assert not found, found


AVOIDED = {
    "told", "said", "says", "kept", "wanted", "asked", "given", "whole", "one", "beside", "stands",
    "around", "alike", "heard", "foresee", "foretold", "judged", "unjudged", "judgement", "spell", "spelled",
    "spelling",
}  # fmt: skip
"""Words of identifiers that the glossary replaces."""
NAMES_WITH_A_REASON = {
    "speclaunch/app/output/plan/document.py": "keys of JSON: is_given, given, spelling, …",
    "speclaunch/app/output/formats/interface.py": "one_line: on a single line",
    "speclaunch/app/output/findings.py": "one_line: on a single line",
}


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each function, class, parameter, variable and attribute of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


@pytest.mark.thorough
def test_identifiers_use_the_words_of_the_glossary() -> None:
    found = {
        str(path.relative_to(ROOT)): f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in MODULES
        for line, name in identifiers(path)
        if AVOIDED & {word.lower() for word in re.findall(r"[a-z]+|[A-Z][a-z]*", name)}
    }
    assert not found.keys() - NAMES_WITH_A_REASON.keys(), found
    assert not NAMES_WITH_A_REASON.keys() - found.keys()
