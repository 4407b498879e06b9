"""Expansion of shell words without running anything, from the file alone.

The order is bash's: braces, then parameters, substitutions and arithmetic, then splitting of
unquoted text. An unknown part (an unset variable, a command) is unchanged.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from operator import itemgetter

from msgspec.structs import replace

from speclaunch.core import InputError, lazy
from speclaunch.deployments.sources import expansions
from speclaunch.deployments.sources.effective_words import NO_FILE
from speclaunch.deployments.sources.expansions import (
    MAX_TEXT,
    MAX_WORDS,
    Result,
    TooMany,
    comparison,
    expand_braces,
)
from speclaunch.deployments.sources.fields import (
    Field,
    FieldBuilder,
    ShellScope,
    Value,
    from_argument,
    is_any_number,
    marked,
    present,
    starts_home,
    with_pattern,
)
from speclaunch.deployments.sources.interface import ConfigFile
from speclaunch.deployments.sources.parser import parse, quoted_text
from speclaunch.deployments.sources.shell_syntax import (
    Arithmetic,
    Compound,
    Literal,
    Node,
    OpaquePart,
    Parameter,
    Part,
    Redirect,
    ShellWord,
    Simple,
    Substitution,
)
from speclaunch.deployments.sources.source_text import Document, SourceSpan, SourceText, WordPiece

_NEGATED = lazy(r"(?:\A|[\s;&|(])!\s+\Z")
_RELATION = lazy(r"(==|!=|<=|>=|<|>)")
_RELATIONS = {"==": "-eq", "!=": "-ne", "<=": "-le", ">=": "-ge", "<": "-lt", ">": "-gt"}
_OPTION = lazy(r"--[A-Za-z][\w-]*")
_FILE_TEST = lazy(r"(\[\n|test\n)?(!\n)?-([efrs])\n[^\n]+?(?:\n\])?")
_MAGIC = lazy(r"[*?[]")
_CLASS = lazy(r"\[!?(?:\w(?!-)|\d-\d|[._])+\]")
"""Pattern of a bracket expression that is the same in every locale."""
_MAX_ROUNDS = 16
"""Maximum number of items of a loop whose body is read for each item."""
_HOME = "`~` is the home directory of the user who runs it"


class Expander:
    """Evaluator of shell words in a scope."""

    def __init__(self, document: Document, scope: ShellScope) -> None:
        self.document = document
        self.scope = scope
        self.neighbor: Callable[[Field], ConfigFile | None] = lambda _: None
        """Function that returns the file that a word names next to the script, or None."""
        self.printed: Callable[[Substitution, SourceText], Value | None] = lambda *_: None
        """Function that returns the output of a substitution's commands, or None."""
        self.assumption: str | None = None

    def words(self, words: Sequence[ShellWord]) -> list[Field]:
        fields: list[Field] = []
        for word in words:
            found = self.fields(word)
            is_value = not found and bool(fields) and _OPTION.fullmatch(fields[-1].text) is not None
            if is_value and any(piece.default_of for piece in self.text(word)):
                found = [self._opaque(word, "it is empty unless the environment sets it")]
            fields.extend(found)
            if len(fields) > MAX_WORDS:
                self.document.spend(len(fields))
        return fields

    def fields(self, word: ShellWord) -> list[Field]:
        if (found := _as_written(word)) is not None:
            self.document.spend(2)
            return [found]
        try:
            alternatives = expand_braces(word.parts)
            fields: list[Field] = []
            for parts in alternatives:
                fields.extend(self._split(parts, word))
                if len(fields) > MAX_WORDS:
                    raise TooMany
        except TooMany:
            fields = [self._opaque(word, f"it expands to more than {MAX_WORDS} words")]
        self.document.spend(1 + len(fields))
        return fields

    def text(self, word: ShellWord) -> tuple[WordPiece, ...]:
        """Return the text of one word without splitting it, as in an assignment."""
        pieces: list[WordPiece] = []
        for part in word.parts:
            result = self.part(part, word.source)
            if isinstance(result, list):
                result = self._joined(result, part, word.source)
            pieces.extend(result)
        if pieces and starts_home(word.parts):
            pieces[0] = replace(pieces[0], unknown=_HOME)
        size = sum(len(piece.text) for piece in pieces)
        self.document.spend(1 + len(pieces))
        if size > MAX_TEXT or len(pieces) > MAX_WORDS:
            return self._opaque(word, f"it is longer than {MAX_TEXT} characters").pieces
        return tuple(piece for piece in pieces if piece.text or piece.default_of or piece.note)

    def plain(self, word: ShellWord) -> str | None:
        """Return the text of a word; None if a part of it is unknown."""
        pieces = self.text(word)
        if any(piece.unknown for piece in pieces):
            return None
        return "".join(piece.text for piece in pieces)

    # -- parts --------------------------------------------------------------------------

    def part(self, part: Part, source: SourceText) -> Result:
        """Return the expansion of a part."""
        match part:
            case Literal():
                piece = WordPiece(part.text, source, part.start, part.quoted, part.exact)
                return tuple(_with_outer(piece)) if source.outer else (piece,)
            case Parameter():
                return self._parameter(part, source)
            case Arithmetic() | Substitution():
                before, self.assumption = self.assumption, None
                found = self._computed_part(part, source)
                note, self.assumption = self.assumption, before or self.assumption
                return tuple(replace(piece, note=piece.note or note) for piece in found)
            case OpaquePart():
                return self.unknown(part, source, part.why)

    def _substituted(self, expression: SourceSpan) -> str:
        """Return an arithmetic expression with the values of ``${…}``; unchanged if unknown."""
        word = quoted_text(expression) if "${" in expression.text else None
        pieces = self.text(word) if word is not None else ()
        is_known = word is not None and self.assume(pieces)
        return "".join(piece.text for piece in present(pieces)) if is_known else expression.text

    def compute(self, expression: str, span: SourceSpan, *, counts: bool = False) -> bool:
        """Return True if `expression` sets variables: if it `counts`, also to a known number."""
        names = expansions.set_by(expression)
        number = expansions.changed_number(expression, self._number) if counts else None
        pieces = (WordPiece(str(number), span.source, span.start, exact=False),)
        why = "the script computes it" if number is None else None
        for name in names:
            exported = (old := self.scope.get(name)) is not None and old.exported
            self.scope.set(name, Value(span, None if why else pieces, exported=exported, why=why))
        return bool(names)

    def unknown(
        self, part: Part, source: SourceText, why: str, *, inside: bool = False
    ) -> tuple[WordPiece, ...]:
        """Return a part unchanged, marked as unknown for the reason `why`."""
        end = getattr(part, "end", part.start)
        raw = source.text[part.start : end]
        return (WordPiece(raw, source, part.start, quoted=True, unknown=why, inside=inside),)

    def _derived(self, text: str, part: Part, source: SourceText) -> WordPiece:
        return WordPiece(text, source, part.start, exact=False)

    def _opaque(self, word: ShellWord, why: str) -> Field:
        raw = word.source.text[word.start : word.end]
        piece = WordPiece(raw, word.source, word.start, quoted=True, unknown=why)
        return Field((piece,), word.span)

    def _number(self, name: str) -> str | None:
        value = self.scope.get(name)
        if value is None:
            return ""
        if value.pieces is None or not self.assume(value.pieces):
            return None
        return "".join(piece.text for piece in present(value.pieces)) or None

    def _computed_part(
        self, part: Arithmetic | Substitution, source: SourceText
    ) -> tuple[WordPiece, ...]:
        if isinstance(part, Arithmetic):
            is_set = self.compute(part.text, SourceSpan(source, part.start, part.end))
            inside = self._substituted(SourceSpan(source, part.start + 3, part.end - 2))
            number = None if is_set else expansions.arithmetic(inside, self._number)
            if number is None:
                return self.unknown(part, source, "this cannot be computed from the file")
            return (self._derived(str(number), part, source),)
        value = self.printed(part, source)
        if value is not None and value.pieces is not None:
            return _taken(_without_last_lines(value.pieces), None)
        shown = " ".join(source.text[part.start : part.end].split())
        why = f"`{shown if len(shown) <= 60 else f'{shown[:57]}…'}` is not run"
        return self.unknown(part, source, why)

    def document_text(self, redirect: Redirect, body: SourceSpan) -> tuple[WordPiece, ...] | None:
        """Return the text of a here-document; None if it cannot be read."""
        if not redirect.literal and any(char in body.text for char in "$`\\"):
            word = quoted_text(body)
            return None if word is None else self.text(word)
        return (WordPiece(body.text, body.source, body.start, exact=redirect.operator == "<<"),)

    def _parameter(self, part: Parameter, source: SourceText) -> Result:  # noqa: PLR0911
        if outer := _of_outer_script(part, source):
            found = self.unknown(part, source, str(outer.unknown), inside=outer.inside)
            return (replace(found[0], condition=outer.condition),)
        if part.name in ("@", "*") or part.name.isdigit():
            return self._positional(part, source)
        if part.name == "#" and not (part.prefix or part.operator or source.outer):
            arguments = self.scope.positional
            if arguments is not None and not any(field.unknown for field in arguments):
                return (self._derived(str(len(arguments)), part, source),)
        if part.name in "#?$!-":
            return self.unknown(part, source, f"`${part.name}` is known only at run time")
        if part.name in self.scope.passed:
            return self.unknown(part, source, f"`{part.name}` comes from outside this file")
        value = self.scope.get(part.name)
        if value is not None and value.why == expansions.BY_KEY:
            part, value = expansions.by_key(self.scope, part, value)
        if value is not None and value.why is not None:
            return self.unknown(part, source, f"`${part.name}`: {value.why}", inside=True)
        if part.prefix == "!":
            return self._indices(part, source, value)
        if part.operator or part.prefix:
            return expansions.expand_parameter(self, part, source, value)
        if value is None:
            return self.unset(part, source)
        return self.chosen(part, source, value)

    def _indices(self, part: Parameter, source: SourceText, value: Value | None) -> Result:
        """Return the indices of an array: `${!NAME[@]}`."""
        if part.index in ("@", "*") and value is not None and value.items is not None:
            found = expansions.expand_parameter(self, replace(part, prefix="#"), source, value)
            if isinstance(found, tuple) and len(found) == 1 and found[0].unknown is None:
                numbers = map(str, range(int(found[0].text)))
                return [Field((replace(found[0], text=number),)) for number in numbers]
        return self.unknown(part, source, "an indirect expansion is not evaluated")

    def unset(self, part: Parameter, source: SourceText) -> tuple[WordPiece, ...]:
        """Return an unknown value for a variable that the file does not set."""
        why = f"`{part.name}` is not set in this file"
        if self.scope.sourced:
            why += f" (it reads {', '.join(self.scope.sourced[:3])})"
        return self.unknown(part, source, why)

    def chosen(self, part: Parameter, source: SourceText, value: Value) -> Result:  # noqa: PLR0911
        """Return a value, or the array elements that `part.index` selects."""
        if value.items is not None:
            if part.index in ("@", "*"):
                if part.index == "*" and part.quoted:
                    return self._joined(value.items, part, source)
                return list(value.items)
            number = 0 if part.index is None else self._index(part.index)
            if number is None:
                return self.unknown(part, source, f"element {part.index} is unknown")
            before = value.items[:number] if number >= 0 else value.items
            if any(item.unknown for item in before):  # `($(hostnames))`: any number of elements
                return self.unknown(part, source, f"element {part.index} is unknown")
            inside = -len(value.items) <= number < len(value.items)
            return _taken(value.items[number].pieces, value.items[number].span) if inside else ()
        if value.pieces is None:
            return self.unset(part, source)
        if part.index not in (None, "0", "@", "*"):
            return self.unknown(part, source, f"element {part.index} is unknown")
        self.document.spend(sum(len(piece.text) for piece in value.pieces) // 100)
        return _taken(value.pieces, value.span)

    def _joined(
        self, items: Sequence[Field], part: Part, source: SourceText
    ) -> tuple[WordPiece, ...]:
        pieces: list[WordPiece] = []
        separators = self.separators()
        for number, item in enumerate(items):
            if number and separators:
                pieces.append(self._derived(separators[0], part, source))
            pieces.extend(item.pieces)
        return tuple(pieces)

    def separators(self) -> str:
        """Return the characters of `IFS`."""
        value = self.scope.get("IFS")
        texts = value.texts() if value is not None else None
        return texts[0] if texts is not None else " \t\n"

    def _separable(
        self, pieces: tuple[WordPiece, ...], part: Part, source: SourceText
    ) -> tuple[WordPiece, ...]:
        """Return the text of an unquoted expansion; unknown if `IFS` splits it in another way."""
        other = set(self.separators()) ^ set(" \t\n")
        if other.isdisjoint("".join(piece.text for piece in pieces if not piece.unknown)):
            return pieces
        return self.unknown(part, source, "`IFS` splits it", inside=True)

    def _index(self, text: str) -> int | None:
        text = text.removeprefix("$")
        if not text.lstrip("-").isdigit():
            text = self._number(text) or ""
        return int(text) if text.lstrip("-").isdecimal() and len(text) < 10 else None

    def _positional(self, part: Parameter, source: SourceText) -> Result:  # noqa: PLR0911
        positional = self.scope.positional
        number = int(part.name) if part.name.isdigit() and len(part.name) < 6 else MAX_WORDS
        if positional is not None and any(map(is_any_number, positional[:number])):
            positional = positional if part.name in "@*" else None
        if _of_outer_script(part, source):  # not this script's argument
            positional = None
        if positional is None or part.name == "0" or part.prefix:
            if part.operator in ("-", ":-") and part.operand is not None:
                return expansions.default_value(self, part, source)
            what = "the arguments" if part.name in "@*" else f"argument {part.name}"
            return self.unknown(part, source, f"{what} of the script")
        if part.name in ("@", "*"):
            first = self.plain(part.operand) if part.operator == ":" and part.operand else None
            if part.operator:
                if first is None or not first.isdecimal() or not 0 < int(first[:6]) < MAX_WORDS:
                    return self.unknown(part, source, "part of the arguments is not evaluated")
                positional = from_argument(positional, int(first))
                if positional is None:
                    return self.unknown(part, source, "the arguments of the script")
            if part.name == "*" and part.quoted:
                return self._joined(positional, part, source)
            return list(positional)
        if number <= len(positional):
            field = positional[number - 1]
            if part.operator:
                span = field.span or SourceSpan(source, part.start, part.end)
                value = Value(span, field.pieces)
                return expansions.expand_parameter(self, part, source, value)
            return _taken(field.pieces, field.span)
        if part.operator:
            return expansions.expand_parameter(self, part, source, None)
        return ()

    # -- loops --------------------------------------------------------------------------

    def items(self, node: Compound) -> list[Value]:
        """Return the items of `for X in …`; none if some are unknown or they are many."""
        fields = self.words(node.items or ())
        pieces = [piece for field in fields for piece in field.pieces]
        known = self.assume(pieces) and not any(piece.condition for piece in pieces)
        exported = (old := self.scope.get(node.variable or "")) is not None and old.exported
        values = [Value(field.stretch, field.pieces, exported=exported) for field in fields]
        return values if known and len(values) <= _MAX_ROUNDS else []

    def counted(self, name: str, label: SourceSpan) -> list[Value]:
        """Return the values of a variable in and after `for ((…))`; none if unknown or many."""
        header = label.text.partition("((")[2].removesuffix("))").split(";")
        if [expansions.set_by(part) for part in header] != [[name], [], [name]]:
            return []
        values: list[Value] = []
        with self.scope.isolated():
            self.compute(header[0], label, counts=True)
            while (value := self.scope.get(name)) and len(values) <= _MAX_ROUNDS:
                values.append(value)
                if not (continues := self.computed(header[1])):
                    return values if continues is False else []
                self.compute(header[2], label, counts=True)
        return []

    # -- conditions ---------------------------------------------------------------------

    def assume(self, pieces: Sequence[WordPiece]) -> bool:
        """Return True for known pieces; store their first note as the condition's assumption."""
        notes = (piece.note or piece.condition for piece in pieces)
        self.assumption = self.assumption or next(filter(None, notes), None)
        return not any(piece.unknown or piece.condition for piece in present(pieces))

    def holds(self, nodes: Sequence[Node], *, pattern: bool = False) -> bool | None:
        """Return the result of a list of tests, which `assumption` may explain; None if unknown.

        `pattern`: the list is the content of `[[ … ]]`.
        """
        result: bool | None = None
        for index, node in enumerate(nodes):
            if index and nodes[index - 1].end == ("||" if result else "&&"):
                continue
            if isinstance(node, Compound) and node.kind in ("subshell", "group"):
                result = self.holds(node.branches[0].body, pattern=pattern)
            else:
                result = self._test(node, pattern=pattern) if isinstance(node, Simple) else None
            before = node.span.source.text[max(node.span.start - 20, 0) : node.span.start]
            if result is not None and _NEGATED.search(before):
                result = not result
            if result is None or node.end in ("|", "|&", "&"):
                return None
        return result

    def _test(self, node: Simple, *, pattern: bool) -> bool | None:
        source, start = node.span.source, node.span.start
        result: bool | None = None
        is_quiet = not pattern and all(redirect.operator == ">" for redirect in node.redirects)
        is_open = any(piece.unknown or piece.condition for _, piece in source.outer)
        if node.assignments or is_open or (node.redirects and not is_quiet):
            return None
        if node.words:
            result = self._compared(node.words, pattern=pattern)
        elif source.text.startswith("[[", start):
            inside = source.part(start + 2, node.span.end - 2)
            with suppress(InputError):  # too many parentheses: the result is unknown
                result = self.holds(parse(inside).nodes, pattern=True)
        elif source.text.startswith("((", start):
            inner = SourceSpan(source, start + 2, node.span.end - 2)
            result = self.computed(self._substituted(inner))
        return result

    def _compared(self, words: Sequence[ShellWord], *, pattern: bool) -> bool | None:  # noqa: PLR0911
        if pattern:
            fields = [self.text(word) for word in words]
        else:
            fields = [field.pieces for field in self.words(words)]
        texts = ["".join(piece.text for piece in present(pieces)) for pieces in fields]
        if texts[:1] == ["getopts"] and self.scope.positional == ():
            return False
        if (test := _FILE_TEST.fullmatch("\n".join(texts))) and bool(test[1]) != pattern:
            return self._is_file(Field(fields[-2 if test[1] == "[\n" else -1]), test)
        if not all(map(self.assume, fields)):
            return None
        if not pattern and texts[:1] in (["["], ["test"]):
            texts = texts[1:-1] if texts[0] == "[" else texts[1:]
        elif not pattern:
            status = {"true": True, ":": True, "false": False}.get(" ".join(texts))
            return True if texts[:1] in (["echo"], ["printf"]) else status
        if texts[:1] == ["!"] and len(texts) > 1:
            result = comparison(texts[1:])
            return result if result is None else not result
        if pattern and texts[1:2] in (["="], ["=="], ["!="]) and len(texts) == 3:
            right = self._pattern(words[2])
            return None if right is None else fnmatchcase(texts[0], right) == (texts[1] != "!=")
        return comparison(texts)

    def _is_file(self, name: Field, test: re.Match[str]) -> bool | None:
        """Return the result of `[ -f name ]` for a file next to the script; None if unknown."""
        found = self.neighbor(name)
        exists = found is not None and found.why != NO_FILE
        if found is None or not (exists or test[3] == "f"):
            return None
        note = f"the script's folder has {'a' if exists else 'no'} file {found.shown}"
        self.assumption = self.assumption or note
        return exists != bool(test[2])

    def computed(self, text: str) -> bool | None:
        """Return the result of `(( text ))`; None if unknown."""
        left, operator, right = [*_RELATION.split(text, maxsplit=1), "!=", "0"][:3]
        numbers = [expansions.arithmetic(side, self._number) for side in (left, right)]
        if None in numbers or expansions.set_by(text):
            return None
        return comparison([str(numbers[0]), _RELATIONS[operator], str(numbers[1])])

    def matches(self, subject: ShellWord, label: SourceSpan) -> bool | None:
        """Return True if a label of a `case`, such as `a|b)`, matches; None if unknown."""
        pieces = self.text(subject)
        text = "".join(piece.text for piece in present(pieces))
        start = label.start + label.text.startswith("(")
        nodes = parse(label.source.part(start, label.end - 1)).nodes
        words = [word for node in nodes if isinstance(node, Simple) for word in node.words]
        patterns = [self._pattern(word) for word in words]
        if not self.assume(pieces) or None in patterns or not 0 < len(words) == len(nodes):
            return None
        return any(fnmatchcase(text, pattern) for pattern in patterns if pattern is not None)

    def _pattern(self, word: ShellWord) -> str | None:
        found = ""
        for part in word.parts:
            pieces = self.part(part, word.source)
            if isinstance(pieces, list) or not self.assume(pieces):
                return None
            text = "".join(piece.text for piece in present(pieces))
            if not part.quoted and ("[" in _CLASS.sub("", text) or "(" in text):
                return None
            found += _MAGIC.sub(r"[\g<0>]", text) if part.quoted else text
        return found

    def resplit(self, value: Value) -> list[Field]:
        """Return the words that a value expands to if it is used unquoted."""
        builder = FieldBuilder()
        builder.split(tuple(replace(p, quoted=bool(p.unknown)) for p in value.pieces or ()))
        return builder.done()

    # -- splitting ----------------------------------------------------------------------

    def _split(self, parts: Sequence[Part], word: ShellWord) -> list[Field]:
        builder = FieldBuilder()
        for part in parts:
            result = self.part(part, word.source)
            quoted = part.quoted
            if isinstance(result, list):
                if not quoted and self.scope.get("IFS"):
                    held = (self._separable(f.pieces, part, word.source) for f in result)
                    result = list(map(Field, held))
                builder.several(result, quoted=quoted)
            elif quoted or isinstance(part, Literal):
                builder.add(result, quoted=quoted)
            else:
                builder.split(self._separable(result, part, word.source))
        alone = len(parts) == 1 or (
            len(parts) == 2 and isinstance(parts[0], Literal) and not parts[0].text
        )
        expansion = alone and isinstance(parts[-1], Parameter)
        fields = [self._placed(field, word, expansion) for field in builder.done()]
        if fields and starts_home(parts):
            pieces = marked(fields[0].pieces, _HOME)
            fields[0] = replace(fields[0], pieces=pieces, span=fields[0].span or word.span)
        return [with_pattern(field) for field in fields]

    def _placed(self, field: Field, word: ShellWord, expansion: bool) -> Field:
        if field.span is not None:  # a complete element of an array
            return Field(field.pieces, field.span, field.used or word.span)
        owner = field.pieces[0].owner if expansion and field.pieces else None
        if owner is None or not owner.text or any(p.owner is not owner for p in field.pieces):
            return Field(field.pieces, word.span, field.used)
        last = word.parts[-1]
        value = self.scope.get(last.name) if isinstance(last, Parameter) else None
        if value is not None and value.pieces is not None and value.span is owner:
            length = sum(len(piece.text) for piece in value.pieces)
            if length == sum(len(piece.text) for piece in field.pieces):
                return Field(field.pieces, owner, word.span)
        return Field(field.pieces, field.span, word.span)


def _of_outer_script(part: Parameter, source: SourceText) -> WordPiece | None:
    """Return the piece of a parameter that the script which composed this text left unknown."""
    covering = (piece for at, piece in source.outer if at <= part.start < at + len(piece.text))
    return next((piece for piece in covering if piece.unknown), None)


def _as_written(word: ShellWord) -> Field | None:
    """Return the field of a literal word (nearly every word); None for others."""
    part = word.parts[0] if len(word.parts) == 1 and not word.source.outer else None
    if not isinstance(part, Literal) or part.quoted or not part.text:
        return None
    text = part.text
    if text[0] == "~" or "{" in text or "*" in text or "?" in text:
        return None
    piece = WordPiece(text, word.source, part.start, exact=part.exact)
    return Field((piece,), word.span)


def _with_outer(piece: WordPiece) -> Iterator[WordPiece]:
    """Yield a literal's pieces, split at those of the outer script, with what is known of them."""
    done, pieces = 0, piece.source.outer
    first = bisect_right(pieces, piece.start, key=itemgetter(0)) - 1
    last = bisect_right(pieces, piece.start + len(piece.text), key=itemgetter(0))
    for at, outer in pieces[max(first, 0) : last]:
        start, end = (max(at + n - piece.start, done) for n in (0, len(outer.text)))
        if start < min(end, len(piece.text)):
            yield piece.slice(done, start)
            part = replace(piece.slice(start, end), condition=outer.condition, note=outer.note)
            if outer.unknown:
                part = replace(part, quoted=True, unknown=outer.unknown, inside=outer.inside)
            yield part
            done = end
    yield piece.slice(done, len(piece.text))


def _without_last_lines(pieces: Sequence[WordPiece]) -> tuple[WordPiece, ...]:
    """Return a text without its trailing newlines, as `$(…)` does."""
    trimmed = list(pieces)
    while trimmed and not trimmed[-1].unknown:
        text = trimmed[-1].text.rstrip("\n")
        if text:
            trimmed[-1] = trimmed[-1].slice(0, len(text))
            break
        trimmed.pop()
    return tuple(trimmed)


def _taken(pieces: Sequence[WordPiece], owner: SourceSpan | None) -> tuple[WordPiece, ...]:
    """Return a variable's text, without the quotes of its assignment `owner`."""
    return tuple(
        piece.with_owner(piece.owner or owner, quoted=bool(piece.unknown)) for piece in pieces
    )
