"""Redacts secrets and escapes control characters in output. Also provides lazy patterns.

Patterns are compiled on first use, because one run needs few of them and compiling takes longer
than importing their module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, cast

_METHODS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split")


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern like `re.compile`, but compile it on the first use of a method.

    An invalid pattern fails only then; tests/core/test_patterns.py compiles all patterns.
    """
    return cast("re.Pattern[str]", _Lazy(pattern, flags))


class _Lazy:
    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


_STEERING = lazy(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
    r"\ud800-\udfff]|\r(?!\n)"
)
"""Control characters except tabs and newlines; surrogates, which represent undecodable bytes; and
characters that change the text direction, have no width, or end a line for some readers."""
_COLORS = lazy(r"\x1b\[[0-9;:]*m")
_COMMAND = lazy(r"(?m:(^[^\S\n]*:)(:))|(##(?:vso)?)(\[)")
"""The start of a workflow command: `::` at the beginning of a line, `##[` or `##vso[` anywhere."""
_OBEYING = ("GITHUB_ACTIONS", "TF_BUILD", "GITLAB_CI", "CI")
_LONGEST_BEGUN = 200


def printable(text: str) -> str:
    r"""Return the text with control characters, except tabs and newlines, escaped as in `\u001b`.

    An escape means the same character inside a JSON string.
    """
    return _STEERING.sub(_escaped, text)


def single_line(name: str) -> str:
    """Return a name on one line, with control characters escaped."""
    return printable(name).translate(_ENDS)


_ENDS = {ord(character): f"\\u{ord(character):04x}" for character in "\t\n\r"}


def without_colors(line: str) -> str:
    """Return a line without terminal color codes."""
    return _COLORS.sub("", line) if "\x1b" in line else line


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def obeys_commands(environment: Mapping[str, str] = os.environ) -> bool:
    """True if the reader of the output streams may execute workflow commands, as CI services do."""
    return any(environment.get(name) for name in _OBEYING)


class CommandGuard:
    """Disables workflow commands in a stream that is written in pieces."""

    def __init__(self) -> None:
        self._begun = ""
        """The unfinished line at the end of the last piece."""

    def text(self, text: str) -> str:
        """Return `text`, the next piece, with one character of each command escaped."""
        if "::" in text or "[" in text or self._begun:
            both = self._begun + text
            guarded = _COMMAND.sub(_broken, both)[len(self._begun) :]
        else:
            both = guarded = text
        begun = both[both.rfind("\n") + 1 :]
        if len(begun) > _LONGEST_BEGUN and not begun.isspace():
            begun = f".{begun[-5:]}"
        self._begun = begun
        return guarded


def _broken(found: re.Match[str]) -> str:
    prefix, last = (found[1], found[2]) if found[1] else (found[3], found[4])
    return f"{prefix}\\u{ord(last):04x}"


HIDDEN = "***"

_NO_PLACEHOLDER = (
    r"(?!(?i:[<\[{($*]|%[({]|\.\.|x{3}|change[-_ ]?me|your[-_ ]|example|placeholder|redacted|dummy"
    r"|(?:passw(?:or)?d|pass|secret|token|key|api[-_]?key|empty|none|null)(?![\w-])))"
)
"""A lookahead that rejects placeholders, such as `$TOKEN`, `<your token>`, `xxx` and `changeme`."""
_START = r"(?:(?<![\w-])|(?<=\\[nrt]))"
_QUOTE = r"\\?[\"']"
_PEM = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"

