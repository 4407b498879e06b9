"""Request contract of two servers: checks of all fields, and documented differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import Advisory, RequestField, all_advisories
from speclaunch.core import LaunchError, beating, duration
from speclaunch.engine import Address, Plan, UnknownValueError, within
from speclaunch.measure.prove import contract_fields
from speclaunch.measure.prove.contract_fields import GRAMMARS, PENALTIES
from speclaunch.measure.prove.contract_servers import (
    REFUSED,
    Contract,
    ContractServer,
    FieldResult,
    FieldRow,
    Outcome,
    Pair,
    untested,
)
from speclaunch.measure.prove.proof import served_dtype
from speclaunch.serving import EngineClient, EngineError

_EAGLE = ("EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP")
_SAMPLED = ("temperature", "top_p", "top_k", "min_p", "sampling_seed")


class Statement(Struct, frozen=True):
    """A difference that the engine's source states. `cpu`: True if it occurs only on CPUs."""

    fields: tuple[str, ...]
    algorithms: tuple[str, ...]
    versions: str
    text: str
    source: str
    cpu: bool = False

    def __str__(self) -> str:
        return f"{self.text} ({self.source})"


_RELAXED = Statement(
    tuple(PENALTIES),
    _EAGLE,
    ">=0.5.11",
    "This is a relaxed version of penalties for speculative decoding.",
    "SGLang 0.5.23 srt/speculative/eagle_utils.py:563",
)
STATEMENTS = (
    _RELAXED,
    replace(_RELAXED, algorithms=("NGRAM",), versions=">=0.5.14"),
    Statement(
        _SAMPLED,
        (*_EAGLE, "NGRAM"),
        ">=0.5.21",
        "On a CPU, verification commits argmax instead of taking the sampling path.",
        "SGLang 0.5.23 srt/speculative/eagle_utils.py:493",
        cpu=True,
    ),
)
"""Statements found in the source of every release in their range."""


def statement(field: str, release: str, algorithm: str, device: str | None) -> str | None:
    """Return the engine's own statement that a field differs; None if there is none."""
    for each in STATEMENTS:
        if (
            field in each.fields
            and algorithm in each.algorithms
            and within(release, each.versions)
            and (device == "cpu" or not each.cpu)
        ):
            return str(each)
    return None


def known_bugs(concern: RequestField, plan: Plan) -> tuple[str, ...]:
    """Return the IDs of a request field's advisories that may affect a deployment."""
    return tuple(
        advisory.id
        for advisory in all_advisories()
        if concern in advisory.requests and _may_apply(advisory, plan)
    )


def _may_apply(advisory: Advisory, plan: Plan) -> bool:
    try:
        return advisory.applies(plan)
    except UnknownValueError:
        return True


class ContractField(Struct, frozen=True):
    """A request field: its check, and its name in advisories, if any."""

    name: str
    check: Callable[[Pair], Outcome]
    concern: RequestField | None = None


_ABOUT = RequestField
_SHOWN = 200
_BAD_REQUEST = "400:"
"""Prefix of the error message if validation rejects a request. Other errors are failures."""

FIELDS = (
    ContractField("stop", contract_fields.stop, _ABOUT.STOP),
    ContractField("stop_across_tokens", contract_fields.stop_across, _ABOUT.STOP),
    ContractField("stop_token_ids", contract_fields.stop_token_ids, _ABOUT.STOP),
    ContractField("max_new_tokens", contract_fields.max_new_tokens, _ABOUT.MAX_TOKENS),
    ContractField("end_at_max_new_tokens", contract_fields.end_at_limit, _ABOUT.MAX_TOKENS),
    ContractField("min_new_tokens", contract_fields.min_new_tokens, _ABOUT.MIN_TOKENS),
    *(ContractField(name, contract_fields.penalty(name), _ABOUT.PENALTIES) for name in PENALTIES),
    ContractField("logit_bias", contract_fields.logit_bias, _ABOUT.LOGIT_BIAS),
    ContractField("n", contract_fields.n, _ABOUT.N),
    ContractField("stream", contract_fields.stream, _ABOUT.STREAM),
    ContractField("usage", contract_fields.usage),
    ContractField("temperature", contract_fields.distribution(), _ABOUT.TEMPERATURE),
    ContractField("top_p", contract_fields.distribution(top_p=0.2), _ABOUT.TOP_P),
    ContractField("top_k", contract_fields.distribution(top_k=2), _ABOUT.TOP_K),
    ContractField("min_p", contract_fields.distribution(min_p=0.5), _ABOUT.MIN_P),
    ContractField("sampling_seed", contract_fields.seed, _ABOUT.SEED),
    ContractField(
        "return_logprob", contract_fields.logprobs("output_token_logprobs"), _ABOUT.LOGPROBS
    ),
    ContractField(
        "top_logprobs_num",
        contract_fields.logprobs("output_top_logprobs", top_logprobs_num=3),
        _ABOUT.LOGPROBS,
    ),
    ContractField(
        "logprob_start_len",
        contract_fields.logprobs("input_token_logprobs", logprob_start_len=0),
        _ABOUT.LOGPROBS,
    ),
    *(ContractField(name, contract_fields.grammar(name), _ABOUT.GRAMMAR) for name in GRAMMARS),
    ContractField("reasoning_tokens", contract_fields.reasoning, _ABOUT.REASONING),
    ContractField("tools", contract_fields.tools, _ABOUT.TOOLS),
    ContractField("abort", contract_fields.abort, _ABOUT.ABORT),
    ContractField("context_limit", contract_fields.context_limit, _ABOUT.LONG_CONTEXT),
)
"""All fields. Fields that may crash a server come last."""


