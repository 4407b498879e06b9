"""A scripted server that means what SGLang means by each request field, or breaks one of them.

Its model is a table of random logits by the last two tokens; a token is a character. A speculative
server generates the same tokens in steps of one to four. A fault changes what it makes of a field,
as a broken verification would: within a step, or for all tokens but the first.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from math import exp, log
from random import Random
from typing import Any

from speclaunch.measure.prove import contract_fields
from speclaunch.measure.prove.contract_servers import ContractServer
from speclaunch.serving import EngineError

LETTERS = ' abcdefghijklmnopqrstuvwxyz0123456789-{}":,.'
EOS = len(LETTERS)
VOCABULARY = EOS + 1
CONTEXT = 256
REFUSED = 400
_TABLE: dict[tuple[int, int, int], list[float]] = {}
_DIGITS = tuple("0123456789")
_GRAMMARS: dict[str, tuple[tuple[str, ...], ...]] = {
    contract_fields._REGEX: (*[("ab", "cd", "xyz")] * 3, ("-",), *[_DIGITS] * 4),
    contract_fields._EBNF: (contract_fields._COLORS, (" ",), _DIGITS, _DIGITS),
    json.dumps(contract_fields._SCHEMA): (
        ('{"color": "',),
        contract_fields._COLORS,
        ('", "done": ',),
        ("true", "false"),
        ("}",),
    ),
}
"""The strings at each place of what the grammars of the contract allow."""


@dataclass(frozen=True)
class Fault:
    """A planted bug, the fields that it breaks, and those that it breaks in some models."""

    name: str
    breaks: tuple[str, ...]
    sometimes: tuple[str, ...] = ()

    def explains(self, fields: Collection[str]) -> bool:
        """True if exactly these fields may differ."""
        return set(self.breaks) <= set(fields) <= {*self.breaks, *self.sometimes}


PENALTIES = tuple(contract_fields.PENALTIES)
FAULTS = (
    Fault("ignores stop strings", ("stop", "stop_across_tokens", "stream", "usage")),
    Fault(
        "sees stop strings at the end of a step only",
        ("stop", "stop_across_tokens", "stream", "usage"),
    ),
    Fault("sees stop strings of one token only", ("stop_across_tokens",)),
    Fault(
        "ignores stop tokens",
        ("stop_token_ids", "end_at_max_new_tokens", "reasoning_tokens", "min_new_tokens"),
    ),
    Fault("checks the limit before the stop token", ("end_at_max_new_tokens",)),
    Fault("runs past max_new_tokens", ("max_new_tokens", "logit_bias", "usage", "context_limit")),
    Fault("ignores min_new_tokens", ("min_new_tokens",)),
    Fault("counts min_new_tokens by steps", ("min_new_tokens",)),
    *(Fault(f"ignores {name}", (name,)) for name in PENALTIES),
    Fault("counts penalties by steps", PENALTIES[:1]),
    Fault("ignores logit_bias", ("logit_bias", "min_new_tokens"), PENALTIES),
    Fault("answers once for n", ("n", "usage")),
    Fault("returns one logprob", ("return_logprob",)),
    Fault("returns logprobs of the draft", ("return_logprob", "top_logprobs_num")),
    Fault("returns one top logprob", ("top_logprobs_num",)),
    Fault("shifts prompt logprobs", ("logprob_start_len",)),
    Fault("ignores regex", ("regex",)),
    Fault("ignores ebnf", ("ebnf",)),
    Fault("ignores json_schema", ("json_schema",)),
    Fault("drops the end of a stream", ("stream",)),
    Fault("counts draft tokens as used", ("usage",)),
    Fault("counts draft tokens as reasoning", ("reasoning_tokens",)),
    Fault("calls no tool", ("tools",)),
    Fault("samples greedily", ("temperature", "top_p", "top_k", "min_p", "sampling_seed")),
    Fault("ignores top_p", ("top_p",)),
    Fault("ignores top_k", ("top_k",)),
    Fault("ignores min_p", ("min_p",)),
    Fault("ignores sampling_seed", ("sampling_seed",)),
    Fault("ignores aborts", ("abort",)),
    Fault("keeps the KV cache of aborted requests", ("abort",)),
    Fault("ends at the context limit", ("context_limit",)),
    Fault("refuses logit_bias", ("logit_bias", "min_new_tokens", *PENALTIES)),
)


@dataclass
class Reply:
    """An answer over HTTP."""

    body: Any
    status_code: int = 200

    @property
    def text(self) -> str:
        """Body as text."""
        return self.body if isinstance(self.body, str) else json.dumps(self.body)

    def json(self) -> Any:
        """Return the body as a document."""
        return self.body


@dataclass
class Made:
    """What was generated: tokens, the reason for the end, and logits of each place."""

    ids: list[int]
    finish: dict[str, Any]
    text: str
    rows: list[list[float]]
    steps: int


class ScriptedServer:
    """One server, and a client of it. `model`: the seed of its logits; `salt`: of its samples."""

    def __init__(self, *, speculates: bool, fault: str = "", salt: int = 0, model: int = 0) -> None:
        self.speculates, self.fault, self.salt, self.model = speculates, fault, salt, model
        self.used = 0
        self.ended = False
        self._aborted: dict[str, threading.Event] = {}
        self._count = salt * 1_000_003

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def get(self, path: str, timeout: float = 0.0) -> Reply:
        if self.ended:
            raise EngineError("connection refused")
        if path.startswith("/v1/loads"):
            return Reply({"loads": [{"num_used_tokens": self.used}]})
        return Reply("", 404)

    def healthy(self) -> bool:
        return not self.ended

    def server_info(self) -> dict[str, Any]:
        return {
            "version": "0.5.23",
            "dtype": "float32",
            "device": "cuda",
            "context_length": CONTEXT,
            "reasoning_parser": "deepseek-r1",
            "tool_call_parser": "qwen25",
            "enable_deterministic_inference": True,
            "speculative_algorithm": "EAGLE" if self.speculates else None,
        }

    def post(self, path: str, body: dict[str, Any], timeout: float) -> Reply:
        if self.ended:
            raise EngineError("connection refused")
        if path == "/abort_request":
            if self.fault != "ignores aborts":
                self._aborted.setdefault(body["rid"], threading.Event()).set()
            return Reply("")
        if path == "/v1/completions":
            return self._completion(body)
        if path == "/v1/chat/completions":
            return self._chat(body)
        return self._generate(body)

    def _generate(self, body: dict[str, Any]) -> Reply:
        sampling = body["sampling_params"]
        prompt = body.get("input_ids") or encode(body["text"])
        if self.fault == "refuses logit_bias" and "logit_bias" in sampling:
            return Reply({"error": {"message": "logit_bias is not supported"}}, REFUSED)
        limit = sampling["max_new_tokens"]
        if "rid" in body:
            aborted = self._aborted.setdefault(body["rid"], threading.Event()).wait(0.2)
            self.used += 100 * (self.fault == "keeps the KV cache of aborted requests")
            reason = {"type": "abort"} if aborted else {"type": "length", "length": limit}
            return Reply(answer(Made([1] * 9, reason, "", [], 3), prompt, body, self))
        if len(prompt) + limit > CONTEXT:
            return Reply({"error": {"message": f"longer than {CONTEXT} tokens"}}, 400)
        if self.fault == "ends at the context limit" and len(prompt) + limit == CONTEXT:
            self.ended = True
            raise EngineError("connection reset")
        count = 1 if self.fault == "answers once for n" else sampling.get("n", 1)
        found = [self._answer(prompt, body) for _ in range(count)]
        if body.get("stream"):
            text = found[0]["text"]
            if self.fault == "drops the end of a stream":
                found[0]["text"] = text[:-1]
            chunk = {**found[0], "text": text[: len(text) // 2]}
            return Reply(
                "".join(f"data: {json.dumps(each)}\n\n" for each in (chunk, found[0]))
                + "data: [DONE]\n\n"
            )
        return Reply(found if sampling.get("n", 1) > 1 else found[0])

    def _answer(self, prompt: list[int], body: dict[str, Any]) -> dict[str, Any]:
        made = self._made(prompt, body["sampling_params"])
        found = answer(made, prompt, body, self)
        if body.get("require_reasoning"):
            extra = made.steps if self.fault == "counts draft tokens as reasoning" else 0
            found["meta_info"]["reasoning_tokens"] = len(made.ids) + extra
        return found

    def _completion(self, body: dict[str, Any]) -> Reply:
        prompt = encode(body["prompt"])
        sampling = {"max_new_tokens": body["max_tokens"], "temperature": 0, "ignore_eos": True}
        sampling |= {name: body[name] for name in ("stop",) if name in body}
        made = self._made(prompt, sampling)
        count = 1 if self.fault == "answers once for n" else body.get("n", 1)
        extra = made.steps if self.fault == "counts draft tokens as used" else 0
        used = (len(made.ids) + extra) * count
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": used,
            "total_tokens": len(prompt) + used,
        }
        return Reply({"choices": [{"text": made.text}] * count, "usage": usage})

    def _chat(self, body: dict[str, Any]) -> Reply:
        name = body["tool_choice"]["function"]["name"]
        call = {"function": {"name": name, "arguments": '{"color": "red"}'}}
        calls = [] if self.fault == "calls no tool" else [call]
        return Reply({"choices": [{"message": {"tool_calls": calls}}]})

    def _made(self, prompt: list[int], sampling: dict[str, Any]) -> Made:
        """Generate step by step."""
        requested = Sampling(self.fault, sampling, self.model)
        random = Random(self._seed(sampling))
        steps = Random(len(prompt))
        made = Made([], {}, "", [], 0)
        state = Grammar(requested.grammar) if requested.grammar else None
        while not made.finish:
            made.steps += 1
            first = len(made.ids)
            for _ in range(steps.randint(1, 4) if self.speculates else 1):
                row = requested.row(prompt, made, state)
                token = requested.chosen(row, random)
                made.ids.append(token)
                made.rows.append(row)
                if state is not None and token != EOS:
                    state.take(LETTERS[token])
            requested.end(made, first)
            requested.counted.append(made.ids[-1])
        return made

    def _seed(self, sampling: dict[str, Any]) -> int:
        own = sampling.get("sampling_seed")
        if own is None or self.fault == "ignores sampling_seed":
            self._count += 1
            return self._count
        return int(own) * 31 + self.salt


@dataclass
class Sampling:
    """The sampling parameters of a request, as a server with a fault understands them."""

    fault: str
    sampling: dict[str, Any]
    model: int
    counted: list[int] = field(default_factory=list)
    """The last token of each step."""

    def of(self, name: str, default: Any) -> Any:
        """Return a parameter, or the default if the fault ignores it."""
        return default if self.fault == f"ignores {name}" else self.sampling.get(name, default)

    @property
    def grammar(self) -> tuple[tuple[str, ...], ...] | None:
        """The strings that a grammar allows at each place."""
        found = next(filter(None, (self.of(n, None) for n in ("regex", "ebnf", "json_schema"))), "")
        return _GRAMMARS[found] if found else None

    def row(self, prompt: list[int], made: Made, state: Grammar | None) -> list[float]:
        """Return the logits of the next token."""
        before = (prompt + made.ids)[-2:]
        row = list(logits(self.model, before[-2], before[-1]))
        by_steps = self.fault == "counts penalties by steps"
        output = made.ids[:1] + self.counted if by_steps else made.ids
        frequency, presence = self.of(PENALTIES[0], 0.0), self.of(PENALTIES[1], 0.0)
        scale = self.of(PENALTIES[2], 1.0)
        if frequency or presence or scale != 1.0:
            for token in set(made.ids):
                row[token] -= frequency * output.count(token) + presence
                row[token] = row[token] / scale if row[token] > 0 else row[token] * scale
        for token, bias in self.of("logit_bias", {}).items():
            row[int(token)] += bias
        least = self.of("min_new_tokens", 0)
        length = (
            len(self.counted) if self.fault == "counts min_new_tokens by steps" else len(made.ids)
        )
        if length < least:
            for token in (EOS, *self.sampling.get("stop_token_ids", ())):
                row[token] = float("-inf")
        if state is not None:
            allowed = state.allowed()
            for token in range(VOCABULARY):
                if (LETTERS[token] if token < EOS else "") not in allowed:
                    row[token] = float("-inf")
        return row

    def chosen(self, row: list[float], random: Random) -> int:
        """Return the next token: the best token, or a sample."""
        heat = self.sampling.get("temperature", 1.0)
        best = max(row)
        if not heat or self.fault == "samples greedily":
            return row.index(best)
        weights = [exp((each - best) / heat) for each in row]
        total = sum(weights)
        order = sorted(range(VOCABULARY), key=weights.__getitem__, reverse=True)
        chosen, mass, top_p = [], 0.0, self.of("top_p", 1.0)
        for token in order[: self.of("top_k", VOCABULARY)]:
            if weights[token] < self.of("min_p", 0.0) or mass >= top_p:
                break
            chosen.append(token)
            mass += weights[token] / total
        return random.choices(chosen, [weights[token] for token in chosen])[0]

    def end(self, made: Made, first: int) -> None:
        """Set the reason for the end if a token of the last step, from `first` on, has one."""
        limit, sampling = self.sampling["max_new_tokens"], self.sampling
        ends = [] if self.sampling.get("ignore_eos") else [EOS, *sampling.get("stop_token_ids", ())]
        if self.fault == "ignores stop tokens":
            ends = ends[:1]
        over = self.fault == "checks the limit before the stop token" and len(made.ids) >= limit
        for at in range(first, len(made.ids)):
            if at >= limit and self.fault != "runs past max_new_tokens":
                break
            text = decode(made.ids[: at + 1])
            if self._stops(made, text, at) and not over:
                return
            if made.ids[at] in ends and not over:
                made.finish = {"type": "stop", "matched": made.ids[at]}
                self._cut(made, at + 1)
                return
        if len(made.ids) >= limit:
            made.finish = {"type": "length", "length": limit}
            self._cut(made, len(made.ids) if self.fault == "runs past max_new_tokens" else limit)

    def _stops(self, made: Made, text: str, at: int) -> bool:
        """True if the answer ends at a stop string."""
        for stop in self.sampling.get("stop", ()):
            if self.fault == "ignores stop strings" or not text.endswith(stop):
                continue
            if self.fault == "sees stop strings at the end of a step only" and at + 1 < len(
                made.ids
            ):
                continue
            if self.fault == "sees stop strings of one token only" and len(stop) > 1:
                continue
            made.finish = {"type": "stop", "matched": stop}
            self._cut(made, at + 1)
            made.text = text[: -len(stop)]
            return True
        return False

    @staticmethod
    def _cut(made: Made, length: int) -> None:
        del made.ids[length:], made.rows[length:]
        made.text = decode(made.ids)


class Grammar:
    """What may follow, by place and the string that has begun there."""

    def __init__(self, places: tuple[tuple[str, ...], ...]) -> None:
        self.places, self.at, self.begun = places, 0, ""

    def allowed(self) -> set[str]:
        """Return the next characters; an empty string for the end."""
        if self.at == len(self.places):
            return {""}
        return {
            word[len(self.begun)] for word in self.places[self.at] if word.startswith(self.begun)
        }

    def take(self, letter: str) -> None:
        """Advance by a character."""
        self.begun += letter
        if self.at < len(self.places) and self.begun in self.places[self.at]:
            self.at, self.begun = self.at + 1, ""


def answer(
    made: Made, prompt: list[int], body: dict[str, Any], server: ScriptedServer
) -> dict[str, Any]:
    """Return the document of one answer."""
    fault = server.fault
    meta: dict[str, Any] = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(made.ids),
        "finish_reason": made.finish,
    }
    if body.get("return_logprob"):
        rows = [logprobs(row) for row in made.rows]
        if fault == "returns logprobs of the draft":
            rows = rows[1:] + rows[:1]
        meta["output_token_logprobs"] = [
            [row[token], token, decode([token])] for row, token in zip(rows, made.ids, strict=True)
        ]
        count = body.get("top_logprobs_num", 0)
        tops = [sorted(zip(row, range(VOCABULARY), strict=True), reverse=True) for row in rows]
        meta["output_top_logprobs"] = [[[*pair, ""] for pair in top[:count]] for top in tops]
        scored = body.get("token_ids_logprob") or ()
        meta["output_token_ids_logprobs"] = [
            [[row[token], token, None] for token in scored] for row in rows
        ]
        if "logprob_start_len" in body:
            shift = fault == "shifts prompt logprobs"
            places = [
                logprobs(logits(server.model, *prompt[at - 2 - shift : at - shift]))
                for at in range(3, len(prompt))
            ]
            meta["input_token_logprobs"] = [
                [row[token], token, None] for row, token in zip(places, prompt[3:], strict=True)
            ]
        if fault == "returns one logprob":
            del meta["output_token_logprobs"][1:]
        if fault == "returns one top logprob":
            del meta["output_top_logprobs"][1:]
    return {"text": made.text, "output_ids": made.ids, "meta_info": meta}


def logits(model: int, first: int, second: int) -> list[float]:
    """Return the logits after two tokens."""
    found = _TABLE.get((model, first, second))
    if found is None:
        random = Random((model * VOCABULARY + first) * VOCABULARY + second)
        found = [random.gauss(0, 2) for _ in range(EOS)] + [-9.0]
        _TABLE[model, first, second] = found
    return found


def logprobs(row: list[float]) -> list[float]:
    """Normalize logits."""
    best = max(row)
    total = best + log(sum(exp(each - best) for each in row))
    return [each - total for each in row]


def pair(fault: str = "", number: int = 0) -> tuple[ContractServer, ContractServer]:
    """Return a speculative and a plain server of the model `number`."""
    ours = ScriptedServer(speculates=True, fault=fault, salt=2 * number, model=number)
    plain = ScriptedServer(speculates=False, salt=2 * number + 1, model=number)
    return ContractServer(lambda: ours), ContractServer(lambda: plain)


def encode(text: str) -> list[int]:
    """Return the tokens of a text: unknown characters are mapped to some letter."""
    return [LETTERS.index(each) if each in LETTERS else ord(each) % EOS for each in text]


def decode(ids: list[int]) -> str:
    """Return the text of tokens."""
    return "".join(LETTERS[token] for token in ids if token < EOS)
