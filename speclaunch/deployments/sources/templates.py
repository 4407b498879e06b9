"""Read templates and Makefiles without rendering or running them.

Every mark (`{{ … }}`, `{% … %}`) is replaced with a text of the same length, so places remain
correct. A word in a branch or loop of the template is unknown if its command begins outside. Every
command may get more arguments than the template shows. Templates of a Helm chart are rendered with
its own values (`helm_charts`). Marks in an Ansible role get the values of the role's variables.

Readers of shell or YAML must not parse a template's `{{ value }}` or an f-string's `{value}`. A
placeholder of ordinary characters replaces each (`Masks`). Afterwards every word that contains a
placeholder becomes unknown and gets its original text back.

A Makefile's recipes are one script, as make passes them to a shell. The file's variables are
replaced with their values. `NAME ?= value` becomes `${NAME-value}`. Functions (`$(if …)`,
`$(shell …)`) and automatic variables are not evaluated.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, count
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, Place, lazy, reads
from speclaunch.deployments.sources.interface import (
    Comment,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.source_text import (
    MARK,
    MARK_FIRST,
    MARK_LAST,
    Document,
    SourceBuilder,
    chart_of,
)

_BASE = 0xE100
_DIGITS = 1000
SHORTEST = 4
"""Minimum length of a placeholder. A shorter text cannot be replaced at equal length."""


class Masks:
    """Placeholders in one text. `why`: the reason why their values are unknown."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._texts: dict[str, str] = {}
        self.values: dict[str, str] = {}
        """Known words of each placeholder, separated by spaces."""
        self.notes: dict[str, str] = {}
        """Assumptions behind these words; by default, the Ansible role."""

    def mark(self, text: str, length: int | None = None) -> str:
        """Return a placeholder for a text, with `length` characters unless that is None."""
        number = len(self._texts)
        digits = ""
        while number or not digits:
            number, digit = divmod(number, _DIGITS)
            digits = chr(_BASE + digit) + digits
        if length is not None:
            digits = digits.rjust(length - 2, chr(_BASE))
        self._texts[mark := f"{MARK_FIRST}{digits}{MARK_LAST}"] = text
        return mark

    def __bool__(self) -> bool:
        return bool(self._texts)

    def shown(self, text: str) -> str:
        return MARK.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def _known(self, text: str) -> list[str] | None:
        """Return the words that a word stands for; None if a placeholder in it is unknown."""
        filled = MARK.sub(lambda found: self.values.get(found[0], found[0]), text)
        if text in self.values:
            return filled.split()
        has_more = MARK_FIRST in filled or filled.count(" ") > text.count(" ")
        return None if has_more else [filled]

    def reading(self, reading: Reading, unknown: Callable[[Word], str | None]) -> Reading:
        """Return `reading` with placeholders replaced by the original text.

        `unknown` returns the reason why a word without a placeholder is unknown, or None.
        """
        shown = tuple(self._invocation(found, unknown) for found in reading.invocations)
        return replace(reading, invocations=shown)

    def _invocation(self, found: Invocation, unknown: Callable[[Word], str | None]) -> Invocation:
        def words(written: Word) -> list[Word]:
            known = self._known(written.text)
            why = self._why if known is None else unknown(written)
            marks = (self.notes.get(mark, _OF_ROLE) for mark in MARK.findall(written.text))
            note = written.why or next(marks, None)
            if why is None:
                return [replace(written, text=text, why=note) for text in known or ()]
            text = self.shown(written.text)
            return [replace(written, text=text, evaluated=False, why=why, inside=True, defaults=())]

        def word(written: Word) -> Word:
            return (words(written) or [written])[0]

        return replace(
            found,
            words=tuple(chain.from_iterable(map(words, found.words))),
            program=tuple(map(word, found.program)),
            env={self.shown(name): value for name, value in _each(found.env, word).items()},
            extras=_each(found.extras, word),
            dropped=tuple(Dropped(self.shown(d.text), d.place, d.why) for d in found.dropped),
            comments=tuple(Comment(self.shown(c.text), c.place) for c in found.comments),
            name=None if found.name is None else self.shown(found.name),
            image=found.image and (self._known(found.image) or [self.shown(found.image)])[0],
        )


