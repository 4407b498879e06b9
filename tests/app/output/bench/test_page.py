"""The page of a certificate: whole, safe, the same for the same one, whatever stands in it."""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from speclaunch.app.output import bench_page as charts
from speclaunch.app.output.bench import certificate_markdown
from speclaunch.app.output.bench_page import certificate_page
from speclaunch.app.output.plan_page import TEMPLATES
from speclaunch.measure.bench.measurement import Bound, Objection
from speclaunch.measure.bench.schema import CertificateDocument
from tests.app.output.bench.strategies import certificates
from tests.app.output.plan.test_page import contrast, read
from tests.support.app.output.bench.made import MEMORY, OURS, made
from tests.support.loops import rows

REFUSED = (Objection("errors", "R: round 2: <b>3</b> requests failed"),)


def pages() -> dict[str, str]:
    return {
        "good": certificate_page(replace(made(), memory=MEMORY)),
        "one": certificate_page(made(workloads=("code",), concurrencies=(1,))),
        "refused": certificate_page(made(objections=REFUSED)),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["good", "one", "refused"])
def test_a_page_needs_nothing_from_elsewhere_and_is_accessible(name: str) -> None:
    require_sound(pages()[name])


def require_sound(page: str) -> None:
    found = read(page)
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"}
    for tag, attributes in found.tags:
        assert not any(key.startswith("on") for key in attributes), tag
        assert not {"src", "href", "xlink:href"} & attributes.keys(), tag
        if tag == "svg":
            hidden = attributes.get("aria-hidden") == "true"
            assert hidden or (attributes.get("role") == "img" and attributes.get("aria-label"))
        if tag == "table":
            assert attributes.get("aria-label")
    assert "@import" not in page and "default-src 'none'" in page
    assert not re.search(r"\b(nan|inf)\b", " ".join(numbers(page)), re.I)
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def numbers(page: str) -> list[str]:
    """Values of attributes that say where something is."""
    places = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "points", "d"}
    return [
        value or "" for _, attributes in read(page).tags for key, value in attributes.items()
        if key in places
    ]  # fmt: skip


@pytest.mark.thorough
def test_what_a_page_says() -> None:
    found = made()
    said = read(pages()["good"]).text
    for cell in found.cells:
        claim = re.search(rf"{cell.workload}: {cell.claim} at ([\d, ]+)", said)
        assert claim is not None and str(cell.concurrency) in claim[1].split(", ")
        ratio = cell.speed_up
        assert f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" in said
    for word in (found.sentence, "301,244", "332,100", "--speculative-algorithm EAGLE3",
                 "95% confidence", "6 pairs of rounds", "SGLang 0.5.23 on h100"):  # fmt: skip
        assert word in said, word
    refused = read(pages()["refused"]).text
    assert "3</b> requests failed" in refused and "does not count" in refused
    assert "pays" not in refused


@pytest.mark.thorough
def test_bounds_and_acceptance_that_is_made_up_are_told() -> None:
    found = made(within=(Bound("e2el", 900.0),))
    assert found.cells[0].goodput is not None
    for said in (read(certificate_page(found)).text, certificate_markdown(found)):
        assert "goodput" in said.lower() and "/s" in said
    assert "within e2el 900 ms" in read(certificate_page(found)).text
    made_up = made(simulated={OURS: "SGLANG_SIMULATE_ACC_LEN"})
    assert {cell.claim for cell in made_up.cells} <= {"not shown", "does not pay"}
    for said in (read(certificate_page(made_up)).text, certificate_markdown(made_up)):
        assert "simulates acceptance" in said.replace("\\", "")


@pytest.mark.thorough
def test_a_page_is_the_same_for_the_same_certificate() -> None:
    found = made()
    again = msgspec.json.decode(msgspec.json.encode(found), type=CertificateDocument)
    assert certificate_page(found) == certificate_page(again)


def test_secrets_are_in_no_form() -> None:
    objection = Objection("errors", "R: failed: --api-key sk-secret-1234567890 was refused")
    for found in (made(objections=(objection,)), made()):
        page = certificate_page(found)
        assert "sk-secret-1234567890" not in page + msgspec.json.encode(found).decode()
        assert "--api-key" in page


def test_colours_of_the_pictures_can_be_seen() -> None:
    css = (TEMPLATES / "certificate.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.S)
    assert len(blocks) == 2
    for block, ground in zip(blocks, ("#ffffff", "#0d1117"), strict=True):
        colors = re.findall(r"--\w+: (#[0-9a-f]{6})", block)
        assert len(colors) >= 8
        assert all(contrast(color, ground) >= 3 for color in colors)


def test_points_stand_where_their_numbers_are() -> None:
    found = made()
    scale = charts.ratio_scale(found.cells)
    plot = charts.ratio_plot([c for c in found.cells if c.workload == "code"], scale)
    assert [point.label for point in plot.points] == ["1", "8", "32"]
    downs = [point.ratio for point in plot.points]
    assert downs == sorted(downs)  # the speed-up falls
    for point in plot.points:
        assert 0 <= point.high <= point.ratio <= point.low <= charts.HEIGHT
        assert (point.claim == "pays") == (point.low < plot.even)
        assert (point.claim == "does not pay") == (point.high > plot.even)


@given(st.floats(1e-3, 1), st.floats(1, 1e3))
def test_a_scale_of_ratios_can_be_read(low: float, high: float) -> None:
    low, high = low / 1.06, high * 1.06
    ticks = charts.ratio_ticks(low, high)
    assert 1.0 in ticks and len(ticks) <= 9
    assert all(low <= one <= high for one in ticks)
    assert len({f"{one:g}" for one in ticks}) == len(ticks)


@given(st.floats(1e-9, 1e12))
def test_a_scale_of_times_can_be_read(most: float) -> None:
    ticks = charts.time_ticks(most)
    assert 3 <= len(ticks) <= 6 and ticks[0].at == 0
    assert all(0 <= tick.at <= 100.001 for tick in ticks)


@rows(
    "value, said",
    [(0, "0"), (0.9999, "1 s"), (0.0031, "3.1 ms"), (0.33049, "330 ms"), (1.3211, "1.32 s"),
     (99.99, "100 s"), (4321, "4,321 s"), (0.00000412, "4.12 us"), (0.9996, "1 s")],
)  # fmt: skip
def test_times_in_words(value: float, said: str) -> None:
    assert charts.seconds(value) == said


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(certificates())
def test_any_certificate_has_a_sound_page(found: CertificateDocument) -> None:
    page = certificate_page(found)
    require_sound(page)
    said = " ".join(read(page).text.split())
    assert " ".join(_shown(found.candidate).split()) in said
    for one in found.objections:
        assert " ".join(_shown(one.message).split()) in said
    assert certificate_page(found) == page


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def test_the_name_of_a_side_is_data() -> None:
    evil = "</title><script>alert(1)</script>"
    page = certificate_page(made(names=(evil, "plain")))
    require_sound(page)
    assert "alert(1)" in read(page).text and OURS not in read(page).text.split("Commands")[0]
