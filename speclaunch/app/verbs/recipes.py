"""`speclaunch recipes`: list recipes, copy a recipe, write the JSON schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer
import yaml
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.console import err, out
from speclaunch.app.verbs.change_options import CopyOptions, RecipesOptions, SchemaOptions
from speclaunch.core import InputError, reads, replace_file
from speclaunch.deployments import compose_node, find_recipe, nodes, recipe_names


def list_recipes(options: RecipesOptions) -> None:
    """List the recipes with their descriptions. Raises InputError."""
    _require(options.config_dir)
    table = Table.grid(padding=(0, 2))
    for name, path in sorted(recipe_names(options.config_dir).items()):
        table.add_row(Text(name, "bold"), Text(_description(path)))
    out().print(table)
    err().print("\nspeclaunch recipe=NAME --dry-run prints its command.", style="dim")


def copy(options: CopyOptions) -> None:
    """Copy a recipe to a file. Raises InputError."""
    from speclaunch.app.verbs.shared import require_recipe_file

    source = find_recipe(options.name, options.config_dir)
    target = options.dest / source.name if options.dest.is_dir() else options.dest
    require_recipe_file(target, overwrite=options.overwrite)
    text = reads.read_text(source).replace(f"recipe={source.stem}", f"recipe={target}")
    try:
        replace_file(target, text, 0o666)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}") from error
    out().print(f"{target}")
    err().print(f"Launch it: speclaunch recipe={target}", style="dim")


def schema(options: SchemaOptions) -> None:
    """Write the JSON schema of recipes. Raises InputError."""
    from speclaunch.app.verbs.shared import engine_version, require_writable
    from speclaunch.checks import write_atomically
    from speclaunch.deployments import recipe_schema
    from speclaunch.engine import held_versions, load, suggested_values

    _require(options.config_dir)
    output = options.output
    version = engine_version(options.engine) if options.engine is not None else held_versions()[-1]
    found = recipe_schema(
        load(version), options.config_dir, options.section, suggested_values(version)
    )
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    require_writable(output, devices=True)
    write_atomically(output, text)
    err().print(f"wrote {output}")


def _require(directories: Sequence[Path]) -> None:
    for directory in directories:
        if not directory.is_dir():
            raise InputError(f"--config-dir {directory}: no such directory")


def _description(path: Path) -> str:
    """Return the `description:` in a recipe's own file, without composing the recipe."""
    try:
        root = compose_node(reads.read_text(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return f"(cannot be read: {str(error).splitlines()[0]})"
    return nodes.text(nodes.entries(root).get("description")) or ""