def _each(words: Mapping[str, Word], change: Callable[[Word], Word]) -> Mapping[str, Word]:
    return MappingProxyType({name: change(word) for name, word in words.items()})


_MARK = lazy(r"\{#.{0,2000}?#\}|\{%.{0,2000}?%\}|\{\{.{0,2000}?\}\}", re.DOTALL)
_MOST_MARKS = 3000
_MOST = 1 << 20
_DEEPEST = _MOST_ITEMS = 60
"""Maximum depth of nested branches; handwritten templates do not exceed these limits."""
_KEYWORD = lazy(r"(?:\{%[-~+]?|\{\{[-~+]?(?!\s*end\w))\s*(?P<word>/\*|[A-Za-z]\w*)")
_OPENING = frozenset(
    {"if", "with", "range", "for", "define", "block", "macro", "call", "filter", "raw"}
)
_MIDDLE = frozenset({"else", "elif"})
_WHY = "a template fills it in"
_OF_VALUES = "the value in the chart's values.yaml"
_BRANCH = "it depends on a branch of the template"
_READ_ONLY = "it is a template"

Path = tuple[int, ...]


def read_template(text: str, shown: str, *, is_yaml: bool) -> Reading:
    """Return the commands that a template shows; none if it is unreadable before rendering."""
    marks = sum(text.count(begin) for begin in ("{{", "{%", "{#"))
    if "sglang" not in text or marks > _MOST_MARKS or len(text) > _MOST:
        return Reading()
    read = _yaml if is_yaml else _script
    chart = chart_of(FilePath(shown))
    found = _rendered(Document(text, shown), chart, read) if chart is not None else None
    if found is not None and found.invocations:
        return _opened(found)
    masked = _Masked(text, _role_variables(text, shown))
    document = Document(masked.text, shown, lenient=True)
    reading = read(document) or _script(document) or Reading()
    return _opened(_with_marks(reading, document, masked.masks, masked.path))


def fill_in(reading: Reading, text: str, shown: str) -> Reading:
    """Return the reading of a YAML file, with the variables of its Ansible role, if any."""
    is_in_role = bool(_role_variables(text, shown))
    found = read_template(text, shown, is_yaml=True).invocations if is_in_role else ()
    if len(found) < len(reading.invocations):
        return reading
    return replace(reading, invocations=tuple(replace(c, words=c.words[1:]) for c in found))


def _rendered(
    template: Document, chart: FilePath, read: Callable[[Document], Reading | None]
) -> Reading | None:
    """Return the commands of a chart's template, with places in it; None if it is unreadable."""
    from speclaunch.deployments.sources.helm_charts import rendered  # noqa: PLC0415  YAML

    masks = Masks(_WHY)
    rendering = rendered(template, chart, masks.mark)
    document = Document(rendering.text if rendering else "", template.shown, lenient=True)
    reading = read(document)
    if rendering is None or reading is None:
        return None
    origin, has_values = rendering.origin, rendering.has_values

    def moved(value: Any) -> Any:
        match value:
            case Place() if value.path == template.shown:
                start, end = origin(document.at(value), value.length)
                return template.place(start, end - start)
            case Word():
                at = document.at(value.place)
                if value.evaluated and has_values(at, len(value.text)):
                    value = replace(value, why=value.why or _OF_VALUES, defaults=())
                return replace(value, place=moved(value.place), used_at=moved(value.used_at))
            case Struct():
                names = value.__struct_fields__
                return replace(value, **{name: moved(getattr(value, name)) for name in names})
            case tuple():
                return tuple(map(moved, value))
            case Mapping():
                return MappingProxyType({name: moved(held) for name, held in value.items()})
        return value

    result: Reading = moved(_with_marks(reading, document, masks, rendering.path))
    return result


