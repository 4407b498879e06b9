"""Turn everything around that a rule decides by, and see whether the rule's cases notice.

    python -m campaigns rule_mutants run            all modules of rules; stores what survives
    python -m campaigns rule_mutants show [WORD …]  survivors without a reason, of groups with WORD

One process, half a minute. `tests/support/checks/rules/mutating.py` says what is changed. The
survivors are in tests/checks/rules/mutants.json, by rule (by module, if several rules depend on
them), each with why no case can tell; an empty reason is work to do. `run` keeps the reasons and
names the new ones. tests/checks/rules/test_mutations.py holds the file to be true.
"""

from __future__ import annotations

import argparse

from tests.support.checks.rules import mutating


def run() -> int:
    """Ask all mutants, store the survivors: 1 where there are new ones."""
    before = mutating.stored()
    survivors: dict[str, dict[str, str]] = {}
    asked = 0
    for module in mutating.modules():
        asked += len(mutating.source(module).mutants)
        for group, key in mutating.survivors(module):
            survivors.setdefault(group, {})[key] = before.get(group, {}).get(key, "")
    mutating.store(survivors)
    new = [
        f"{group}: {key}"
        for group, found in survivors.items()
        for key in found
        if key not in before.get(group, {})
    ]
    print("\n".join(f"new: {line}" for line in new))
    left = [why for found in survivors.values() for why in found.values()]
    print(
        f"{asked} mutants of {len(mutating.modules())} modules: {len(left)} survive, "
        f"{sum(map(bool, left))} of them with a reason, {left.count('')} open"
    )
    return 1 if new else 0


def show(words: list[str]) -> int:
    """Print what survives and nobody has said why."""
    for module, found in mutating.stored().items():
        for key, why in found.items():
            if not why and (not words or any(word in module for word in words)):
                print(f"{module}: {key}")
    return 0


def main() -> int:
    """Read the command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("run")
    verbs.add_parser("show").add_argument("words", nargs="*")
    args = parser.parse_args()
    return run() if args.verb == "run" else show(args.words)
