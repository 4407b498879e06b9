"""The worker's own parts, without an engine: what is stood in for, what is walled off."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from speclaunch.checks.engine_check import engine_judge
from speclaunch.checks.engine_check.engine_judge import machine_facts
from speclaunch.checks.engine_check.worker import stubs
from speclaunch.checks.engine_check.worker.pretend import facts, pretend_torch
from speclaunch.checks.engine_check.worker.verdict import without_model
from speclaunch.serving.launch import guard

WORKER = engine_judge.START.parent


@pytest.fixture
def kernels() -> Iterator[None]:
    finder = stubs.Finder(["made_up_kernels"])
    sys.meta_path.append(finder)
    yield
    sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name.startswith("made_up_kernels")]:
        del sys.modules[name]


def test_a_stand_in_takes_what_modules_do_at_their_top(kernels: None) -> None:
    code = """
import made_up_kernels
import made_up_kernels.language as tl
from made_up_kernels.runtime import Driver, thing
from abc import ABC
class Mine(Driver, ABC):
    size: tl.constexpr = tl.constexpr(4) * 2
class Other(made_up_kernels.base): pass
@made_up_kernels.jit
def plain(x: tl.constexpr, y: Driver | None = None): return x
@made_up_kernels.autotune(configs=[made_up_kernels.Config({}, num_warps=4)], key=["n"])
def tuned(x): return x
with thing() as held: pass
assert plain(3) == 3 and isinstance(Mine(), Driver) and not thing().is_available()
"""
    exec(code, {"__name__": "a_module"})


def test_what_is_not_stood_in_for_stays_missing(kernels: None) -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__("made_up_other")
    with pytest.raises(ModuleNotFoundError):
        stubs.import_standing_in("made_up_other")


def walled(code: str, scratch: Path) -> str:
    """What a script says in a process with the walls up."""
    script = f"""
import sys
sys.path.insert(0, {str(WORKER.parent)!r})
from worker.guards import AuditGuard, NotChecked
guard = AuditGuard()
guard.install()
guard.arm({str(scratch)!r})
try:
    {code}
    print("done")
