"""An interpreter that has the fake engine for its SGLang: the whole command line, in seconds."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

FAKE = Path(__file__).with_name("fake_engine.py")

_SERVER = """\
import argparse, json, os, runpy, sys

given = {{}}  # what a real engine tells of itself at /server_info: its arguments
for word, value in zip(sys.argv[1:], [*sys.argv[2:], "--"]):
    if word.startswith("--"):
        try:
            typed = True if value.startswith("--") else json.loads(value)
        except ValueError:
            typed = value
        given[word[2:].replace("-", "_")] = typed
os.environ["FAKE_INFO"] = json.dumps(given)
parser = argparse.ArgumentParser()
parser.add_argument("--port")
parser.add_argument("--mem-fraction-static", default="0.5")
parser.add_argument("--nnodes", default="1")
parser.add_argument("--node-rank", default="0")
parser.add_argument("--dist-init-addr", default="")
known, _ = parser.parse_known_args()
os.environ["FAKE_NODES"] = f"{{known.nnodes}} {{known.node_rank}} {{known.dist_init_addr}}"
sys.argv = [{fake!r}, os.environ.get("FAKE_BEHAVIOUR", "engine"), known.port,
            known.mem_fraction_static]
runpy.run_path({fake!r}, run_name="__main__")
"""

RECIPE = """\
# The fake engine, for tests.
defaults:
  - base
  - _self_
hardware:
  name: h100
engine:
  version: "0.5.23"
  python: {python}
  env: {{}}
args:
  model_path: models/none
  speculative_algorithm: NGRAM
  speculative_num_draft_tokens: 8
  mem_fraction_static: 0.5
  port: 31999
launch:
  grace_seconds: 2
"""


def install(directory: Path, version: str = "0.5.23", env: Mapping[str, str] | None = None) -> Path:
    """Make the interpreter below `directory`; its path. `env`: what its engine finds set."""
    package = directory / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(_SERVER.format(fake=str(FAKE)))
    metadata = directory / "site" / f"sglang-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    python = directory / "python"
    python.write_text(
        "#!/bin/sh\n"
        + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (env or {}).items())
        + f"PYTHONPATH={shlex.quote(str(package.parent))} exec "
        f'{shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    return python


def recipe(directory: Path, name: str = "fake") -> Path:
    """A recipe for it."""
    python = install(directory / "engine")
    path = directory / f"{name}.yaml"
    path.write_text(RECIPE.format(python=python))
    return path