VALUE_PATTERNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("://",), rf"(://[^\s/@:\"'<>\\]*:){_NO_PLACEHOLDER}[^\s/\"'<>\\]{{1,512}}(?=@)"),
    (("://",), r"(://)(?=[^\s/@:]{0,200}\d)[\w.~%+-]{16,512}(?=@)"),
    (
        ("uthorization", "UTHORIZATION"),
        rf"(?i:(authorization{_QUOTE}?\s{{0,4}}[:=]\s{{0,4}}(?:{_QUOTE})?(?:bearer|basic|token"
        rf"|digest|apikey)\s+)){_NO_PLACEHOLDER}[^\s\"'\\,;]{{3,}}",
    ),
    (
        ("earer", "EARER"),
        rf"(?i:(\bbearer\s+)){_NO_PLACEHOLDER}"
        r"(?:(?=[\w.~+/-]{0,200}\d)[\w.~+/-]{6,}|[\w.~+/-]{16,})=*",
    ),
    (
        ("asic ", "ASIC "),
        r"(?i:(\bbasic\s+))(?:[A-Za-z0-9+/]{8,}={1,2}"
        r"|(?=\w{0,200}\d)(?=\w{0,200}[a-z])(?=\w{0,200}[A-Z])[A-Za-z0-9+/]{12,})(?!\w)",
    ),
    (("hf_",), rf"(){_START}hf_{_NO_PLACEHOLDER}(?=\w{{0,80}}[\dA-Z]|\w{{30}})[A-Za-z0-9]{{16,}}"),
    (
        (
            *("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "sk-", "glpat-", "npm_"),
            *("dckr_pat_", "nvapi-", "gsk_", "sk_live_", "rk_live_"),
        ),
        rf"(){_START}(?:gh[oprsu]_|github_pat_|sk-|glpat-|npm_(?!\w*_)|dckr_pat_|nvapi-|gsk_"
        rf"|[rs]k_live_){_NO_PLACEHOLDER}(?=[\w-]{{0,80}}[\dA-Z]|[\w-]{{30}})[\w-]{{14,}}",
    ),
    (
        ("pypi-",),
        rf"(){_START}pypi-(?=[\w-]{{0,200}}\d)(?=[\w-]{{0,200}}[A-Z])[\w-]{{14,}}",
    ),
    (("xox", "xapp-"), rf"(){_START}(?:xox[abeoprs]|xapp)-{_NO_PLACEHOLDER}[\w-]{{8,}}"),
    (("AKIA", "ASIA"), rf"(){_START}A(?:KIA|SIA)[A-Z0-9]{{16}}(?![A-Z0-9])"),
    (("AIza",), rf"(){_START}AIza[\w-]{{30,}}"),
    (("ya29.",), rf"(){_START}ya29\.[\w-]{{16,}}"),
    (("eyJ",), rf"(){_START}eyJ[\w-]{{10,}}\.[\w-]{{8,}}\.[\w-]*"),
    (
        ("PRIVATE KEY",),
        rf"()-----BEGIN {_PEM}"
        r"(?:(?:\s|\\[nr])*(?:(?:Proc-Type|DEK-Info|Version|Comment): [\w,. -]{1,80}"
        r"|[A-Za-z0-9+/=]{24,}))*"
        rf"(?:(?:\s|\\[nr])*(?:[A-Za-z0-9+/=]{{1,76}}(?:\s|\\[nr])*)?-----END {_PEM})?",
    ),
    (
        ("hooks.slack.com/", "/api/webhooks/", "webhook.office.com/"),
        r"((?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
        rf"|webhook\.office\.com/\w+)/){_NO_PLACEHOLDER}[\w/@-]{{6,}}",
    ),
    (
        ("=",),
        r"([?&;](?i:[\w.-]{0,40}(?:token|secret|password|passwd|signature)"
        r"|(?:[\w.-]{0,40}[-_.])?(?:api)?key|sig|x-amz-credential)=)"
        rf"{_NO_PLACEHOLDER}[^\s&\"'#<>;\\]{{3,}}",
    ),
    (
        ("AccountKey", "SharedAccess"),
        rf"(\b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=){_NO_PLACEHOLDER}[^;\s\"'\\]+",
    ),
    (
        (";",),
        rf"(;\s?(?i:password|pwd)\s?=\s?)(?![/~.]){_NO_PLACEHOLDER}[^;&\s\"'\\]+",
    ),
    (
        (":",),
        # the lookahead finds quoted keys before quoted values three times as fast as the names do
        rf"([\"'](?=[\w.-]{{4,90}}{_QUOTE}\s{{0,4}}:\s{{0,4}}{_QUOTE})"
        r"(?i:(?:[\w.-]{0,40}[_-])?(?:(?:api|access|auth|bearer|hf|hub|private|secret"
        r"|refresh|client|session|github|gitlab)[_-]?(?:token|key|secret)|secret_access_key|passwd"
        rf"|password|webhook|cookie)){_QUOTE}\s{{0,4}}:\s{{0,4}}{_QUOTE})"
        rf"(?![/~.]){_NO_PLACEHOLDER}[^\"'\\]{{2,}}",
    ),
)
"""Pairs of substrings and a pattern of secrets. Text without any of the substrings is not searched
for the pattern. A match consists of group 1, which precedes the secret, and the secret. The launch
guard applies these patterns to bytes."""