except BaseException as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "OSError"),
        ("import socket; socket.getaddrinfo('localhost', 80)", "OSError"),
        ("import subprocess; subprocess.run(['true'])", "FileNotFoundError"),
        ("import os; os.system('true')", "FileNotFoundError"),
        ("import os; os.fork()", "FileNotFoundError"),
        ("open('{outside}', 'w')", "PermissionError"),
        ("import os; os.mkdir('{outside}')", "PermissionError"),
        ("import os; os.rename('{inside}', '{outside}')", "PermissionError"),
        ("import runpy; runpy.run_path('{code}')", "NotChecked"),
        ("import pickle; pickle.loads(b'cos\\nsystem\\n.')", "NotChecked"),
        ("open('{inside}', 'w').write('x')", "done"),
        ("open('/dev/null', 'w')", "done"),
        ("import colorsys", "done"),
    ],
)
def test_the_walls_hold(code: str, said: str, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    mark, script = tmp_path / "mark", tmp_path / "modeling_evil.py"
    script.write_text(f"open({str(mark)!r}, 'w')")
    names = {"outside": mark, "inside": scratch / "x", "code": script}
    assert walled(code.format(**names), scratch) == said
    assert not mark.exists()


def test_each_machine_is_told_as_what_it_is() -> None:
    h200, mi300x, cpu = (facts(machine_facts(name)) for name in ("h200:8", "mi300x:8", "cpu"))
    assert h200["is_cuda"] and h200["is_sm90_supported"] and h200["get_device_sm"] == 90
    assert mi300x["is_hip"] and mi300x["is_cuda_alike"] and not mi300x["is_cuda"]
    assert not mi300x["is_sm90_supported"] and mi300x["get_device_capability"] == (9, 4)
    assert cpu["is_cpu"] and not cpu["is_cuda_alike"] and cpu["get_device"] == "cpu"
    assert machine_facts("a100:4")["count"] == 4 and machine_facts("b200:8")["capability"] == 100


SERVED = f"""
import io, json, os, signal, sys, time
sys.path.insert(0, {str(WORKER.parent)!r})
from worker import serve

def in_child(question, setting):
    act = question["act"]
    if act == "hang":
        time.sleep(60)
    elif act == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif act == "exit":
        os._exit(3)
    elif act == "huge":
        return "x" * (5 << 20)
    return json.dumps({{"verdict": "accepted", "seen": len(SEEN), "pid": SEEN.append(1)}})

SEEN = []
serve.in_child = in_child
out = io.StringIO()
lines = [json.dumps({{"act": act}}) + "\\n" for act in sys.argv[1:]]
began = time.monotonic()
serve.answers(lines, out, {{"seconds": 1, "memory": 1 << 30}})
print(out.getvalue() + str(time.monotonic() - began))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child is left")
"""


def served(*acts: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", SERVED, *acts], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.thorough
def test_each_question_has_a_child_of_its_own_and_none_is_left() -> None:
    *answers, _, last = served("", "", "")
    assert [json.loads(one)["seen"] for one in answers] == [0, 0, 0]
    assert last == "no child is left"
    assert served()[-1] == "no child is left"


@pytest.mark.thorough
def test_a_child_that_fails_fails_its_question_alone() -> None:
    *answers, seconds, last = served("hang", "", "die", "exit", "huge", "")
    why = [json.loads(one).get("message", "") for one in answers]
    assert why[1] == why[5] == ""
    assert why[0] == "no answer within 1 s"
    assert why[2] == "its process died of SIGSEGV"
    assert why[3] == "its process ended without an answer (exit 3)"
    assert why[4] == "its answer is longer than 4 MiB"
    assert last == "no child is left" and float(seconds) < 10


def test_a_machine_without_a_gpu_leaves_torch_its_own_answer() -> None:
    def own() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    def asked(machine: str) -> Any:
        cuda = SimpleNamespace(get_device_capability=own, get_device_name=own)
        torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda=None))
        pretend_torch(torch, machine_facts(machine))
        assert cuda.is_available() is (machine != "cpu")
        assert torch.version.cuda == (None if machine == "cpu" else "13.0")
        return cuda.get_device_capability()

    assert asked("h200:8") == (9, 0)
    with pytest.raises(AssertionError, match="not compiled"):
        asked("cpu")


def test_a_config_that_the_library_refuses_is_at_hand() -> None:
    def raised(name: str) -> Exception:
        kind = type(name, (ValueError,), {"__module__": "huggingface_hub.errors"})
        return kind("no")  # type: ignore[no-any-return]

    assert without_model(raised("HfHubHTTPError"))
    assert not without_model(raised("StrictDataclassFieldValidationError"))


ASKS = """
import json, os, subprocess, sys, time
worker = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, start_new_session=True
)
setting = {"scratch": sys.argv[2], "ends_with": os.getpid()}
worker.stdin.write(json.dumps(setting).encode() + b"\\n")
worker.stdin.flush()
print(worker.pid, flush=True)
time.sleep(600)
"""
LOADS = """
import time
from pathlib import Path
from speclaunch.checks.engine_check.worker import serve

def loads(lines, out, setting):
    Path(setting["scratch"], "loading").touch()
    while True:  # as imports do, that try something else
        try:
            time.sleep(600)
        except BaseException:
            pass

serve.serve = loads
serve.main()
"""


@pytest.mark.thorough
def test_a_worker_and_its_files_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    guard._prctl(guard.PR_SET_CHILD_SUBREAPER, 0)  # a launch in an earlier test made us adopt it
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    asking = subprocess.Popen(
        [sys.executable, "-c", ASKS, LOADS, str(scratch)], stdout=subprocess.PIPE, text=True
    )
    with asking:
        assert asking.stdout is not None
        worker = Path(f"/proc/{int(asking.stdout.readline())}")
        until = time.monotonic() + 30
        while not (scratch / "loading").exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert (scratch / "loading").exists() and worker.exists()
        asking.kill()
    while (scratch.exists() or worker.exists()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not scratch.exists() and not worker.exists()
