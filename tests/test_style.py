"""Style of identifiers, docstrings, messages, help texts and docs: what a test can check.

Imperative, subject first, short: "remove it", "cannot be combined with", "unknown recipe 'x'". Words and phrases to
avoid are in `tests/support/style.py`; the rest is for a reader.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.engine.releases.nearest import distance, nearest, suggest
from tests.support.loops import over, rows
from tests.support.style import (
    EXCEPTIONS,
    PAGES,
    ROOT,
    Text,
    own_words,
    page_complaints,
    phrases,
    prose,
)

MODULES = sorted(path for path in (ROOT / "speclaunch").rglob("*.py") if "shim" not in path.parts)
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

NAMES = {"Domino", "Gemma", "Hydra", "Python", "Qwen", "Ray"}
"""Words with a capital that may begin a clause."""
SMALL = {"torch", "float16"}
"""Words without one that may begin a sentence."""


_FEW = 2
"""Spaces that make a literal a text."""


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


def complaints(text: Text) -> Iterator[str]:
    """Yield what is wrong with the style of a text."""
    own = own_words(text.text)
    yield from phrases(text)
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
@pytest.mark.core
def test_messages_are_imperative_and_begin_with_their_subject() -> None:
    assert len(_all()) > 3000
    wrong = sorted({one for text in _all() for one in complaints(text)})
    assert not wrong, "\n".join(wrong)


@pytest.mark.thorough
@over(PAGES, lambda path: path.relative_to(ROOT))
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    wrong = page_complaints(page)
    assert not wrong, "\n".join(wrong)


def test_every_exception_is_needed() -> None:
    for (file, phrase), reason in EXCEPTIONS.items():
        assert phrase in (ROOT / file).read_text().lower() and reason


@rows(
    "source, complaint",
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


@rows(
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


@rows(
    "word, known, meant",
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


OPENINGS = re.compile(r"\s*(?:What|Whether|Why|Who|Which|That|How|Where|If)\b")


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield place and text of each docstring, those of attributes too."""
    for node in ast.walk(ast.parse(path.read_text())):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield f"{path.relative_to(ROOT)}:{value.lineno}", value.value


@pytest.mark.thorough
@pytest.mark.core
def test_docstrings_start_with_a_noun_or_a_verb() -> None:
    """They say what the caller gets: "Return the findings", "Files with findings", "True if"."""
    found = [
        f"{where}: {text.split(chr(10))[0]}"
        for path in MODULES
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
    "speclaunch/app/output/plan_document.py": "keys of JSON: is_given, given, spelling, …",
    "speclaunch/app/output/formats.py": "one_line: on a single line",
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
@pytest.mark.core
def test_identifiers_use_the_words_of_the_glossary() -> None:
    found = {
        str(path.relative_to(ROOT)): f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in MODULES
        for line, name in identifiers(path)
        if AVOIDED & {word.lower() for word in re.findall(r"[a-z]+|[A-Z][a-z]*", name)}
    }
    assert not found.keys() - NAMES_WITH_A_REASON.keys(), found
    assert not NAMES_WITH_A_REASON.keys() - found.keys()
