"""Artifacts of the installed engine: tiny models and the compiled NGRAM corpus."""

import hashlib
import json
from pathlib import Path

from speclaunch.core import locked, make_private, replace_file
from speclaunch.engine import CpuEngine, pip_environment
from speclaunch.serving.cpu_engine.process import AGAIN, InstallError, run_logged

MAKE_MODELS = Path(__file__).with_name("make_models.py")
_PARTS = Path(__file__).with_name("tiny_models")

_CORPUS = (
    "from sglang.srt.speculative.cpp_ngram.ngram_corpus import get_ngram_corpus_cls;"
    " get_ngram_corpus_cls()"
)


def ensure_model(engine: CpuEngine, name: str) -> Path:
    """Return the folder of the tiny model ``name``, writing it on first use.

    Rewrites it when ``make_models.py``, which lists the names, or a module in ``tiny_models`` has
    changed.
    """
    _require_interpreter(engine)
    folder = engine.model(name)
    expected = models_fingerprint()
    if _generator(folder) == expected:
        return folder
    with locked(engine.models / ".lock"):
        if _generator(folder) != expected:
            command: list[str | Path] = [engine.python, "-P", MAKE_MODELS, name, folder]
            ended = run_logged(command, log=engine.log, environment=engine_environment(engine))
            if ended.status != 0:
                raise InstallError(
                    f"the tiny model {name!r} could not be written: {ended.last_error()}",
                    f"see the log; `{engine.install_command}` repairs the engine",
                    engine.log,
                )
    return folder


def has_model(engine: CpuEngine, name: str) -> bool:
    """True if the tiny model ``name`` was written by the current scripts."""
    return engine.python.exists() and _generator(engine.model(name)) == models_fingerprint()


def models_fingerprint() -> str:
    """Return the hash of the scripts that write the models, as ``make_models.py`` stores it."""
    scripts = [MAKE_MODELS, *sorted(_PARTS.glob("*.py"))]
    return hashlib.sha256(b"".join(script.read_bytes() for script in scripts)).hexdigest()


def ensure_corpus(engine: CpuEngine, *, keep_open: tuple[int, ...] = ()) -> None:
    """Compile the extension for NGRAM speculation unless it is already compiled.

    Otherwise SGLang compiles it at the first start with NGRAM, which adds 10 seconds.
    """
    _require_interpreter(engine)
    mark = engine.cache / "ngram-corpus.done"
    if mark.exists() and mark.read_text(encoding="utf-8") == engine.release:
        return
    ended = run_logged(
        [engine.python, "-P", "-c", _CORPUS],
        log=engine.log,
        environment=engine_environment(engine),
        keep_open=keep_open,
    )
    if ended.status != 0:
        raise InstallError(
            f"the NGRAM corpus did not compile: {ended.last_error()}",
            f"see the compiler output in the log, then {AGAIN}",
            engine.log,
        )
    make_private(mark.parent)
    replace_file(mark, engine.release, 0o666)


def engine_environment(engine: CpuEngine) -> dict[str, str]:
    """Return the complete environment for the engine's processes."""
    inherited = pip_environment()
    return inherited | engine.environment(inherited)


def _generator(folder: Path) -> str | None:
    """Return the hash of the script that wrote the model in ``folder``."""
    try:
        content = json.loads((folder / "speclaunch-model.json").read_text(encoding="utf-8"))
        return str(content["generator"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _require_interpreter(engine: CpuEngine) -> None:
    if not engine.python.exists():
        raise InstallError(
            f"the CPU engine is not installed at {engine.root}",
            f"install it with `{engine.install_command}`",
        )
