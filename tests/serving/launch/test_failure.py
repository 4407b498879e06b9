from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.serving.launch.engine_log import last_error
from tests.support.loops import rows

STAMP = "[2026-11-21 02:16:12]"
TRACEBACK = """\
Traceback (most recent call last):
  File "site-packages/sglang/launch_server.py", line 84, in <module>
    run_server(server_args)
  File "site-packages/sglang/srt/arg_groups/speculative_hook.py", line 1369, in _handle_ngram
    raise ValueError(
"""


@rows(
    "log, expected",
    [
        (
            TRACEBACK + "ValueError: Currently ngram speculative decoding does not support dp "
            "attention.",
            "ValueError: Currently ngram speculative decoding does not support dp attention.",
        ),
        (
            TRACEBACK + "AssertionError",
            "AssertionError: raise ValueError( (speculative_hook.py:1369)",
        ),
        (
            "usage: sglang serve [-h]\n  [--x X]\n"
            "sglang serve: error: unrecognized arguments: --no-such-flag",
            "sglang serve: error: unrecognized arguments: --no-such-flag",
        ),
        (
            f"{STAMP} Scheduler hit an exception: Traceback (most recent call last):\n"
            '  File "a.py", line 1, in f\n    x()\n'
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n\n"
            f"{STAMP} Received sigquit from a child process. It usually means the child failed.\n"
            f"{STAMP} kill_process_tree called: parent_pid=1, include_parent=True, pid=1",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        ),
        (
            f"{STAMP} ERROR:    [Errno 98] error while attempting to bind on address "
            "('127.0.0.1', 31108): address already in use",
            "[Errno 98] error while attempting to bind on address ('127.0.0.1', 31108): address "
            "already in use",
        ),
        (
            f"{STAMP} Ignore import error when loading sglang.srt.models.mamba: ImportError: x\n"
            f"{STAMP} The server is fired up and ready to roll!",
            None,
        ),
        (f"{STAMP} Prefill batch, #new-seq: 1", None),
        ("", None),
    ],
)
def test_the_last_error_is_the_cause_and_not_its_consequence(
    log: str, expected: str | None
) -> None:
    assert last_error(log.splitlines()) == expected


@pytest.mark.thorough
@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_log_gives_a_line_of_it_or_nothing(lines: list[str]) -> None:
    found = last_error(lines)
    assert found is None or any(found.split(": ")[0] in line for line in lines)
