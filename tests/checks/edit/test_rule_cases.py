"""The rules' own cases, written in every form: the fix of each is applied, and the rule is content.

The judge is the rule itself, asked about the fixed text; what else changed is counted here again,
from what the readers make of both texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from speclaunch.checks.edit.checked_text import composed, fixed_commands, fixed_recipe
from speclaunch.checks.edit.edits import NotFixableError
from speclaunch.checks.rules.examine import check_rules
from speclaunch.checks.rules.interface import Finding
from speclaunch.checks.rules.registry import by_code
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.load import validate
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import recipe_name
from speclaunch.deployments.sources.requests import from_invocation, from_recipe
from speclaunch.engine.plan.request import Request
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.command import render_args
from tests.checks.edit import forms
from tests.support.checks.rules.harness import CASES, Case, load_cases
from tests.support.loops import each

FILES = sorted(CASES.glob("*.yaml"))


def cases_of(path: Path) -> list[Case]:
    """The failing cases of a rule that are one deployment by its arguments."""
    return [
        case
        for case in load_cases(path)
        if case.fails
        and not case.together
        and case.text is None
        and case.slime is None
        and case.argv is None
    ]


def all_cases() -> Iterator[Case]:
    return (case for path in FILES for case in cases_of(path))


def findings(case: Case, request: Request) -> list[Finding]:
    rule = by_code(case.code)
    assert rule is not None
    found = check_rules(resolve(request, case.facts), [rule]).findings
    return [one for one in found if one.fix is not None and (one.fix.set or one.fix.env)]


@dataclass(frozen=True)
class Form:
    """A case written in one form."""

    name: str
    text: str
    group: str | None = None

    def request(self, case: Case, text: str, folder: Path) -> Request:
        catalogue = load(case.engine)
        if self.name.startswith("recipe"):
            recipe = validate(composed(text, self.name, folder / self.name, (folder,)))
            spelling = render_args(recipe.deployment.args, recipe.deployment.engine.env, catalogue)
            return from_recipe(recipe, spelling, catalogue)
        (invocation,) = read_text(text, self.name).invocations
        return from_invocation(invocation, invocation.name or recipe_name(self.name), catalogue)

    def fixed(self, case: Case, finding: Finding, folder: Path) -> str:
        assert finding.fix is not None
        catalogue = load(case.engine)
        if self.name.startswith("recipe"):
            path = folder / self.name
            return fixed_recipe(self.text, self.name, path, finding.fix, catalogue, (folder,))
        return fixed_commands(
            self.text, self.name, None, finding.deployments, finding.fix, catalogue
        )


def written(case: Case) -> Iterator[Form]:
    catalogue = load(case.engine)
    spelled = render_args(case.args, case.env, catalogue)
    words = [word for one in spelled.arguments for word in one.tokens]
    if not spelled.problems:
        for name, form in forms.COMMANDS.items():
            yield Form(name, form(words, case.env))
        if not case.env:
            args = {}
            for one in spelled.arguments:
                flag = one.flag.removeprefix("--")
                args[flag] = case.args[one.recipe_name]
            yield Form("config.yaml", forms.config(args))
    yield Form("recipe.yaml", forms.recipe(case.args, case.env, case.engine))
    text, group = forms.recipe_of_groups(case.args, case.env, case.engine)
    yield Form("recipe-groups.yaml", text, group)


LEFT = {
    (code, "config.yaml"): "a --config file sets no environment variables"
    for code in ("SPL271", "SPL709", "SPA-2026-0047")
}
"""Rules whose fix cannot be applied in a form, and why."""


def campaign(case: Case, folder: Path) -> Iterator[tuple[str, str]]:
    """What is left: the form, and why."""
    for form in written(case):
        if form.group is not None:
            (folder / "model").mkdir(exist_ok=True)
            (folder / "model" / "m.yaml").write_text(form.group)
        (folder / form.name).write_text(form.text)
        try:
            request = form.request(case, form.text, folder)
        except (InputError, ValueError) as error:
            yield form.name, f"UNREAD {error}"
            continue
        for finding in findings(case, request):
            assert finding.fix is not None
            try:
                after = form.fixed(case, finding, folder)
            except NotFixableError as error:
                yield form.name, str(error)
                continue
            left = findings(case, form.request(case, after, folder))
            if finding.message in [one.message for one in left]:
                yield form.name, f"STAYS {finding.message}"


def check(case: Case, folder: Path) -> None:
    wrong = [
        (form, why) for form, why in campaign(case, folder) if LEFT.get((case.code, form)) != why
    ]
    assert not wrong


def names(case: Case) -> str:
    return f"{case.code}-{case.name}"


@pytest.mark.thorough
def test_its_fix_in_every_form(tmp_path: Path) -> None:
    each(islice(all_cases(), 0, None, 60), lambda case: check(case, tmp_path), names)


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_fix_of_every_case_in_every_form(path: Path, tmp_path: Path) -> None:
    if found := cases_of(path):
        each(found, lambda case: check(case, tmp_path), names)


@pytest.mark.thorough
def test_the_cases_have_fixes(tmp_path: Path) -> None:
    """So that the tests above ask something."""
    codes = set()
    for case in all_cases():
        form = next(written(case))
        if any(findings(case, form.request(case, form.text, tmp_path))):
            codes.add(case.code)
        if len(codes) >= MANY:
            return
    raise AssertionError(sorted(codes))


MANY = 60
"""Rules that are asked in a form of a script at least."""
