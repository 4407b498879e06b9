"""Recipes with every feature of a defaults list and of YAML scalars, valid or not."""

from __future__ import annotations

import random
from pathlib import Path

GROUPS = {
    "model": ("glm46", "llama31_8b", "qwen25_7b", "qwen25_7b_draft_1_5b", "llama2_7b_eagle"),
    "speculation": ("mtp", "ngram", "eagle_tree", "eagle_adaptive"),
    "engine": ("default", "spec_v2", "short_draft"),
    "hardware": ("auto", "cpu"),
    "serving": ("local", "public"),
    "launch": ("default",),
    "own": ("a", "b", "a", "b", "missing"),
}
SCALARS = (
    "1", "0", "-7", "0.5", ".5", "1.", "1e5", "1E-6", "1_000", "0x1F", "0o17", "017", "1:30", "12:30:45",
    "1:30.5", "true", "off", "yes", "No", "null", "~", "''", '"x"', "'1e5'", "text", "2026-11-22", "a: b", "???",
    "${args.port}", "${oc.env:HOME}", "${oc.env:NOT_SET_ANYWHERE,7}", ".inf", "-.inf", ".nan", "=", "<<", "!!str 5",
    "!!int '5'", "[1, 2]", "[]", "{}", "{a: 1}", "[a, {b: c}]", "|\n    several\n    lines", "&x [1]", "*x", "ünï", "1e", "e5",
    "+1", "1__0", "0b11", "-", "- 1", "1.2.3", "1e5.5", "0.5e3", "0.5e+3", "5e+3", "\t1",
)  # fmt: skip
COMMON = ("1", "0.5", "true", "null", "text", "[1, 2]", "{a: 1}", "${args.port}", "${oc.env:HOME}")
KEYS = ("port", "tp_size", "model_path", "json_model_override_args", "a.b", "env", "1", "on", "x y")


def generated(random: random.Random, folder: Path) -> str:
    """A recipe's text, and groups of its own beside it."""
    for option in ("a", "b"):
        head = random.choice(
            (
                "",
                "# @package args\n",
                "# @package _global_\n",
                "# @package a.b\n",
                "# a\n# @package args\n",
            )
        )
        below = random.choice(
            ("", "", "defaults:\n  - b\n" if option == "a" else "", "defaults:\n  - _self_\n")
        )
        text = f"{head}{below}{body(random, 1)}"
        (folder / "own").mkdir(exist_ok=True)
        (folder / "own" / f"{option}.yaml").write_text(text)
    (folder / "mixin.yaml").write_text(
        f"{defaults(random, own=False) if random.random() < 0.5 else ''}{body(random, 1)}"
    )
    head = random.choice(
        ("", "", "", "", "", "", "# @package args\n", "# a comment\n", "# @odd header here\n")
    )
    return f"{head}{defaults(random)}{body(random, 3)}"


def defaults(random: random.Random, *, own: bool = True) -> str:
    items = []
    names = ["base", "mixin", "ngram_qwen7b", "mtp_glm46"] if own else ["base"]
    if random.random() < 0.8:
        items.append(random.choice(names))
    for group in random.sample(sorted(GROUPS), random.randint(0, 3)):
        override = (
            random.choice(("override ", "override ", "optional ")) if random.random() < 0.3 else ""
        )
        option = random.choice(GROUPS[group])
        package = random.choice(("",) * 12 + ("@args", "@_global_"))
        items.append(
            f"{override}{random.choice(('', '', '', '', '', '', '/'))}{group}{package}: {option}"
        )
    if random.random() < 0.08:
        items.append(
            random.choice(
                ("own/a", "null", "model: null", "model: [glm46]", "model: ${x}", "a: b", "3")
            )
        )
    if random.random() < 0.8:
        items.insert(random.choice((0, len(items), len(items))), "_self_")
    if random.random() < 0.7:  # overrides come last
        items.sort(key=lambda item: item.startswith("override"))
    return "".join(["defaults:\n", *(f"  - {item}\n" for item in items)]) if items else ""


def scalar(random: random.Random) -> str:
    return random.choice(SCALARS if random.random() < 0.3 else COMMON)


def body(random: random.Random, most: int) -> str:
    lines = []
    for _ in range(random.randint(0, most)):
        section = random.choice(("args", "args", "engine", "launch", "own", "description", "name"))
        if section in ("description", "name"):
            lines.append(f"{section}: {scalar(random)}\n")
            continue
        if any(line.startswith(f"{section}:") for line in lines):
            continue
        inner = "".join(
            f"  {key}: {scalar(random)}\n" for key in random.sample(KEYS, random.randint(1, 3))
        )
        lines.append(
            random.choice((f"{section}:\n{inner}",) * 5 + (f"{section}: {scalar(random)}\n",))
        )
    return "".join(lines)
