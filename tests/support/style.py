"""Words and phrases that texts avoid, each with its replacement, and a checker of the pages.

    python -m tests.support.style    # README, CHANGELOG, CONTRIBUTING, docs and the libraries' READMEs

It prints `file:line: phrase: write …` and exits 1 if it finds any; `make lint` runs it. Vale would do the
same with rules of its format, but its package downloads the program when it first runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted(
    path
    for pattern in (
        *("docs/**/*.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
        *("speclaunch/*/README.md", "tools/README.md", "campaigns/README.md"),
    )
    for path in ROOT.glob(pattern)
)

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
    ("speclaunch/checks/engine_check/opinions.py", "ask"): "the option --ask",
    ("speclaunch/serving/doctor/checks/environment.py", "ask"): "ask a person",
}
"""Phrases that a file may use, with the reason."""

_ANY = re.compile("|".join(PHRASES))


class Text(NamedTuple):
    """A text that users read: where it is, what it is (call and argument), and how it reads."""

    where: str
    kind: tuple[str, str]
    text: str


def own_words(text: str) -> str:
    """Return a text without code and without quotes of the engine."""
    return re.sub(
        r"`[^`]*`|the engine (?:refuses|stops|logs): .*|the draft (?:worker )?stops: .*|\(\?P<\w+>",
        "…",
        text,
    )


def phrases(text: Text) -> Iterator[str]:
    """Yield the phrases to avoid in a text, with place and replacement."""
    own, file = own_words(text.text), text.where.partition(":")[0]
    for phrase, instead in PHRASES.items() if _ANY.search(own) else ():
        found = re.search(phrase, own)
        if found and (file, found[0].lower()) not in EXCEPTIONS:
            yield f"{text.where}: {found[0]!r} in {text.text!r}: write {instead!r}"


def prose(page: str, where: str) -> Iterator[Text]:
    """Yield the paragraphs of a page with their first line, without code, link targets and sources."""
    text = re.sub(
        r"^ *```.*?^ *```|<!--.*?-->",
        lambda found: "\n" * found[0].count("\n"),
        page.partition("## Sources")[0],
        flags=re.S | re.M,
    )
    text = re.sub(r"`[^`]*`", lambda found: "`…`" + "\n" * found[0].count("\n"), text)
    text = re.sub(r"\]\([^)]*\)", lambda found: "]" + "\n" * found[0].count("\n"), text)
    for found in re.finditer(r"(?:^[ \t]*\S.*\n?)+", text, re.M):
        line = text.count("\n", 0, found.start()) + 1
        yield Text(f"{where}:{line}", ("page", "prose"), " ".join(found[0].split()))


def page_complaints(page: Path) -> list[str]:
    """Return the phrases to avoid in a page."""
    where = str(page.relative_to(ROOT))
    return [found for text in prose(page.read_text(), where) for found in phrases(text)]


if __name__ == "__main__":
    complaints = [found for page in PAGES for found in page_complaints(page)]
    print(*complaints or [f"{len(PAGES)} pages use the words of the glossary"], sep="\n")
    sys.exit(bool(complaints))