_SHORTEST_MATCH = len(";pwd=x")


_compiled: Callable[[str], re.Pattern[str]] = cache(re.compile)


def _patterns_for(text: str) -> Iterator[re.Pattern[str]]:
    if len(text) < _SHORTEST_MATCH:
        return
    for hints, pattern in VALUE_PATTERNS:
        for hint in hints:  # a loop: `any` takes three times as long
            if hint in text:
                yield _compiled(pattern)
                break


def redact(text: str) -> str:
    """Return the text with `***` for each value whose format shows that it is a secret."""
    for pattern in _patterns_for(text):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def find_secrets(text: str) -> list[str]:
    """Return the values in `text` whose format shows that they are secrets."""
    return [
        found[0].removeprefix(found[1])
        for pattern in _patterns_for(text)
        for found in pattern.finditer(text)
    ]


_SECRET_NAME = lazy(
    r"(?:TOKEN|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|(?:^|_)KEYS?|(?:API|ACCESS)KEY"
    r"|(?:^|_)PAT|(?:DB|SQL|REDIS|USER|ROOT|ADMIN|FTP)_(?:PASS|PWD)|AUTHORIZATION|COOKIES?|DSN"
    r"|WEBHOOK|(?:BASIC|REGISTRY|DOCKER|PROXY)_AUTH|CONN(?:ECTION)?_?STR(?:ING)?)(?:$|_)",
    re.I,
)
_NO_SECRET_NAME = lazy(
    r"token_map|path|file|num_|max_|_tokens"
    r"|(?:bos|eos|pad|mask|unk|sep|cls|image|audio|video|think|stop|special)_token",
    re.I,
)


_NO_SECRET_VARIABLE = lazy(r"SGLANG_\w+_(?:(?:TOKEN|KEY)_\w+|PER_TOKEN|GRAPH_KEY)")
"""Matches the engine's own variables about generated tokens and cache keys, such as
`SGLANG_SIMULATE_ACC_TOKEN_MODE` (sglang 0.5.23 environ.py)."""


def is_secret_variable(name: str) -> bool:
    """True if an environment variable's name shows that its value is a secret."""
    return bool(_SECRET_NAME.search(name)) and _NO_SECRET_VARIABLE.fullmatch(name) is None


def is_secret_flag(flag: str) -> bool:
    """True if the name of an option or key shows that its value is a secret."""
    name = flag.lstrip("-").replace("-", "_")
    return is_secret_variable(name) and _NO_SECRET_NAME.search(name) is None


