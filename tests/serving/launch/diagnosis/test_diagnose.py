"""What a diagnosis makes of context: phases, ranks, several launches, what was survived."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclaunch.serving.launch.diagnosis.diagnose import diagnose, proof
from speclaunch.serving.launch.diagnosis.interface import Diagnosis, Direction
from speclaunch.serving.launch.diagnosis.remedy import remedy_steps, setting_changes
from speclaunch.serving.launch.engine_log import Phase, dead_process, describe_exit, last_error
from tests.serving.launch.diagnosis.healthy import HOSTILE
from tests.support.loops import rows
from tests.support.serving.launch import failure_log

OUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
LOW = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."


def log(version: str = "0.5.10.post1", *ranks: str) -> object:
    made = failure_log.Log(version, ranks or ("",))
    return made.arguments().baseline()


def said(made: object, **known: object) -> Diagnosis:
    return diagnose(made.lines, **known)  # type: ignore[attr-defined]


def name(found: Diagnosis) -> str | None:
    return found.cause.name if found.cause else None


def test_the_same_text_means_another_thing_in_each_phase() -> None:
    frames = [("a.py", "f", "g()")]
    assert name(said(log().crash(OUT, *frames))) == "gpu-taken"
    assert name(said(log().load_begin().crash(OUT, *frames))) == "weights-do-not-fit"
    assert name(said(log().load_begin().load_end().crash(OUT, *frames))) == "pool-exceeds-gpu"
    captured = log().weights().pool().capture_begin()
    assert name(said(captured.crash(OUT, *frames))) == "capture-out-of-memory"
    slack = log().weights().pool().capture_begin().capture_end().load_begin(2)
    assert name(said(slack.crash(OUT, *frames))) == "draft-weights-do-not-fit"
    new = log("0.5.20").load_begin().load_end().load_begin(2)
    assert name(said(new.crash(OUT, *frames))) == "weights-do-not-fit"
    assert name(said(log().serving().crash(OUT, *frames))) == "forward-out-of-memory"


def test_without_milestones_the_traceback_tells_the_phase() -> None:
    """`--log-level warning`: no milestone is printed."""
    made = failure_log.Log("0.5.10.post1")
    frame = ("model_executor/cuda_graph_runner.py", "capture", "self.capture_one_batch_size(")
    assert name(said(made.crash(OUT, frame))) == "capture-out-of-memory"
    made = failure_log.Log("0.5.10.post1")
    assert name(said(made.crash(OUT, ("a.py", "f", "g()")))) == "out-of-memory"
    made = failure_log.Log("0.5.10.post1")
    draft = [("speculative/eagle_worker.py", "__init__", "x"), failure_log.FRAME_LOAD]
    assert name(said(made.crash(OUT, *draft), version="0.5.10")) == "draft-weights-do-not-fit"
    assert name(said(made, version="0.5.18")) == "weights-do-not-fit"


def test_only_the_last_of_several_launches_counts() -> None:
    failed = log().load_begin().load_end().crash(LOW).lines
    served = log().serving().lines
    refused = ["usage: launch_server.py [-h]", "launch_server.py: error: ambiguous option: --x"]
    assert name(diagnose(failed)) == "kv-pool-too-small"
    found = diagnose([*failed, *served])
    assert not found.failed and found.served and found.launches == 2
    found = diagnose([*failed, *served, *failed])
    assert name(found) == "kv-pool-too-small" and found.launches == 3 and not found.served
    assert name(diagnose([*failed, *refused])) == "argument-ambiguous"
    trace = failure_log.Log("0.5.10.post1").traceback(
        "AssertionError: x", failure_log.FRAME_ARGS_OLD
    )
    assert name(diagnose([*failed, *trace.lines])) == "arguments-refused"


def test_what_follows_a_request_to_stop_is_no_failure() -> None:
    made = log("0.5.23").serving()
    made.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    made.say("Subprocess scheduler_0 (pid=1) crashed with exit code -15. Triggering SIGQUIT")
    made.say("Subprocess detokenizer (pid=2) crashed with exit code -9. Triggering SIGQUIT")
    found = said(made)
    assert found.stopped and not found.failed
    made.crash(OUT, failure_log.FRAME_FORWARD)
    assert name(said(made)) == "forward-out-of-memory"


def test_an_error_that_the_engine_survived_is_no_cause() -> None:
    made = log().weights()
    made.say("Something went wrong: Traceback (most recent call last):")
    made.frames(("a.py", "f", "g()")).raw(OUT, "").pool()
    assert not said(made).failed
    made = log().serving()
    made.say("Prefill out of memory. Try to lower your batch size.").batch()
    assert not said(made).failed


def test_a_rank_that_lives_on_does_not_hide_the_one_that_failed() -> None:
    made = log("0.5.20", "TP0", "TP1").load_begin()
    made.say("Scheduler hit an exception: Traceback (most recent call last):", "TP1")
    made.frames(failure_log.FRAME_LOAD).raw(OUT, "").load_end(rank="TP0")
    found = said(made)
    assert name(found) == "weights-do-not-fit" and found.rank == "TP1"
    made = log("0.5.20", "TP0", "TP1").serving()
    made.say("Scheduler hit an exception: Traceback (most recent call last):", "TP1")
    made.frames(failure_log.FRAME_FORWARD).raw(OUT, "").batch().batch().sigquit()
    assert name(said(made)) == "forward-out-of-memory"


WARM_UP_FAILED = (
    "Initialization failed. warmup error: Traceback (most recent call last):",
    '  File "/x/sglang/srt/entrypoints/http_server.py", line 1, in _execute_server_warmup',
    '    assert res.status_code == 200, f"{res}"',
    "AssertionError: <Response [400]>",
    "",
)


def test_a_sign_of_life_of_another_process_hides_no_fatal_error() -> None:
    """The scheduler goes on for a moment after the parent has given up."""
    made = log("0.5.23").serving()
    made.say(WARM_UP_FAILED[0]).raw(*WARM_UP_FAILED[1:]).batch()
    assert name(said(made)) == "warm-up-failed"
    assert name(said(made, exit_code=-9)) == "warm-up-failed"
    made = log().load_begin().load_end().crash(LOW)
    for _ in range(10):
        made.batch()
    assert name(said(made)) == "kv-pool-too-small"


def test_a_fatal_error_with_much_life_after_it_is_unclear() -> None:
    made = log().load_begin().load_end().crash(LOW)
    for _ in range(30):
        made.batch()
    found = said(made)
    assert found.cause is None and found.unclear and found.failed
    assert [one.cause.name for one in found.candidates] == ["kv-pool-too-small"]


def test_a_lone_start_after_a_failure_does_not_hide_it() -> None:
    failed = log().load_begin().load_end().crash(LOW).lines
    found = diagnose([*failed, *failure_log.Log("0.5.23").arguments().lines])
    assert found.unclear and found.failed
    assert [one.cause.name for one in found.candidates] == ["kv-pool-too-small"]
    found = diagnose([*failed, *log().serving().lines])
    assert not found.failed and not found.unclear
    assert [one.reason for one in found.candidates] == ["it ended an earlier start in this log"]


def test_milestones_that_contradict_each_other_prove_no_cause() -> None:
    made = log("0.5.23").load_begin()
    made.say("The server is fired up and ready to roll!")
    found = said(made.crash(OUT, ("a.py", "f", "g()")))
    assert found.unclear
    assert "weights-do-not-fit" in {one.cause.name for one in found.candidates}
    alone = said(made, exit_code=1)  # a log of one engine: its lines are its own
    assert alone.cause is not None and not alone.unclear


def test_a_foreign_line_within_a_traceback_does_not_end_it() -> None:
    lines = list(log().load_begin().load_end().crash(LOW, ("a.py", "f", "g()")).lines)
    first = next(number for number, line in enumerate(lines) if line.startswith("  File"))
    access = '[2026-03-04 10:00:04] INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'
    for place in range(first, first + 5):
        assert name(diagnose([*lines[:place], access, *lines[place:]])) == "kv-pool-too-small"


def test_tracebacks_of_two_ranks_that_follow_each_other_are_both_read() -> None:
    made = log("0.5.20", "TP0", "TP1").weights()
    for rank, error in (("TP1", OUT), ("TP0", "RuntimeError: NCCL error: remote process exited")):
        made.say("Scheduler hit an exception: Traceback (most recent call last):", rank)
        made.frames(failure_log.FRAME_POOL).raw(error)
    found = said(made.sigquit())
    assert (name(found), found.rank) == ("pool-exceeds-gpu", "TP1")


def test_of_several_engines_in_one_log_the_one_that_failed_is_told() -> None:
    well = [f"(SGLangEngine pid=1) {line}" for line in log().serving().lines]
    ill = [
        f"(SGLangEngine pid=2, ip=10.0.0.2) {line}"
        for line in log().load_begin().load_end().crash(LOW).lines
    ]
    mixed = [line for pair in zip(well, [*ill, *[""] * len(well)], strict=False) for line in pair]
    assert name(diagnose(mixed)) == "kv-pool-too-small"
    assert not diagnose(well).failed
    trainer = [f"(TrainActor pid=3) {line}" for line in ("Traceback (most recent call last):",
               '  File "/x/train.py", line 1, in f', OUT)]  # fmt: skip
    assert not diagnose([*well, *trainer]).failed


def test_an_unknown_failure_is_told_as_one() -> None:
    found = said(log().weights().crash("KeyError: 'model.layers.0.foo'", failure_log.FRAME_LOAD))
    assert found.cause is None and found.failed
    assert proof(found) == "KeyError: 'model.layers.0.foo'"
    assert remedy_steps(found) == () and setting_changes(found) == ()


@rows(
    "code, made, cause",
    [
        (-9, log().load_begin(), "killed-while-starting"),
        (137, log().serving(), "process-killed"),
        (
            -9,
            failure_log.Log("0.5.23").arguments(device="cpu").weights().pool(),
            "killed-filling-pool",
        ),
        (0, log().serving(), None),
        (None, log().serving(), None),
    ],
)
def test_an_exit_code_tells_where_the_log_is_silent(
    code: int | None, made: object, cause: str | None
) -> None:
    assert name(said(made, exit_code=code)) == cause


def test_the_engines_figures_become_the_remedys() -> None:
    found = said(
        log("0.5.23").weights().crash(
            "ValueError: Loaded weights leave no GPU memory for the KV cache under "
            "--mem-fraction-static=0.5. Raise --mem-fraction-static above 0.913 (minimum viable = "
            "1 - available/pre = 0.9124). If using speculative decoding, draft weights are now"
        )
    )  # fmt: skip
    assert found.numbers == {"mem_fraction_static": 0.5, "mem_fraction_static_above": 0.913}
    (turn,) = setting_changes(found)
    assert turn.direction is Direction.RAISE
    assert turn.flag == "--mem-fraction-static 0.933"
    assert turn.override == "args.mem_fraction_static=0.933"
    assert turn.now == 0.5


@rows(
    "version, flag",
    [
        ("0.4.6.post5", "--cuda-graph-max-bs 24"),
        ("0.5.13.post1", "--cuda-graph-max-bs 24"),
        ("0.5.14", "--cuda-graph-max-bs-decode 24"),
        ("0.5.20", "--cuda-graph-max-bs-decode 24"),
        ("0.5.23", "--cuda-graph-max-bs-decode 24"),
    ],
)
def test_the_remedy_is_spelled_for_the_version(version: str, flag: str) -> None:
    found = said(
        log(version).weights().pool().capture_begin().crash(OUT, failure_log.FRAME_CAPTURE)
    )
    by_name = {turn.argument: turn for turn in setting_changes(found)}
    assert by_name["cuda_graph_max_bs_decode"].flag == flag
    assert by_name["cuda_graph_max_bs_decode"].override == "args.cuda_graph_max_bs_decode=24"
    assert by_name["mem_fraction_static"].flag == "--mem-fraction-static 0.78"
    assert any(flag.split(maxsplit=1)[0] + "." in step for step in remedy_steps(found))


def test_advice_for_a_cpu_names_no_gpu() -> None:
    made = log("0.5.23").weights().crash(LOW)
    cpu = failure_log.Log("0.5.23").arguments(device="cpu").baseline().weights().crash(LOW)
    assert any("--tp-size" in step for step in remedy_steps(said(made)))
    found = remedy_steps(said(cpu))
    assert found[0] == "Raise --mem-fraction-static."
    assert not any("--tp-size" in step or "GPU" in step for step in found)


def test_milestones_carry_the_engines_figures() -> None:
    found = said(log("0.5.23").serving())
    told = {one.text: one for one in found.milestones}
    assert told["KV cache allocated: 301,234 tokens"].numbers["tokens"] == 301234
    assert told["target's weights loaded: LlamaForCausalLM, 14.98 GB taken"].numbers == {
        "avail_gb": 63.4,
        "used_gb": 14.98,
    }
    assert "draft's weights loaded: LlamaForCausalLMEagle3, 14.98 GB taken" in told
    assert found.milestones[-1].text == "ready" and found.milestones[-1].phase is Phase.READY
    assert found.settings["mem_fraction_static"] == 0.83


def test_warnings_that_bear_on_memory_are_noted() -> None:
    made = log().serving()
    for _ in range(3):
        made.say("KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 1")
    found = said(made.batch())
    assert not found.failed
    assert found.notes == ("the KV pool was full: 6 requests were retracted",)


def test_the_last_word_is_one_sentence_for_every_end() -> None:
    made = log().load_begin().load_end().crash(LOW)
    found = diagnose(made.lines)
    assert found.cause is not None and proof(found) == LOW
    assert found.cause.title == "mem_fraction_static is too low: the KV pool cannot hold one page"
    killed = diagnose([], exit_code=-9).cause
    assert (
        killed is not None and killed.title == "a process of the engine was killed while it started"
    )
    assert last_word([], 3) == "the engine ended with exit code 3 and printed no error"
    assert last_word([], None) == "the engine ended"
    unknown = log().weights().crash("KeyError: 'x'", failure_log.FRAME_LOAD)
    assert last_word(unknown.lines) == "KeyError: 'x'"


def last_word(lines: list[str], code: int | None = None) -> str:
    return last_error(lines) or dead_process(lines) or describe_exit(code)


@pytest.mark.thorough
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(max_size=200), max_size=40), st.sampled_from([None, -9, 0, 1, 2]))
def test_any_text_is_read(lines: list[str], code: int | None) -> None:
    found = diagnose(lines, exit_code=code)
    assert found.line is None or found.line_number is not None
    assert last_word(lines, code)


_PIECES = st.sampled_from(
    [
        "[2026-03-04 10:00:00] ", "[2026-03-04 10:00:00 TP1] ", "(a pid=1) ", "x | ", "\x1b[31m",
        "Traceback (most recent call last):", '  File "/a/sglang/srt/server_args.py", line 1, in f',
        "    g()", "Load weight begin. avail mem=", "1.5 GB", "Load weight end. type=X, ", "\r",
        "KV Cache is allocated. #tokens: ", "9", "server_args=ServerArgs(", "tp_size=", "Capture ",
        "cuda graph failed: ", "CUDA out of memory", "RuntimeError: ", "Error", ": ", "AssertionError",
        "\n", " ", "Received sigquit from a child process. It usually means", "SIGTERM received. ",
        "During handling of the above exception", "Decode batch", "#running-req", "usage: ",
        '{"log":"', "0: ", "\udcff", "\x00", "max_total_num_tokens=1, ", "nan", "1e999", *HOSTILE,
    ]
)  # fmt: skip


@pytest.mark.thorough
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(_PIECES, max_size=8).map("".join), max_size=40))
def test_any_mixture_of_the_engines_words_is_read(lines: list[str]) -> None:
    found = diagnose(lines)
    if found.cause is not None:
        assert remedy_steps(found)
        setting_changes(found)
    assert last_word(lines)


HARD = (
    "a.", "(", "a ", "A" * 50 + ": ", "[2026-03-04 10:00:00] ", "\x1b[", "\r", "Capture ", "  ",
    "0:", "{'a=", "server_args={'x': ", "2026-03-04T10:00:00Z ", "Error", "Error: ", "a|", "a |",
    "Traceback (most recent call last):", "[pod/", "(x pid=1", " KV Cache ", "Decode batch",
    "usage: a ", ": error: ", "NCCL WARN", "failed", "Assertion `", '"', "x" * 99 + " ",
)  # fmt: skip


@rows("piece", HARD)
def test_no_line_is_slow(piece: str) -> None:
    """200,000 characters in a line, in every place where a pattern is asked."""
    long = piece * (200_000 // len(piece))
    heads = ("", "[2026-03-04 10:00:00] ", "RuntimeError: ", "Exception: Capture cuda graph failed: ",
             "[2026-03-04 10:00:00] Load weight end. type=", "[2026-03-04 10:00:00] server_args=",
             "ValueError: Model architectures ", "sglang serve: error: ", '  File "')  # fmt: skip
    lines = [line for head in heads for line in ("Traceback (most recent call last):", head + long)]
    begun = time.process_time()
    diagnose(lines)
    assert time.process_time() - begun < 2


@pytest.mark.thorough
def test_the_time_grows_with_the_length_only() -> None:
    made = log("0.5.23").serving()
    for _ in range(2_000):
        made.batch()
        made.say('INFO:     10.0.0.1:40404 - "POST /generate HTTP/1.1" 200 OK')
    lines = made.lines
    diagnose(lines[:500])  # what is loaded once

    def seconds(times: int) -> float:
        begun = time.process_time()
        diagnose(line for _ in range(times) for line in lines[50:])
        return time.process_time() - begun

    one = max(seconds(1), 0.01)
    assert seconds(8) < 8 * one * 4
