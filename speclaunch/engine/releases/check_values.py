"""Whether the values of spelled arguments are ones that the engine's parser takes."""

from __future__ import annotations

from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import Catalogue
from speclaunch.engine.releases.command import ArgumentProblem, RenderedArgs


def check_values(spelling: RenderedArgs, catalogue: Catalogue) -> tuple[ArgumentProblem, ...]:
    """Type and choice of every argument, in the engine's own words, each under its name."""
    words: list[str] = []
    names: list[str] = []
    for argument in spelling.arguments:
        words += argument.tokens
        names += [argument.given] * len(argument.tokens)
    return tuple(
        ArgumentProblem(
            names[problem.index],
            f"SGLang {catalogue.version} refuses `{names[problem.index]}`: {problem.message}",
            problem.help,
        )
        for problem in parse_argv(words, catalogue, opaque=spelling.unset, whole=False).problems
        if problem.index is not None  # a model that is missing is the engine's to say
    )
