"""Regressions for an installed SGLang: code at the end of one of its modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path

from msgspec import Struct

from speclaunch.measure.releases.upgrade_run import ReleaseRun

_ARGUMENTS, _SCHEDULER = "srt/server_args.py", "srt/managers/scheduler.py"
_LOGITS = "srt/layers/logits_processor.py"
_EAGLE, _NGRAM = "srt/speculative/eagle_worker_v2.py", "srt/speculative/ngram_worker.py"


class Plant(Struct, frozen=True):
    """A regression. `aspect`: the subject of the reason that must follow. `name`: its argument."""

    aspect: str
    module: str
    code: str
    name: str = ""

    def is_effective(self, sound: ReleaseRun, planted: ReleaseRun) -> bool:
        """True if the engine behaves differently with it, as far as its aspect is concerned."""
        if self.aspect == "start":
            return not planted.serves
        if not planted.serves:
            return False
        if self.aspect == "value":
            return bool(sound.info[self.name] != planted.info[self.name])
        answers = (sound.observation.answers, planted.observation.answers)
        if self.aspect == "output":
            ours, theirs = ([answer.ids for answer in found] for found in answers)
            return ours != theirs
        return sound.observation.acceptance != planted.observation.acceptance


@contextmanager
def planted_engine(package: Path, plant: Plant) -> Iterator[None]:
    """Within the block, a module of an installed SGLang has the plant.

    The sound module is saved next to it, for `restore` after a kill.
    """
    path = package / plant.module
    saved = path.with_suffix(".sound")
    saved.write_bytes(path.read_bytes())
    try:
        path.write_text(saved.read_text() + plant.code)
        yield
    finally:
        saved.replace(path)


def restore(home: Path) -> None:
    """Remove the plants that a killed campaign left in the engines of `home`."""
    for saved in home.glob("cpu-engine*/venv/lib/python*/site-packages/sglang/srt/**/*.sound"):
        saved.replace(saved.with_suffix(".py"))


def _wrapped(owner: str, method: str, body: str) -> str:
    """Return code that replaces a method by `body`, which can call `_sound`."""
    return f"""
_sound = {owner}.{method}
def _planted(self, *words, **more):
    {body}
{owner}.{method} = _planted
"""


def _refusals() -> Iterator[Plant]:
    for condition, text in (
        ("self.speculative_algorithm", "speculative_num_draft_tokens is no longer supported"),
        ("self.device == 'cpu'", "the CPU needs --disable-overlap-schedule"),
        ("self.mem_fraction_static < 0.5", "mem_fraction_static must be at least 0.5"),
    ):
        yield Plant(
            "start",
            _ARGUMENTS,
            _wrapped(
                "ServerArgs",
                "check_server_args",
                f"if {condition}: raise ValueError({text!r})\n    return _sound(self)",
            ),
        )
    for method, body in (
        ("init_model_worker", "raise RuntimeError('planted')"),
        ("init_model_worker", "import os; os._exit(3)"),
        ("init_model_worker", "raise ImportError('cannot import name verify_tree')"),
        ("init_memory_pools", "raise RuntimeError('Not enough memory. Please try to increase')"),
        ("handle_generate_request", "raise AttributeError('no attribute spec_info')"),
        ("run_event_loop", "raise AssertionError"),
    ):
        yield Plant("start", _SCHEDULER, _wrapped("Scheduler", method, body))


def _values() -> Iterator[Plant]:
    for name, value in (
        ("max_prefill_tokens", "4096"),
        ("schedule_conservativeness", "0.3"),
        ("schedule_policy", "'lof'"),
        ("stream_interval", "8"),
        ("watchdog_timeout", "77.0"),
        ("num_continuous_decode_steps", "3"),
        ("disable_radix_cache", "True"),
        ("max_running_requests", "2"),
        ("allow_auto_truncate", "True"),
    ):
        # as if the release had another default; `setattr` would refuse it while it resolves
        body = f"msgspec.Struct.__setattr__(self, '{name}', {value})\n    _sound(self)"
        yield Plant("value", _ARGUMENTS, _wrapped("ServerArgs", "resolve_once", body), name)


def _outputs() -> Iterator[Plant]:
    for changed in (
        "logits.roll(1, -1)",
        "logits.roll(7, -1)",
        "logits + logits.roll(1, -1)",
        "-logits",
        "logits.flip(-1)",
        "logits.index_fill(-1, torch.arange(40, 60), -100.0)",
        "logits.index_fill(-1, torch.tensor([300]), 100.0)",
        "logits.index_fill(-1, torch.arange(1, 512, 8), -100.0)",
        "torch.where(torch.arange(logits.shape[-1]) % 4 == 0, logits.roll(1, -1), logits)",
    ):
        body = f"logits = _sound(self, *words, **more)\n    return {changed}"
        yield Plant("output", _LOGITS, _wrapped("LogitsProcessor", "_get_logits", body))


def _chain_drafts() -> Iterator[Plant]:
    for changed in (
        "(tokens + 1) % 512",
        "(tokens * 0) + 5",
        "tokens.flip(-1)",
        "torch.where(torch.arange(tokens.shape[-1]) > 0, (tokens + 1) % 512, tokens)",
        "torch.where(tokens % 3 == 0, (tokens + 2) % 512, tokens)",
    ):
        body = (
            "parents, index, tokens, *rest = _sound(self, *words, **more)\n"
            f"    return (parents, index, None if tokens is None else {changed}, *rest)"
        )
        yield Plant("acceptance", _EAGLE, _wrapped("EagleDraftWorker", "draft_forward", body))


def _ngram_drafts() -> Iterator[Plant]:
    for changed in (
        "(drafts + 1) % 512",
        "drafts * 0 + 5",
        "np.where(np.arange(len(drafts)) % self.draft_token_num > 2, (drafts + 1) % 512, drafts)",
        "np.where(drafts % 3 == 0, (drafts + 2) % 512, drafts)",
    ):
        # the first token of each request is verified already
        body = (
            "drafts, mask = _sound(self, *words, **more)\n"
            f"    changed = {changed}\n"
            "    roots = np.arange(len(drafts)) % self.draft_token_num == 0\n"
            "    return np.where(roots, drafts, changed).astype(drafts.dtype), mask"
        )
        yield Plant("acceptance", _NGRAM, _wrapped("NGRAMWorker", "_prepare_draft_tokens", body))


def _plants() -> Iterator[tuple[str, Plant]]:
    """Yield recipes and plants; the aspects take turns."""
    standalone, ngram = "cpu_standalone", "cpu_ngram"
    drafts = [(standalone, plant) for plant in _chain_drafts()]
    drafts += [(ngram, plant) for plant in _ngram_drafts()]
    others = [
        [((standalone, ngram)[number % 2], plant) for number, plant in enumerate(plants)]
        for plants in (_refusals(), _values(), _outputs())
    ]
    for entry in chain.from_iterable(zip_longest(*others, drafts)):
        if entry is not None:
            yield entry


PLANTS = tuple(_plants())
"""Recipe and regression of each planted case."""
