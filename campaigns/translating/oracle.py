"""What one SGLang release's own argparse makes of command lines: the judge of translations.

Run by an interpreter that has msgspec, PyYAML and packaging (the CPU engine's, for one), with the
unpacked wheel of the release first on PYTHONPATH; nothing of speclaunch is imported. Each line of
standard input is `{"id", "entry", "words", "files"}`; each line of standard output is `{"id",
"error", "values", "given"}`: the namespace as `prepare_server_args` has it before it resolves
anything, and of it what the words themselves gave.

The words pass through the release's own code: `prepare_server_args` with its merging of a
`--config` file, and before it what `sglang serve` does to the words (cli/serve.py). The words of a
slime script go to a parser that is built as slime builds it: every option of `add_cli_args` with
the prefix `--sglang-`.

A parser needs no torch. Packages that are heavy are replaced by stand-ins that answer to
everything, and a module of SGLang that stumbles over one of these keeps what it had defined until
then; `server_args` itself and its own parts must not stumble. With `--whole` nothing is replaced:
an engine that is installed is asked as it is. The first line of standard output tells the release,
its flags with their destinations, and which modules stumbled.
"""

from __future__ import annotations

import abc
import argparse
import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HEAVY = frozenset(
    {
        "IPython",
        "PIL",
        "aiohttp",
        "av",
        "compressed_tensors",
        "cv2",
        "datasets",
        "decord",
        "fastapi",
        "flashinfer",
        "gguf",
        "huggingface_hub",
        "librosa",
        "llguidance",
        "modelscope",
        "openai",
        "openai_harmony",
        "outlines",
        "pandas",
        "partial_json_parser",
        "prometheus_client",
        "pydantic",
        "pydantic_core",
        "requests",
        "scipy",
        "sgl_kernel",
        "soundfile",
        "starlette",
        "sympy",
        "tokenizers",
        "torch",
        "torchao",
        "torchaudio",
        "torchvision",
        "transformers",
        "triton",
        "uvicorn",
        "vllm",
        "xgrammar",
        "zmq",
    }
)
"""What a parser does not need."""

ABSENT = frozenset({"npu", "xpu", "hpu", "mps", "musa"})
"""Devices that torch must not seem to have."""

ESSENTIAL = ("sglang.srt.server_args", "sglang.srt.arg_groups")
"""Modules that must be imported whole."""

PREFIX = "--sglang-"

SLIMES_OWN = (
    "--hf-checkpoint",
    "--rollout-num-gpus-per-engine",
    "--rollout-num-gpus",
    "--sglang-server-concurrency",
    "--sglang-router-ip",
    "--sglang-router-port",
)
"""Options of slime itself that the texts use."""


