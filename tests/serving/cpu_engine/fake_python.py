"""A scripted interpreter for tests of the installation: no network, no packages.

It is copied under the name of an interpreter. What it does is told by FAKE_* variables, and it
appends each call to the file named by FAKE_CALLS.

FAKE_VERSION   what it says its version is
FAKE_MACHINE   its system, machine and glibc
FAKE_PROBE     fail: there is no venv module
FAKE_TORCH     the versions of torch that pip's own configuration has
FAKE_CPU_INDEX the versions that any index named on the command line has
FAKE_PIP       fail: pip fails; hang: pip installs half of a package, then never ends;
               download: it fetches 3 MB of 5, and is silent
FAKE_VERIFY    fail: the engine does not import
FAKE_SLEEP     seconds that pip takes
"""

import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    call = " ".join(arguments)
    if arguments[:1] == ["-I"]:
        del arguments[0]
    with Path(os.environ["FAKE_CALLS"]).open("a", encoding="utf-8") as calls:
        calls.write(call + "\n")
    if "ensurepip" in call:
        return probe()
    if arguments[:2] == ["-m", "venv"]:
        return make_venv(Path(arguments[2]))
    if arguments[:4] == ["-m", "pip", "index", "versions"]:
        return index("FAKE_CPU_INDEX" if "--index-url" in arguments else "FAKE_TORCH")
    if arguments[:3] == ["-m", "pip", "install"]:
        return pip(arguments)
    if call.endswith("verify_engine.py"):
        return verify()
    if "make_models.py" in call:
        return make_model(arguments[-2], Path(arguments[-1]))
    return 0


def probe() -> int:
    if os.environ.get("FAKE_PROBE") == "fail":
        sys.stderr.write("ModuleNotFoundError: No module named 'ensurepip'\n")
        return 1
    version = os.environ.get("FAKE_VERSION", "3.11.7")
    sys.stdout.write(f"{version} {os.environ.get('FAKE_MACHINE', 'Linux x86_64 2.36')}\n")
    return 0


def index(variable: str) -> int:
    versions = os.environ.get(variable, "2.14.0, 2.13.0+cpu, 2.13.0")
    if not versions:
        sys.stdout.write("ERROR: No matching distribution found for torch\n")
        return 1
    sys.stdout.write(f"torch ({versions.split(',')[0]})\nAvailable versions: {versions}\n")
    return 0


def make_venv(folder: Path) -> int:
    packages = folder / "lib" / "python3.11" / "site-packages"
    (packages / "sglang" / "srt" / "models").mkdir(parents=True)
    (folder / "bin").mkdir()
    shutil.copy(sys.argv[0], folder / "bin" / "python")
    return 0


def pip(arguments: list[str]) -> int:
    sys.stdout.write("Collecting something==1.0\n")
    sys.stdout.flush()
    time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
    behaviour = os.environ.get("FAKE_PIP")
    if behaviour == "fail":
        sys.stdout.write(
            "ERROR: Could not find a version\nERROR: No matching distribution found for torch\n"
            "WARNING: something else\n"
        )
        return 1
    if behaviour == "download":
        sys.stdout.write("Downloading torch-2.13.0.whl (5.0 MB)\n")
        sys.stdout.flush()
        (Path(os.environ["TMPDIR"]) / "torch.whl").write_bytes(bytes(3_000_000))
        time.sleep(0.3)
    packages = Path(sys.argv[0]).parent.parent / "lib" / "python3.11" / "site-packages"
    if behaviour == "hang":
        (packages / "half-1.0.dist-info").mkdir()
        (packages / "~alf").mkdir()
        (packages / "whole-1.0.dist-info").mkdir()
        (packages / "whole-1.0.dist-info" / "RECORD").touch()
        Path(os.environ["FAKE_CALLS"]).with_name("hanging").write_text(str(os.getpid()))
        time.sleep(60)
    return 0


def verify() -> int:
    if os.environ.get("FAKE_VERIFY") == "fail":
        sys.stderr.write("Traceback\nImportError: libtorch_cuda.so: cannot open\n")
        return 1
    found = {"python": "3.11.7", "packages": {"sglang": "0.5.23", "torch": "2.13.0+cpu"}}
    sys.stdout.write("a warning of the engine\n" + json.dumps(found) + "\n")
    return 0


def make_model(name: str, folder: Path) -> int:
    if name == "unknown":
        sys.stderr.write("make_models.py: no model 'unknown'\n")
        return 2
    script = Path(next(part for part in sys.argv if part.endswith("make_models.py")))
    folder.mkdir(parents=True, exist_ok=True)
    generator = hashlib.sha256(script.read_bytes()).hexdigest()
    (folder / "speclaunch-model.json").write_text(json.dumps({"generator": generator}))
    return 0


raise SystemExit(main(sys.argv[1:]))
