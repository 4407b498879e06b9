"""What a deployment asks of one engine version, wherever it was written.

A recipe and a found command both come down to words of a command line; the engine's parser (ours,
built from the catalogue) types their values, so that nothing here depends on the spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from speclaunch.engine.argv import parse_argv
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import Catalogue
from speclaunch.engine.command import Spelling
from speclaunch.errors import COMMAND_LINE, Place, Problem
from speclaunch.importer.interface import Invocation, InvocationKind, Word

if TYPE_CHECKING:  # linting a script needs no Hydra
    from speclaunch.recipe.load import Recipe

__all__ = [
    "ENGINE_VARIABLES",
    "Given",
    "Origin",
    "Request",
    "canonical",
    "from_invocation",
    "from_recipe",
    "from_words",
]

ENGINE_VARIABLES = ("SGLANG_", "SGL_")
"""How the names of the engine's own environment variables begin."""


class Origin(StrEnum):
    """Where a deployment was written."""

    RECIPE = "recipe"
    COMMAND = "command"
    """A server command in a script, a compose file, a manifest, a document."""
    SLIME = "slime"


@dataclass(frozen=True, slots=True)
class Given:
    """One server argument or environment variable as it was asked for.

    `name` is the engine's current name of it (`canonical`), `written` the user's. `value` is what
    the engine stores. When `known` is False the value stands in a variable that cannot be
    evaluated, and `value` is its text.
    """

    name: str
    value: Any
    written: str
    place: Place
    known: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments and variables of one deployment, for one engine version.

    `problems` are what the version's parser refuses, `remarks` what it accepts and does not do.
    `extras` are slime's own options.
    """

    name: str
    origin: Origin
    catalogue: Catalogue
    place: Place
    given: Mapping[str, Given] = field(default_factory=dict)
    env: Mapping[str, Given] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()
    extras: Mapping[str, Given] = field(default_factory=dict)
    overridden: tuple[Given, ...] = ()
    """Arguments that are given again later on: the later one counts."""
    ignored: tuple[Given, ...] = ()
    """Arguments that slime does not pass on: an option of its own says them."""

    @property
    def version(self) -> str:
        """The engine version."""
        return self.catalogue.version


def from_recipe(
    recipe: Recipe,
    spelling: Spelling,
    catalogue: Catalogue,
    inherited: Mapping[str, str] | None = None,
) -> Request:
    """What a recipe asks, spelled for the version of `catalogue`.

    `inherited` is the environment that the engine gets from us; its own variables count, where
    the recipe does not set them.
    """
    words: list[str] = []
    names: list[str] = []
    for spelled in spelling.arguments:
        words += spelled.tokens
        names += [spelled.given] * len(spelled.tokens)

    def place(index: int | None) -> Place:
        return recipe.place("args") if index is None else recipe.place("args", names[index])

    parsed = parse_argv(words, catalogue, whole=False)
    given = {
        canonical(item.dest): Given(
            canonical(item.dest), item.stored, names[item.index], place(item.index)
        )
        for item in parsed.parsed
    }
    problems = [
        Problem(p.message, recipe.place("args", p.name), p.help) for p in spelling.problems
    ] + [
        Problem(
            p.message
            if p.index is None
            else f"SGLang {catalogue.version} refuses `{names[p.index]}`: {p.message}",
            place(p.index),
            p.help,
        )
        for p in parsed.problems
    ]
    own = recipe.deployment.engine.env
    env = {
        name: Given(name, text, name, Place(COMMAND_LINE, text=f"{name} of the environment"))
        for name, text in (inherited or {}).items()
        if name.startswith(ENGINE_VARIABLES) and name not in own
    }
    env |= {
        name: Given(name, text, name, recipe.place("engine", "env", name))
        for name, text in own.items()
        if text is not None
    }
    return Request(
        recipe.deployment.name,
        Origin.RECIPE,
        catalogue,
        Place(str(recipe.path)),
        given,
        env,
        tuple(problems),
        tuple(
            Problem(h.message, place(h.index) if h.index is not None else None, h.help)
            for h in parsed.hints
        ),
    )


def from_invocation(invocation: Invocation, name: str, catalogue: Catalogue) -> Request:
    """What a found command asks, read by the parser of `catalogue`'s version."""
    words = invocation.words
    opaque = {index for index, word in enumerate(words) if not word.evaluated}

    def place(index: int | None) -> Place:
        return invocation.place if index is None else words[index].place

    parsed = parse_argv([word.text for word in words], catalogue, opaque=opaque, whole=False)
    given: dict[str, Given] = {}
    overridden: list[Given] = []
    for item in parsed.parsed:
        known = not opaque & {item.index, *item.value_indices}
        field_name = canonical(item.dest)
        one = Given(field_name, item.stored, item.written, place(item.index), known)
        if field_name in given:
            overridden.append(given[field_name])
        given[field_name] = one
    slime = invocation.kind is InvocationKind.SLIME
    ignored: list[Given] = []
    if slime:
        own = _from_slime(invocation.extras, given)
        ignored = [given[name] for name in own if name in given]
        given |= own
    return Request(
        name,
        Origin.SLIME if slime else Origin.COMMAND,
        catalogue,
        invocation.place,
        given,
        _words(invocation.env),
        _problems(parsed.problems, place, skip_missing=slime),
        _problems(parsed.hints, place),
        _words(invocation.extras),
        tuple(overridden),
        ignored=tuple(ignored),
    )


def _from_slime(extras: Mapping[str, Word], given: Mapping[str, Given]) -> dict[str, Given]:
    """slime says the model and the GPUs of an engine with options of its own."""
    found: dict[str, Given] = {}
    model = extras.get("--hf-checkpoint")
    if model is not None:
        found["model_path"] = Given(
            "model_path", model.text, "--hf-checkpoint", model.place, model.evaluated
        )
    gpus = extras.get("--rollout-num-gpus-per-engine")
    if gpus is not None and gpus.text.isdigit():
        pipeline = given.get("pp_size")
        stages = pipeline.value if pipeline is not None and pipeline.known else 1
        size = int(gpus.text) // max(1, int(stages))
        found["tp_size"] = Given("tp_size", size, "--rollout-num-gpus-per-engine", gpus.place)
    return found


def from_words(
    words: Sequence[str], env: Mapping[str, str], catalogue: Catalogue, name: str = "command"
) -> Request:
    """What the words after `sglang serve` ask, given on a command line."""

    def word(text: str) -> Word:
        return Word(text, Place(COMMAND_LINE, text=text))

    invocation = Invocation(
        InvocationKind.SERVE,
        tuple(word(text) for text in words),
        Place(COMMAND_LINE, text=name),
        {variable: word(text) for variable, text in env.items()},
    )
    return from_invocation(invocation, name, catalogue)


def _words(found: Mapping[str, Word]) -> dict[str, Given]:
    return {
        name: Given(name, word.text, name, word.place, word.evaluated)
        for name, word in found.items()
    }


def _problems(
    found: Sequence[Any], place: Callable[[int | None], Place], *, skip_missing: bool = False
) -> tuple[Problem, ...]:
    return tuple(
        Problem(problem.message, place(problem.index), problem.help)
        for problem in found
        if problem.index is not None or not skip_missing
    )
