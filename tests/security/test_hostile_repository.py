"""Reading verbs in a hostile repository: nothing runs, nothing leaks, nothing hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from speclaunch.core import resources
from tests.security.hostile import SECRET, make_hostile_repository

pytestmark = [pytest.mark.thorough, pytest.mark.core, pytest.mark.timeout(600)]

AUDITED = Path(__file__).with_name("audited.py")
SECONDS = 60
ENDINGS = {0, 1, 2, 3}


@dataclass(frozen=True)
class Sandbox:
    """A hostile repository and the places around it."""

    root: Path
    marker: Path
    outside: Path
    home: Path

    @property
    def events(self) -> Path:
        """The record of a run."""
        return self.home / "events"

    @property
    def temporary(self) -> Path:
        """The directory for temporary files of a run."""
        return self.home / "tmp"

    def start(self, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
        """Start a verb in the repository."""
        self.events.unlink(missing_ok=True)
        env = {
            "PATH": f"{self.home / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "SPECLAUNCH_HOME": str(self.home / "speclaunch"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GITHUB_ACTIONS": "true",
            "LANG": "C.UTF-8",
        }
        return subprocess.Popen(
            [sys.executable, str(AUDITED), str(self.events), *words],
            cwd=self.root,
            env=env,
            **streams,
        )

    def run(self, *words: str, stdin: str = os.devnull) -> tuple[int, bytes]:
        """Run a verb: exit code and both streams."""
        with Path(stdin).open("rb") as given, (self.home / "out").open("wb") as out:
            process = self.start(*words, stdin=given, stdout=out, stderr=subprocess.STDOUT)
            try:
                code = process.wait(SECONDS)
            finally:
                process.kill()
        return code, (self.home / "out").read_bytes()

    def heard(self, kind: str) -> list[list[str]]:
        """The events of one kind of the last run."""
        lines = self.events.read_text().splitlines() if self.events.exists() else []
        return [event for event in map(json.loads, lines) if event[0] == kind]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    base = tmp_path_factory.mktemp("hostile")
    root, home = base / "repository", base / "home"
    root.mkdir()
    (home / "tmp").mkdir(parents=True)
    home.chmod(0o700)
    (home / "bin").mkdir()
    interpreter = (
        Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    )
    (home / "bin" / "python3").symlink_to(interpreter)  # a probe has to start it
    found = Sandbox(root, base / "executed", base / "outside.yaml", home)
    make_hostile_repository(root, found.marker, found.outside)
    return found


VERBS: dict[str, tuple[str, ...]] = {
    "lint": ("lint", "."),
    "lint-sarif": ("lint", ".", "--output-format", "sarif"),
    "lint-again": ("lint", ".", "--jobs", "2"),
    "lint-no-cache": ("lint", ".", "--ask", "never", "--no-cache"),
    "lint-releases": ("lint", "run.sh", "--engine", "0.5.11,0.5.23", "--hardware", "h100:8"),
    "lint-diff": ("lint", ".", "--diff"),
    "lint-special": ("lint", "special/zero.sh", "special/fifo.yaml", "special/sparse.py"),
    "lint-extends": ("lint", "../configured/extends/run.sh"),
    "lint-toml": ("lint", "../configured/toml/run.sh"),
    "plan": ("plan", "recipe=evil.yaml"),
    "plan-target": ("plan", "recipe=target.yaml", "--hardware", "h100"),
    "plan-tags": ("plan", "recipe=tags.yaml"),
    "plan-bomb": ("plan", "recipe=bombs/alias.yaml"),
    "dry-run": ("recipe=evil.yaml", "--dry-run"),
    "bench-dry-run": ("bench", "recipe=evil.yaml", "--dry-run"),
    "prove-dry-run": ("prove", "recipe=evil.yaml", "--dry-run"),
    "tune-dry-run": ("tune", "recipe=evil.yaml", "--dry-run"),
    "doctor": ("doctor",),
    "doctor-recipe": ("doctor", "recipe=evil.yaml"),
    "render-shell": ("render", "recipe=evil.yaml", "--to", "shell"),
    "render-kubernetes": ("render", "recipe=evil.yaml", "--to", "kubernetes"),
    "migrate": ("migrate", "run.sh", "--to", "0.5.23", "--diff"),
    "migrate-bomb": ("migrate", "bombs/flow.yaml", "--to", "0.5.23", "--diff"),
    "migrate-zero": ("migrate", "special/zero.sh", "--to", "0.5.23"),
    "import": ("import", "run.sh"),
    "import-python": ("import", "launch_me.py"),
    "import-bomb": ("import", "bombs/deep.py"),
    "import-fifo": ("import", "special/fifo.sh"),
    "diagnose": ("diagnose", "engine.log"),
    "diagnose-zero": ("diagnose", "special/zero.log"),
    "diagnose-fifo": ("diagnose", "special/fifo.log"),
    "recipes": ("recipes",),
    "rules": ("rules",),
    "explain": ("explain", "SPL301"),
    "models": ("models", "ls"),
    "models-inspect": ("models", "inspect", "model"),
    "engine": ("engine", "ls"),
    "drafts": ("drafts", "Qwen/Qwen3-8B"),
    "init": ("init", "./model", "--hardware", "h100:1"),
    "runs": ("runs",),
    "ps": ("ps",),
}


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS.keys())
def test_a_reading_verb_in_a_hostile_repository(sandbox: Sandbox, words: tuple[str, ...]) -> None:
    _check(sandbox, *sandbox.run(*words))


@pytest.mark.parametrize("verb", ["lint", "diagnose", "import"])
def test_endless_standard_input(sandbox: Sandbox, verb: str) -> None:
    code, out = sandbox.run(verb, "-", stdin="/dev/zero")
    assert code == 2
    _check(sandbox, code, out)


def test_the_language_server(sandbox: Sandbox) -> None:
    server = sandbox.start("lsp", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    checked, out = set(), b""
    names = ("bombs/flow.yaml", "bombs/deep.py", "bombs/sums.py", "bombs/deep.sh", "run.sh")
    try:
        root = sandbox.root.as_uri()
        _send(server, "initialize", {"processId": None, "rootUri": root, "capabilities": {}}, 1)
        _send(server, "initialized", {})
        for name in names:
            text = (sandbox.root / name).read_text()
            document = {"uri": f"{root}/{name}", "languageId": "x", "version": 1, "text": text}
            _send(server, "textDocument/didOpen", {"textDocument": document})
        while checked != set(names):
            message = _receive(server)
            out += json.dumps(message).encode()
            if message.get("method") == "textDocument/publishDiagnostics":
                checked.add(message["params"]["uri"].removeprefix(f"{root}/"))
        _send(server, "shutdown", None, 2)
        _send(server, "exit", None)
        code = server.wait(SECONDS)
    finally:
        server.kill()
    _check(sandbox, code, out)


def _send(
    server: subprocess.Popen[bytes], method: str, params: Any, id_: int | None = None
) -> None:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    body = json.dumps(message if id_ is None else message | {"id": id_}).encode()
    assert server.stdin is not None
    server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    server.stdin.flush()


def _receive(server: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert server.stdout is not None
    header = b""
    while not header.endswith(b"\r\n\r\n"):
        byte = server.stdout.read(1)
        assert byte, f"the server ended with {server.wait()}"
        header += byte
    length = int(header.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    return json.loads(server.stdout.read(length))


def _check(sandbox: Sandbox, code: int, out: bytes) -> None:
    shown = out.decode("utf-8", "replace")
    executed = sandbox.marker.read_text() if sandbox.marker.exists() else None
    sandbox.marker.unlink(missing_ok=True)
    assert executed is None, executed
    assert code in ENDINGS, shown[-2000:]
    assert "Traceback" not in shown
    assert "bug in speclaunch" not in shown
    assert SECRET not in shown
    assert not any(line.startswith("::error title=owned") for line in shown.splitlines())
    assert "\x1b]0;owned" not in shown
    assert not [e for e in sandbox.heard("network") if e[2] not in ("127.0.0.1", "0.0.0.0")]
    assert not [event for event in sandbox.heard("process") if not _is_ours(sandbox, event)]
    assert not [
        event[1] for event in sandbox.heard("write") if not _is_ours_to_write(sandbox, event[1])
    ]
    assert not {event[1] for event in sandbox.heard("read") if not _is_readable(sandbox, event[1])}


def _is_ours(sandbox: Sandbox, event: list[str]) -> bool:
    """True for a trusted interpreter that runs isolated, outside of the repository."""
    _, program, words, cwd = event
    arguments = json.loads(words)
    trusted = not Path(program).is_relative_to(sandbox.root) and os.path.isabs(program)  # noqa: PTH117
    return (
        trusted
        and "-I" in arguments[1:3]
        and Path(cwd).is_absolute()
        and not _is_below(cwd, sandbox.root)
    )


def _is_ours_to_write(sandbox: Sandbox, path: str) -> bool:
    return _is_below(path, sandbox.home, "/dev/null", "/dev/tty", "/dev/shm")


def _is_readable(sandbox: Sandbox, path: str) -> bool:
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = (
        *(*python, *resources.shipped(), sandbox.root, sandbox.home, sys.prefix, sys.base_prefix),
        *("/proc", "/sys", "/dev", "/usr/lib", "/usr/share/zoneinfo", "/etc/localtime"),
        *("/etc/mime.types", "/etc/os-release", "/etc/ld.so.cache", AUDITED.parent),
        sandbox.root.parent / "configured",
    )
    return _is_below(path, *folders) and not _is_below(path, sandbox.outside)


def _is_below(path: str, *folders: str | Path) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
