"""What else a recipe names on this machine."""

from __future__ import annotations

from msgspec.structs import replace

from speclaunch.engine.facts.missing_paths import MissingPath
from speclaunch.serving.doctor.checks.models import check_paths
from speclaunch.serving.doctor.facts import CheckState, LocalModel
from tests.support.serving.doctor.helpers import HEALTHY


def missing(name: str, path: str) -> MissingPath:
    return MissingPath(name, name, path, "does not exist on this machine", "correct the path")


def test_a_template_that_is_not_there_stops_the_launch() -> None:
    found = replace(HEALTHY, missing=(missing("chat_template", "/nope/chat.jinja"),))
    (line,) = check_paths(found)
    assert line.state is CheckState.ERROR
    assert line.found == "chat_template: /nope/chat.jinja does not exist on this machine"


def test_a_checkpoint_is_told_once() -> None:
    gone = (missing("model_path", "/nope/model"), missing("tokenizer_path", "/nope/model"))
    model = LocalModel("target", "/nope/model", is_path=True)
    (line,) = check_paths(replace(HEALTHY, missing=gone, models=(model,)))
    assert line.found.startswith("tokenizer_path")
