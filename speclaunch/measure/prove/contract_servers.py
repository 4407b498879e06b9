"""Two servers of a request contract: requests, answers, their comparison, and records.

`docs/reference/contract.schema.json` is generated from `ContractDocument`, the JSON of `speclaunch
prove recipe=R --requests`. Within version 1, keys may be added, but never removed or redefined.

Each request is sent to both servers. It proves nothing unless the plain server's answer shows the
field's effect. Answers that first differ at tokens the plain server rates equally are numerical
ties and also prove nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from speclaunch.core import LaunchError
from speclaunch.measure.prove.proof import first_difference, noise
from speclaunch.serving import EngineError, unfinished_work

CONTRACT = "contract"
"""Name under which the progress of a contract is stored."""
REFUSED = "The server refuses it: "
"""Prefix of `documented` if the engine's validation refuses a field."""


class FieldResult(StrEnum):
    """Result of one request field."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_TESTED = "not_tested"


class FieldRow(Struct, frozen=True, forbid_unknown_fields=True):
    """One request field. `reason`: the first difference, why it is not testable here, or a remark;
    empty if there is none. `requests`: compared pairs of requests.

    `documented`: the engine's own statement of the difference with its source; null if none.
    `advisories`: IDs of known bugs of this release and configuration that concern the field."""

    field: str
    result: FieldResult
    reason: str = ""
    requests: int = 0
    documented: str | None = None
    advisories: tuple[str, ...] = ()

    @property
    def breaks(self) -> bool:
        """True if the field differs and the engine does not document the difference."""
        return self.result is FieldResult.DIFFERS and self.documented is None

    @property
    def is_refused(self) -> bool:
        """True if only the speculative server refuses the field."""
        return (self.documented or "").startswith(REFUSED)


class ChangedFields(Struct, frozen=True):
    """Request fields that speculation changes in a release, by result in the previous release."""

    broken: tuple[str, ...]
    """Fields that speculation left unchanged in the previous release."""
    unknown: tuple[str, ...]
    """Fields that were not tested in the previous release."""


def changed_fields(before: Sequence[FieldRow], after: Sequence[FieldRow]) -> ChangedFields:
    """Return the undocumented differences and refusals of `after` that `before` does not have.

    Documented differences of `before` are also excluded, because releases with the same behavior
    may document it differently.
    """
    known = {row.field: row.result for row in before}
    found = [(row.field, known.get(row.field)) for row in after if row.breaks or row.is_refused]
    same, differs = FieldResult.SAME, FieldResult.DIFFERS
    return ChangedFields(
        tuple(name for name, result in found if result is same),
        tuple(name for name, result in found if result not in (same, differs)),
    )


class ContractProgress(unfinished_work.Progress, frozen=True):
    """Progress of a contract: one row per checked field."""

    rows: tuple[FieldRow, ...] = ()

    @property
    def saved(self) -> str:
        return f"{len(self.rows)} fields" if self.rows else ""


StoredContract: TypeAlias = unfinished_work.StoredWork[ContractProgress]
"""A contract on disk. `key` identifies both servers and the fields."""


class Contract(Struct, frozen=True):
    """Contract of two servers: a row per field, in the order of `FIELDS`."""

    rows: tuple[FieldRow, ...]
    release: str
    algorithm: str

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(row.field for row in self.rows if row.breaks)

    @property
    def is_same(self) -> bool:
        compared = any(row.result is not FieldResult.NOT_TESTED for row in self.rows)
        return compared and not self.broken

    def document(self, speculative: str, plain: str) -> ContractDocument:
        """Return the contract's document; `speculative` and `plain`: names of the servers."""
        counts = Counter(row.result for row in self.rows)
        return ContractDocument(
            speculative=speculative,
            plain=plain,
            engine=self.release,
            algorithm=self.algorithm,
            same=self.is_same,
            counts=FieldCounts(**{result.value: counts[result] for result in FieldResult}),
            fields=list(self.rows),
        )


class FieldCounts(Struct, frozen=True, forbid_unknown_fields=True):
    """Number of fields with each result."""

    same: int
    differs: int
    not_tested: int


class ContractDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JSON of `speclaunch prove recipe=R --requests`. `same`: true if the exit code is 0."""

    version: Literal[1] = 1
    speculative: str
    plain: str
    engine: str
    algorithm: str | None
    same: bool
    counts: FieldCounts
    fields: list[FieldRow]


Body = Mapping[str, Any]
_SECONDS = 600.0
_GOOD = 200
_SHOWN = 200
_AT_ONCE = 8
_LOADS_PATH = "/v1/loads?include=core"
_ABORT_SECONDS = 60.0
_STARTED_SECONDS = 0.5
_RELEASE_SECONDS = 30.0


class Finish(Struct, frozen=True):
    """Finish reason of an answer: `stop` with the match, `length` or `abort`."""

    type: str
    matched: int | str | None = None

    def __str__(self) -> str:
        return self.type if self.matched is None else f"{self.type} at {self.matched!r}"


class ContractAnswer(Struct, frozen=True):
    """An answer from `/generate`. `error`: refusal message; the other fields are then empty."""

    ids: tuple[int, ...] = ()
    text: str = ""
    finish: Finish = Finish("")
    meta: Mapping[str, Any] = {}
    error: str = ""

    @property
    def is_abort(self) -> bool:
        return self.finish.type == "abort"


class ContractServer:
    """A running server. Methods raise EngineError for a missing or unreadable answer."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        """Store `make`, which returns a new client, such as `EngineClient`, for each request."""
        self._make = make
        self.seeds = itertools.count(1)
        """Unused seeds for independent samples of a deterministic server."""

    @cached_property
    def info(self) -> dict[str, Any]:
        """`/server_info`: effective arguments, release and device."""
        with self._make() as client:
            return dict(client.server_info())

    def generate(self, body: Body) -> ContractAnswer:
        return self.generate_all(body)[0]

    def generate_all(self, body: Body) -> list[ContractAnswer]:
        """Return all answers to a request; a refusal is a single answer."""
        status, text = self.post("/generate", body)
        if status != _GOOD:
            return [ContractAnswer(error=f"{status}: {_short(text)}")]
        found = _document(text)
        return [_answer(each) for each in (found if isinstance(found, list) and found else [found])]

    def many(self, bodies: Sequence[Body]) -> list[ContractAnswer]:
        """Send requests concurrently; return their answers in order."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self.generate, bodies))

    def stream(self, body: Body) -> tuple[int, list[Any]]:
        """Return the status and the chunks of a streamed answer."""
        status, text = self.post("/generate", {**body, "stream": True})
        lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        return status, [_document(line) for line in lines if line != "[DONE]"]

    def chat(self, path: str, body: Body) -> tuple[int, Any]:
        """Return the status and the JSON of an OpenAI-style answer, or its error message."""
        status, text = self.post(path, {"model": "default", **body})
        return status, _document(text) if status == _GOOD else _short(text)

    def abort(self, body: Body, rid: str) -> ContractAnswer:
        """Send a long request, abort it, and return its answer."""
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self.generate, {**body, "rid": rid})
            until = time.monotonic() + _ABORT_SECONDS
            time.sleep(_STARTED_SECONDS)
            while not waiting.done() and time.monotonic() < until:
                self.post("/abort_request", {"rid": rid})
                time.sleep(_STARTED_SECONDS / 2)
            return waiting.result()

    def used_tokens(self) -> int | None:
        """Return the number of KV tokens in use; None if the release does not report it.

        Source: 0.5.23 entrypoints/v1_loads.py `get_loads`, `num_used_tokens`.
        """
        with self._make() as client:
            answer = client.get(_LOADS_PATH)
            if answer.status_code != _GOOD:
                return None
            loads = answer.json().get("loads")
        found = [load.get("num_used_tokens") for load in loads or () if isinstance(load, dict)]
        counts = [each for each in found if isinstance(each, int)]
        return sum(counts) if counts else None

    def await_release(self, before: int) -> int:
        """Wait until at most `before` KV tokens are in use, or time runs out; return the excess.

        A server updates the reported load only periodically.
        """
        until = time.monotonic() + _RELEASE_SECONDS
        while True:
            left = max((self.used_tokens() or 0) - before, 0)
            if not left or time.monotonic() > until:
                return left
            time.sleep(_STARTED_SECONDS)

    def lives(self) -> bool:
        """True if `/health` returns 200."""
        with self._make() as client:
            return bool(client.healthy())

    def post(self, path: str, body: Body) -> tuple[int, str]:
        with self._make() as client:
            answer = client.post(path, dict(body), _SECONDS)
        return int(answer.status_code), str(answer.text)


