"""Translations to and from the engine that is installed, judged by its own argparse.

campaigns/translations.py runs the whole: every release's own parser, two thousand texts. Here the words
of another release are read by a parser that is built from the catalogue.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from campaigns.translating.campaign import Campaign, shown
from campaigns.translating.meaning import Reader
from campaigns.translating.releases import Catalogued, Installed, Releases
from campaigns.translating.verbs import load_verbs
from speclaunch.engine.facts.cpu_engine import CpuEngine
from tests.support.bash import sandbox
from tests.support.corpora.texts import generate

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash"),
]

VERSION = "0.5.23"
COUNT = 40
IN_A_FILE = ("engine", "with-config")


@pytest.fixture(scope="module")
def engine(cpu_engine: CpuEngine) -> Iterator[Releases]:
    found = Installed(cpu_engine.python, {**os.environ, **cpu_engine.environment(os.environ)})
    yield found
    found.close()


def test_translations_mean_the_same_to_the_engine(engine: Releases) -> None:
    texts = generate(1600, versions=[VERSION])
    # The file of a `--config` is read by an engine only, and there is one.
    texts = [t for t in texts if t.kind not in IN_A_FILE or t.version == VERSION][:COUNT]
    assert len(texts) == COUNT
    load_verbs()
    found, compared = [], 0
    with sandbox() as box:
        campaign = Campaign(Reader(box, Catalogued({VERSION: engine})))
        for text in texts:
            outcome = campaign.judge(text)
            compared += sum(n for what, n in outcome.counts.items() if what.endswith("compared"))
            found += [line for defect in outcome.defects for line in shown(defect)]
    assert not found, "\n".join(found)
    assert compared > COUNT


def test_the_parser_of_the_catalogue_is_the_engines(engine: Releases) -> None:
    """What judges the other releases here says what the engine says, for its version."""
    ours = Catalogued()
    assert {f: d for f, d in engine.destinations(VERSION).items() if "help" not in d} == {
        f: d for f, d in ours.destinations(VERSION).items() if "help" not in d
    }
    lines = [
        ("launch_server", ["--model-path", "m", "--tp", "2", "--speculative-algo", "EAGLE"]),
        ("launch_server", ["--model-path", "m", "--speculative-draft", "x"]),
        ("launch_server", ["--model-path", "m", "--attention-backend", "none"]),
        ("serve", ["m", "--cuda-graph-bs-decode", "1", "2"]),
        ("slime", ["--rollout-num-gpus-per-engine", "8", "--sglang-ep-size", "8"]),
    ]
    for entry, words in lines:
        said, wanted = ours.ask(VERSION, entry, words), engine.ask(VERSION, entry, words)
        assert (said.error is None) == (wanted.error is None), words
        if wanted.error is not None:
            continue
        assert said.given == wanted.given
        assert {n: said.values[n] for n in said.given} == {n: wanted.values[n] for n in said.given}
