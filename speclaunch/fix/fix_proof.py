"""A fixed text proves itself: read back, it says what the fix sets, and everything else as before.

What is compared comes from the readers and the parser of each version, never from the edits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.fix.wanted import Wanted
from speclaunch.importer.interface import Invocation, Reading, Word
from speclaunch.plan.request import Given, from_invocation


def unproven_commands(
    before: Reading,
    after: Reading,
    changed: Mapping[int, Wanted],
    version: str,
    others: Collection[str] = (),
) -> Iterator[str]:
    """In what the commands are not those of before with what is wanted.

    `changed` are the numbers of the commands (from 0) that the fix is for, at `version`; at
    `others` they are asked, too, in what the fix does not name.
    """
    old, new = before.invocations, after.invocations
    if len(old) != len(new):
        yield f"{len(old)} commands become {len(new)}"
        return
    for kind in ("problems", "unread", "misread"):
        found = Counter(one.message for one in getattr(after, kind))
        if found - Counter(one.message for one in getattr(before, kind)):
            yield f"part of it could not be read afterwards: {next(iter(found))}"
    for number, (one, other) in enumerate(zip(old, new, strict=True)):
        wanted = changed.get(number)
        name = f"the command of line {one.place.line}"
        for what in _unlike(one, other, wanted, version):
            yield f"{name}: {what}" if wanted is not None else f"{name} would change, too: {what}"
        for version_ in others:
            for what in _unlike(one, other, wanted, version_, alike=True):
                yield f"{name} in SGLang {version_}: {what}"


def _unlike(
    old: Invocation, new: Invocation, wanted: Wanted | None, version: str, *, alike: bool = False
) -> Iterator[str]:
    """`alike`: what the fix names may be anything."""
    if (old.kind, old.name, old.image) != (new.kind, new.name, new.image):
        yield "another program, container or image"
    if Counter(one.text for one in old.dropped) != Counter(one.text for one in new.dropped):
        yield "what surrounds it"
    catalogue = load_catalogue(version)
    one, other = (from_invocation(found, "fixed", catalogue) for found in (old, new))
    names = frozenset(wanted.arguments) if wanted is not None else frozenset()
    for name in sorted({*one.given, *other.given} - names):
        if not _same(one.given.get(name), other.given.get(name)):
            yield name
    if wanted is not None and not alike:
        for name, argument in wanted.arguments.items():
            given = other.given.get(name)
            if argument.is_removed:
                if given is not None and (argument.value is None or given.value is not False):
                    yield f"{name} is still given"
            elif given is None or not given.known or given.value != argument.stored:
                yield f"{name} does not become {argument.value}"
    if (Counter(p.message for p in other.problems) - Counter(p.message for p in one.problems)) or (
        other.unseen != one.unseen or other.unread.keys() - one.unread.keys()
    ):
        yield f"SGLang {version} would refuse it"
    env = wanted.env if wanted is not None else {}
    yield from _unlike_env(old.env, new.env, env)
    if _texts(old.extras) != _texts(new.extras):
        yield "options of others"


def _unlike_env(
    old: Mapping[str, Word], new: Mapping[str, Word], wanted: Mapping[str, str | None]
) -> Iterator[str]:
    for name in sorted({*old, *new, *wanted}):
        was, is_ = old.get(name), new.get(name)
        if name not in wanted:
            if (was and (was.text, was.evaluated)) != (is_ and (is_.text, is_.evaluated)):
                yield f"the variable {name}"
        elif wanted[name] is None:
            if is_ is not None:
                yield f"{name} is still set"
        elif is_ is None or is_.text != wanted[name] or not is_.evaluated:
            yield f"{name} does not become {wanted[name]}"


def _same(one: Given | None, other: Given | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.value, one.known, type(one.value)) == (other.value, other.known, type(other.value))


def _texts(words: Mapping[str, Word]) -> dict[str, str]:
    return {name: word.text for name, word in words.items()}


def unproven_data(old: Any, new: Any, wanted: Wanted) -> Iterator[str]:
    """In what a recipe's own data is not that of before, but for what the fix names."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        yield "it is not a mapping"
        return
    for key in dict.fromkeys((*old, *new)):
        one, other = old.get(key), new.get(key)
        if key == "args":
            one, other = (_without(part, wanted.arguments) for part in (one, other))
        elif key == "engine" and wanted.env:
            one, other = (_without_env(part, wanted.env) for part in (one, other))
        if one != other or type(one) is not type(other):
            yield f"{key} would change, too"


def unproven_roles(old: Any, new: Any, wanted: Wanted) -> Iterator[str]:
    """The same of a recipe's data with roles: the shared part, and what each role says."""
    before, after = ({k: v for k, v in one.items() if k != "roles"} for one in (old, new))
    yield from unproven_data(before, after, wanted)
    roles, others = (one.get("roles") or {} for one in (old, new))
    if list(roles) != list(others):
        yield "roles would change, too"
        return
    for name in roles:
        yield from unproven_data(roles[name] or {}, others[name] or {}, wanted)


def _without(args: Any, names: Collection[str]) -> Any:
    """The arguments without those that a fix names; an empty section is none."""
    if not isinstance(args, dict):
        return args or {}
    return {name: value for name, value in args.items() if canonical(str(name)) not in names}


def _without_env(engine: Any, names: Collection[str]) -> Any:
    if not isinstance(engine, dict):
        return engine or {}
    env = engine.get("env") or {}
    left = {name: value for name, value in env.items() if name not in names}
    rest = {key: value for key, value in engine.items() if key != "env"}
    return {**rest, "env": left} if left else rest


def unproven_composition(
    old: Mapping[str, Any], new: Mapping[str, Any], wanted: Wanted
) -> Iterator[str]:
    """In what a composed recipe, its groups included, is not that of before with what is wanted."""
    given: dict[str, list[Any]] = {}
    for name, value in (new.get("args") or {}).items():
        if value is not None:
            given.setdefault(canonical(name), []).append(value)
    for name, argument in wanted.arguments.items():
        found = given.get(name, [])
        value = list(argument.value) if isinstance(argument.value, tuple) else argument.value
        if value is None and found:
            yield f"{name} is still given"
        elif value is not None and found != [value] and not (argument.is_removed and not found):
            yield f"{name} does not become {value}"
    env = (new.get("engine") or {}).get("env") or {}
    for name, text in wanted.env.items():
        if env.get(name) != text:
            yield f"{name} does not become {text}" if text else f"{name} is still set"
    yield from unproven_data(dict(old), dict(new), wanted)