def _script(document: Document) -> Reading | None:
    with suppress(InputError):
        return run(document.source())
    return None


def _yaml(document: Document) -> Reading | None:
    from speclaunch.deployments.sources.yaml_files import read_yaml_document  # noqa: PLC0415  YAML

    with suppress(InputError):
        return read_yaml_document(document)
    return None


_Scope = ChainMap[str, Any]
_OF_ROLE = "the default of the role or its playbook, which a play or the inventory may change"
_SET = lazy(
    r"^[ \t-]*[\"']?(\w+)[\"']?:(?![ \t]*[\"']?\{\{[ \t]*\1\b)(?:[ \t]*[\"']?(\w+))?"
    r"|\{%[-+]?\s*set\s+(\w+)",
    re.MULTILINE,
)
"""Pattern of variables that tasks or a template may set, except `NAME: "{{ NAME }}"`."""
_EXPRESSION = lazy(
    r"[- \t]*(?!ansible_|inventory_|playbook_|role_|group|hostvars|item\b|loop\b)"
    r"([A-Za-z_][\w.]*(?:\[[A-Za-z_]\w*\][\w.]*)?)"
    r"(?:\s*\|\s*(?:default|d)\([\"']([\w./:@=,+%-]+)[\"']\))?[- \t]*"
)
"""Pattern of a variable or its item, except facts and loop variables, and its default."""
_LOOP = lazy(
    r"\{%-?\s*for\s+(\w+)\s+in\s+([\w.]+)\s*-?%\}"
    r"(\s*(?:-\s+)?[\"']?\{\{\s*\1\s*\}\}[\"']?\s[\s\\]*\{%\s*endfor)?"
)
"""Pattern of a loop; the third group is the rest of a loop whose body is only a word."""
_PLAIN_TEXT = lazy(r"[\w./:@=,+%-]{1,1000}")


def _role_variables(text: str, shown: str) -> _Scope:
    """Return the variables of a file's Ansible role, with None for those that its tasks may set."""
    from speclaunch.deployments.sources.effective_words import read_below  # noqa: PLC0415
    from speclaunch.deployments.sources.yaml_files import plain_data  # noqa: PLC0415  YAML

    inside = re.match(r"(.*/)?(?:files|tasks|templates)/", shown)
    role = [FilePath(inside[1] or ".")] if inside is not None else []
    above = [folder.parent.parent for folder in role if folder.parent.name == "roles"]
    # the variables of all hosts replace the defaults
    files = (("vars/main.yml", role), ("group_vars/all.yml", above), ("defaults/main.yml", role))
    defined = [read_below(name, places).text for name, places in files]
    scope = _Scope(*(x for own in defined if isinstance(x := plain_data(own or ""), dict)))
    with suppress(OSError):
        names = sorted(reads.names(role[0] / "tasks"))[:_MOST_ITEMS] if scope else ()
        text += "".join(f"\n{read_below(f'tasks/{name}', role).text}" for name in names)
    return scope.new_child(dict.fromkeys(chain(*_SET.findall(text)))) if scope else scope


def _value(code: str, scope: Any) -> Any:
    """Return the value of `NAME.KEY | default('X')`; None if unknown."""
    found, value = _EXPRESSION.fullmatch(code), scope
    if found is None or not scope:
        return None
    for name in found[1].replace("[", ".[").split("."):
        key = scope.get(name[1:-1]) if name.startswith("[") else name
        if not isinstance(value, dict | ChainMap):
            return None
        if not isinstance(key, str) or key not in value:
            return found[2]
        value = value[key]
    return value


def _plain_text(value: Any, scope: _Scope | None) -> str:
    """Return a value's text, with the variables in it; an empty text if it is not one word."""
    if isinstance(value, int | float) and abs(value) < _MOST:
        return str(value)
    text = value[:1001] if isinstance(value, str) else ""
    text = _MARK.sub(lambda m: _plain_text(_value(m[0][2:-2], scope), None) or m[0], text)
    return text if _PLAIN_TEXT.fullmatch(text) else ""


