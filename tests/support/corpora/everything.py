"""All that lint reads, in one folder: the repository's own test data and generated files."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support import TESTS
from tests.support.conformance import data
from tests.support.corpora.cases import literals, write_cases
from tests.support.corpora.recipes import recipe
from tests.support.corpora.scripts import manifest, script
from tests.support.corpora.spoiling import spoil_recipe, spoil_script
from tests.support.corpora.texts import generate
from tests.support.corpora.wild_recipes import generated

ROOT = TESTS.parent

READ = frozenset({".yaml", ".yml", ".sh", ".md", ".json", ".txt", ".toml", ".py"})
LARGEST_BYTES = 300_000
"""A larger file of the repository is no deployment."""

GROUPS = {"own/a.yaml": "# @package args\nrandom_seed: 7\nlog_level: info\n"}
ENGINE = "tp-size: 2\nspeculative-num-steps: 3\nmem-fraction-static: 0.8\nno-such: 1\n"
SETTINGS = '[assume]\n"my-org/Nothing-7B" = "meta-llama/Llama-3.1-8B-Instruct"\n'


@dataclass(frozen=True, slots=True)
class Size:
    """How much is written."""

    generated: int
    every_case: int
    """Every n-th case of the rules."""
    every_page: int
    """Every n-th file of the repository, and text of its tests."""


def write_everything(folder: Path, size: Size, seed: int, checkout: Path = ROOT) -> int:
    """Write the corpus; how many files may hold a deployment.

    The test data is that of `checkout`.
    """
    _write_models(folder)
    count = write_cases(checkout / "tests/checks/rules/cases", folder, every=size.every_case)
    count += _copy_repository(checkout, folder / "repository", size.every_page)
    for number in range(size.generated):
        dice = random.Random(f"{seed}/{number}")
        home = folder / "generated" / f"{number // 50:03}" / f"{number:05}"
        home.mkdir(parents=True)
        dice.choices(list(KINDS), weights=list(KINDS.values()))[0](home, number, seed, dice)
    return count + size.generated


def _write_models(folder: Path) -> None:
    for path, config in data.models().items():
        (folder / path).mkdir(parents=True, exist_ok=True)
        (folder / path / "config.json").write_text(json.dumps(config))


def _copy_repository(root: Path, folder: Path, every: int) -> int:
    """Recipes, groups, documents, the data of the tests, and the texts in the tests' modules."""
    sources = [root / "README.md"]
    for name in ("recipes", "conf", "docs", "tests", ".github", ".ci"):
        sources += sorted((root / name).rglob("*"))
    chosen = [
        path
        for path in sources
        if path.suffix in READ and path.is_file() and path.stat().st_size < LARGEST_BYTES
    ][::every]
    for path in chosen:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    texts = list(literals(sorted((root / "tests").rglob("*.py"))))[::every]
    for name, text in texts:
        home = folder / "literals" / name
        home.parent.mkdir(exist_ok=True)
        home.write_text(text, errors="surrogatepass")
    return len(chosen) + len(texts)


def _recipe(home: Path, number: int, seed: int, dice: random.Random) -> None:
    text = recipe(number, seed)
    if dice.random() < 0.75:
        text = spoil_recipe(text, dice)
    (home / f"recipe-{number}.yaml").write_text(text)
    _beside(home, text)


def _script(home: Path, number: int, seed: int, dice: random.Random) -> None:
    text = script(number, seed)
    if dice.random() < 0.7:
        text = spoil_script(text, dice)
    (home / "run.sh").write_text(text)
    _beside(home, text)


def _beside(home: Path, text: str) -> None:
    if "engine.yaml" in text:
        (home / "engine.yaml").write_text(ENGINE)
    if "own: a" in text:
        for name, group in GROUPS.items():
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).write_text(group)
    if "my-org/" in text and len(text) % 2:
        (home / "speclaunch.toml").write_text(SETTINGS)


def _manifest(home: Path, number: int, seed: int, dice: random.Random) -> None:
    text = manifest(number, dice.randint(600, 1500), seed)
    (home / "deployment.yaml").write_text(spoil_script(text, dice) if len(text) % 3 else text)


def _translation(home: Path, number: int, seed: int, _dice: random.Random) -> None:
    """One of the texts that `migrate`, `import` and `render` are judged with."""
    (text,) = generate(number + 1, seed, begin=number)
    for name, content in {text.name: text.text, **text.files}.items():
        (home / name).write_text(content)


def _wild(home: Path, _number: int, _seed: int, dice: random.Random) -> None:
    """A recipe with every feature of a defaults list, valid or not."""
    (home / "mine.yaml").write_text(generated(dice, home))


def _configuration(home: Path, _number: int, _seed: int, dice: random.Random) -> None:
    """One of the configurations that the engines were asked about, whose checkpoints are known."""
    said = dice.choice(data.configurations())
    if "words" in said:
        command = f"sglang serve {shlex.join(said['words'])}"
        (home / "run.sh").write_text(f"#!/bin/bash\n{command}\n")
        return
    engine = {"version": dice.choice(data.versions()), "env": said.get("env", {})}
    document = {"engine": engine, "args": said["args"]}
    (home / "recipe.yaml").write_text(json.dumps(document, indent=1))


KINDS: dict[Callable[[Path, int, int, random.Random], None], int] = {
    _recipe: 34,
    _script: 24,
    _translation: 18,
    _wild: 10,
    _configuration: 10,
    _manifest: 4,
}
"""Who writes a generated file, and how often."""


def change(folder: Path, seed: int) -> int:
    """Change some of the files that others rest on, as people do between two runs; how many.

    Some keep their size and their time of change, some go, and some come that were looked for.
    """
    dice = random.Random(f"{seed}/change")
    count = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in {".yaml", ".json", ".sh"}:
            continue
        followed = path.name in {"config.json", "engine.yaml", "a.yaml", "b.yaml", "mixin.yaml"}
        if dice.random() > (0.4 if followed else 0.06):
            continue
        count += 1
        text, times = path.read_bytes(), path.stat()
        if dice.random() < 0.15:
            path.unlink()
        else:
            path.write_bytes(text.translate(bytes.maketrans(b"24", b"42")))
            if dice.random() < 0.5:
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    came = folder / "models/my-org/Nothing-7B"
    came.mkdir(parents=True)
    shutil.copyfile(
        next(iter(sorted((folder / "models").rglob("config.json")))), came / "config.json"
    )
    return count + 1
