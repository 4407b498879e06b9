"""Texts that are nearly what people write: pieces of the corpora, cut, joined and spoiled."""

from __future__ import annotations

import random
from functools import cache

from hypothesis import strategies as st

from tests.support.corpora.known_repository import repository
from tests.support.corpora.recipes import recipe
from tests.support.corpora.scripts import manifest, script
from tests.support.corpora.spoiling import spoil_recipe, spoil_script

PIECES = (
    *("'", '"', "\\", "\\\n", "$(", "${", "}", ")", "`", "<<EOF\n", "EOF\n", "|", "||", "&&"),
    *(";", "#", "# speclaunch: ignore[SPL301] why\n", "\n", "\r\n", "\t", "\x00", "\ufeff"),
    *("\u2028", "é", "😀", "\ud800", "- ", ": ", "? ", "|\n  ", ">-\n  ", "&a ", "*a ", "<<: *a"),
    *("!!python/x ", "{", "[", "]", "---\n", "...\n", "```\n", "```bash\n", "~~~\n", "    "),
    *("{{ x }}", "{% if a %}", "<MODEL>", "…", "--tp ", "--speculative-num-steps=3 "),
    *("--no-such ", "-- ", "--", "=", "ARGS+=(", "if x; then ", "fi\n", "for i in 1 2; do "),
    *("done\n", "case $1 in a) ", ";; esac\n", "f() { ", "exec ", "$@", '"${A[@]}"'),
    *("${oc.env:HOME}", "${args.port}", "${..x}", "???", "defaults:\n", "args:\n", "engine:\n"),
    *("1e999", "-0", "0x10", "08", "1_000", "yes", "~", ".inf", "2026-01-01"),
    *("python -m sglang.launch_server ", "sglang serve ", "docker run ", "FROM x\n", "CMD ["),
    *("ENTRYPOINT ", "services:\n", "kind: Deployment\n", "command: ", "env:\n"),
)
Change = tuple[int, int, int, str]
"""What is done, where and for how long (as a part of a million), and with which piece."""


@cache
def seeds(suffix: str) -> tuple[str, ...]:
    """Texts of files with a suffix, before anything is done to them."""
    dice = random.Random(suffix)  # noqa: S311 - not a secret
    files, groups = repository(30, 120)
    found = [one.text for one in files if one.path.endswith(suffix)]
    if suffix == ".yaml":
        found += [*groups.values(), *(recipe(n) for n in range(20))]
        found += [spoil_recipe(recipe(n), dice) for n in range(40)]
        found += [manifest(n, 800) for n in range(10)]
    elif suffix == ".sh":
        found += [spoil_script(script(n), dice) for n in range(60)]
    elif suffix == ".md":
        found += [f"# Title\n\n```bash\n{script(n)}```\n" for n in range(20)]
    found += ["", "\n", "args:\n  model_path: x\n", "python -m sglang.launch_server --model x\n"]
    return tuple(found)


def texts(suffixes: tuple[str, ...], *, bombs: bool = False) -> st.SearchStrategy[tuple[str, str]]:
    """A suffix, and a text for it; with `bombs` pieces are repeated up to 20,000 times, too."""
    change = st.tuples(
        st.integers(0, 6 if bombs else 5),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
        st.sampled_from(PIECES),
    )
    return st.sampled_from(suffixes).flatmap(
        lambda suffix: st.tuples(
            st.just(suffix),
            st.builds(
                changed,
                st.sampled_from(seeds(suffix)),
                st.sampled_from(seeds(suffix)),
                st.lists(change, max_size=8),
            ),
        )
    )


def changed(text: str, other: str, changes: list[Change]) -> str:
    """The text after all changes; `other` is what pieces are taken from."""
    for what, at, length, piece in changes:
        begin = at * len(text) // 10**6
        end = min(len(text), begin + max(1, length * 60 // 10**6))
        if what == 0:
            text = text[:begin] + piece + text[begin:]
        elif what == 1:
            text = text[:begin] + text[end:]
        elif what == 2:
            text = text[:begin] + text[begin:end] * 3 + text[end:]
        elif what == 3:
            text = text[:begin] + piece + text[end:]
        elif what == 4:
            text = text[:begin] + other[length * len(other) // 10**6 :]
        elif what == 6:
            text = text[:begin] + piece * (length // 50) + text[begin:]
        else:
            lines = text.split("\n")
            line = at * len(lines) // 10**6
            lines[line : line + 1] = [piece + lines[min(line, len(lines) - 1)]] if lines else []
            text = "\n".join(lines)
    return text
