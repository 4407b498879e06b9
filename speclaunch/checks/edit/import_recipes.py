"""Import of server commands as recipes, each proven before it is written."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speclaunch.checks.edit.command_edits import SLIMES
from speclaunch.checks.edit.round_trip import (
    ANYTHING,
    Meaning,
    differences,
    meaning_of,
    require_no_differences,
    secrets_of,
)
from speclaunch.core import InputError
from speclaunch.deployments import (
    ENV_NAME,
    OWN,
    Default,
    Deployment,
    Imported,
    Invocation,
    InvocationKind,
    Reading,
    Word,
    closing,
    effective,
    from_invocation,
    recipe_name,
    to_deployment,
)
from speclaunch.engine import Catalogue, RenderedArgs, canonical, parse_argv, render_args
from speclaunch.engine import load as load_catalogue

_IN_SHELL = re.compile(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(\})|:?[-?+=])|\(([A-Za-z_]\w*)\))", re.ASCII
)
"""Reference to a variable: `$A`, `${A}`, the beginning of `${A:-…}`, and Kubernetes' `$(A)`."""
_IN_RECIPE = re.compile(r"\$\{(?:oc\.env|env_or):\s*([A-Za-z_]\w*)\s*([,}])")
_OPEN = re.compile(r"\?\?\?(?=\s|$)")
_OPEN_VALUE = "speclaunch-open"


def require_same_command(invocation: Invocation, imported: Imported, text: str) -> None:
    """Raise RoundTripError if the recipe `text` differs in meaning from `invocation`.

    Parts that the import reports as left out (`imported.problems`, a `--config` that the engine
    does not see) are not compared. A secret must come from the variable named in the recipe.
    """
    catalogue = load_catalogue(imported.version)
    found = list(_differences(invocation, imported, text, catalogue))
    if found:
        shown = " ".join(word.text for word in (*invocation.program, *invocation.words))
        hidden = secrets_of([invocation], imported.version)
        require_no_differences("import", found, shown, text, hidden)


def _differences(
    invocation: Invocation, imported: Imported, text: str, catalogue: Catalogue
) -> Iterator[str]:
    try:
        deployment = _composed(text)
    except InputError as error:
        yield f"it cannot be composed: {error.problems[0].message}"
        return
    rendered = render_args(deployment.args, {}, catalogue)
    if rendered.problems:
        yield rendered.problems[0].message
        return
    set_names = _without_default(text)
    requested = _command_meaning(invocation, catalogue, set_names)
    if requested is None:
        return  # the parser reported what could not be imported, and the import reports it
    got = _recipe_meaning(rendered, catalogue, _unevaluated(invocation), set_names)
    if got is None:
        yield f"SGLang {catalogue.version} refuses it"
        return
    slime = invocation.kind is InvocationKind.SLIME
    explicit = from_invocation(invocation, imported.name, catalogue).values if slime else {}
    values = dict(requested.values) | {
        name: _plain(explicit[name].value, set_names) for name in SLIMES if name in explicit
    }
    values |= {name: _stand_in(variable) for name, variable in imported.secrets.args.items()}
    named = (*requested.explicit, *(name for name in SLIMES if name in explicit))
    expected = Meaning(requested.version, values, dict.fromkeys(named, ()))
    open_ = {  # reported, and left for the user to fill in
        name: ANYTHING
        for name, value in got.values.items()
        if value in (_OPEN_VALUE, [_OPEN_VALUE])
    }
    yield from map(str, expected.differences(got, open_))
    env = {
        name: _expected(word, set_names)
        for name, word in invocation.env.items()
        if ENV_NAME.match(name)
    }
    env |= {name: _stand_in(variable) for name, variable in imported.secrets.env.items()}
    unevaluated = {word.text for word in invocation.env.values() if not word.evaluated}
    mine = {
        name: str(_plain(value, set_names) if value in unevaluated else value or "")
        for name, value in deployment.engine.env.items()
    }
    open_ = {name: ANYTHING for name, value in mine.items() if value == _OPEN_VALUE}
    for difference in differences(env, mine, open_):
        yield f"the variable {difference.name} would change"


def _command_meaning(
    invocation: Invocation, catalogue: Catalogue, variables: frozenset[str]
) -> Meaning | None:
    """Return the command's meaning with stand-ins for `variables`; None if it is rejected."""
    found = effective(invocation, catalogue)
    words = [_expected(word, variables) if word.evaluated else word.text for word in found.words]
    if found.config is not None:  # it remains a separate file
        words = ["--config", found.config.text, *words]
    opaque = {
        index + len(words) - len(found.words)
        for index, word in enumerate(found.words)
        if not word.evaluated
    }
    if found.config is not None and not found.config.evaluated:
        opaque.add(1)
    parsed = parse_argv(words, catalogue, opaque=opaque, with_values=False)
    indices: list[int] = []
    for item in parsed.parsed:
        if item.name == "config" and "=" in words[item.index]:
            continue
        if invocation.kind is InvocationKind.SLIME and canonical(item.dest) in OWN:
            continue
        indices += [item.index, *item.value_indices]
    texts = [_plain(words[i], variables) if i in opaque else words[i] for i in indices]
    return meaning_of(texts, catalogue, {at for at, i in enumerate(indices) if i in opaque})


