"""Reproduce advisories on real CPU engines: the bug, the correct answer, and what clears it.

    python -m campaigns reproduce_advisories [ID …] [--store FILE]

Each case sends its requests to three servers with the tiny model `cycle`: one without speculation
(the expected answer), one of the affected release with speculation, and one that clears the bug: a
fixed release, or the affected release with the edits of the case in a copy of its package. Install
the releases first: `speclaunch engine install cpu --release V`. One server runs at a time.

The target is its own draft, so every draft token is accepted unless a request field forbids it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from speclaunch.core import speclaunch_home
from speclaunch.engine import CpuEngine, is_installed, site_packages
from speclaunch.serving.cpu_engine.programs import engine_environment, ensure_model
from speclaunch.serving.launch.runs import free_port

CYCLE = 8
"""After token 8 k + i, `cycle` predicts 8 k + (i + 1) % 8."""
PROMPT = [104, 105, 106]
FOLLOWING = [104 + i % CYCLE for i in range(3, 3 + 2 * CYCLE)]
"""The beginning of the greedy answer to `PROMPT`."""
STARTED_S = 300

STANDALONE = (
    *("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "{cycle}"),
    *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "4"),
)
LONG_DRAFT = (
    *("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "{cycle}"),
    *("--speculative-num-steps", "9", "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "10", "--context-length", "128"),
)
NGRAM = ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8")
COMMON = (
    *("--model-path", "{cycle}", "--device", "cpu", "--dtype", "float32"),
    *("--mem-fraction-static", "0.3", "--max-total-tokens", "8192", "--max-running-requests", "4"),
    *("--enable-custom-logit-processor", "--reasoning-parser", "deepseek-r1"),
    "--skip-server-warmup",
)


@dataclass(frozen=True)
class Edit:
    """Replacement of a text that occurs once in a file of the package `sglang`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Setting:
    """What a server is started with."""

    release: str
    args: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()

    def __str__(self) -> str:
        algorithm = self.args[1] if self.args else "no speculation"
        return f"{self.release} {algorithm}{', edited' if self.edits else ''}"


Answer = dict[str, Any]


@dataclass
class Server:
    """A running server."""

    url: str
    log: Path
    engine: CpuEngine

    def generate(self, sampling: Mapping[str, Any], **fields: Any) -> Answer:
        """Return the answer to `PROMPT`; greedy unless `sampling` has a temperature."""
        parameters = {"temperature": 0, "ignore_eos": True, **sampling}
        body = {"input_ids": PROMPT, "sampling_params": parameters, **fields}
        answer = httpx.post(f"{self.url}/generate", json=body, timeout=120, trust_env=False)
        answer.raise_for_status()
        found: Answer = answer.json()
        return found


@dataclass(frozen=True)
class Case:
    """One advisory, and how to observe it."""

    advisory: str
    request: str
    observe: Callable[[Server], str]
    affected: str
    args: tuple[str, ...] = STANDALONE
    fixed: str | None = None
    edits: tuple[Edit, ...] = field(default=())

    def settings(self) -> tuple[Setting, Setting, Setting]:
        """Return the settings of the expected, the affected and the cleared server."""
        cleared = Setting(self.fixed or self.affected, self.args, self.edits)
        return Setting(self.affected), Setting(self.affected, self.args), cleared


def minimum(server: Server) -> str:
    """Return the length of an answer that stops at the first stop token after 32 tokens."""
    stops = [token for token in range(8, 512) if token % CYCLE == 0]
    sampling = {"min_new_tokens": 32, "stop_token_ids": stops, "max_new_tokens": 200}
    return f"{_length(server.generate({**sampling, 'ignore_eos': False}))} tokens"


def past_stop(server: Server) -> str:
    """Return the answers whose stop token and limit fall into one verification."""
    found = []
    for stop in range(1, 8):
        for limit in range(stop + 1, 9):
            sampling = {"stop_token_ids": [FOLLOWING[stop - 1]], "max_new_tokens": limit}
            answer = server.generate({**sampling, "ignore_eos": False})
            found.append(_length(answer) > stop)
    return f"{sum(found)} of {len(found)} answers run past the stop token"


def reasoning(server: Server) -> str:
    """Return how many answers that end in their reasoning count more tokens than they have."""
    found = []
    for stop in FOLLOWING[:CYCLE]:
        sampling = {"stop_token_ids": [stop], "max_new_tokens": 40, "ignore_eos": False}
        answer = server.generate(sampling, require_reasoning=True)
        found.append(answer["meta_info"]["reasoning_tokens"] - _length(answer))
    extra = [count for count in found if count > 0]
    return f"{len(extra)} of {len(found)} answers count too many, {sum(extra)} tokens in all"


