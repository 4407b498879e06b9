"""`speclaunch recipes`: list the recipes, copy one to change it, and their JSON schema."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.table import Table
from rich.text import Text

from speclaunch import reads
from speclaunch.cli.options import ConfigDirs
from speclaunch.errors import InputError, Problem
from speclaunch.importer import nodes
from speclaunch.recipe.bounded_yaml import compose
from speclaunch.recipe.compose import find_recipe, recipe_names
from speclaunch.report.console import err, out

app = typer.Typer(
    help="List the recipes that come with speclaunch, or copy one.", invoke_without_command=True
)


@app.callback()
def recipes(ctx: typer.Context, config_dir: ConfigDirs = None) -> None:
    """List the recipes if no verb is given."""
    ctx.obj = config_dir
    if ctx.invoked_subcommand is None:
        _list(config_dir or [])


@app.command()
def ls(ctx: typer.Context, config_dir: ConfigDirs = None) -> None:
    """List the recipes with one line each."""
    _list(_both(ctx, config_dir))


def _both(ctx: typer.Context, own: list[Path] | None) -> list[Path]:
    """The directories given before the verb, and those after it."""
    return [*(ctx.obj or ()), *(own or ())]


def _list(config_dirs: list[Path]) -> None:
    _require(config_dirs)
    table = Table.grid(padding=(0, 2))
    for name, path in sorted(recipe_names(config_dirs).items()):
        table.add_row(Text(name, "bold"), Text(_description(path)))
    out().print(table)
    err().print("\nspeclaunch recipe=NAME --dry-run prints its command.", style="dim")


@app.command()
def cp(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="A recipe's name.")],
    dest: Annotated[Path, typer.Argument(help="The file to write, or the directory to put it in.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    config_dir: ConfigDirs = None,
) -> None:
    """Copy a recipe to a file of your own; launch it with recipe=path/to/file.yaml."""
    source = find_recipe(name, _both(ctx, config_dir))
    target = dest / source.name if dest.is_dir() else dest
    if target.suffix != ".yaml":
        raise InputError(Problem(f"{target}: the name of a recipe must end in .yaml"))
    if target.exists() and not force:
        raise InputError(Problem(f"{target} already exists", help="--force overwrites it"))
    text = reads.read_text(source).replace(f"recipe={source.stem}", f"recipe={target}")
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(Problem(f"cannot write {target}: {error.strerror}")) from error
    out().print(f"{target}", markup=False)
    err().print(f"speclaunch recipe={target} launches it.", style="dim")


@app.command()
def schema(
    ctx: typer.Context,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="VERSION",
            help="The SGLang version whose arguments are known. Default: the newest.",
        ),
    ] = None,
    section: Annotated[
        str | None,
        typer.Option(
            "--section",
            metavar="NAME",
            help="For options of a group that fill this section of a recipe: `args`, `engine`.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write it to."),
    ] = None,
    config_dir: ConfigDirs = None,
) -> None:
    """Write the JSON schema of recipes, for editors and other checkers."""
    import json

    from speclaunch.cli.check_options import engine_version
    from speclaunch.engine.catalogue import held_versions, load
    from speclaunch.fix.edits import write_atomically
    from speclaunch.plan.suggestions import suggested_values
    from speclaunch.recipe.json_schema import recipe_schema

    dirs = _both(ctx, config_dir)
    _require(dirs)
    version = engine_version(engine) if engine is not None else held_versions()[-1]
    found = recipe_schema(load(version), dirs, section, suggested_values(version))
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise InputError(Problem(f"cannot write {output}: name a file in a directory that exists"))
    write_atomically(output.resolve(), text)
    err().print(f"wrote {output}", markup=False)


def _require(directories: list[Path]) -> None:
    for directory in directories:
        if not directory.is_dir():
            raise InputError(Problem(f"--config-dir {directory}: no such directory"))


def _description(path: Path) -> str:
    """The `description:` of a recipe; its own file says it, no composition is needed."""
    try:
        root = compose(reads.read_text(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return f"(cannot be read: {str(error).splitlines()[0]})"
    return nodes.text(nodes.entries(root).get("description")) or ""
