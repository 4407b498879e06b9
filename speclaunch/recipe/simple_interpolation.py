"""Resolves the interpolations that nearly all recipes have, as OmegaConf does, without it.

A variable of the environment (`${oc.env:TP}`, `${oc.env:TP,8}`, `${env_or:TP,8}`), a tiny model of
the CPU engine (`${cpu_model:llama}`), another value of the recipe (`${args.tp_size}`). Whatever
else there is, and whatever cannot be resolved, is OmegaConf's, which has the words for it.

Source: omegaconf 2.3, grammar/OmegaConfGrammarLexer.g4 (what is a text and what a number),
base.py `_resolve_node_interpolation`; tests/recipe/test_simple_interpolation.py compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

MISSING = "???"

Resolver = Callable[..., Any]


class NotSimpleError(Exception):
    """There is something in a container that is left to OmegaConf."""


def resolved_simply(raw: Any, resolvers: Mapping[str, Resolver]) -> Any:
    """A copy of a container with its interpolations resolved. Raises NotSimpleError, for a value
    that is missing, too."""
    return _Resolving(raw, resolvers).value(raw)


@cache
def _pattern() -> re.Pattern[str]:
    """`${name:WORD}`, `${name:WORD,default}` and `${a.b.c}`; defaults that are texts to
    OmegaConf, or whole numbers that look the same when they are read and written again."""
    word = r"[A-Za-z_][A-Za-z0-9_-]*"
    default = r"(?:[A-Za-z_/][A-Za-z0-9_./-]*|0|[1-9][0-9]{0,17})"
    return re.compile(
        rf"\$\{{(?:(?P<resolver>[a-z_][a-z_.]*):(?P<word>{word})(?:,(?P<default>{default}))?"
        r"|(?P<key>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*))\}"
    )


_ODD = frozenset({"null", "none", "true", "false", "inf", "nan", "infinity", "e"})
"""Words that are no texts to OmegaConf, or may not be."""


class _Resolving:
    """One container that is being resolved."""

    def __init__(self, root: Any, resolvers: Mapping[str, Resolver]) -> None:
        self.root = root
        self.resolvers = resolvers

    def value(self, raw: Any) -> Any:
        if isinstance(raw, dict):
            return {key: self.value(inner) for key, inner in raw.items()}
        if isinstance(raw, list):
            return [self.value(inner) for inner in raw]
        return self.text(raw) if isinstance(raw, str) else raw

    def text(self, raw: str) -> Any:
        if raw == MISSING:
            raise NotSimpleError
        if "${" not in raw:
            return raw
        found = list(_pattern().finditer(raw))
        if "\\" in raw or len(found) != raw.count("${"):
            raise NotSimpleError
        if len(found) == 1 and found[0][0] == raw:
            return self.one(found[0])
        parts: list[str] = []
        at = 0
        for one in found:
            inner = self.one(one)
            if not isinstance(inner, str | int) or isinstance(inner, bool):
                raise NotSimpleError
            parts += (raw[at : one.start()], str(inner))
            at = one.end()
        return "".join((*parts, raw[at:]))

    def one(self, found: re.Match[str]) -> Any:
        name = found["resolver"]
        result = self.of_key(found["key"]) if name is None else self.of_resolver(found)
        if isinstance(result, str) and ("${" in result or result == MISSING):
            raise NotSimpleError
        return result

    def of_resolver(self, found: re.Match[str]) -> Any:
        resolver = self.resolvers.get(found["resolver"])
        arguments = [text for text in (found["word"], found["default"]) if text is not None]
        if resolver is None or any(text.lower() in _ODD for text in arguments):
            raise NotSimpleError
        try:
            return resolver(*(int(one) if one.isdecimal() else one for one in arguments))
        except Exception as error:  # OmegaConf says what is wrong with it
            raise NotSimpleError from error

    def of_key(self, key: str) -> Any:
        value = self.root
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                raise NotSimpleError
            value = value[part]
        if isinstance(value, dict | list) or value is None:
            raise NotSimpleError
        return value
