"""Bugs of request fields, planted in functions of SGLang 0.5.23: controls for `prove --requests`.

Each replaces one function of the engine, in a copy of the CPU shim (tests/support/proof_faults.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.proof_faults import Fault

RECIPE = "cpu_standalone"
_SCHEDULE = "sglang.srt.managers.schedule_batch"
_SAMPLE = "sglang.srt.speculative.eagle_utils"
_STRINGS = "Req._check_str_based_finish"
_TOKENS = "Req._check_token_based_finish"
_STATE = "Req.update_finish_state"


@dataclass(frozen=True)
class FieldFault:
    """A planted bug. `breaks`: fields of which at least the first must differ."""

    fault: Fault
    breaks: tuple[str, ...]


def _planted(name: str, breaks: tuple[str, ...], module: str, target: str, body: str) -> FieldFault:
    """A bug whose function returns or yields `body`, an expression or statements."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    code = f"def broken(worker, original, *words, **more):\n{lines}\n"
    return FieldFault(Fault(name, RECIPE, True, (), module, target, code), breaks)


def _masked(name: str) -> FieldFault:
    body = f"""
words = list(words)
if words[1].reqs and getattr(words[1].reqs[0].sampling_params, "{name}", None):
    words[3:4] = [None] if len(words) > 3 else []
    more.pop("grammar_mask", None)
return original(*words, **more)
"""
    return _planted(f"ignores {name}", (name,), _SAMPLE, "eagle_sample", body)


def _biased(name: str, factor: str) -> FieldFault:
    body = f"""
info = words[1].sampling_info
bias = info.logit_bias
info.logit_bias = {factor}
try:
    return original(*words, **more)
finally:
    info.logit_bias = bias
"""
    return _planted(name, ("logit_bias",), _SAMPLE, "eagle_sample", body)


_STOP = ("stop", "stop_across_tokens", "stream", "usage")
_ENDS = ("stop_token_ids", "end_at_max_new_tokens", "reasoning_tokens")
FIELD_FAULTS = (
    _planted(
        "ignores stop strings in longer steps",
        _STOP,
        _SCHEDULE,
        _STRINGS,
        "return len(words[0].output_ids[-words[1]:]) == 1 and original(*words)",
    ),
    _planted(
        "sees stop strings at the end of a step only",
        _STOP,
        _SCHEDULE,
        _STRINGS,
        "return original(words[0], 1)",
    ),
    _planted(
        "counts a token after a stop string",
        _STOP,
        _SCHEDULE,
        _STRINGS,
        "found = original(*words)\nif found and words[0].finished_len:\n"
        "    words[0].finished_len += 1\nreturn found",
    ),
    _planted(
        "keeps the stop string",
        _STOP,
        "sglang.srt.managers.detokenizer_manager",
        "DetokenizerManager.trim_matched_stop",
        "return words[1] if isinstance(words[1], str) else original(*words, **more)",
    ),
    _planted(
        "ignores stop tokens in longer steps",
        _ENDS,
        _SCHEDULE,
        _TOKENS,
        "return len(words[1]) == 1 and original(*words)",
    ),
    _planted(
        "sees stop tokens at the end of a step only",
        _ENDS,
        _SCHEDULE,
        _TOKENS,
        "return original(words[0], words[1][-1:])",
    ),
    _planted(
        "drops the stop token",
        _ENDS,
        _SCHEDULE,
        _TOKENS,
        "found = original(*words)\nif found:\n    words[0].finished_len -= 1\nreturn found",
    ),
    _planted(
        "names another stop token",
        _ENDS,
        _SCHEDULE,
        "FINISH_MATCHED_TOKEN.to_json",
        'return {"type": "stop", "matched": words[0].matched + 1}',
    ),
    _planted(
        "checks the limit before the stop token",
        ("end_at_max_new_tokens",),
        _SCHEDULE,
        _STATE,
        "req, limit = words[0], words[0].sampling_params.max_new_tokens\n"
        "if len(req.output_ids) >= limit and not req.finished() and not req.to_finish:\n"
        "    req.finished_reason = worker.FINISH_LENGTH(length=limit)\n"
        "    req.finished_len = limit\n"
        "    return None\n"
        "return original(*words, **more)",
    ),
    _planted(
        "runs past max_new_tokens",
        ("max_new_tokens",),
        _SCHEDULE,
        _STATE,
        "found = original(*words, **more)\n"
        "if isinstance(words[0].finished_reason, worker.FINISH_LENGTH):\n"
        "    words[0].finished_len = len(words[0].output_ids)\n"
        "return found",
    ),
    _biased("ignores logit_bias", "None"),
    _biased("weakens logit_bias", "None if bias is None else bias * 0.01"),
    _masked("regex"),
    _masked("ebnf"),
    _masked("json_schema"),
    _planted(
        "returns the logprobs of the next token",
        ("return_logprob",),
        "sglang.srt.layers.logprob_processor",
        "compute_spec_logprobs",
        "original(*words, **more)\n"
        "words[1].next_token_logprobs = words[1].next_token_logprobs.roll(1, 1)",
    ),
    _planted(
        "returns the top logprobs of another token",
        ("top_logprobs_num",),
        "sglang.srt.layers.logprob_processor",
        "compute_spec_logprobs",
        "original(*words, **more)\n"
        "found = words[1].next_token_top_logprobs_val\n"
        "if found is not None:\n"
        "    words[1].next_token_top_logprobs_val = found[1:] + found[:1]",
    ),
    _planted(
        "shifts prompt logprobs",
        ("logprob_start_len",),
        "sglang.srt.managers.scheduler_components.logprob_result_processor",
        "SchedulerLogprobResultProcessor._process_input_token_logprobs",
        "found = list(words[2])\nreturn original(words[0], words[1], found[1:] + found[:1])",
    ),
    _planted(
        "answers once for n",
        ("n", "usage"),
        "sglang.srt.managers.io_struct",
        "GenerateReqInput._handle_beam_search_parallel_sampling",
        "return 1",
    ),
    _planted(
        "counts a token too many",
        ("usage",),
        "sglang.srt.entrypoints.openai.usage_processor",
        "UsageProcessor.calculate_response_usage",
        "found = original(*words, **more)\nfound.completion_tokens += 1\nreturn found",
    ),
    _planted(
        "ignores aborts",
        ("abort",),
        "sglang.srt.managers.tokenizer_manager",
        "TokenizerManager.abort_request",
        "return None",
    ),
    _planted(
        "ends at the context limit",
        ("context_limit",),
        _SAMPLE,
        "eagle_prepare_for_decode",
        "limit = words[0].model_config.context_len\n"
        "if any(r.seqlen + 8 > limit for r in words[0].reqs):\n"
        '    raise RuntimeError("planted")\n'
        "return original(*words, **more)",
    ),
)
"""The last one ends the engine."""
