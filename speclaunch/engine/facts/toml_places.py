"""Places of the keys and values in a TOML file, which `tomllib` does not report."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from speclaunch.core import lazy

Path: TypeAlias = tuple[str | int, ...]
"""Keys and array indexes that lead to a value: `("overrides", 0, "engine")`."""

_BARE = lazy(r"[A-Za-z0-9_-]+")
_SCALAR = lazy(r"[^,\]}#\n]*")
_BETWEEN = lazy(r"(?:[ \t\n]|#[^\n]*)*")
_BLANK = lazy(r"[ \t]*")
_STRINGS = (
    ('"""', lazy(r'"""(?:\\.|[^\\])*?"""(?!")"{0,2}', 16)),
    ("'''", lazy(r"'''.*?'''(?!')'{0,2}", 16)),
    ('"', lazy(r'"(?:\\.|[^"\\])*"')),
    ("'", lazy(r"'[^']*'")),
)
"""Opening quotes and full pattern of each kind of string. 16 is re.DOTALL."""


class Span(NamedTuple):
    """A range of the text. Lines and columns start at 1; `length` covers only the first line."""

    line: int
    column: int
    length: int
    start: int
    end: int


class Places(NamedTuple):
    """Spans of keys and values by path. The span of a table's key is its header."""

    keys: dict[Path, Span]
    values: dict[Path, Span]

    def of(self, path: Path) -> Span:
        """Return the span of a value, else of its key (for a table), else of the nearest parent."""
        while path:
            found = self.values.get(path) or self.keys.get(path)
            if found is not None:
                return found
            path = path[:-1]
        return Span(1, 1, 1, 0, 0)

    def key(self, path: Path) -> Span:
        """Return the span of a key, else the result of `of`."""
        return self.keys.get(path) or self.of(path)


def places(text: str) -> Places:
    """Return the places in a TOML text. In invalid TOML, those up to the first error."""
    reader = _Reader(text.replace("\r\n", "\n"))
    reader.document()
    return Places(reader.keys, reader.values)


class _Reader:
    """Single-pass TOML reader, which does not validate the text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.keys: dict[Path, Span] = {}
        self.values: dict[Path, Span] = {}
        self._arrays: dict[Path, int] = {}
        """Number of tables read so far in each array of tables."""
        self._starts = [0]
        for number, letter in enumerate(text):
            if letter == "\n":
                self._starts.append(number + 1)

    def document(self) -> None:
        table: Path = ()
        self._skip()
        while self.at < len(self.text):
            before = self.at
            if self.text.startswith("[", self.at):
                table = self._header()
            else:
                self._pair(table)
            self._skip()
            if self.at == before:  # not TOML
                return

    def _skip(self) -> None:
        found = _BETWEEN.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _take(self, mark: str) -> bool:
        taken = self.text.startswith(mark, self.at)
        self.at += len(mark) if taken else 0
        return taken

    def _header(self) -> Path:
        start = self.at
        is_array = self.text.startswith("[[", start)
        self.at += 2 if is_array else 1
        keys = self._dotted()
        self._blank()
        self._take("]]" if is_array else "]")
        path: Path = ()
        for number, key in enumerate(keys):
            path = (*path, key)
            if is_array and number == len(keys) - 1:
                self._arrays[path] = self._arrays.get(path, 0) + 1
            if path in self._arrays:
                self.keys.setdefault(path, self._span(start, self.at))
                path = (*path, self._arrays[path] - 1)
            self.keys.setdefault(path, self._span(start, self.at))
        self.keys[path] = self._span(start, self.at)
        return path

    def _pair(self, table: Path) -> None:
        start = self.at
        path = table
        for key in self._dotted():
            path = (*path, key)
            self.keys.setdefault(path, self._span(start, self.at))
        if len(path) == len(table):
            return
        self.keys[path] = self._span(start, self.at)
        self._blank()
        self._take("=")
        self._blank()
        self._value(path)

    def _dotted(self) -> list[str]:
        found: list[str] = []
        while True:
            self._blank()
            key = self._key()
            if key is None:
                return found
            found.append(key)
            end = self.at
            self._blank()
            if not self._take("."):
                self.at = end
                return found

    def _key(self) -> str | None:
        quoted = self._string()
        if quoted is not None:
            import tomllib  # noqa: PLC0415

            try:
                return next(iter(tomllib.loads(f"{quoted} = 0")))
            except tomllib.TOMLDecodeError:
                return None
        found = _BARE.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    def _string(self) -> str | None:
        for mark, pattern in _STRINGS:
            if self.text.startswith(mark, self.at):
                found = pattern.match(self.text, self.at)
                if found is None:
                    return None
                self.at = found.end()
                return found[0]
        return None

    def _value(self, path: Path) -> None:
        start = self.at
        if self._take("["):
            self._elements(path)
        elif self._take("{"):
            self._members(path)
        elif self._string() is None:
            found = _SCALAR.match(self.text, self.at)
            self.at += len(found[0].rstrip()) if found else 0
        self.values[path] = self._span(start, self.at)

    def _elements(self, path: Path) -> None:
        number = 0
        while True:
            self._skip()
            before = self.at
            if self.at >= len(self.text) or self._take("]"):
                return
            self._value((*path, number))
            number += 1
            self._skip()
            self._take(",")
            if self.at == before:
                return

    def _members(self, path: Path) -> None:
        while True:
            self._skip()
            before = self.at
            if self.at >= len(self.text) or self._take("}"):
                return
            self._pair(path)
            self._skip()
            self._take(",")
            if self.at == before:
                return

    def _span(self, start: int, end: int) -> Span:
        from bisect import bisect_right  # noqa: PLC0415

        line = bisect_right(self._starts, start)
        first = self._starts[line - 1]
        stop = self.text.find("\n", start)
        stop = len(self.text) if stop < 0 else stop
        length = max(1, min(end, stop) - start)
        return Span(line, start - first + 1, length, start, end)
