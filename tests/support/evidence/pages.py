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
_INFERRED = "This behavior is inferred from the source, because"
ARGUED = {
    "SPL258": "a test needs two DP attention ranks and a release before 0.5.23. Such a release "
    "divides the limit by the ranks, rounds down, and asserts that the result is above 0 "
    "(0.4.6.post5 managers/tp_worker.py:119-128, 0.5.18 mem_cache/kv_cache_configurator.py, 0.5.22 "
    "mem_cache/kv_cache_configurator.py:2800-2814, managers/tp_worker.py:413). 0.5.23 uses at "
    "least 1",
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
ACCEPTED = dict.fromkeys(
    ("SPL406", "SPL410", "SPL420"),
    " In these tiny targets, each token depends only on the previous one, so even an unsuitable "
    "draft may be right",
)
"""Rules whose cases reach a higher acceptance length than real models, and why."""


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
            yield from _wrapped(f"{_INFERRED} {ARGUED[code]}.", "", "")
        return
    yield HEADING
    about = ACCEPTED.get(code)
    yield from _wrapped(
        f"SGLang {SGLANG_VERSION} ran tiny checkpoints on a CPU (`tests/evidence/load.yaml`)"
        + (f".{about}:" if about else ":"),
        "",
        "",
    )
    yield ""
    told = ("", "")
    for case in sorted(cases, key=lambda case: runs[case.key].serves):
        about, result, error = _item(case, runs[case.key])
        told, before = (result, error), told
        if error and told == before:
            result, error = "the server fails in the same way.", ""
        elif error and error == before[1]:
            result, error = f"{result[:-1]} with the same error.", ""
        yield from _wrapped(f"{about}: {result}")
        if error:
            yield from _wrapped(f"`{error}`", "  ", "  ")
    if code in ARGUED:
        yield ""
        yield from _wrapped(
            f"All other behavior is inferred from the source, because {ARGUED[code]}.", "", ""
        )


def _item(case: Case, run: Stored) -> tuple[str, str, str]:
    """What is special about a case, its result, and the error message, empty if it serves."""
    first = case.about.split()[0]
    is_name = re.search(r"[_.\d]", first) is not None
    about = case.about if is_name else case.about[0].upper() + case.about[1:]
    if case.lifted:
        about += " (device check disabled)"
    if run.serves:
        length = (
            "" if run.accept_length is None else f" with acceptance length {run.accept_length:g}"
        )
        return about, f"the server runs{length}.", ""
    error = run.error if len(run.error) <= _LIMIT else f"{run.error[:_LIMIT].rstrip()} …"
    place = f" ({run.place.partition(' ')[0]})" if run.place else ""
    return about, f"the server fails during {run.phase}{place}:", error.replace("`", "'")


def _wrapped(text: str, first: str = "- ", then: str = "  ") -> list[str]:
    return textwrap.wrap(
        text,
        96,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=True,
        break_on_hyphens=False,
    )
