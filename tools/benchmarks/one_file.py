"""One file, as a pre-commit hook or an editor asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.ground import CHECK_JSONSCHEMA, FOUND, YAMLLINT, Ground
from benchmarks.measuring import in_turn
from benchmarks.rows import Row

GROUP = "one"
SCRIPT_GOAL = 2
RECIPE_GOAL = 3
SCHEMA = '{"type": "object"}'


def measure(ground: Ground) -> Iterator[Row]:
    """A script and a recipe, each round another one, beside yamllint on the same or its twin."""
    (ground.folder / "schema.json").write_text(SCHEMA)
    recipe, script = "recipes/team_0007.yaml", "scripts/serve_0007.sh"
    twin = "manifests/sglang_0007.yaml"
    commands = {
        "script": ground.cold("lint", script),
        "script, warm": ground.warm("lint", script),
        "recipe": ground.cold("lint", recipe),
        "recipe, warm": ground.warm("lint", recipe),
        "yamllint": ground.reference(*YAMLLINT, recipe, ends=FOUND),
        "yamllint, twin": ground.reference(*YAMLLINT, twin, ends=FOUND),
        "jsonschema": ground.reference(
            *CHECK_JSONSCHEMA, "--schemafile", "schema.json", recipe, ends=FOUND
        ),
    }
    spent = in_turn(commands, max(ground.rounds, 9))
    took = {name: ground.clock.seconds(each) for name, each in spent.items()}
    twin_of = "yamllint on a manifest of its size"
    same = "yamllint on it"
    yield Row(
        GROUP, "one script", twin_of, took["script"], took["yamllint, twin"], goal=SCRIPT_GOAL
    )
    yield Row(
        GROUP, "one script, warm cache", twin_of, took["script, warm"], took["yamllint, twin"]
    )
    yield Row(GROUP, "one recipe", same, took["recipe"], took["yamllint"], goal=RECIPE_GOAL)
    yield Row(GROUP, "one recipe, warm cache", same, took["recipe, warm"], took["yamllint"])
    schema = "check-jsonschema on it, with a schema of one line"
    yield Row(GROUP, "one recipe", schema, took["recipe"], took["jsonschema"])