class _Answers(abc.ABCMeta):
    """The class of the stand-ins answers as its instances do."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __or__(cls, _: Any) -> Any:
        return cls

    def __ror__(cls, _: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __len__(cls) -> int:
        return 0


class Anything(metaclass=_Answers):
    """Stands in for whatever a heavy package has: false, empty, callable, a base class."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    @classmethod
    def register(cls, *_: Any, **__: Any) -> None:
        """As `AutoConfig.register`; the metaclass has another."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As a decorator, a class or a function would."""
        decorates = len(args) == 1 and callable(args[0]) and not kwargs
        return args[0] if decorates else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, _: Any) -> Any:
        return Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __int__(self) -> int:
        return 0

    __index__ = __int__

    def __float__(self) -> float:
        return 0.0

    def __fspath__(self) -> str:
        return "/nonexistent"

    def __lt__(self, _: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __add__(self, _: object) -> Any:
        return self

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __add__
    __mod__ = __pow__ = __or__ = __add__


class _StandIn(types.ModuleType):
    """A package of which everything may be asked."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "2.9.0"
        if name.startswith("__") or name in ABSENT:
            raise AttributeError(name)
        return Anything


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the heavy packages, and, asked last, whatever SGLang wants and nobody has."""

    def __init__(self, *, last: bool) -> None:
        self.last = last

    def find_spec(self, name: str, *_: Any) -> Any:
        root = name.partition(".")[0]
        wanted = root in HEAVY
        if self.last and root != "sglang" and root not in sys.stdlib_module_names:
            frame = sys._getframe(1)
            while frame.f_back and "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            wanted = f"{os.sep}sglang{os.sep}" in frame.f_code.co_filename
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if wanted else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Forgiving(importlib.abc.Loader):
    """A module of SGLang that stumbles keeps what it has, and answers to everything else."""

    def __init__(self, inner: Any, stumbled: dict[str, str]) -> None:
        self.inner = inner
        self.stumbled = stumbled

    def create_module(self, spec: Any) -> Any:
        return self.inner.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        try:
            self.inner.exec_module(module)
        except Exception as error:
            if module.__name__.startswith(ESSENTIAL):
                raise
            self.stumbled[module.__name__] = f"{type(error).__name__}: {error}"[:160]
            module.__dict__["__getattr__"] = _rest


def _rest(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything


class _Own(importlib.abc.MetaPathFinder):
    """Finds SGLang's own modules, as ever, with a loader that forgives."""

    def __init__(self) -> None:
        self.stumbled: dict[str, str] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] != "sglang":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Forgiving(spec.loader, self.stumbled)
        return spec


class _Captured(BaseException):
    """Carries the namespace out of `prepare_server_args`."""

    def __init__(self, values: dict[str, Any], given: dict[str, Any]) -> None:
        super().__init__()
        self.values = values
        self.given = given


class Release:
    """The parser of the release that is on the path."""

    def __init__(self) -> None:
        self.server_args = importlib.import_module("sglang.srt.server_args")
        self._parse_args = argparse.ArgumentParser.parse_args
        found = importlib.util.find_spec("sglang")
        self.root = Path(next(iter(found.submodule_search_locations or [""]))) if found else Path()
        self.of_serve = self._words_functions()

    def _words_functions(self) -> dict[str, Any] | None:
        """What cli/serve.py does to the words; None for a release without `sglang serve`."""
        path = self.root / "cli" / "serve.py"
        if not path.is_file():
            return None
        wanted = ("_extract_model_type_override", "_normalize_positional_model_path")
        tree = ast.parse(path.read_text())
        tree.body = [
            node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted
        ]
        namespace: dict[str, Any] = {}
        exec(compile(tree, str(path), "exec"), namespace)  # noqa: S102 - of the wheel
        return {name: namespace[name] for name in wanted if name in namespace}

    def flags(self) -> dict[str, str]:
        """Every option string of the parser, with where it is stored."""
        parser = argparse.ArgumentParser()
        self.server_args.ServerArgs.add_cli_args(parser)
        return {flag: action.dest for action in parser._actions for flag in action.option_strings}

    def parse(self, entry: str, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The namespace, and what of it the words gave. SystemExit where the release refuses."""
        if entry == "slime":
            return self._slime(words)
        words = list(words)
        if entry == "serve":
            words = self._of_serve(words)
        release = self.server_args

        def capture(parser: argparse.ArgumentParser, argv: Any = None, _: Any = None) -> Any:
            raise _Captured(*self._both(parser, argv))

        argparse.ArgumentParser.parse_args = capture  # type: ignore[assignment,method-assign]
        try:
            release.prepare_server_args(words)
        except _Captured as captured:
            return captured.values, captured.given
        finally:
            argparse.ArgumentParser.parse_args = self._parse_args  # type: ignore[method-assign]
        raise RuntimeError("prepare_server_args did not parse")

    def _of_serve(self, words: list[str]) -> list[str]:
        if self.of_serve is None:
            raise SystemExit("this release has no `sglang serve`")
        extract = self.of_serve.get("_extract_model_type_override")
        if extract:
            kind, words = extract(words)
            if kind not in ("auto", "llm"):
                raise SystemExit(f"--model-type {kind} is no language model server")
        normalize = self.of_serve.get("_normalize_positional_model_path")
        if normalize:
            words, _ = normalize(words)
        return words

    def _both(
        self, parser: argparse.ArgumentParser, words: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parse twice: as the release does, and then without any default."""
        values = vars(self._parse_args(parser, list(words)))
        for action in parser._actions:
            action.default = argparse.SUPPRESS
            action.required = False
        parser._defaults = {}
        given = vars(self._parse_args(parser, list(words)))
        return values, given

    def _slime(self, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """As slime/backends/sglang_utils/arguments.py: every flag has the prefix."""
        parser = argparse.ArgumentParser()
        for flag in SLIMES_OWN:
            parser.add_argument(flag)
        add = parser.add_argument

        def prefixed(*names: str, **options: Any) -> Any:
            if names == ("--help",) or options.get("action") == "help":
                return None
            options["dest"] = options.get("dest") or names[0].lstrip("-").replace("-", "_")
            options["required"] = False
            return add(*(n.replace("--", PREFIX, 1) for n in names if n[:2] == "--"), **options)

        parser.add_argument = prefixed  # type: ignore[method-assign,assignment]
        self.server_args.ServerArgs.add_cli_args(parser)
        parser.add_argument = add  # type: ignore[method-assign]
        _, rest = parser.parse_known_args(list(words))
        if unknown := [word for word in rest if word.startswith(PREFIX)]:
            raise SystemExit(f"unrecognized arguments: {' '.join(unknown)}")
        return self._both(parser, _without(words, rest))


def _without(words: Sequence[str], others: Sequence[str]) -> list[str]:
    """The words that a parser took; the rest are options of slime's trainer, in their order."""
    left, kept = list(others), []
    for word in words:
        if left and word == left[0]:
            left.pop(0)
        else:
            kept.append(word)
    return kept


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON has them."""
    return {n: json.loads(json.dumps(v, default=repr)) for n, v in sorted(values.items())}


def answer(release: Release, case: dict[str, Any]) -> dict[str, Any]:
    """What the release says to one command line."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        for name, text in case.get("files", {}).items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                values, given = release.parse(case["entry"], case["words"])
        except SystemExit as stop:
            lines = [*said.getvalue().strip().splitlines(), f"error: {stop.code}"]
            told = lines[-1:] if isinstance(stop.code, str) else lines[:-1] or lines
            last = next((line for line in reversed(told) if "error:" in line), told[-1])
            return {"id": case["id"], "error": last[:400]}  # warnings stand around it
        except Exception as error:
            return {"id": case["id"], "error": f"{type(error).__name__}: {error}"[:400]}
    return {"id": case["id"], "error": None, "values": plain(values), "given": plain(given)}


def main() -> None:
    """Answer every line."""
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"  # the platform that asks nothing of torch
    out, sys.stdout = sys.stdout, sys.stderr
    own = _Own()
    if "--whole" not in sys.argv:
        sys.meta_path[:0] = [own, _StandIns(last=False)]
        sys.meta_path.append(_StandIns(last=True))
    release = Release()
    version = importlib.import_module("sglang.version").__version__
    head = {"sglang": version, "flags": release.flags(), "stumbled": own.stumbled}
    print(json.dumps(head), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(release, json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