def context_limit(server: Server) -> str:
    """Return how an answer up to the context length ends."""
    try:
        answer = server.generate({"max_new_tokens": 128 - len(PROMPT) - 1})
    except httpx.HTTPError:
        time.sleep(3)  # the traceback is being written
        errors = re.findall(r"^ValueError: .*", server.log.read_text(errors="replace"), re.M)
        return f"the scheduler ends: {errors[0] if errors else 'no error'}"
    return f"{_length(answer)} tokens"


def disallowed(server: Server) -> str:
    """Return how many tokens of an answer a custom logit processor had forbidden."""
    code = (
        "from sglang.srt.sampling.custom_logit_processor import"
        " DisallowedTokensLogitsProcessor as P; print(P.to_str())"
    )
    command = [str(server.engine.python), "-P", "-c", code]
    env = engine_environment(server.engine)
    printed = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    forbidden = sorted(set(FOLLOWING))[::2]
    answer = server.generate(
        {"max_new_tokens": 40, "custom_params": {"token_ids": forbidden}},
        custom_logit_processor=printed.splitlines()[-1],
    )
    used = [token for token in answer["output_ids"] if token in forbidden]
    return f"{len(used)} of 40 tokens are forbidden ones"


def sampled(server: Server) -> str:
    """Return how many of 8 answers at a high temperature differ from the greedy answer.

    The first token, which the prefill samples, is not compared.
    """
    answers = [server.generate({"temperature": 50.0, "max_new_tokens": 24}) for _ in range(8)]
    found = [answer["output_ids"] for answer in answers]
    greedy = [all(map(_follows, ids, ids[1:])) for ids in found]
    return f"{greedy.count(False)} of 8 answers are sampled"


def _follows(token: int, following: int) -> bool:
    return token // CYCLE == following // CYCLE and (token + 1) % CYCLE == following % CYCLE


def _length(answer: Answer) -> int:
    return int(answer["meta_info"]["completion_tokens"])


COUNT_ALL = Edit(
    "srt/managers/schedule_batch.py",
    """        self.sampling_info.penalizer_orchestrator.cumulate_output_tokens(
            latest_output_ids
        )
""",
    """        (req,) = self.reqs
        for token in req.output_ids[getattr(req, "counted", 0) :]:
            self.sampling_info.penalizer_orchestrator.cumulate_output_tokens(
                torch.tensor([token])
            )
        req.counted = len(req.output_ids)
""",
)
"""Count each output token once; for one running request."""

_GRAMMAR = """    # Apply grammar mask if provided
    if grammar_mask is not None:
        grammar_mask.apply(next_token_logits)

    watermark"""
PROCESS = Edit(
    "srt/speculative/eagle_utils.py",
    _GRAMMAR,
    """    if sampling_info.has_custom_logit_processor:
        from sglang.srt.layers.sampler import apply_custom_logit_processor

        apply_custom_logit_processor(
            next_token_logits, sampling_info, verify_input.draft_token_num
        )
"""
    + _GRAMMAR,
)
"""Apply custom logit processors to the logits of a verification."""

SAMPLE = Edit(
    "srt/speculative/eagle_utils.py",
    """        target_predict = torch.argmax(next_token_logits, dim=-1)
        target_predict = target_predict.reshape(""",
    """        target_predict = torch.argmax(next_token_logits, dim=-1)
        if not sampling_info.is_all_greedy:
            heat = sampling_info.temperatures.repeat_interleave(
                verify_input.draft_token_num, dim=0
            )
            target_predict = torch.multinomial((next_token_logits / heat).softmax(-1), 1)
        target_predict = target_predict.reshape(""",
)
"""Sample the target's token at each place, and accept the draft tokens that equal it."""

COUNT_ANSWER = Edit(
    "srt/managers/scheduler_components/batch_result_processor.py",
    """                self._maybe_update_reasoning_tokens(req, next_token_id)
            req.update_finish_state(new_accept_len)
""",
    """            req.update_finish_state(new_accept_len)
            before = len(req.output_ids) - new_accept_len
            self._maybe_update_reasoning_tokens(req, list(req.output_ids_through_stop)[before:])
""",
)
"""Count the tokens of the answer, without those past its end."""

EDITS = (COUNT_ALL, PROCESS, SAMPLE, COUNT_ANSWER)
"""Edits of one server, to start it once; no two concern the same request."""

WIDEN = Edit(
    "srt/mem_cache/allocation_sizing.py",
    "    extra = 4 + (max_speculative_num_draft_tokens() or 0)\n",
    "    extra = 4 + 2 * (max_speculative_num_draft_tokens() or 0)\n",
)
"""Reserve the columns that a step may allocate."""

