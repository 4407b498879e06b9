"""Lints in processes of their own, which start with nothing remembered but what is on disk."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import speclaunch.checks.lint.collect
import speclaunch.checks.lint.run
import speclaunch.deployments.recipe.hydra_compose
import speclaunch.deployments.recipe.load  # noqa: F401  what each of the processes would import
from speclaunch.app.output.console import err_lines
from speclaunch.app.output.problems import show_problems
from speclaunch.app.verbs.app import plain_options
from speclaunch.app.verbs.lint import lint as verb
from speclaunch.app.verbs.start_options import LintOptions
from speclaunch.checks.rules.registry import import_checks
from speclaunch.core.errors import SpeclaunchError

ENGINE = "0.5.23"
SERVER = "python3 -m sglang.launch_server --model-path {model} --port 31000 {more}\n"
GROUP = "# @package args\nspeculative_algorithm: {algorithm}\nspeculative_num_draft_tokens: 8\n"
RECIPE = """name: {name}
defaults: [base, speculation: mine, _self_]
engine: {{version: "{engine}"}}
args:
  model_path: {model}
  tp_size: {tp}
"""


def config(layers: int = 2, vocabulary: int = 128256) -> str:
    return json.dumps(
        {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 4096,
            "num_hidden_layers": layers,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": vocabulary,
            "max_position_embeddings": 8192,
            "torch_dtype": "bfloat16",
        }
    )


ALL = ("--config-dir", "groups", ".")
_PROGRESS = re.compile(r"^\d+ files? checked in .*\n", re.M)
"""How long it takes is no matter of what is found."""
import_checks()


@dataclass(frozen=True, slots=True)
class Said:
    """What a lint printed, and its exit code."""

    code: int
    out: str
    err: str


def forked(run: Callable[[], int], into: Path) -> Said:
    """Run something in a copy of this process, whose output goes into files."""
    into.mkdir(exist_ok=True)
    out, err = into / "out", into / "err"
    child = os.fork()
    if child == 0:
        code = 70
        try:
            with out.open("w") as sys.stdout, err.open("w") as sys.stderr:
                try:
                    code = run()
                except SpeclaunchError as error:
                    show_problems(err_lines(), error.problems)
                    code = int(error.exit_code)
                except BaseException:
                    traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    told = _PROGRESS.sub("", err.read_text())
    return Said(os.waitstatus_to_exitcode(status), out.read_text(), told)


def options(*given: str) -> LintOptions:
    found = plain_options(LintOptions, given)
    assert found is not None
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to lint in, and a home of its own."""

    folder: Path
    home: Path
    into: Path

    def lint(
        self, *given: str, env: Mapping[str, str] = {}, before: Callable[[], None] | None = None
    ) -> Said:
        """`speclaunch lint`, called in the folder."""

        def run() -> int:
            os.chdir(self.folder)
            for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
                os.environ.pop(name, None)
            os.environ.pop("SPECLAUNCH_NO_CACHE", None)
            own = {"SPECLAUNCH_HOME": str(self.home), "HOME": str(self.home), "PATH": "/nowhere"}
            os.environ.update({**own, **env})
            if before is not None:
                before()
            return int(verb(options(*given)))

        return forked(run, self.into)

    def fresh(self, *given: str, env: Mapping[str, str] = {}) -> Said:
        """The same without any cache."""
        return self.lint("--no-cache", *given, env=env)

    @property
    def entries(self) -> list[Path]:
        """The files of the cache."""
        return sorted(path for path in (self.home / "lint").glob("*/*") if path.is_file())

    def write(self, name: str, text: str) -> Path:
        """A file in the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path
