"""Makes what a new rule consists of: its row in the table, its check, its page, its case file.

    python tools/new_rule.py CODE NAME --family FAMILY
    python tools/new_rule.py SPL267 two-batch-overlap --family features

What it writes fails the tests until it is filled in (`TODO`); it prints what is to be done then.
docs/rules/README.md lists the families and their numbers. Exits 2, and writes nothing, for a code
or a name that is taken (it says which code is free), a number outside of the family's, and a family
that does not exist.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from speclaunch.checks.rules import FAMILIES, RETIRED
from speclaunch.checks.rules.registry import FILE_CODES
from speclaunch.checks.rules.table import RULES
from speclaunch.engine.releases.catalogue import held_versions

ROOT = Path(__file__).resolve().parent.parent

CHECK = '''

@rule("{code}")
def {function}(plan: Plan) -> Iterator[Verdict]:
    """TODO: what it finds, in one sentence."""
    yield from ()
'''
PAGE = """\
# {code} {name}

TODO: what it finds, in one sentence.

## What it does
Finds TODO.

## Why it matters
TODO: what the engine does then, in its own words: `AssertionError: …`.

## Example
```yaml
args:
  speculative_algorithm: TODO
```

## Use instead
```yaml
args:
  speculative_algorithm: TODO
```

## Sources
- TODO: sglang VERSION FILE:LINE, of the newest release first
"""
CASES = """\
rule: {code}
cases:
  fail_todo:
    engine: "{engine}"
    args: {{"model_path": "m"}}
    expect: {{"message": "TODO", "at": "model_path"}}
  fixed:
    engine: "{engine}"
    args: {{"model_path": "m"}}
  pass_no_speculation:
    engine: "{engine}"
    args: {{"model_path": "m"}}
"""


class RefusedError(Exception):
    """The rule that was asked for cannot be: why, and what to do."""


def check(code: str, name: str, family: str) -> None:
    """Raise RefusedError where a code, a name and a family make no new rule."""
    if family not in FAMILIES:
        raise RefusedError(f"no family is called {family!r}: take one of {', '.join(FAMILIES)}")
    if not re.fullmatch(r"SPL\d{3}", code):
        raise RefusedError(
            f"{code!r} is no code: write SPL and three digits: {_free(family)} is free"
        )
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise RefusedError(
            f"{name!r} is no name: write small letters and digits, joined by hyphens"
        )
    names = {one.code: one.name for one in (*RULES, *FILE_CODES)}
    if code in names:
        raise RefusedError(f"{code} is {names[code]}: {_free(family)} is free")
    if code in RETIRED:
        raise RefusedError(f"{code} is retired, and never used again: {_free(family)} is free")
    if name in names.values():
        raise RefusedError(f"another rule is called {name}: find a name of its own")
    if int(code[3:]) not in FAMILIES[family].numbers:
        numbers = FAMILIES[family].numbers
        raise RefusedError(
            f"{family} has the numbers {numbers[0]:03} to {numbers[-1]:03}: {_free(family)} is free"
        )


def _free(family: str) -> str:
    """The code after the last one that is taken among the family's numbers; a gap, if need be."""
    taken = {int(one.code[3:]) for one in (*RULES, *FILE_CODES)}
    taken |= {int(code[3:]) for code in RETIRED}
    numbers = FAMILIES[family].numbers
    free = [number for number in numbers if number not in taken]
    last = max((number for number in numbers if number in taken), default=0)
    return f"SPL{next((n for n in free if n > last), free[0]):03}"


def files(code: str, name: str, family: str, root: Path) -> dict[str, str]:
    """The new and the changed files, by their paths in the repository."""
    module = FAMILIES[family].modules[-1]
    table, checks = (f"speclaunch/checks/rules/{one}.py" for one in ("table", module))
    made = {
        table: _with_row((root / table).read_text(encoding="utf-8"), code, name, module),
        f"docs/rules/{code}.md": PAGE.format(code=code, name=name),
        f"tests/checks/rules/cases/{code}.yaml": CASES.format(
            code=code, engine=held_versions()[-1]
        ),
    }
    if family != "changes":  # a kind of change is a row there
        check = CHECK.format(code=code, function=name.replace("-", "_"))
        made[checks] = (root / checks).read_text(encoding="utf-8") + check
    return made


def _with_row(text: str, code: str, name: str, module: str) -> str:
    """The table with a row in the order of the codes."""
    starts = [found for found in re.finditer(r'    row\(\s*"(SPL\d{3})"', text) if found[1] > code]
    at = starts[0].start() if starts else text.rindex(")\n")
    return f'{text[:at]}    row("{code}", "{name}", ERROR, "{module}"),\n{text[at:]}'


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Make the files, and say what is to be done with them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("code", metavar="CODE", help="SPL and three digits")
    parser.add_argument("name", metavar="NAME", help="what it is called: two-batch-overlap")
    parser.add_argument("--family", required=True, help="one of docs/rules/README.md")
    asked = parser.parse_args(arguments)
    try:
        check(asked.code, asked.name, asked.family)
    except RefusedError as error:
        parser.error(str(error))
    made = files(asked.code, asked.name, asked.family, root)
    for path, text in made.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
        print(path)
    if asked.family == "changes":
        print("speclaunch/checks/rules/arguments.py: add the kind of change")
    print(
        "\nFill in each TODO. Then:\n"
        "  python tools/rule_pages.py      lists it in docs/rules/README.md\n"
        "  docs/reference/coverage.md      names it, where it is about speculation (1xx to 6xx)\n"
        f"  pytest tests/checks/rules -k {asked.code}    its page, cases and conditions\n"
        "  pytest tests/checks/rules/test_coverage.py tests/checks/rules/test_registry.py"
        "    the two lists"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
