"""Request contract of two servers: check each field in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from speclaunch.checks import RequestField
from speclaunch.core import LaunchError, beating, duration
from speclaunch.engine import Address, Plan
from speclaunch.measure.contract import answer_fields, greedy_fields, sampled_fields
from speclaunch.measure.contract.greedy_fields import GRAMMARS, PENALTIES
from speclaunch.measure.contract.known import known_bugs, statement
from speclaunch.measure.contract.pair import Outcome, Pair, untested
from speclaunch.measure.contract.records import REFUSED, Contract, FieldResult, FieldRow
from speclaunch.measure.contract.servers import ContractServer
from speclaunch.measure.prove.proof import served_dtype
from speclaunch.serving import EngineClient, EngineError


class ContractField(Struct, frozen=True):
    """A request field: its check, and its name in advisories, if any."""

    name: str
    check: Callable[[Pair], Outcome]
    concern: RequestField | None = None


_ABOUT = RequestField
_SHOWN = 200
_BAD_REQUEST = "400:"
"""Start of the error of a request that validation rejects. Other errors are failures."""

FIELDS = (
    ContractField("stop", greedy_fields.stop, _ABOUT.STOP),
    ContractField("stop_across_tokens", greedy_fields.stop_across, _ABOUT.STOP),
    ContractField("stop_token_ids", greedy_fields.stop_token_ids, _ABOUT.STOP),
    ContractField("max_new_tokens", greedy_fields.max_new_tokens, _ABOUT.MAX_TOKENS),
    ContractField("end_at_max_new_tokens", greedy_fields.end_at_limit, _ABOUT.MAX_TOKENS),
    ContractField("min_new_tokens", greedy_fields.min_new_tokens, _ABOUT.MIN_TOKENS),
    *(ContractField(name, greedy_fields.penalty(name), _ABOUT.PENALTIES) for name in PENALTIES),
    ContractField("logit_bias", greedy_fields.logit_bias, _ABOUT.LOGIT_BIAS),
    ContractField("n", answer_fields.n, _ABOUT.N),
    ContractField("stream", answer_fields.stream, _ABOUT.STREAM),
    ContractField("usage", answer_fields.usage),
    ContractField("temperature", sampled_fields.distribution(), _ABOUT.TEMPERATURE),
    ContractField("top_p", sampled_fields.distribution(top_p=0.2), _ABOUT.TOP_P),
    ContractField("top_k", sampled_fields.distribution(top_k=2), _ABOUT.TOP_K),
    ContractField("min_p", sampled_fields.distribution(min_p=0.5), _ABOUT.MIN_P),
    ContractField("sampling_seed", sampled_fields.seed, _ABOUT.SEED),
    ContractField("return_logprob", answer_fields.output_logprobs, _ABOUT.LOGPROBS),
    ContractField("top_logprobs_num", answer_fields.top_logprobs, _ABOUT.LOGPROBS),
    ContractField("logprob_start_len", answer_fields.prompt_logprobs, _ABOUT.LOGPROBS),
    *(ContractField(name, greedy_fields.grammar(name), _ABOUT.GRAMMAR) for name in GRAMMARS),
    ContractField("reasoning_tokens", answer_fields.reasoning, _ABOUT.REASONING),
    ContractField("tools", answer_fields.tools, _ABOUT.TOOLS),
    ContractField("abort", answer_fields.abort, _ABOUT.ABORT),
    ContractField("context_limit", greedy_fields.context_limit, _ABOUT.LONG_CONTEXT),
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

    `plan`: the speculative server's, for its data type and advisories; None lists no advisories.
    `done`: rows of the first fields, from an interrupted contract. `save` receives all rows after
    each field. Raises LaunchError if the plain server gives no answer, or the speculative one does
    not speculate, and EngineError if one cannot be reached at first.
    """
    info = speculative.info
    algorithm = info.get("speculative_algorithm")
    if not algorithm or plain.info.get("speculative_algorithm"):
        raise LaunchError("a contract needs a speculative server and a plain one")
    release = str(info.get("version") or "")
    pair = Pair(speculative, plain, "" if plan is None else served_dtype(plan))
    rows, ended = tuple(done), ""
    for field in fields[len(rows) :]:
        outcome = untested(f"the server ended at {ended}") if ended else _outcome(field, pair)
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
    """Return the contract of two local engines like `check_contract`, and report progress.

    Raises LaunchError if an engine gives no answer.
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
            raise LaunchError(f"the server gave no answer: {error}") from error


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
            raise LaunchError(f"the plain server ended at {field.name}: {error}") from error
        return Outcome(FieldResult.DIFFERS, f"the server gave no answer: {error}")
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
