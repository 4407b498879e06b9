"""The section "Seen on the engine" of a rule's page, from what is stored."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping

from speclaunch.engine.facts.cpu_engine import SGLANG_VERSION

from .case import Case
from .cases import CASES
from .stored import Stored

HEADING = "## Seen on the engine"
_SECTION = re.compile(rf"{HEADING}\n.*?(?=^## )", re.S | re.M)
_LIMIT = 260
ARGUED = {
    "SPL258": "a test needs two DP attention ranks and a release before 0.5.23, which divides the limit by "
    "the ranks, rounded down, before `assert … > 0` (0.4.6.post5 managers/tp_worker.py:119-128, "
    "0.5.18 mem_cache/kv_cache_configurator.py, 0.5.22 "
    "mem_cache/kv_cache_configurator.py:2800-2814, managers/tp_worker.py:413); 0.5.23 uses at "
    "least one",
    "SPL611": "a test needs two DP attention ranks, and on a CPU the engine rejects DFLASH earlier "
    "(SPL601). The draft worker's constructor raises the error after both models are loaded "
    "(0.5.23 speculative/dflash_worker_v2.py:456-461)",
    **dict.fromkeys(
        ("SPL602", "SPL603", "SPL604", "SPL605", "SPL606", "SPL607", "SPL608"),
        "on a CPU the engine rejects DFLASH earlier (SPL601)",
    ),
    **dict.fromkeys(
        ("SPL622", "SPL623", "SPL624", "SPL625", "SPL626"),
        "on a CPU the engine rejects DSPARK earlier (SPL621)",
    ),
    **dict.fromkeys(
        ("SPL642", "SPL643", "SPL644", "SPL645"),
        "on a CPU the engine rejects UNO earlier (SPL641)",
    ),
}
"""Rules of the same kind that no CPU can show, and why."""


def with_evidence(text: str, code: str, runs: Mapping[str, Stored]) -> str:
    """The page with the section as it should be, before its sources."""
    without = _SECTION.sub("", text)
    section = "\n".join(_section(code, runs))
    if not section:
        return without
    before, found, after = without.partition("## Sources\n")
    return f"{before}{section}\n\n{found}{after}"


def _section(code: str, runs: Mapping[str, Stored]) -> Iterator[str]:
    """Its lines; none where nothing is known."""
    cases = [case for case in CASES if code in case.rules and case.key in runs]
    if not cases:
        if code in ARGUED:
            yield HEADING
            yield from _wrapped(f"Not observed; inferred from the source: {ARGUED[code]}.", "", "")
        return
    yield HEADING
    yield from _wrapped(
        f"SGLang {SGLANG_VERSION} on a CPU with tiny deterministic checkpoints "
        "(`tests/evidence/load.yaml`):",
        "",
        "",
    )
    yield ""
    for case in sorted(cases, key=lambda case: runs[case.key].serves):
        yield from _item(case, runs[case.key])
    if code in ARGUED:
        yield ""
        yield from _wrapped(f"The rest is inferred from the source: {ARGUED[code]}.", "", "")


def _item(case: Case, run: Stored) -> Iterator[str]:
    first = case.about.split()[0]
    is_name = re.search(r"[_.\d]", first) is not None
    about = case.about if is_name else case.about[0].upper() + case.about[1:]
    if case.lifted:
        about += " (device check disabled)"
    if run.serves:
        length = (
            "" if run.accept_length is None else f" with acceptance length {run.accept_length:g}"
        )
        served = "serves these requests" if case.late else "serves"
        yield from _wrapped(f"{about}: {served}{length}.")
        return
    ended = "killed" if run.exit_code is None else f"exit code {run.exit_code}"
    error = run.error if len(run.error) <= _LIMIT else f"{run.error[:_LIMIT].rstrip()} …"
    place = f", {run.place.partition(' ')[0]}" if run.place else ""
    yield from _wrapped(f"{about}: fails during {run.phase} ({ended}{place}):")
    told = error.replace("`", "'")
    yield from _wrapped(f"`{told}`", "  ", "  ")


def _wrapped(text: str, first: str = "- ", then: str = "  ") -> list[str]:
    return textwrap.wrap(
        text,
        96,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=True,
        break_on_hyphens=False,
    )
