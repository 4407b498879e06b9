"""A repository whose every file tries something."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

LIBRARIES = (
    *("yaml", "typer", "click", "rich", "pydantic", "pydantic_core", "hydra", "omegaconf"),
    *("psutil", "pynvml", "setproctitle", "pathspec", "packaging", "jinja2", "huggingface_hub"),
    *("msgspec", "pygls", "lsprotocol", "torch", "transformers", "numpy", "sglang", "sgl_kernel"),
    *("sitecustomize", "usercustomize", "conftest", "setup", "pip", "ensurepip", "fastapi"),
)
PROGRAMS = (
    *("python", "python3", "pip", "git", "nvidia-smi", "rocm-smi", "sglang", "speclaunch"),
    *("kubectl", "docker", "helm", "kustomize", "make", "bash", "sh", "scancel", "aiperf"),
)
SCRIPT = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM\n"
SECRET = "root-only-7f3a9c51"
"""In the first line of files outside of the repository: no output may quote it."""
COMPOSE = """\
services:
  sglang:
    image: lmsysorg/sglang:v0.5.23
    env_file: {outside}
    extends: {{file: {outside}, service: sglang}}
    command: python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --config {outside}
"""


def make_hostile_repository(root: Path, marker: Path, outside: Path) -> None:
    """Fill `root`, and `configured` next to it with configuration that stops a lint.

    Code that is executed creates `marker`; `outside` is a file with SECRET.
    """
    touch = f"open({str(marker)!r}, 'a').write(__file__ + chr(10))\n"
    shell = f'#!/bin/sh\necho "$0 $*" >> {marker}\n'
    outside.write_text(f"{SECRET}: [\n")
    _modules(root, touch)
    _programs(root, shell)
    _configuration(root, marker, outside)
    _deployments(root, marker, outside)
    _bombs(root)
    _special_files(root, outside)
    _names(root)


def _modules(root: Path, touch: str) -> None:
    for name in (*sorted(sys.stdlib_module_names), *LIBRARIES):
        (root / f"{name}.py").write_text(touch)
    plugin = root / "hydra_plugins" / "evil" / "__init__.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(touch)
    (root / "evil.pth").write_text("import json\n")


def _programs(root: Path, shell: str) -> None:
    places = [*(root / name for name in PROGRAMS if name != "sglang")]
    places += [root / ".venv" / "bin" / name for name in PROGRAMS]
    places += [root / ".git" / "hooks" / name for name in ("pre-commit", "post-checkout")]
    places += [root / "evil.sh.program"]
    for path in places:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shell)
        path.chmod(0o755)
    (root / ".venv" / "pyvenv.cfg").write_text("home = .\nversion = 3.11.7\n")
    (root / ".git" / "config").write_text(
        "[core]\n\tfsmonitor = ./evil.sh.program\n\thooksPath = .git/hooks\n"
        '[filter "evil"]\n\tsmudge = ./evil.sh.program\n'
    )
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


def _configuration(root: Path, marker: Path, outside: Path) -> None:
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (root / "backend.py").write_text(f"open({str(marker)!r}, 'a').write('backend')\n")
    (root / ".python-version").write_text("../../../../.venv\n")
    (root / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/\n")
    (root / ".env").write_text("SPECLAUNCH_HOME=.\nPYTHONSTARTUP=json.py\n")
    (root / ".gitattributes").write_text("* filter=evil\n")
    below = root.parent / "configured" / "extends"
    below.mkdir(parents=True)
    (below / "speclaunch.toml").write_text(f'extend = "{outside}"\nbaseline = "/dev/zero"\n')
    (below / "run.sh").write_text(SCRIPT)


def _deployments(root: Path, marker: Path, outside: Path) -> None:
    (root / "run.sh").write_text(
        f'touch {marker}\n`touch {marker}`\n. ./evil.sh.program\neval "$(touch {marker})"\n{SCRIPT}'
    )
    (root / "evil.yaml").write_text(
        "args:\n  model_path: Qwen/Qwen3-8B\n  speculative_algorithm: NGRAM\n"
        "  host: leak.attacker.example\n"
        "engine:\n  python: ./.venv/bin/python\n"
    )
    (root / "target.yaml").write_text(
        "args: {model_path: Qwen/Qwen3-8B}\n"
        f"hooks: {{_target_: os.system, command: touch {marker}}}\n"
        "hydra:\n  searchpath: [pkg://evil, file:///]\n  run: {dir: .}\n"
    )
    (root / "tags.yaml").write_text(f'args: !!python/object/apply:os.system ["touch {marker}"]\n')
    (root / "compose.yaml").write_text(COMPOSE.format(outside=outside))
    (root / "Makefile").write_text(f"X := $(shell touch {marker})\nrun:\n\t{SCRIPT}")
    (root / "Dockerfile").write_text(f"FROM sglang\nRUN touch {marker}\nCMD {SCRIPT}")
    (root / "job.yaml.j2").write_text(
        "{{ ''.__class__.__mro__[1].__subclasses__() }}\ncommand: " + SCRIPT
    )
    (root / "launch_me.py").write_text(
        f"import os, subprocess\nos.system('touch {marker}')\nsubprocess.run({SCRIPT.split()!r})\n"
    )
    overlay = root / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(
        "resources: [http://127.0.0.1:9/evil.yaml, ../../outside.yaml, pod.yaml]\n"
        "generators: [evil.yaml]\n"
    )
    (overlay / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n"
        f"  - name: a\n    image: lmsysorg/sglang:v0.5.23\n    args: {SCRIPT.split()}\n"
    )
    model = root / "model"
    model.mkdir()
    (model / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "auto_map": {"AutoConfig": "evil.Evil"}, '
        '"hidden_size": 8, "num_hidden_layers": 1e999, "vocab_size": 1' + "0" * 9000 + "}"
    )
    (model / "evil.py").write_text(f"open({str(marker)!r}, 'a').write('model code')\n")
    (root / "engine.log").write_text(
        "\x1b]0;owned\x07\n::error file=x::owned\nAuthorization: Bearer abcdefghijklmnop0123456789\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
    )


def _bombs(root: Path) -> None:
    bombs = root / "bombs"
    bombs.mkdir()
    deep = 50_000
    (bombs / "flow.yaml").write_text(f"args: {'[' * deep}{']' * deep}\n")
    (bombs / "block.yaml").write_text("- " * deep + "x\n")
    (bombs / "keys.yaml").write_text("? " * deep + "x\n")
    (bombs / "alias.yaml").write_text(
        "a0: &a0 [x]\n"
        + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
        + "args: *a11\n"
    )
    (bombs / "deep.ipynb").write_text("[" * deep + "]" * deep)
    (bombs / "deep.sh").write_text(f"{SCRIPT}x={'$(' * deep}{')' * deep}\n{'{ ' * deep}\n")
    (bombs / "deep.py").write_text(f"x = {'(' * deep}{')' * deep}\n# sglang.launch_server\n")
    (bombs / "sums.py").write_text(f"x = {'1+' * deep}1\n# sglang.launch_server\n")
    (bombs / "minus.py").write_text(f"x = {'-' * deep}1\n# sglang.launch_server\n")
    (bombs / "dots.py").write_text(f"x = a{'.a' * deep}\n# sglang.launch_server\n")
    (bombs / "here.sh").write_text(f"cat <<A{'<<B' * deep}\n{SCRIPT}")
    (bombs / "jinja.yaml.j2").write_text("{% if x %}" * deep + SCRIPT)
    (bombs / "deep.md").write_text("> " * deep + "\n```bash\n" + SCRIPT + "```\n")
    (bombs / "long.sh").write_text(f"{SCRIPT.strip()} --model-path {'a' * 100_000}\n")
    toml = root.parent / "configured" / "toml"
    toml.mkdir()
    (toml / "speclaunch.toml").write_text(f"a = {'[' * deep}{']' * deep}\n")
    (toml / "run.sh").write_text(SCRIPT)


def _special_files(root: Path, outside: Path) -> None:
    special = root / "special"
    special.mkdir()
    for suffix in ("yaml", "sh", "py", "log", "json", "ipynb"):
        os.mkfifo(special / f"fifo.{suffix}")
        (special / f"zero.{suffix}").symlink_to("/dev/zero")
        (special / f"outside.{suffix}").symlink_to(outside)
        (special / f"self.{suffix}").symlink_to(f"self.{suffix}")
        with (special / f"sparse.{suffix}").open("wb") as file:
            file.truncate(1 << 40)
    (special / "loop").symlink_to(special)
    (special / "root").symlink_to("/")
    (special / "hidden.yaml").write_text("args: {}\n")
    (special / "hidden.yaml").chmod(stat.S_IWUSR)


def _names(root: Path) -> None:
    names = os.fsencode(root / "names")
    os.mkdir(names)  # noqa: PTH102  bytes
    for name in (
        *(b"a\n::error title=owned::owned.sh", b"\x1b]0;owned\x07\x1b[2J.sh", b"\xff\xfe.sh"),
        *(b"--fix.sh", b"-.sh", b"\xe2\x80\xaegnp.sh", b"[red]markup[", b"a b\t.sh", b"%0A.sh"),
        *(b"##vso[task.complete]x.sh", b"$(touch x).sh", b"a'b\"c.sh", b"n" * 250 + b".sh"),
    ):
        with open(os.path.join(names, name), "wb") as file:  # noqa: PTH118, PTH123
            file.write(b"python -m sglang.launch_server --model-path m --mem-fracton-static 3\n")