class _Masked:
    """Template with its marks replaced. `scope`: the variables of its Ansible role."""

    def __init__(self, text: str, scope: _Scope) -> None:
        self.masks = Masks(_WHY)
        self._scopes: dict[Path, _Scope] = {(): scope}
        self._loops: set[int] = set()  # numbers of the loops over known items
        self._starts = [0]
        self._paths: list[Path] = [()]
        self._numbers = count()
        self._continued = False
        """True if the last mark on its own line was inside a multi-line command."""
        text = text.replace("\r\n", "\n")
        self.text = _MARK.sub(lambda mark: self._covered(text, mark), text)

    def _covered(self, text: str, mark: re.Match[str]) -> str:
        alone = _is_alone(text, mark)
        if alone:
            self._continued = _is_continued(text, mark.start(), self._continued)
        if self._control(mark) or alone or "\n" in mark[0]:
            blank = re.sub(r"[^\n]", " ", mark[0])
            return f"{blank[:-1]}\\" if alone and self._continued else blank
        mask = self.masks.mark(mark[0], max(len(mark[0]), SHORTEST))
        scope = self._scopes[self._paths[-1]]
        value = _value(mark[0][2:-2], scope)
        items = value if isinstance(value, tuple) else (value,)
        if all(words := [_plain_text(item, scope) for item in items]):
            self.masks.values[mask] = " ".join(words)
        return mask

    def _control(self, mark: re.Match[str]) -> bool:
        """Update the open branches. Return True for a control mark."""
        if mark[0].startswith("{#"):
            return True
        found = _KEYWORD.match(mark[0])
        word = found["word"] if found is not None else ""
        path = self._paths[-1]
        if word.startswith("end"):
            path = path[:-1]
        elif word in _MIDDLE:
            path = (*path[:-1], next(self._numbers))
            self._scopes[path] = self._scopes[path[:-1]]
        elif word in _OPENING and len(path) < _DEEPEST:
            number, scope = next(self._numbers), self._scopes[path]
            path = (*path, number)
            self._scopes[path] = scope if word == "if" else self._in_loop(mark, scope, number)
        else:
            return word == "/*" or mark[0].startswith("{%")
        self._starts.append(mark.end())
        self._paths.append(path)
        return True

    def _in_loop(self, mark: re.Match[str], scope: _Scope, number: int) -> _Scope:
        """Return the variables in a loop. Items that are its only words are a tuple."""
        found = _LOOP.match(mark.string, mark.start())
        items = _value(found[2], scope) if found is not None else None
        if found is None or not isinstance(items, list) or len(items) > _MOST_ITEMS:
            return _Scope()
        items = [tuple(items)] if found[3] else items
        if len(items) == 1:
            self._loops.add(number)
        return scope.new_child({found[1]: items[0] if len(items) == 1 else None})

    def path(self, offset: int) -> Path:
        path = self._paths[bisect_right(self._starts, offset) - 1]
        return tuple(number for number in path if number not in self._loops)


def _with_marks(
    reading: Reading, document: Document, masks: Masks, path: Callable[[int], Path]
) -> Reading:
    """Return `reading` with the template's text.

    A word inside a branch is marked as unknown if its command begins outside that branch. `path`
    returns the branches around an offset of the document.
    """
    shown: list[Invocation] = []
    for found in reading.invocations:
        if found.kind is InvocationKind.CONFIG:  # its text would contain marks
            continue
        own = path(document.at(found.place))

        def unknown(word: Word, own: Path = own) -> str | None:
            there = path(document.at(word.used_at or word.place))
            return None if own[: len(there)] == there else _BRANCH

        shown += masks.reading(Reading((found,)), unknown).invocations
    return Reading(tuple(shown))


