"""What a text means: the servers that a real bash starts, as the release itself reads them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from campaigns.translating.manifests import processes, shell_blocks
from campaigns.translating.releases import Releases, Verdict, same_flags
from speclaunch.engine.releases.argument import Argument, ArgumentKind
from speclaunch.engine.releases.catalogue import load
from tests.support.bash import Command, Recording, Sandbox

MANIFESTS = ("compose", "kubernetes")


@dataclass(frozen=True, slots=True)
class Server:
    """One engine that a text starts: what its release makes of it."""

    entry: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Meaning:
    """The engines of a text, or why it was not run."""

    servers: tuple[Server, ...] = ()
    refused: str | None = None

    @property
    def error(self) -> str | None:
        """The first error of a release."""
        return next((s.verdict.error for s in self.servers if s.verdict.error), None)


@dataclass(slots=True)
class Reader:
    """Reads texts with a bash and the releases."""

    sandbox: Sandbox
    releases: Releases
    commands: dict[tuple[str, str, str], Recording] = field(default_factory=dict)

    def read(
        self, kind: str, name: str, text: str, version: str, files: Mapping[str, str] | None = None
    ) -> Meaning:
        """The meaning of a text for a version; `kind` as texts.KINDS has it."""
        beside = {**(files or {}), name: text}
        found = list(self._commands(kind, name, text, files or {}))
        refused = next((said.refused for said in found if said.refused), None)
        servers = [command for said in found for command in said.servers]
        return Meaning(tuple(self._server(c, version, beside) for c in servers), refused)

    def _server(self, command: Command, version: str, files: Mapping[str, str]) -> Server:
        entry = command.entry or ""
        yamls = {n: t for n, t in files.items() if n.endswith((".yaml", ".yml"))}
        asked = yamls if "--config" in command.arguments else {}
        verdict = self.releases.ask(version, entry, command.arguments, asked)
        return Server(entry, command.arguments, command.env, verdict)

    def _commands(
        self, kind: str, name: str, text: str, files: Mapping[str, str]
    ) -> Iterator[Recording]:
        if kind == "engine":
            words = ("-m", "sglang.launch_server", "--config", name)
            yield Recording((Command("python3", words, {}),))
        elif kind in MANIFESTS:
            for process in processes(kind, text):
                yield self.sandbox.run('exec "$@"\n', env=process.env, words=process.words)
        elif kind == "document":
            yield self.sandbox.run("\n".join(shell_blocks(text)), files=files)
        else:
            yield self.sandbox.run(text, files=files)


_TOKEN = re.compile(r"--?[A-Za-z][\w-]*|\b[A-Za-z]\w*(?:[-_]\w+)+|\b[A-Z][A-Z0-9_]+\b")


@dataclass(frozen=True, slots=True)
class Announced:
    """What a verb said: every option and name in its words, and those it says it removed."""

    tokens: frozenset[str]

    @classmethod
    def of(cls, *texts: str) -> Announced:
        """The tokens of what was written to the user."""
        found: set[str] = set()
        for token in (t for text in texts for t in _TOKEN.findall(text)):
            plain = token.lstrip("-").replace("-", "_").removeprefix("sglang_")
            found |= {plain, token}
        return cls(frozenset(found))

    def names(self, spellings: Iterable[str]) -> bool:
        """Whether one of these flags or names was said."""
        return any(s.lstrip("-").replace("-", "_") in self.tokens for s in spellings)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that two meanings do not share."""

    what: str
    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.what}: {self.name}: {self.detail}"


UNSAID = object()

Side = tuple[Server, str]
"""A server and the version that reads it."""


