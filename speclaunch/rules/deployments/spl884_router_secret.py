"""A router's key is written into the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import grouped
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_KEYS = ("api-key", "control-plane-api-keys")
"""Their readers keep where a value stands, and never what it is."""


def check(_plan: Plan) -> Iterator[Verdict]:
    """A router has no plan of its own."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a key."""
    for group, members in grouped(plans):
        for router in group.routers:
            for name in _KEYS:
                written = router.options.get(name)
                if written is None or not written.known:
                    continue
                yield (
                    members[0],
                    Verdict(
                        f"the value of --{name} of the router {router.name} is written in the file",
                        why="it stays in the repository and its history, for everyone who can "
                        "read them",
                        fix=Fix("read it from a secret, and rotate it: it has been exposed"),
                        place=replace(written.place, hidden=True),
                    ),
                )


RULE = rule(
    "SPL884",
    "router-secret",
    Severity.WARNING,
    check,
    check_across=check_across,
)
