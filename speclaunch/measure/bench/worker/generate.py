"""SGLang's own load generator, run many times in one process of the engine's interpreter.

The first input line is `{"trusted": …, "tokenizer": …}`. Each further line is JSON for one run:
`{"number": 1, "words": ["--base-url", …], "key": …}`. `words` are the arguments of `python -m
sglang.bench_serving`; `key` is the server's API key, "" for none. The answer is one line with the
results of each request. A line with `{"lengthen": {"file": …, "tokens": …}}` lengthens a file's
prompts to that many tokens.

The generator's requests, timing and concurrency are unchanged. Its output has no acceptance per
request, so this module records:

- the result of a request function (0.5.23 benchmark/serving.py:105 `RequestFuncOutput`), and the
  number of requested tokens;
- the last `meta_info` of the request, as the generator parses it (`json` or `orjson`).

The generator is `sglang.benchmark.serving` in 0.5.18 and 0.5.23, and `sglang.bench_serving` in
0.5.9 and 0.5.3. It starts in `cli_main` (0.5.23) or under `if __name__ == "__main__"` (the others).
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

MODULES = ("sglang.benchmark.serving", "sglang.bench_serving")
PARSERS = ("orjson", "json")
"""Modules that the generator may use to parse answers."""
KEYS = ("OPENAI_API_KEY", "API_KEY")
"""Environment variables with the server's API key (0.5.23 benchmark/serving.py:131)."""
_TRIES = 8
_MOST_BYTES, _MOST_SECONDS = 16 << 20, 60.0
"""Byte and time limits of responses to requests that are not measured, such as /server_info."""
_FIELDS = (
    "completion_tokens",
    "prompt_tokens",
    "cached_tokens",
    "finish_reason",
    "id",
    "e2e_latency",
)


def main() -> None:
    """Import the generator, then run it once per line until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # redirect what the generator prints
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    hello = json.loads(lines.readline())
    if not hello["trusted"]:
        refuse_remote_code()
    generator = RequestGenerator(loaded())
    tokenizer = tokenizer_of(hello.get("tokenizer"))
    template = getattr(tokenizer, "chat_template", None) is not None
    say(out, hello, {"generator": generator.module.__name__, "template": template})
    for line in lines:
        question = json.loads(line)
        try:
            if "lengthen" in question:
                answer = lengthened(tokenizer, **question["lengthen"])
            else:
                answer = generator.run(question["words"], question.get("key"))
        except BaseException as error:  # report a failed run as an answer
            message = "".join(traceback.format_exception_only(type(error), error)).strip()
            answer = {"error": message or type(error).__name__}
        say(out, question, answer)


def say(out: TextIO, question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Write the answer as a line with the number of its question."""
    print(json.dumps({"number": question.get("number"), **answer}), file=out, flush=True)


def tokenizer_of(name: object) -> Any:
    """Return a model's tokenizer, loaded without model code; None if loading fails."""
    if not isinstance(name, str):
        return None
    library: Any = importlib.import_module("transformers")
    try:
        return library.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, ImportError):
        return None


def refuse_remote_code() -> None:
    """Make the generator load tokenizers as data only.

    The generator itself would run the model's code (0.5.23 benchmark/utils.py `get_tokenizer`,
    `trust_remote_code=True`).
    """
    library: Any = importlib.import_module("transformers")
    load = library.AutoTokenizer.from_pretrained

    def from_pretrained(*args: Any, **options: Any) -> Any:
        return load(*args, **{**options, "trust_remote_code": False})

    library.AutoTokenizer.from_pretrained = from_pretrained


def lengthened(tokenizer: Any, file: str, tokens: int) -> dict[str, Any]:
    """Rewrite a JSON file's prompts to `tokens` tokens; return each prompt's token count.

    A short prompt is prefixed with the file's other prompts. Prompts that are too long lose their
    beginning. Each prompt starts at a different offset in the same text, so no two share a prefix.
    """
    if tokenizer is None:
        raise RuntimeError("cannot lengthen prompts: the model's tokenizer cannot be loaded")
    path = Path(file)
    ids = [
        tokenizer.encode(text + "\n\n", add_special_tokens=False)
        for text in json.loads(path.read_text(encoding="utf-8"))
    ]
    found = [_behind(tokenizer, ids, index, tokens) for index in range(len(ids))]
    path.write_text(json.dumps(found), encoding="utf-8")
    return {"tokens": [_size(tokenizer, text) for text in found]}


def _behind(tokenizer: Any, ids: list[list[int]], index: int, tokens: int) -> str:
    parts = list(ids[index])
    step = 1
    while len(parts) < tokens:
        parts = [*ids[index - step % len(ids)], *parts]
        step += 1
    size, best = tokens, ""
    for _ in range(_TRIES):  # decoded text may tokenize differently
        text = tokenizer.decode(parts[-size:]).rstrip()
        more = _size(tokenizer, text) - tokens
        if more <= 0:
            best = max(best, text, key=len)
        if more == 0:
            break
        size = min(max(1, size - more), len(parts))
    return best or text


def _size(tokenizer: Any, text: str) -> int:
    """Return the token count of a prompt as the generator computes it.

    Source: 0.5.23 benchmark/datasets/sharegpt.py.
    """
    if tokenizer.chat_template is not None:
        turn = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
        if tokenizer.bos_token:
            text = text.replace(tokenizer.bos_token, "")
    return len(tokenizer.encode(text))


