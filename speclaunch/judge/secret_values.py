"""The secrets of a question, which no answer repeats."""

from __future__ import annotations

import re
from typing import Any

from speclaunch.judge.interface import Question
from speclaunch.patterns import lazy

_NAME = lazy(r"(?:api[_-]?key|password|passwd|secret|credential|(?<!_)token$|_token$|_key$)", re.I)
_PATHS = lazy(r"(?:token_map|path|file|num_|max_|_tokens)", re.I)
_LEAST = 4


class Blot:
    """Hides the values of keys, tokens and passwords of one question."""

    def __init__(self, question: Question) -> None:
        found = {value for name, value in question.env if _secret(name)}
        before = ""
        for word in question.words:
            flag, equals, value = word.partition("=")
            if equals and flag.startswith("--") and _secret(flag):
                found.add(value)
            elif before.startswith("--") and "=" not in before and _secret(before):
                found.add(word)
            before = word
        self._values = sorted((v for v in found if len(v) >= _LEAST), key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """The text with `***` in place of each of them."""
        for value in self._values:
            text = text.replace(value, "***")
        return text

    def value(self, value: Any) -> Any:
        """The same for a value of the engine's settings."""
        if isinstance(value, str):
            return self.hidden(value)
        return [self.value(one) for one in value] if isinstance(value, list) else value


def _secret(name: str) -> bool:
    return _NAME.search(name) is not None and _PATHS.search(name) is None