def _is_continued(text: str, at: int, before: bool) -> bool:
    """True if the previous line continues on the line of `at`.

    `before`: the result for the previous mark, returned if the previous line is a mark.
    """
    end = max(text.rfind("\n", 0, at), 0)
    above = text[text.rfind("\n", 0, end) + 1 : end].strip()
    if above.startswith(("{%", "{{", "{#")) and above.endswith(("%}", "}}", "#}")):
        return before
    return above.endswith("\\")


def _is_alone(text: str, mark: re.Match[str]) -> bool:
    before = text[text.rfind("\n", 0, mark.start()) + 1 : mark.start()]
    end = text.find("\n", mark.end())
    after = text[mark.end() : len(text) if end < 0 else end]
    return not before.strip() and not after.strip()


def _opened(reading: Reading) -> Reading:
    """Return `reading` with an unknown argument added to each command."""
    opened = []
    for found in reading.invocations:
        words = (Word("*", found.place, evaluated=False, why=_WHY), *found.words)
        opened.append(replace(found, words=words, read_only=found.read_only or _READ_ONLY))
    return replace(reading, invocations=tuple(opened))


_BY_MAKE = "make replaces variables in it"
_COMPUTED = "make computes it"
_MAX_DEPTH = 12
_LINE = lazy(r"(?:[^\n\\]|\\[\s\S])*\\?")
"""Pattern of a line with its continuation lines."""
_ASSIGNMENT = lazy(
    r"(?:[^\s:#=][^:#=\n]*:[ \t]*)?(?:(?:export|override|private)[ \t]+)*"
    r"([A-Za-z_][\w.-]*)[ \t]*(\?|\+|:{0,3}|!)=[ \t]*"
)
_CONDITION = lazy(r" *(ifn?def|ifn?eq|else|endif)\b.*")
_CONTINUED = lazy(r"[ \t]*\\\n[ \t]*")
_COMMENT = lazy(r"(?:^|[ \t])#")
_NAME = lazy(r"[A-Za-z_]\w*")
_OR = lazy(r"or[ \t]+\$[({]([A-Za-z_]\w*)[)}],[ \t]*(.*)", 16)
_BRACKETS = {"(": ")", "{": "}"}


class _Variable(Struct, frozen=True):
    """Definition of a variable; `start` is the offset of its text."""

    text: str
    start: int
    is_default: bool = False


def read_makefile(document: Document) -> Reading:
    """Return the server commands in the recipes of a Makefile."""
    return _Makefile(document).reading()


