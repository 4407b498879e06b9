"""Routers before servers: their own options, and the servers that they were told of.

Sources: sglang_router 0.3.2 (router_args.py: `--prefill URL [BOOTSTRAP_PORT]` and `--decode URL`,
each repeatable; `--worker-urls URL …`), sglang 0.4.7 (srt/disaggregation/launch_lb.py: `--prefill
URL …`, `--decode URL …`, `--prefill-bootstrap-ports PORT …`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from speclaunch.errors import Place
from speclaunch.importer.interface import RouterCommand, Word
from speclaunch.patterns import lazy
from speclaunch.surroundings import Pod, Router, Setting, Upstream

_UPSTREAMS = {"prefill": "prefill", "decode": "decode", "worker-urls": "worker"}
_SECRET = lazy(r"(?:^|-)(?:key|keys|password|secret|token|db-url)(?:-|\Z)")
_URL = lazy(r"[a-z][a-z+]*://")
_OPEN = lazy(r"\$\{[^}]*\}|\$\([^)]*\)|\$\w+|\{\{.*?\}\}|`[^`]*`|\{\w+\}")
"""What is not known of a URL."""
_NUMBER = lazy(r"\d{1,7}\Z")

Option = tuple[str, Word, Sequence[Word]]
"""A flag without its dashes, where it stands, its values."""


def read_router(command: RouterCommand, pod: Pod | None = None) -> Router:
    """A router by its command; `pod` is the one that runs it."""
    read = list(_options(command.words))
    upstreams: list[Upstream] = []
    options: dict[str, Setting] = {}
    late: list[Word] = []
    for name, flag, values in read:
        role = _UPSTREAMS.get(name)
        if role is not None:
            upstreams += _upstreams(role, values)
        elif name == "prefill-bootstrap-ports":
            late += values
        else:
            options[name] = _setting(name, flag, values)
    return Router(
        command.name or command.program,
        command.program,
        command.place,
        tuple(_with_ports(upstreams, late)),
        options,
        pod or Pod(),
    )


def _options(words: Sequence[Word]) -> Iterator[Option]:
    flag: Word | None = None
    values: list[Word] = []
    for word in words:
        if not word.text.startswith("--"):
            values.append(word)
            continue
        if flag is not None:
            yield _named(flag, values)
        flag, values = word, []
    if flag is not None:
        yield _named(flag, values)


def _named(flag: Word, values: list[Word]) -> Option:
    name, equals, value = flag.text.partition("=")
    if equals:
        first = replace(flag, text=value, place=_part(flag, len(name) + 1, len(value)))
        values = [first, *values]
    return name.removeprefix("--").replace("_", "-"), flag, values


def _part(word: Word, start: int, length: int) -> Place:
    """Where a part of a word stands: the whole word, where that is written in another way."""
    if word.place.length != len(word.text) or not word.evaluated:
        return word.place
    return replace(word.place, column=word.place.column + start, length=max(length, 1))


def _setting(name: str, flag: Word, values: Sequence[Word]) -> Setting:
    if not values:
        return Setting(True, flag.place)
    if _SECRET.search(name):
        # what it is stays here; whether the file holds it does not
        return Setting(None, values[0].place, values[0].evaluated)
    known = all(value.evaluated for value in values)
    texts = [value.text for value in values]
    if len(texts) > 1:
        return Setting(tuple(texts), values[0].place, known)
    text = texts[0]
    return Setting(int(text) if _NUMBER.match(text) else text, values[0].place, known)


def _upstreams(role: str, values: Sequence[Word]) -> Iterator[Upstream]:
    found: Upstream | None = None
    for value in values:
        is_url = _URL.match(value.text) is not None or (not value.evaluated and found is None)
        if is_url:
            if found is not None:
                yield found
            found = _upstream(role, value)
        elif found is not None and value.text.lower() != "none":
            known = value.evaluated and _NUMBER.match(value.text) is not None
            number = int(value.text) if known else value.text
            found = replace(found, bootstrap=Setting(number, value.place, known))
    if found is not None:
        yield found


def _upstream(role: str, url: Word) -> Upstream:
    """The host where that much is known; the port likewise."""
    text = url.text if url.evaluated else _OPEN.sub(lambda open_: "~" * len(open_[0]), url.text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # no port, or not of a host
        return Upstream(role, None, Setting(url.text, url.place, known=False), url.place)
    if host is not None and "~" in host:
        host = None
    if port is None:
        return Upstream(role, host, None, url.place)
    digits = str(port)
    at = text.find(f":{digits}", text.find("://") + 3) + 1
    return Upstream(role, host, Setting(port, _part(url, at, len(digits))), url.place)


def _with_ports(upstreams: Sequence[Upstream], ports: Sequence[Word]) -> Iterator[Upstream]:
    """With the bootstrap ports that launch_lb takes for its prefill servers, in order."""
    waiting = list(ports)
    for one in upstreams:
        if one.role == "prefill" and one.bootstrap is None and waiting:
            word = waiting.pop(0)
            known = word.evaluated and _NUMBER.match(word.text) is not None
            number = int(word.text) if known else word.text
            yield replace(one, bootstrap=Setting(number, word.place, known))
        else:
            yield one