def differences(
    releases: Releases, old: Side, new: Side, announced: Announced, ignored: frozenset[str]
) -> Iterator[Difference]:
    """What the verb did not announce; `ignored` are destinations that it need not carry."""
    (before, v_old), (after, v_new) = old, new
    flags_old, flags_new = releases.destinations(v_old), releases.destinations(v_new)
    pairs = set(same_flags(flags_old, flags_new))
    written = [w.partition("=")[0] for w in (*before.words, *after.words) if w[:2] == "--"]
    was, now = before.verdict, after.verdict

    def said(dest: str, flags: Mapping[str, str]) -> bool:
        known = {flag for flag, stored in flags.items() if stored == dest} | {dest}
        short = {w for w in written if any(flag.startswith(w) for flag in known)}
        plain = {w.replace("--sglang-", "--", 1) for w in written if "--sglang-" in w}
        short |= {w for w in plain if any(flag.startswith(w) for flag in known)}
        return announced.names(known | short)

    for dest in sorted(was.given - ignored):
        others = sorted({new for old, new in pairs if old == dest} & now.values.keys())
        others = [dest] if dest in others else others
        value = was.values.get(dest)
        if not others:
            if not said(dest, flags_old):
                yield Difference("lost", dest, f"{value!r} is gone, and nothing says so")
            continue
        for other in others:
            new_value = now.values.get(other)
            if _same(value, new_value) or _converted(dest, other, v_old, v_new):
                continue
            if other not in now.given and value is not None:
                kind = "removed" if said(dest, flags_old) else "lost"
                if kind == "lost" or not _refused(dest, v_old, v_new):
                    detail = f"{value!r} is gone, though {v_new} has {other}"
                    yield Difference(kind, dest, detail)
            elif not said(dest, flags_old):
                yield Difference("changed", dest, f"{value!r} became {new_value!r}")
    known = {new for old, new in pairs if old in was.given}
    for dest in sorted(now.given - ignored - known):
        counterpart = [old for old, new in pairs if new == dest and old in was.values]
        before_value = was.values[counterpart[0]] if counterpart else UNSAID
        value = now.values.get(dest)
        if before_value is UNSAID:
            if not said(dest, flags_new):
                yield Difference("added", dest, f"{value!r} comes from nowhere")
        elif value != before_value and not said(dest, flags_new):
            yield Difference("added", dest, f"{value!r} instead of the default {before_value!r}")
    yield from _environments(before.env, after.env, announced)


def _same(one: Any, other: Any) -> bool:
    """Equal, or one thing in the two forms that releases keep it in: adapters as `{name: path}`
    (LoRAPathAction of 0.4) or as the words, JSON as an object or as its text."""
    if one == other or (other is None) != (one is None):
        return bool(one == other)
    return _plain_form(one) == _plain_form(other)


def _plain_form(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(ValueError):
            return _plain_form(json.loads(value))
    if isinstance(value, dict) and all(isinstance(path, str) for path in value.values()):
        return [name if name == path else f"{name}={path}" for name, path in value.items()]
    return value


def _environments(
    before: Mapping[str, str], after: Mapping[str, str], announced: Announced
) -> Iterator[Difference]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name) and not announced.names([name]):
            yield Difference("environment", name, f"{before.get(name)!r} → {after.get(name)!r}")


def _flags(dest: str, version: str) -> list[Argument]:
    return [a for a in load(version).arguments.values() if dest in (a.dest, a.name)]


_FOLDED = (ArgumentKind.CONSTANT, ArgumentKind.IGNORED, ArgumentKind.REFUSED)


def _converted(dest: str, other: str, old: str, new: str) -> bool:
    """Whether one release folds this old switch into another argument by itself."""
    kinds = {flag: a.kind for a in _flags(dest, old) for flag in a.flags}
    kinds_new = {flag: a.kind for a in _flags(other, new) for flag in a.flags}
    shared = kinds.keys() & kinds_new.keys()
    return any(kinds[f] in _FOLDED or kinds_new[f] in _FOLDED for f in shared)


def _refused(dest: str, old: str, new: str) -> bool:
    """Whether the newer release has the flag only to refuse or to ignore it."""
    catalogue = load(new)
    found = [catalogue.resolve_flag(flag) for a in _flags(dest, old) for flag in a.flags]
    known = [a for a in found if isinstance(a, Argument)]
    return all(a.kind in _FOLDED or a.deprecated for a in known)


def defaults(releases: Releases, old: Side, new: Side) -> list[str]:
    """Arguments that nobody gave and whose default is another one: `name: old → new`."""
    (before, v_old), (after, v_new) = old, new
    pairs = same_flags(releases.destinations(v_old), releases.destinations(v_new))
    was, now = before.verdict, after.verdict
    return sorted(
        f"{b}: {was.values[a]!r} → {now.values[b]!r}"
        for a, b in pairs
        if a not in was.given and b not in now.given
        if a in was.values and b in now.values and was.values[a] != now.values[b]
    )