class _Makefile:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._masks = Masks(_COMPUTED)
        self._variables: dict[str, _Variable | None] = {}
        """Variables by name; None if defined several times or under a condition."""
        self._conditions: list[str] = []  # enclosing directives such as `ifndef NAME`
        self._source = SourceBuilder(document)
        self._quote = ""
        self._is_expanded = False

    def reading(self) -> Reading:
        lines = list(self._lines())
        for start, line in lines:
            if (directive := _CONDITION.match(line)) is not None:
                if directive[1] in ("else", "endif"):
                    del self._conditions[-1:]
                if directive[1] != "endif":
                    self._conditions.append(directive[0].strip())
            elif not line.startswith("\t"):
                bare = line.lstrip(" ")
                self._define(start + len(line) - len(bare), bare)
        for start, line in lines:
            if line.startswith("\t"):
                self._quote = ""
                bare = line.lstrip("\t @+-")
                self._expand(bare, start + len(line) - len(bare))
                self._source.put_straight("\n", start + len(line))
        found = self._masks.reading(run(self._source.source()), lambda _: None)
        if not self._is_expanded:
            return found
        shown = tuple(replace(invocation, read_only=_BY_MAKE) for invocation in found.invocations)
        return replace(found, invocations=shown)

    def _lines(self) -> Iterator[tuple[int, str]]:
        at, text = 0, self._document.text
        is_defined = False
        while at < len(text):
            line = _LINE.match(text, at)
            end = max(line.end() if line is not None else at, at)
            bare = text[at:end].strip()
            is_defined = (is_defined or bare.startswith("define ")) and bare != "endef"
            if bare and not is_defined:
                self._document.spend()
                yield at, text[at:end]
            at = end + 1

    def _define(self, start: int, line: str) -> None:
        found = _ASSIGNMENT.match(line)
        if found is None:
            return
        comment = _COMMENT.search(line, found.end())
        end = comment.start() if comment is not None else len(line)
        name, sign = found[1], found[2]
        is_default = sign == "?" or self._conditions == [f"ifndef {name}"]
        value = _Variable(line[found.end() : end].rstrip(), start + found.end(), is_default)
        known = name in self._variables or sign in ("+", "!")
        known = known or self._conditions not in ([], [f"ifndef {name}"])
        self._variables[name] = None if known else value

    # -- expansion ----------------------------------------------------------------------

    def _hide(self, written: str, at: int) -> None:
        self._is_expanded = True
        self._source.stand_in(self._masks.mark(written), at, at + len(written) - 1)

    def _expand(self, text: str, start: int, depth: int = 0) -> None:
        """Add a text with its variables expanded; `start` is its offset."""
        at = 0
        while at < len(text):
            char = text[at]
            if char == "$" and at + 1 < len(text):
                at = self._reference(text, at, start, depth)
                continue
            if char == "\\" and depth and (gap := _CONTINUED.match(text, at)):
                self._source.put_straight(" ", start + at)
                at = gap.end()
                continue
            if char == "\\" and self._quote != "'":
                self._source.put_straight(text[at : at + 2], start + at)
                at += 2
                continue
            if char in "'\"":
                self._quote = "" if char == self._quote else self._quote or char
            self._source.put_straight(char, start + at)
            at += 1

    def _reference(self, text: str, at: int, start: int, depth: int) -> int:
        """Add the value of a `$…` reference. Return the offset after it."""
        self._document.spend()
        follows = text[at + 1]
        if follows == "$":
            self._is_expanded = True
            self._source.put_straight("$", start + at)
            return at + 2
        end = _end(text, at + 1) if follows in _BRACKETS else at + 2
        inner = text[at + 2 : end - 1]
        chosen = _OR.fullmatch(inner)
        if chosen is not None and chosen[1] not in self._variables and self._quote != "'":
            value = _Variable(chosen[2], start + at + 2 + chosen.start(2))
            self._default(chosen[1], ":-", value, depth)
        elif follows not in _BRACKETS or not _NAME.fullmatch(inner) or depth > _MAX_DEPTH:
            self._hide(text[at:end], start + at)
        else:
            self._variable(inner, text[at:end], start + at, depth)
        return end

    def _variable(self, name: str, written: str, at: int, depth: int) -> None:
        value = self._variables.get(name)
        if value is None:
            if name in self._variables or self._quote == "'":
                self._hide(written, at)
            else:
                self._is_expanded = True
                self._source.stand_in(f"${{{name}}}", at, at + len(written) - 1)
        elif value.is_default and self._quote != "'":
            self._default(name, "-", value, depth)
        else:
            self._is_expanded = True
            self._expand(value.text, value.start, depth + 1)

    def _default(self, name: str, sign: str, value: _Variable, depth: int) -> None:
        """Add `${NAME-value}`, or only the value if a shell would misread its end."""
        self._is_expanded = True
        plain = not any(char in value.text for char in "{}'\"`\\")
        if plain:
            self._source.stand_in(f"${{{name}{sign}", value.start, value.start)
        self._expand(value.text, value.start, depth + 1)
        if plain:
            self._source.put_straight("}", value.start + len(value.text))


def _end(text: str, at: int) -> int:
    """Return the end of a `(…)` or `{…}` that begins at `at`."""
    opening, depth = text[at], 0
    for index in range(at, len(text)):
        depth += (text[index] == opening) - (text[index] == _BRACKETS[opening])
        if depth == 0:
            return index + 1
    return len(text)
