"""A limit of the NGRAM trie that its code refuses.

## What it does
Finds a breadth, depth, match window or number of draft tokens outside of what the trie accepts:
`min_bfs_breadth` from 1 to `max_bfs_breadth`, at least one draft token; from 0.5.10 a
`max_trie_depth` above 1; up to 0.5.9 a `branch_length` above 1 and match windows of 1 to less than
it.

## Why it matters
The engine accepts any number as an argument, loads the model, and then builds the trie in C++,
which stops with a `RuntimeError` such as `max_match_window_size must be less than branch_length`.
Nothing speaks of the argument's name.

## Example
```yaml
args:
  speculative_algorithm: NGRAM
  speculative_ngram_min_bfs_breadth: 4
  speculative_ngram_max_bfs_breadth: 1
```

## Use instead
```yaml
args:
  speculative_algorithm: NGRAM
  speculative_ngram_min_bfs_breadth: 1
  speculative_ngram_max_bfs_breadth: 1
```

## Sources
- SGLang 0.5.3.post3 speculative/cpp_ngram/ngram.cpp:65
- SGLang 0.5.10.post1 jit_kernel/csrc/ngram_corpus/ngram.cpp:12
- SGLang 0.5.23 kernels/jit/csrc/ngram_corpus/ngram.cpp:14
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_BREADTH = ("speculative_ngram_min_bfs_breadth", "speculative_ngram_max_bfs_breadth")
_WINDOW = (
    "speculative_ngram_min_match_window_size",
    "speculative_ngram_max_match_window_size",
)
_TOKENS = "speculative_num_draft_tokens"
_DEPTH = "speculative_ngram_max_trie_depth"
_BRANCH = "speculative_ngram_branch_length"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each condition that does not hold, in the order of the engine."""
    for holds, message, names in _conditions(plan):
        given = [name for name in names if plan.is_given(name)]
        if not holds:
            yield Verdict(
                message,
                at=tuple(given),
                why="the engine takes any number as an argument; once the model is loaded, the "
                "trie's code stops with a RuntimeError",
                fix=Fix("leave it to its default", set=dict.fromkeys(given)),
            )


def _conditions(plan: Plan) -> Iterator[tuple[bool, str, tuple[str, ...]]]:
    """What must hold, what to say where it does not, and the arguments that it is about.

    An argument that the version does not have is None, and says nothing."""
    tokens = number(plan, _TOKENS)
    low, high = (number(plan, name) for name in _BREADTH)
    least, most = (number(plan, name) for name in _WINDOW)
    depth, branch = number(plan, _DEPTH), number(plan, _BRANCH)
    yield _above(branch, 1), f"{_BRANCH} {branch} is not above 1", (_BRANCH,)
    yield _above(depth, 1), f"{_DEPTH} {depth} is not above 1", (_DEPTH,)
    yield _above(least, 0), f"{_WINDOW[0]} {least} is not above 0", (_WINDOW[0],)
    yield _within(least, most), f"{_WINDOW[0]} {least} is above {_WINDOW[1]} {most}", _WINDOW
    yield (
        _above(branch, most),
        f"{_WINDOW[1]} {most} is not below {_BRANCH} {branch}",
        (_WINDOW[1], _BRANCH),
    )
    yield _above(low, 0), f"{_BREADTH[0]} {low} is not above 0", (_BREADTH[0],)
    yield _within(low, high), f"{_BREADTH[0]} {low} is above {_BREADTH[1]} {high}", _BREADTH
    yield _above(tokens, 0), f"{_TOKENS} {tokens} is not above 0", (_TOKENS,)


def _above(value: int | None, limit: int | None) -> bool:
    return value is None or limit is None or value > limit


def _within(value: int | None, limit: int | None) -> bool:
    return value is None or limit is None or value <= limit


RULE = rule(
    "SPL504",
    "ngram-limits",
    Severity.ERROR,
    check,
    algorithms=("NGRAM",),
    sources=(
        "sglang 0.5.23 kernels/jit/csrc/ngram_corpus/ngram.cpp:14",
        "sglang 0.5.3.post3 speculative/cpp_ngram/ngram.cpp:65",
    ),
    doc=__doc__,
)