def _short(text: str) -> str:
    found: Any = None
    with contextlib.suppress(ValueError):
        found = json.loads(text)
    while isinstance(found, dict):
        found = found.get("error", found.get("message", ""))
    return " ".join((found if isinstance(found, str) and found else text).split())[:_SHOWN]


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise EngineError(f"its answer is not JSON: {_short(text)}") from None


def _answer(found: Any) -> ContractAnswer:
    """Return an answer from `/generate`. Raises EngineError if it does not have SGLang's format."""
    try:
        meta = found["meta_info"]
        reason = meta.get("finish_reason") or {}
        ids = found.get("output_ids")
        if ids is None:  # for text up to 0.4.10.post2 (tokenizer_manager.py)
            ids = [entry[1] for entry in meta.get("output_token_logprobs") or ()]
        return ContractAnswer(
            tuple(map(int, ids)),
            str(found.get("text") or ""),
            Finish(str(reason.get("type") or ""), reason.get("matched")),
            meta,
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        shown = f"{type(error).__name__}: {error}"[:_SHOWN]
        raise EngineError(f"/generate's answer is not in SGLang's format: {shown}") from None


TOKENS = 48
"""Tokens of the greedy answer that most cases cut or change."""
_PROMPTS = (
    "The quick brown fox jumps over the lazy dog while the server",
    "Once upon a time there was a small language model on an ordinary",
    "A draft model proposes a few tokens, the target model verifies them all",
    "When memory runs out the launcher turns the right",
    "Speculative decoding changes the speed of an answer, never its",
    "def successor(token): return cycle[(position + 1)",
)
_BASES = 2
_TOPS = 2
_SHOWN_TEXT = 40


class Outcome(Struct, frozen=True):
    """Result of one field. `refused`: the server's message if it refuses the field."""

    result: FieldResult
    reason: str = ""
    requests: int = 0
    refused: str = ""


def untested(reason: str, requests: int = 0) -> Outcome:
    """Return the outcome of a field that cannot be tested on these servers."""
    return Outcome(FieldResult.NOT_TESTED, reason, requests)


class GreedyCase(Struct, frozen=True):
    """A greedy request. `shown`: the field with its value. `holds`: True if the plain server's
    answer shows the effect of the field."""

    body: Body
    shown: str
    holds: Callable[[ContractAnswer], bool] = lambda answer: bool(answer.ids)


class Base(Struct, frozen=True):
    """A prompt that both servers continue identically. `tokens`: texts of the answer's tokens."""

    prompt: str
    answer: ContractAnswer
    tokens: tuple[str, ...]
    runners_up: tuple[int, ...]
    """Second most likely token at each position."""

    def body(self, **sampling: Any) -> dict[str, Any]:
        return request(self.prompt, **sampling)


def request(prompt: str, **sampling: Any) -> dict[str, Any]:
    """Return a greedy request. `sampling` adds or replaces sampling parameters."""
    defaults = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    return {"text": prompt, "sampling_params": {**defaults, **sampling}}


class Pair:
    """The servers of a contract. `ours` speculates."""

    def __init__(self, ours: ContractServer, plain: ContractServer, dtype: str = "") -> None:
        """Store the servers. `dtype`: compute data type; if empty, the plain server reports it."""
        self.ours, self.plain = self.servers = ours, plain
        self._dtype = dtype

    @cached_property
    def tolerance(self) -> float:
        """Largest logprob gap, in nats, of a tie."""
        return noise(self._dtype or str(self.plain.info.get("dtype")), (), ())

    @cached_property
    def bases(self) -> tuple[Base, ...]:
        """Prompts that both servers answer identically without the checked field."""
        found = []
        for prompt in _PROMPTS:
            base = self._base(prompt)
            if self.difference(base.body())[0] == "":
                found.append(base)
            if len(found) == _BASES:
                break
        return tuple(found)

    def plainly(self, body: Body) -> ContractAnswer:
        """Return the plain server's answer, with the logprobs and texts of the top two tokens."""
        logprobs = {"return_logprob": True, "top_logprobs_num": _TOPS}
        return self.plain.generate({**body, **logprobs, "return_text_in_logprobs": True})

    def _base(self, prompt: str) -> Base:
        answer = self.plainly(request(prompt))
        if answer.error:
            raise LaunchError(f"the plain server refuses a greedy request: {answer.error}")
        tops = answer.meta["output_top_logprobs"]
        tokens = tuple(str(entry[2] or "") for entry in answer.meta["output_token_logprobs"])
        return Base(prompt, answer, tokens, tuple(int(top[-1][1]) for top in tops))

    def difference(
        self, body: Body, found: tuple[ContractAnswer, ContractAnswer] | None = None
    ) -> tuple[str | None, ContractAnswer, ContractAnswer]:
        """Return the difference of the answers as text, then the speculative and the plain answer.

        The difference is empty for equal answers, None for a tie. `found`: both answers, if known.
        """
        ours, plain = found or (self.ours.generate(body), self.plain.generate(body))
        return self._difference(body, ours, plain), ours, plain

    def _difference(self, body: Body, ours: ContractAnswer, plain: ContractAnswer) -> str | None:
        if ours.error or plain.error:
            return _refused(ours.error, plain.error)
        at = first_difference(ours.ids, plain.ids)
        if at is not None and self._is_tie(body, ours, at):
            return None
        if len(ours.ids) != len(plain.ids) or ours.finish != plain.finish:
            own, other = (f"{len(each.ids)} tokens, {each.finish}" for each in (ours, plain))
            return f"{own}; the plain server: {other}"
        if at is not None:
            return f"token {at + 1} is {ours.ids[at]}, not {plain.ids[at]}"
        if ours.text != plain.text:
            return f"text …{ours.text[-_SHOWN_TEXT:]!r}, not …{plain.text[-_SHOWN_TEXT:]!r}"
        return counted(ours.meta, plain.meta)

    def _is_tie(self, body: Body, ours: ContractAnswer, at: int) -> bool:
        """True if the plain server prefers its own token at index `at` by at most the tolerance."""
        again = self.plainly(body)
        tops = again.meta.get("output_top_logprobs") or ()
        if again.error or ours.ids[:at] != again.ids[:at] or not at < min(len(ours.ids), len(tops)):
            return False
        best, *others = tops[at]
        return any(
            int(other[1]) == ours.ids[at] and best[0] - other[0] <= self.tolerance
            for other in others
        )

    def compare(self, cases: Iterable[GreedyCase]) -> Outcome:
        tested = requests = 0
        reason = "no request tests this field"
        for case in cases:
            requests += 1
            difference, ours, plain = self.difference(case.body)
            if difference:
                refused = ours.error if not plain.error else ""
                return Outcome(
                    FieldResult.DIFFERS, f"{case.shown}: {difference}", requests, refused
                )
            if difference is None:
                reason = "numerical ties only"
            elif plain.error:
                reason = f"both servers refuse it: {plain.error}"
            elif not case.holds(plain):
                reason = "it does not change the plain server's answers"
            else:
                tested += 1
        if not tested:
            return untested(reason, requests)
        return Outcome(FieldResult.SAME, "", tested)


def _refused(ours: str, plain: str) -> str:
    if ours and plain:
        return ""
    return f"refused ({ours})" if ours else f"accepted; the plain server refuses it ({plain})"


def counted(ours: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """Return the first differing token count as text; empty if none."""
    for name in ("prompt_tokens", "completion_tokens"):
        if ours[name] != plain[name]:
            return f"{name} is {ours[name]}, not {plain[name]}"
    return ""


def shown(text: str) -> str:
    """Return `text`, shortened and quoted."""
    return repr(text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…")


def same(differences: Sequence[str | None]) -> Outcome:
    """Return a field's outcome from the `Pair.difference` result of each request."""
    found = next(filter(None, differences), "")
    return Outcome(FieldResult.DIFFERS if found else FieldResult.SAME, found, len(differences))