def check_contract(
    speculative: ContractServer,
    plain: ContractServer,
    *,
    plan: Plan | None = None,
    fields: Sequence[ContractField] = FIELDS,
    done: Sequence[FieldRow] = (),
    save: Callable[[tuple[FieldRow, ...]], None] = lambda _: None,
) -> Contract:
    """Return the contract of two running servers of one release and checkpoint.

    `plan`: plan of the speculative server, for its data type and advisories; None lists no
    advisories. `done`: rows of the first fields, from an interrupted check. `save` receives all
    rows after each field. Raises LaunchError if the plain server speculates or gives no answer, or
    if the speculative server does not speculate. Raises EngineError if a server is unreachable at
    the start.
    """
    info = speculative.info
    algorithm = info.get("speculative_algorithm")
    if not algorithm or plain.info.get("speculative_algorithm"):
        raise LaunchError("a contract needs a speculative server and a plain server")
    release = str(info.get("version") or "")
    pair = Pair(speculative, plain, "" if plan is None else served_dtype(plan))
    rows, ended = tuple(done), ""
    for field in fields[len(rows) :]:
        why = f"the server ended during {ended}"
        outcome = untested(why) if ended else _outcome(field, pair)
        row = _row(field, outcome, release, str(algorithm), info.get("device"), plan)
        rows = (*rows, row)
        save(rows)
        if outcome.result is FieldResult.DIFFERS and not ended and not speculative.lives():
            ended = field.name
    return Contract(rows, release, str(algorithm))


def served_contract(
    ours: Address,
    plain: Address,
    plan: Plan,
    say: Callable[[str], None],
    done: Sequence[FieldRow] = (),
    save: Callable[[tuple[FieldRow, ...]], None] = lambda _: None,
) -> Contract:
    """Return the contract of two local engines, and report progress with `say`.

    `done` and `save`: see `check_contract`. Raises LaunchError if an engine gives no answer.
    """
    count = len(done)

    def add(rows: tuple[FieldRow, ...]) -> None:
        nonlocal count
        count = len(rows)
        save(rows)

    servers = (ContractServer(partial(EngineClient, address)) for address in (ours, plain))
    text = "request contract: {} of {} fields checked in {}".format
    with beating(say, lambda seconds: text(count, len(FIELDS), duration(seconds))):
        try:
            return check_contract(*servers, plan=plan, done=done, save=add)
        except EngineError as error:
            raise LaunchError(f"the server gave no valid answer: {error}") from error


def _outcome(field: ContractField, pair: Pair) -> Outcome:
    """Return the outcome of a field. Raises LaunchError if the plain server gives no answer."""
    try:
        if not pair.bases:
            return untested(
                "the greedy answers differ even without these fields: run `speclaunch prove`"
            )
        return field.check(pair)
    except EngineError as error:
        if not pair.plain.lives():
            raise LaunchError(f"the plain server ended during {field.name}: {error}") from error
        return Outcome(FieldResult.DIFFERS, f"the server gave no valid answer: {error}")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"an answer is not in SGLang's format: {type(error).__name__}: {error}"
        return Outcome(FieldResult.DIFFERS, reason[:_SHOWN])


def _row(
    field: ContractField,
    outcome: Outcome,
    release: str,
    algorithm: str,
    device: str | None,
    plan: Plan | None,
) -> FieldRow:
    documented: str | None = None
    bugs: tuple[str, ...] = ()
    if outcome.result is FieldResult.DIFFERS:
        documented = statement(field.name, release, algorithm, device)
        if outcome.refused.startswith(_BAD_REQUEST):
            documented = f"{REFUSED}{outcome.refused}"
        if field.concern is not None and plan is not None:
            bugs = known_bugs(field.concern, plan)
    return FieldRow(field.name, outcome.result, outcome.reason, outcome.requests, documented, bugs)
