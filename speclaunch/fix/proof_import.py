"""An imported recipe proves itself: composed and spelled again, it is the command that was read."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speclaunch.engine.argv import parse_argv
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import Catalogue
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.command import Spelling, spell
from speclaunch.errors import InputError
from speclaunch.fix import proof
from speclaunch.fix.meaning import Meaning, differences, meaning_of
from speclaunch.importer.deployment import Imported
from speclaunch.importer.effective_words import effective
from speclaunch.importer.interface import Invocation, InvocationKind
from speclaunch.importer.slime_own import OWN
from speclaunch.plan.request import from_invocation
from speclaunch.recipe.schema import Deployment

_IN_SHELL = re.compile(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?[-?+=][^{}]*)?\}|\(([A-Za-z_]\w*)\))"
)
_BARE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_DEFAULT = re.compile(r"\$\{[A-Za-z_]\w*:?-([^{}$]*)\}")
_IN_RECIPE = re.compile(r"\$\{(?:oc\.env|env_or):\s*([A-Za-z_]\w*)\s*([,}])")
_OPEN = re.compile(r"\?\?\?(?=\s|$)")
_ASKED_FOR = "speclaunch-open"
_SLIMES = ("model_path", "tp_size")
"""What slime says with options of its own."""


def prove_import(invocation: Invocation, imported: Imported, text: str) -> None:
    """Raise UnprovenError where the recipe `text` is not what `invocation` was.

    What the import announces as left out (`imported.problems`, a `--config` that the engine does
    not see) is left out here, too, and a secret has to come out of the variable that it names.
    """
    catalogue = load_catalogue(imported.version)
    found = list(_unlike(invocation, imported, text, catalogue))
    if found:
        shown = " ".join(word.text for word in (*invocation.program, *invocation.words))
        hidden = proof.secrets_of([invocation], imported.version)
        proof.refuse("import", found, shown, text, hidden)


def _unlike(
    invocation: Invocation, imported: Imported, text: str, catalogue: Catalogue
) -> Iterator[str]:
    try:
        deployment = _composed(text)
    except InputError as error:
        yield f"it cannot be composed: {error.problems[0].message}"
        return
    spelling = spell(deployment.args, {}, catalogue)
    if spelling.problems:
        yield spelling.problems[0].message
        return
    wanted = _asked(invocation, catalogue)
    if wanted is None:
        return  # the parser said more than could be imported, and the import says so
    got = _said(spelling, catalogue, _unevaluated(invocation))
    if got is None:
        yield f"SGLang {catalogue.version} refuses it"
        return
    slime = invocation.kind is InvocationKind.SLIME
    given = from_invocation(invocation, imported.name, catalogue).given if slime else {}
    values = dict(wanted.values) | {
        name: _plain(given[name].value) for name in _SLIMES if name in given
    }
    values |= {name: _stand_in(variable) for name, variable in imported.secrets.args.items()}
    named = (*wanted.given, *(name for name in _SLIMES if name in given))
    expected = Meaning(wanted.version, values, dict.fromkeys(named, ()))
    for difference in differences(expected, got):
        if difference.after in (
            _ASKED_FOR,
            [_ASKED_FOR],
        ):  # left open, with a word, for the reader to fill in
            continue
        yield f"{difference.name} is {difference.after!r}, not {difference.before!r}"
    env = {
        name: word.text if word.evaluated else _plain(word.text)
        for name, word in invocation.env.items()
    }
    env |= {name: _stand_in(variable) for name, variable in imported.secrets.env.items()}
    kept = {word.text for word in invocation.env.values() if not word.evaluated}
    mine = {
        name: _plain(value) if value in kept else value or ""
        for name, value in deployment.engine.env.items()
    }
    for name in dict.fromkeys((*env, *mine)):
        if env.get(name) != mine.get(name) and mine.get(name) != _ASKED_FOR:
            yield f"the variable {name} is not what it was"


def _asked(invocation: Invocation, catalogue: Catalogue) -> Meaning | None:
    """What the command asks, without what is announced as left out."""
    found = effective(invocation, catalogue)
    words = [word.text for word in found.words]
    if found.config is not None:  # it stays a file of its own
        words = ["--config", found.config.text, *words]
    opaque = {
        index + len(words) - len(found.words)
        for index, word in enumerate(found.words)
        if not word.evaluated
    }
    if found.config is not None and not found.config.evaluated:
        opaque.add(1)
    parsed = parse_argv(words, catalogue, opaque=opaque, whole=False)
    kept: list[int] = []
    for item in parsed.parsed:
        if item.name == "config" and "=" in words[item.index]:
            continue
        if invocation.kind is InvocationKind.SLIME and canonical(item.dest) in OWN:
            continue
        kept += [item.index, *item.value_indices]
    texts = [_plain(words[i]) if i in opaque else words[i] for i in kept]
    return meaning_of(texts, catalogue, {at for at, i in enumerate(kept) if i in opaque})


def _unevaluated(invocation: Invocation) -> frozenset[str]:
    """The words that could not be evaluated, and their values: a recipe may keep them as texts."""
    words = [word.text for word in invocation.words if not word.evaluated]
    return frozenset((*words, *(word.partition("=")[2] for word in words)))


def _said(spelling: Spelling, catalogue: Catalogue, unevaluated: frozenset[str]) -> Meaning | None:
    """What the recipe says, its stand-ins carried through unchecked."""
    words = [token for argument in spelling.arguments for token in argument.tokens]
    plain = [_plain(word) if word in unevaluated else word for word in words]
    opaque = {
        index
        for index, (word, bare) in enumerate(zip(words, plain, strict=True))
        if _stands_in(bare) or word in unevaluated
    }
    return meaning_of(plain, catalogue, opaque)


def _stands_in(word: str) -> bool:
    return "speclaunch-unset-" in word or word == _ASKED_FOR


def _plain(value: Any) -> Any:
    """A text with its variables replaced as the composition replaces them."""
    if not isinstance(value, str):
        return value
    text, before = _BARE.sub(lambda found: _stand_in(found[1] or found[2]), value), None
    while text != before:  # from within: a default may hold another
        text, before = _DEFAULT.sub(r"\1", text), text
    return _IN_SHELL.sub(lambda found: _stand_in(found[1] or found[2] or found[3]), text)


def _stand_in(name: str) -> str:
    return f"speclaunch-unset-{name}"


def _composed(text: str) -> Deployment:
    """The recipe composed as a launch does it: variables that have a default are not set, every
    other is a stand-in."""
    from speclaunch.recipe.load import load  # noqa: PLC0415  Hydra is slow to import

    found = _IN_RECIPE.findall(text)
    values: dict[str, str | None] = {name: None for name, end in found if end == ","}
    values |= {name: _stand_in(name) for name, end in found if end == "}"}
    with tempfile.TemporaryDirectory() as directory, _variables(values):
        path = Path(directory) / "imported.yaml"
        path.write_text(_OPEN.sub(_ASKED_FOR, text), encoding="utf-8")
        return load(str(path)).deployment


@contextmanager
def _variables(values: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
