"""A rendered text proves itself: read back by our own readers, it is the same deployment."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.deploy.interface import RenderedCommand, Renderer, Rendering, Role
from speclaunch.deploy.slime import SET_BY_SLIME
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import Catalogue
from speclaunch.engine.command import is_secret_text, is_written_secret
from speclaunch.engine.environment import unset_in
from speclaunch.fix import proof
from speclaunch.fix.meaning import MISSING, Meaning, defaults, differences, meaning_of
from speclaunch.importer.files import read_text
from speclaunch.importer.interface import Invocation, InvocationKind, Reading
from speclaunch.plan.request import from_invocation
from speclaunch.redaction import is_secret_variable


def read_back(text: str, suffix: str) -> Reading:
    """The server commands of a rendered text, as `lint` reads them."""
    return read_text(text.encode(), f"rendered{suffix}", suffix)


def prove_rendering(
    renderer: Renderer, text: str, rendering: Rendering, catalogue: Catalogue
) -> None:
    """Raise UnprovenError where the text does not start what `rendering` says.

    Secrets are asked for in the text, the platform gives what `Renderer.commands` says, and slime
    sets some arguments by itself: nothing else may differ.
    """
    found = list(_all_unlike(renderer, text, rendering, catalogue))
    hidden = [value for role in rendering.roles for value in secrets_of(role)]
    wanted = "\n".join(" ".join([*role.program, *role.words]) for role in rendering.roles)
    proof.refuse(f"render-{renderer.target}", found, wanted, text, hidden)


def secrets_of(role: Role) -> list[str]:
    """The values that no text may show: what is not known here needs no hiding."""
    found = [value for one in role.spelling.arguments if one.secret for value in one.values]
    found += [
        v for n, v in role.env.items() if v and (is_secret_variable(n) or is_written_secret(v))
    ]
    return [value for value in found if not unset_in(value)]


def _all_unlike(
    renderer: Renderer, text: str, rendering: Rendering, catalogue: Catalogue
) -> Iterator[str]:
    for role in rendering.roles:
        if any(len(value) > 3 and value in text for value in secrets_of(role)):
            yield f"it shows a secret of {role.name}"
    reading = read_back(text, renderer.suffix)
    wanted = renderer.commands(rendering)
    if len(reading.invocations) != len(wanted) or reading.problems:
        yield f"it contains {len(reading.invocations)} commands, not {len(wanted)}"
        return
    for invocation, command in zip(reading.invocations, wanted, strict=True):
        label = f"{command.role.name}: " if len(wanted) > 1 else ""
        for what in _unlike(invocation, command, catalogue):
            yield f"{label}{what}"


def _unlike(
    invocation: Invocation, command: RenderedCommand, catalogue: Catalogue
) -> Iterator[str]:
    role = command.role
    yield from _environment(invocation, command)
    wanted = meaning_of(role.words, catalogue)
    words = [word.text for word in invocation.words]
    opaque = {index for index, word in enumerate(invocation.words) if not word.evaluated}
    got = meaning_of(words, catalogue, opaque)
    if wanted is None or got is None:
        yield f"SGLang {catalogue.version} refuses it"
        return
    yield from _of_the_platform(command, got)
    slime = invocation.kind is InvocationKind.SLIME
    given = from_invocation(invocation, role.name, catalogue).given if slime else {}
    unknown = {
        one.name
        for one in role.spelling.arguments
        if one.secret or one.unset or any(map(is_secret_text, one.values))
    }
    for difference in differences(wanted, got):
        name, after = difference.name, difference.after
        if name in command.given:
            continue
        if slime and name in SET_BY_SLIME and after == defaults(catalogue).get(name, MISSING):
            continue
        if slime and name in given and given[name].value == difference.before:
            continue
        if name in unknown and name in got.given:
            continue
        yield f"{name} is {after!r}, not {difference.before!r}"
    if slime:
        size = given["tp_size"].value if "tp_size" in given else 1
        if size != wanted.values.get("tp_size", 1):
            yield f"slime sets tp_size {size}, not {wanted.values.get('tp_size', 1)}"
        if any(canonical(name) == "tp_size" for name in got.given):
            yield "only slime may set tp_size"


def _of_the_platform(command: RenderedCommand, got: Meaning) -> Iterator[str]:
    for name, texts in command.given.items():
        if not command.stands_for(name, got.given.get(name)):
            yield f"{name} is {got.given.get(name)}, not {texts} as the platform says it"


def _environment(invocation: Invocation, command: RenderedCommand) -> Iterator[str]:
    wanted = {name: value for name, value in command.role.env.items() if value is not None}
    for name in dict.fromkeys((*wanted, *command.env, *invocation.env)):
        word = invocation.env.get(name)
        if name in command.env:
            if word is None or word.text != command.env[name]:
                yield f"the variable {name} is not {command.env[name]!r}"
            continue
        value = wanted.get(name)
        if word is None or value is None or word.evaluated == _is_unknown(name, value):
            yield f"the variable {name} is not what it was"
        elif word.evaluated and word.text != wanted[name]:
            yield f"the variable {name} is {word.text!r}, not {wanted[name]!r}"


def _is_unknown(name: str, value: str) -> bool:
    """Whether a text asks for a variable instead of showing its value."""
    return is_secret_variable(name) or is_secret_text(value) or bool(unset_in(value))