def holds_secret(value: object) -> bool:
    """True if a value contains a secret, recognized by its text or by its key."""
    if isinstance(value, Mapping):
        return any(_is_secret_item(key, item) or holds_secret(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(map(holds_secret, value))
    if not isinstance(value, str):
        return False
    return bool(find_secrets(value)) or (value[:1] in ("{", "[") and holds_secret(_parsed(value)))


def _is_secret_item(key: object, value: object) -> bool:
    return isinstance(value, str) and is_secret_flag(str(key)) and is_literal_secret(value)


def _parsed(text: str) -> object:
    import json  # noqa: PLC0415

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_NAME = (
    r"[\w.-]{0,120}(?:api[_-]?key|access[_-]key|password|passwd|secret|token|credentials?"
    r"|(?-i:(?:(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|COOKIE)S?|AUTHORIZATION|DSN|WEBHOOK"
    r"|_PAT|(?<![A-Z])KEYS?)(?:_[A-Z0-9_]+)?))"
)
_ARGUMENT = lazy(
    rf"(?P<name>(?:--|\b){_NAME}(?:[\"']?\s*[:=]\s*|\s+|[\"'],\s*))(?P<value>\"[^\"]*\"|'[^']*'|\S+)",
    re.I,
)
_HARMLESS = lazy(r"(?:--|\$|[\"']?\$\{|\d+[,\s]|none\b|null\b|true\b|false\b)", re.I)


def masked(line: str) -> str:
    """Return a line with `***` for secrets, recognized by name or by format.

    References to variables (`$API_KEY`), switches and numbers are unchanged.
    """
    return _ARGUMENT.sub(_mask, redact(line))


def literals(line: str) -> list[str]:
    """Return the secrets in a line, excluding placeholders."""
    values = (
        found["value"].strip("\"',;")
        for found in _ARGUMENT.finditer(line)
        if _mask(found) != found[0]
    )
    return [*(value for value in values if is_literal_secret(value)), *find_secrets(line)]


def _mask(found: re.Match[str]) -> str:
    value = found["value"]
    if _HARMLESS.match(value) or value.strip("\"',").isdigit():
        return found[0]
    return f"{found['name']}{HIDDEN}"


_PLACEHOLDER = lazy(
    r"your|example|placeholder|change[-_ ]?me|dummy|fake|redacted|insert|replace|todo|fixme"
    r"|-here\b|_here\b|\bmy[-_](?:api[-_]?)?(?:key|token|secret|password)\b"
    r"|[<>{}()\[\]$`…]|\.\.\.|\*{2}|x{3}|0{6}|(?:123456|abcdef|abc-?123)",
    re.I,
)
_NO_SECRET = lazy(
    r"(?:none|null|nil|true|false|yes|no|on|off|auto|empty|test|token|secret|password|key|[\d.,]*)\Z"
    r"|[~.]{0,2}/|\w+://[^@]*\Z",
    re.I,
)
_LEAST = 6
"""Minimum number of characters in a credential."""


def is_literal_secret(text: str) -> bool:
    """True if the value of a key, token or password is a real secret, not a placeholder.

    Placeholders are variables, `<your key>`, `hf_xxx`, `changeme` and `EMPTY`. False also for a
    path or an address, which only locates a secret.
    """
    text = text.strip()
    if find_secrets(text):
        return True
    if len(text) < _LEAST or _NO_SECRET.match(text):
        return False
    return _PLACEHOLDER.search(text) is None


_SHORTEST = 4
_LONGEST_WORD = 7


def _is_found_elsewhere(value: str) -> bool:
    """True if a secret is distinctive enough to be redacted in any text.

    False for a short value or an ordinary word, which would match harmless text.
    """
    word = value.isalpha() and len(value) <= _LONGEST_WORD and not value.isupper()
    return len(value) >= _SHORTEST and not word and _NO_SECRET.match(value) is None


class Redactor:
    """Redacts known secret values, and all values whose format shows that they are secrets."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = set(values)
        known |= {inner for value in known for inner in find_secrets(value)}
        self.values = sorted(filter(_is_found_elsewhere, known), key=len, reverse=True)
        """The values to search for, longest first."""

    @classmethod
    def of_command(cls, args: Sequence[str], env: Iterable[tuple[str, str]] = ()) -> Redactor:
        found = [value for name, value in env if is_secret_flag(name)]
        before = ""
        for word in args:
            flag, equals, value = word.partition("=")
            if equals and flag.startswith("--") and is_secret_flag(flag):
                found.append(value)
            elif before.startswith("--") and "=" not in before and is_secret_flag(before):
                found.append(word)
            before = word
        return cls(found)

    def text(self, text: str) -> str:
        for value in self.values:
            text = text.replace(value, HIDDEN)
        return redact(text)

    def value(self, value: Any) -> Any:
        """Redact a JSON value: secrets in its strings, and values of keys that name secrets."""
        if isinstance(value, Mapping):
            return {
                key: HIDDEN if _is_secret_item(key, item) else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return self.text(value) if isinstance(value, str) and not isinstance(value, Enum) else value
