"""What a certificate says of the starts of its engines, in each form."""

from __future__ import annotations

import pytest
from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from speclaunch.app.output.bench import certificate_markdown
from speclaunch.app.output.bench_page import certificate_page
from speclaunch.measure.bench.schema import CertificateDocument
from tests.support.app.output.bench.made import made

ONCE = "the intervals exclude variation between starts"


@pytest.mark.thorough
@pytest.mark.parametrize("form", [certificate_markdown, certificate_page])
def test_one_start_is_said_and_several_are_not_blamed(form: object) -> None:
    assert callable(form)
    assert ONCE in form(made())
    assert ONCE not in form(made(starts=3)) and "3 starts" in form(made(starts=3))


def test_servers_that_ran_already_are_what_is_measured() -> None:
    found = made()
    sides = [replace(one, url="http://127.0.0.1:1") for one in found.sides]
    assert not found.holds_starts
    assert replace(found, sides=tuple(sides)).holds_starts


@pytest.mark.parametrize("starts", [0, 2, 7])
def test_starts_that_no_interval_is_made_of_are_refused(starts: int) -> None:
    said = {**to_builtins(made()), "starts": starts}
    with pytest.raises(ValidationError, match="starts"):
        convert(said, CertificateDocument)