CASES = (
    Case(
        "SPA-2026-0002",
        "min_new_tokens 32, a stop token every 8 tokens",
        minimum,
        "0.5.23",
        edits=EDITS,
    ),
    Case(
        "SPA-2026-0002",
        "min_new_tokens 32, a stop token every 8 tokens",
        minimum,
        "0.5.23",
        NGRAM,
        edits=EDITS,
    ),
    Case(
        "SPA-2026-0006",
        "stop_token_ids and max_new_tokens, 28 pairs",
        past_stop,
        "0.5.17",
        fixed="0.5.18",
    ),
    Case(
        "SPA-2026-0008",
        "a logit processor that forbids half of the answer",
        disallowed,
        "0.5.23",
        edits=EDITS,
    ),
    Case(
        "SPA-2026-0008",
        "a logit processor that forbids half of the answer",
        disallowed,
        "0.5.23",
        NGRAM,
        edits=EDITS,
    ),
    Case(
        "SPA-2026-0012",
        "require_reasoning, 8 stop tokens",
        reasoning,
        "0.5.23",
        edits=EDITS,
    ),
    Case(
        "SPA-2026-0033",
        "10 draft tokens, up to the context length of 128",
        context_limit,
        "0.5.23",
        LONG_DRAFT,
        edits=(WIDEN,),
    ),
    Case("SPA-2026-0102", "temperature 50, 8 requests", sampled, "0.5.23", edits=EDITS),
    Case("SPA-2026-0102", "temperature 50, 8 requests", sampled, "0.5.23", NGRAM, edits=EDITS),
)


@contextlib.contextmanager
def serving(setting: Setting, folder: Path) -> Iterator[Server]:
    """Run a server. Raises SystemExit if its release is not installed or does not start."""
    engine = CpuEngine(speclaunch_home(), setting.release)
    if not is_installed(engine):
        raise SystemExit(f"SGLang {setting.release} is not installed: {engine.install_command}")
    model, port, log = ensure_model(engine, "cycle"), free_port(), folder / "server.log"
    args = [word.format(cycle=model) for word in (*COMMON, *setting.args)]
    env = {**os.environ, **engine_environment(engine)}
    if setting.edits:
        shim, *rest = env["PYTHONPATH"].split(os.pathsep)
        env["PYTHONPATH"] = os.pathsep.join([shim, str(edited(engine, setting, folder)), *rest])
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(engine.python), "-P", "-m", "sglang.launch_server", "--port", str(port), *args],
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
        )
    try:
        server = Server(f"http://127.0.0.1:{port}", log, engine)
        _wait(server, process, setting)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def edited(engine: CpuEngine, setting: Setting, folder: Path) -> Path:
    """Return a folder with a copy of the package in which the edits are made."""
    (site,) = site_packages(engine.venv)
    target = folder / "edited"
    shutil.copytree(site / "sglang", target / "sglang", copy_function=shutil.copyfile)
    for edit in setting.edits:
        file = target / "sglang" / edit.file
        text = file.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise SystemExit(f"{edit.file} of SGLang {setting.release} has no place for the edit")
        file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    return target


def _wait(server: Server, process: subprocess.Popen[bytes], setting: Setting) -> None:
    deadline = time.monotonic() + STARTED_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/health", timeout=30, trust_env=False).status_code == 200:
                return
        time.sleep(0.5)
    tail = server.log.read_text(errors="replace").splitlines()[-5:]
    raise SystemExit("\n".join([f"{setting} does not serve", *tail]))


def run(cases: Sequence[Case]) -> list[dict[str, str]]:
    """Return the observations of all cases; each server is started once."""
    settings = list(dict.fromkeys(setting for case in cases for setting in case.settings()))
    seen: dict[tuple[int, Setting], str] = {}
    for setting in settings:
        with tempfile.TemporaryDirectory() as folder, serving(setting, Path(folder)) as server:
            for number, case in enumerate(cases):
                if setting in case.settings():
                    seen[number, setting] = case.observe(server)
                    print(f"{setting}: {case.advisory}: {seen[number, setting]}", flush=True)
    rows = []
    for number, case in enumerate(cases):
        plain, affected, cleared = (seen[number, setting] for setting in case.settings())
        rows.append(
            {
                "advisory": case.advisory,
                "algorithm": case.args[1],
                "request": case.request,
                "affected": case.affected,
                "observed": affected,
                "without speculation": plain,
                "cleared by": case.fixed or "an edit",
                "cleared": cleared,
            }
        )
    return rows


def main() -> int:
    """Return 1 if a case is not reproduced, or not cleared."""
    parser = argparse.ArgumentParser(prog="reproduce_advisories", description=__doc__)
    parser.add_argument("ids", nargs="*", help="advisories; default: all")
    parser.add_argument("--store", type=Path, help="a JSON file for the observations")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.ids or case.advisory in options.ids]
    rows = run(cases)
    if options.store:
        options.store.write_text(json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print(" | ".join(row.values()))
    shown = [row["observed"] not in (row["without speculation"], row["cleared"]) for row in rows]
    return int(not all(shown))