def _unevaluated(invocation: Invocation) -> frozenset[str]:
    words = [word.text for word in invocation.words if not word.evaluated]
    return frozenset((*words, *(word.partition("=")[2] for word in words)))


def _recipe_meaning(
    rendered: RenderedArgs,
    catalogue: Catalogue,
    unevaluated: frozenset[str],
    variables: frozenset[str],
) -> Meaning | None:
    """Return the recipe's meaning, with stand-ins for unset variables; None if it is rejected."""
    words = [token for argument in rendered.arguments for token in argument.tokens]
    plain = [_plain(word, variables) if word in unevaluated else word for word in words]
    opaque = {
        index
        for index, (word, bare) in enumerate(zip(words, plain, strict=True))
        if "speclaunch-unset-" in bare or bare == _OPEN_VALUE or word in unevaluated
    }
    return meaning_of(plain, catalogue, opaque)


def _expected(word: Word, variables: frozenset[str]) -> str:
    """Return a token's text, with stand-ins for `variables` and the defaults of other variables."""
    if not word.evaluated:
        return str(_plain(word.text, variables))
    return _filled(word.text, 0, len(word.text), word.defaults, variables)


def _filled(
    text: str, start: int, end: int, defaults: Sequence[Default], variables: frozenset[str]
) -> str:
    parts: list[str] = []
    for default in defaults:
        inner = _filled(text, default.start, default.end, default.inner, variables)
        parts += [
            text[start : default.start],
            _stand_in(default.name) if default.name in variables else inner,
        ]
        start = default.end
    return "".join([*parts, text[start:end]])


def _plain(value: Any, variables: frozenset[str]) -> Any:
    """Expand a string like a shell, with stand-ins for `variables`; other types are unchanged."""
    if not isinstance(value, str):
        return value
    parts, at = [], 0
    while found := _IN_SHELL.search(value, at):
        parts.append(value[at : found.start()])
        at = found.end()
        name = found[1] or found[2] or found[4]
        stand_in = _stand_in(name)
        if found[2] and not found[3]:
            end = closing(value, at)
            default = _plain(value[at:end], variables)
            is_default = name not in variables and value[at - 1] in "-="
            stand_in = default if is_default else stand_in
            at = len(value) if end is None else end + 1
        parts.append(stand_in)
    return "".join([*parts, value[at:]])


def _without_default(text: str) -> frozenset[str]:
    return frozenset(name for name, end in _IN_RECIPE.findall(text) if end == "}")


def _stand_in(name: str) -> str:
    return f"speclaunch-unset-{name}"


def _composed(text: str) -> Deployment:
    """Return the recipe composed with stand-ins for variables that have no default."""
    from speclaunch.deployments import load  # noqa: PLC0415  Hydra is slow to import

    found = _IN_RECIPE.findall(text)
    set_names = _without_default(text)
    values = {name: _stand_in(name) if name in set_names else None for name, _ in found}
    with tempfile.TemporaryDirectory() as directory, _variables(values):
        path = Path(directory) / "imported.yaml"
        path.write_text(_OPEN.sub(_OPEN_VALUE, text), encoding="utf-8")
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


def import_command(
    invocation: Invocation,
    name: str,
    source: str,
    engine: str | None,
    installed: str | None = None,
) -> tuple[Imported, str]:
    """Return a command of the file `source` as a recipe, and the recipe's text.

    `engine`: the release set by the user. `installed`: the preferred release if `engine` is None.
    Raises RoundTripError.
    """
    imported = to_deployment(invocation, name, engine, installed)
    text = imported.recipe(source)
    require_same_command(imported.command or invocation, imported, text)
    return imported, text


def import_all(
    reading: Reading,
    source: str,
    stem: str,
    engine: str | None,
    directory: Path,
    installed: str | None = None,
) -> Iterator[tuple[Imported, str, Path]]:
    """Yield every command as a recipe, with the recipe's text and its file in `directory`."""
    several = len(reading.invocations) > 1
    for number, invocation in enumerate(reading.invocations, 1):
        name = recipe_name(invocation.name or stem, number if several else None)
        imported, text = import_command(invocation, name, source, engine, installed)
        yield imported, text, directory / f"{name}.yaml"


def chosen(reading: Reading, source: str, command: int | None) -> int:
    """Return the selected command's number, from 1. Raises InputError if invalid or ambiguous."""
    count = len(reading.invocations)
    if command is None and count > 1:
        listing = "; ".join(
            f"{number}: {invocation.name or invocation.place}"
            for number, invocation in enumerate(reading.invocations, 1)
        )
        raise InputError(
            f"{source} contains {count} server commands ({listing})",
            help="choose one with --command N, or write all with --to-dir DIR",
        )
    if command is not None and not 1 <= command <= count:
        why = f"{source} contains {count} server commands; set --command to 1 to {count}"
        raise InputError(why)
    return command or 1