def loaded() -> types.ModuleType:
    """Return the generator module of this release.

    If the unused package `datasets` is missing, a stub replaces it.
    """
    if importlib.util.find_spec("datasets") is None:
        missing = types.ModuleType("datasets")
        missing.load_dataset = _no_datasets  # type: ignore[attr-defined]
        sys.modules["datasets"] = missing
    for name in MODULES:
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(name) is not None:
                return importlib.import_module(name)
    raise SystemExit("this engine has no load generator: sglang.bench_serving is missing")


def _no_datasets(*_: object, **__: object) -> None:
    raise RuntimeError("the package `datasets` is not installed in the engine's environment")


class RequestGenerator:
    """The generator's module, instrumented to record requests."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self._meta: dict[asyncio.Task[Any], dict[str, Any]] = {}
        self._outputs: list[Any] = []
        self._seconds = 0.0
        for name in PARSERS:
            if isinstance(getattr(module, name, None), types.ModuleType):
                setattr(module, name, _ObservedParser(getattr(module, name), self._record_meta))
        if isinstance(getattr(module, "requests", None), types.ModuleType):
            module.requests = _Bounded(module.requests)  # type: ignore[attr-defined]
        functions = module.ASYNC_REQUEST_FUNCS
        for name, function in list(functions.items()):
            functions[name] = self._noted(function)
        module.calculate_metrics = self._summed(module.calculate_metrics)  # type: ignore[attr-defined]

    def run(self, words: list[str], key: str | None = None) -> dict[str, Any]:
        """Run the generator once; return its requests and its duration in seconds."""
        if key is not None:
            for name in KEYS:  # remove keys of other servers
                os.environ.pop(name, None)
            if key:
                os.environ[KEYS[0]] = key
        self._meta.clear()
        self._outputs, self._seconds = [], 0.0
        sys.argv = ["bench_serving", *words, "--output-file", os.devnull]
        self._main()
        return {"seconds": self._seconds, "requests": [_plain(output) for output in self._outputs]}

    def _main(self) -> None:
        entry = getattr(self.module, "cli_main", None)
        if entry is not None:
            entry()
            return
        tree = ast.parse(inspect.getsource(self.module))
        body = [
            statement
            for block in tree.body
            if isinstance(block, ast.If) and "__main__" in ast.unparse(block.test)
            for statement in block.body
        ]
        file = str(self.module.__file__)
        exec(compile(ast.Module(body, []), file, "exec"), vars(self.module))  # noqa: S102  its own

    def _noted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def request(request_func_input: Any, pbar: Any = None) -> Any:
            output = await function(request_func_input=request_func_input, pbar=pbar)
            task = asyncio.current_task()
            output.requested = getattr(request_func_input, "output_len", None)
            output.meta = self._meta.pop(task, {}) if task is not None else {}
            return output

        return request

    def _summed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        names = list(inspect.signature(function).parameters)

        def calculate(*args: Any, **kwargs: Any) -> Any:
            arguments = {**dict(zip(names, args, strict=False)), **kwargs}
            self._outputs, self._seconds = list(arguments["outputs"]), float(arguments["dur_s"])
            return function(*args, **kwargs)

        return calculate

    def _record_meta(self, parsed: object) -> None:
        meta = parsed.get("meta_info") if isinstance(parsed, dict) else None
        if not isinstance(meta, dict):
            return
        with contextlib.suppress(RuntimeError):  # not in a request
            task = asyncio.current_task()
            if task is not None:
                self._meta[task] = meta


class _ObservedParser:
    """A JSON parser that reports each parsed value."""

    def __init__(self, module: types.ModuleType, tell: Callable[[object], None]) -> None:
        self._module, self._tell = module, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def loads(self, *args: Any, **kwargs: Any) -> Any:
        found = self._module.loads(*args, **kwargs)
        self._tell(found)
        return found


class _Bounded:
    """The `requests` module with limits on response size and duration."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return self._bounded(found) if name in ("get", "post") else found

    def _bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def request(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("stream"):  # the caller reads it
                return function(*args, **kwargs)
            until = time.monotonic() + _MOST_SECONDS
            timed = {"timeout": _MOST_SECONDS, **kwargs}
            response = function(*args, **timed, stream=True)
            content = bytearray()
            for chunk in response.iter_content(1 << 16):
                content += chunk
                if len(content) > _MOST_BYTES or time.monotonic() > until:
                    response.close()
                    raise ValueError(
                        f"the server sent more than {_MOST_BYTES >> 20} MiB or took longer than "
                        f"{_MOST_SECONDS:.0f} s"
                    )
            response._content = bytes(content)
            return response

        return request


def _plain(output: Any) -> dict[str, Any]:
    """Return a request's output as plain data, with times in seconds."""
    meta = getattr(output, "meta", {})
    fields = {name: meta[name] for name in meta if name in _FIELDS or name.startswith("spec_")}
    return {
        "success": bool(output.success),
        "error": str(output.error)[-2000:],
        "latency": float(output.latency),
        "ttft": float(output.ttft),
        "asked": getattr(output, "requested", None),
        "characters": len(output.generated_text),
        "meta": fields,
    }


if __name__ == "__main__":
    main()
