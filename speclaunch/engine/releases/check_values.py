"""Checks rendered argument values with the engine's parser."""

from __future__ import annotations

from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import Catalogue
from speclaunch.engine.releases.command import ArgumentProblem, RenderedArgs


def check_values(rendered: RenderedArgs, catalogue: Catalogue) -> tuple[ArgumentProblem, ...]:
    """Return the type and choice errors of all arguments by name, in the engine's wording."""
    args: list[str] = []
    names: list[str] = []
    for argument in rendered.arguments:
        args += argument.tokens
        names += [argument.recipe_name] * len(argument.tokens)
    return tuple(
        ArgumentProblem(
            names[problem.index],
            f"SGLang {catalogue.version} refuses `{names[problem.index]}`: {problem.message}",
            problem.help,
        )
        for problem in parse_argv(
            args, catalogue, opaque=rendered.unset, with_values=False
        ).problems
        if problem.index is not None  # the engine reports a missing model
    )
