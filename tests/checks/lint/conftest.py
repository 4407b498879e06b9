"""A folder with one of everything that lint reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.lint.linting import ENGINE, GROUP, RECIPE, SERVER, Place, config


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder with one of everything."""
    place = Place(tmp_path / "work", tmp_path / "home", tmp_path / "said")
    write = place.write
    write("groups/speculation/mine.yaml", GROUP.format(algorithm="NGRAM"))
    for number, tp in enumerate((1, 2, 3)):
        name = f"r{number}"
        text = RECIPE.format(name=name, engine=ENGINE, model="org/model", tp=tp)
        write(f"recipes/{name}.yaml", text)
    write("recipes/broken.yaml", "name: x\nargs:\n  model_path: m\n\ttp_size: 1\n")
    write("recipes/odd.yaml", "name: x\nargs: {model_path: m, speculative_eagle_topk: many}\n")
    more = "--speculative-algorithm EAGLE3 --speculative-draft-model-path drafts/one --tp-size 3"
    write("serve.sh", SERVER.format(model="models/own", more=more))
    quiet = "# speclaunch: ignore[SPL102,SPL999] known\n"
    write("quiet.sh", quiet + SERVER.format(model="m", more="--speculative-algorithm NGRAM"))
    write("config.sh", SERVER.format(model="m", more="--config server.yaml"))
    write("server.yaml", "speculative-algorithm: NGRAM\nspeculative-num-draft-tokens: 4\n")
    write("secret.sh", SERVER.format(model="m", more="--api-key sk-4711ffe8a9 --tp-siz 2"))
    write("chart.yaml", "args: {{ .Values.args }}\nimage: sglang\n")
    write("values.yaml", "sglang: {image: x}\n")
    write("start.py", "import os\nos.system('python3 -m sglang.launch_server')\n")
    write("roles/prefill.sh", SERVER.format(model="r1", more="--disaggregation-mode prefill"))
    decode = "--disaggregation-mode decode --speculative-algorithm EAGLE"
    write("roles/decode.sh", SERVER.format(model="r1", more=decode))
    write("models/own/config.json", config())
    return place
