"""The installation against a scripted interpreter: real processes, no packages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path

import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine, is_installed, read_manifest
from speclaunch.serving.cpu_engine import install as installation
from speclaunch.serving.cpu_engine.install import CPU_INDEX, PipProgress, install
from speclaunch.serving.cpu_engine.programs import (
    InstallError,
    InstallInterruptedError,
    InstallStep,
    StepState,
    ensure_corpus,
    ensure_model,
)

pytestmark = pytest.mark.thorough

FAKE_PYTHON = Path(__file__).with_name("fake_python.py")


class Fake:
    """The scripted interpreter, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "fake-python"
        self.python.write_text(f"#!{sys.executable}\n" + FAKE_PYTHON.read_text())
        self.python.chmod(0o755)
        self.calls_file = folder / "calls"
        self.hanging = folder / "hanging"

    def calls(self, containing: str = "") -> list[str]:
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line for line in lines if containing in line]

    def wait_until_pip_hangs(self) -> int:
        deadline = time.monotonic() + 60
        while not (self.hanging.exists() and self.hanging.read_text()):
            assert time.monotonic() < deadline, "pip was never started"
            time.sleep(0.01)
        return int(self.hanging.read_text())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake(tmp_path)
    for name in [name for name in os.environ if name.startswith("FAKE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FAKE_CALLS", str(fake.calls_file))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return fake


def test_installs_everything_in_order(home: Path, fake: Fake) -> None:
    steps: list[InstallStep] = []
    engine = install(home, report=steps.append, python=fake.python)

    assert is_installed(engine)
    done = [step.title for step in steps if step.state is StepState.DONE]
    assert done == [title for title, _ in installation.STEPS]
    assert {step.total for step in steps} == {len(done)}
    assert [step.index for step in steps] == sorted(step.index for step in steps)
    torch, rest = fake.calls("pip install")
    assert torch.endswith("--no-deps torch==2.13.0+cpu")
    assert "--no-deps --requirement" in rest
    assert any(step.detail.startswith("Collecting something") for step in steps)
    manifest = read_manifest(engine)
    assert manifest is not None
    assert manifest["packages"] == {"sglang": "0.5.23", "torch": "2.13.0+cpu"}
    assert "Collecting something" in engine.log.read_text()


def test_a_second_call_does_nothing(home: Path, fake: Fake) -> None:
    install(home, python=fake.python)
    before = fake.calls()
    steps: list[InstallStep] = []
    install(home, report=steps.append, python=fake.python)
    assert fake.calls() == before
    assert steps == []


def test_force_builds_the_environment_anew_and_keeps_models(home: Path, fake: Fake) -> None:
    engine = install(home, python=fake.python)
    model = ensure_model(engine, "cycle")
    install(home, python=fake.python, force=True)
    assert len(fake.calls("-m venv")) == 2
    assert model.is_dir()


def test_changed_pins_install_packages_again_and_torch_not(
    home: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = install(home, python=fake.python)
    other = tmp_path / "requirements.txt"
    other.write_text("something==2.0\n")
    monkeypatch.setattr("speclaunch.engine.facts.cpu_engine.REQUIREMENTS", other)
    monkeypatch.setattr("speclaunch.serving.cpu_engine.install.REQUIREMENTS", other)
    assert not is_installed(engine)
    install(home, python=fake.python)
    assert [("torch==" in call) for call in fake.calls("pip install")] == [True, False, False]


def test_an_index_is_for_torch_alone(home: Path, fake: Fake) -> None:
    install(home, python=fake.python, torch_index="file:///wheels")
    torch, rest = fake.calls("pip install")
    assert torch.endswith("--no-deps --index-url file:///wheels torch==2.13.0+cpu")
    assert "--index-url" not in rest


def test_pytorchs_index_is_taken_where_pip_knows_no_cpu_build(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TORCH", "2.14.0, 2.13.0")
    install(home, python=fake.python)
    torch, rest = fake.calls("pip install")
    assert torch.endswith(f"--no-deps --index-url {CPU_INDEX} torch==2.13.0+cpu")
    assert "--index-url" not in rest


def test_the_gpu_build_comes_last_and_is_announced(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TORCH", "2.14.0, 2.13.0")
    monkeypatch.setenv("FAKE_CPU_INDEX", "")
    steps: list[InstallStep] = []
    install(home, report=steps.append, python=fake.python)
    torch, _ = fake.calls("pip install")
    assert "--no-deps" not in torch and torch.endswith("torch==2.13.0")
    notes = [step.detail for step in steps if step.state is StepState.NOTE]
    assert len(notes) == 1 and "2.7 GB" in notes[0] and "--torch-index" in notes[0]


def test_the_gpu_build_needs_more_disk(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TORCH", "2.13.0")
    monkeypatch.setenv("FAKE_CPU_INDEX", "")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 6 * 2**30))
    with pytest.raises(InstallError, match=r"only 6\.0 GiB are free at .*; 10 GiB are needed"):
        install(home, python=fake.python)
    assert fake.calls("pip install") == []


@pytest.mark.parametrize("index", [None, "file:///wheels"])
def test_without_any_torch_nothing_is_fetched(
    index: str | None, home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TORCH", "")
    monkeypatch.setenv("FAKE_CPU_INDEX", "2.14.0")
    with pytest.raises(InstallError, match=r"torch 2\.13\.0") as caught:
        install(home, python=fake.python, torch_index=index)
    assert "--torch-index" in caught.value.remedy
    assert fake.calls("pip install") == []


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ("Linux aarch64 2.39", "Linux on x86-64 only; this is Linux on aarch64"),
        ("Darwin arm64 -", "Linux on x86-64 only; this is Darwin on arm64"),
        ("Linux x86_64 2.31", r"needs glibc 2\.34 or newer; this machine has 2\.31"),
        ("Linux x86_64 -", "needs glibc"),
    ],
)
def test_a_machine_that_sglang_is_not_published_for_is_refused(
    machine: str, message: str, home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MACHINE", machine)
    with pytest.raises(InstallError, match=message):
        install(home, python=fake.python)
    assert fake.calls("-m ") == []


def test_a_silent_download_shows_signs_of_life(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speclaunch.serving.cpu_engine.programs.TICK_S", 0.02)
    monkeypatch.setenv("FAKE_PIP", "download")
    steps: list[InstallStep] = []
    engine = install(home, report=steps.append, python=fake.python)
    told = [step.detail for step in steps if step.title == "Install torch"]
    assert any("3.0 of 5.0 MB" in detail for detail in told), told
    assert not (engine.root / "downloads").exists()


def test_paths_of_other_pythons_do_not_reach_pip(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(home / "elsewhere"))
    monkeypatch.setenv("PIP_TARGET", str(home / "elsewhere"))
    seen: list[dict[str, str]] = []
    run_logged = installation.run_logged

    def spy(*args: object, **kwargs: object) -> object:
        seen.append(dict(kwargs["environment"]))  # type: ignore[call-overload]
        return run_logged(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(installation, "run_logged", spy)
    install(home, python=fake.python)
    assert seen and all("PIP_TARGET" not in environment for environment in seen)
    assert not any(str(home / "elsewhere") in str(item.get("PYTHONPATH")) for item in seen)


def test_the_last_error_of_pip_is_told(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PIP", "fail")
    steps: list[InstallStep] = []
    with pytest.raises(InstallError, match="No matching distribution found for torch") as caught:
        install(home, report=steps.append, python=fake.python)
    assert caught.value.log is not None and "Could not find" in caught.value.log.read_text()
    assert "resumes where it stopped" in caught.value.remedy
    assert steps[-1].state is StepState.FAILED

    monkeypatch.delenv("FAKE_PIP")
    engine = install(home, report=steps.append, python=fake.python)
    assert is_installed(engine)
    assert len(fake.calls("-m venv")) == 1, "the environment was made before the failure"


def test_an_engine_that_does_not_import_is_not_installed(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VERIFY", "fail")
    with pytest.raises(InstallError, match=r"libtorch_cuda\.so"):
        install(home, python=fake.python)
    assert not is_installed(CpuEngine(home))


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("FAKE_PROBE", "fail", "cannot create virtual environments: .*ensurepip"),
        ("FAKE_VERSION", "3.10.4", r"is Python 3\.10\.4"),
    ],
)
def test_an_unsuitable_python_is_refused(
    variable: str,
    value: str,
    message: str,
    home: Path,
    fake: Fake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InstallError, match=message):
        install(home, python=fake.python)
    assert fake.calls("-m venv") == []


def test_a_missing_compiler_is_refused(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InstallError, match=r"no C\+\+ compiler") as caught:
        install(home, python=fake.python)
    assert "g++" in caught.value.remedy


def test_a_compiler_named_in_cxx_is_looked_for(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "ccache clang++")
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ccache" else name)
    with pytest.raises(InstallError, match="ccache"):
        install(home, python=fake.python)


def test_a_full_disk_is_refused(home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 3 * 2**30))
    with pytest.raises(InstallError, match=r"3\.0 GiB are free") as caught:
        install(home, python=fake.python)
    assert "SPECLAUNCH_HOME" in caught.value.remedy


def test_a_home_that_cannot_be_written_is_an_install_error(tmp_path: Path, fake: Fake) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InstallError, match="cannot install below"):
        install(tmp_path / "file" / "home", python=fake.python)


def test_a_half_built_environment_is_made_anew(home: Path, fake: Fake) -> None:
    leftover = CpuEngine(home).venv / "bin" / "leftover"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    install(home, python=fake.python)
    assert not leftover.exists()


def test_an_environment_whose_python_is_gone_is_made_anew(home: Path, fake: Fake) -> None:
    engine = install(home, python=fake.python)
    engine.python.write_text("#!/nowhere/python\n")
    engine.manifest.unlink()
    install(home, python=fake.python)
    assert len(fake.calls("-m venv")) == 2


def run_in_background(home: Path, fake: Fake, **variables: str) -> subprocess.Popen[str]:
    code = (
        "import shutil, sys; shutil.which = lambda name: name\n"
        "from pathlib import Path; from speclaunch.serving.cpu_engine.install import *\n"
        "try: install(Path(sys.argv[1]), python=Path(sys.argv[2]))\n"
        "except InstallInterruptedError as error: sys.exit(130)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(home), str(fake.python)],
        env=os.environ | variables,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_ctrl_c_ends_pip_and_the_next_run_goes_on(home: Path, fake: Fake) -> None:
    running = run_in_background(home, fake, FAKE_PIP="hang")
    pip = fake.wait_until_pip_hangs()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors == ""
    assert not is_alive(pip)

    engine = install(home, python=fake.python)
    assert is_installed(engine)
    packages = engine.venv / "lib" / "python3.11" / "site-packages"
    assert not (packages / "half-1.0.dist-info").exists()
    assert not (packages / "~alf").exists()
    assert (packages / "whole-1.0.dist-info").exists()
    assert len(fake.calls("-m venv")) == 1


def test_ctrl_c_is_an_install_error(
    home: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(installation, "run_logged", interrupted)
    with pytest.raises(InstallInterruptedError) as caught:
        install(home, python=fake.python)
    assert "resumes" in caught.value.remedy


def test_a_killed_installation_keeps_others_waiting_for_its_pip(home: Path, fake: Fake) -> None:
    running = run_in_background(home, fake, FAKE_PIP="hang")
    pip = fake.wait_until_pip_hangs()
    running.kill()
    running.communicate()
    assert is_alive(pip)

    steps: list[InstallStep] = []
    second = threading.Thread(
        target=install, args=(home,), kwargs={"report": steps.append, "python": fake.python}
    )
    second.start()
    second.join(0.5)
    assert second.is_alive()
    assert [step.state for step in steps] == [StepState.WAITING]
    os.kill(pip, signal.SIGKILL)
    second.join(20)
    assert is_installed(CpuEngine(home))


def test_two_installations_at_once_install_once(home: Path, fake: Fake) -> None:
    both = [run_in_background(home, fake, FAKE_SLEEP="0.3") for _ in range(2)]
    for running in both:
        _, errors = running.communicate(timeout=30)
        assert (running.returncode, errors) == (0, "")
    assert len(fake.calls("-m venv")) == 1
    assert len(fake.calls("pip install")) == 2


def test_a_manifest_of_another_python_or_damaged_is_no_installation(home: Path, fake: Fake) -> None:
    engine = install(home, python=fake.python)
    manifest = json.loads(engine.manifest.read_text())
    engine.manifest.write_text(json.dumps(manifest | {"python": "3.12.1"}))
    assert not is_installed(engine)
    engine.manifest.write_text("{")
    assert not is_installed(engine)


def test_another_release_is_installed_next_to_the_default(home: Path, fake: Fake) -> None:
    engine = install(home, "0.5.18", python=fake.python)
    assert is_installed(engine) and not is_installed(CpuEngine(home))
    assert "transformers==5.12.1" in (engine.root / "requirements.txt").read_text()
    manifest = read_manifest(engine)
    assert manifest is not None and manifest["sglang"] == "0.5.18"
    install(home, python=fake.python)
    assert is_installed(engine) and is_installed(CpuEngine(home))
    shutil.copy(engine.manifest, CpuEngine(home).manifest)
    assert not is_installed(CpuEngine(home))


def test_a_release_that_cannot_serve_is_refused(home: Path, fake: Fake) -> None:
    with pytest.raises(InstallError, match=r"SGLang 0\.5\.14 cannot verify a draft") as caught:
        install(home, "0.5.14", python=fake.python)
    assert caught.value.remedy.startswith("choose one of 0.5.23, 0.5.22")
    assert not fake.calls() and not home.exists()


def test_a_model_is_written_on_first_use_and_when_its_recipe_changed(
    home: Path, fake: Fake
) -> None:
    engine = install(home, python=fake.python)
    folder = ensure_model(engine, "cycle")
    assert folder == engine.model("cycle")
    ensure_model(engine, "cycle")
    assert len(fake.calls("make_models.py")) == 1
    (folder / "speclaunch-model.json").write_text('{"generator": "older"}')
    ensure_model(engine, "cycle")
    assert len(fake.calls("make_models.py")) == 2


def test_an_unknown_model_is_an_error(home: Path, fake: Fake) -> None:
    engine = install(home, python=fake.python)
    with pytest.raises(InstallError, match="no model 'unknown'"):
        ensure_model(engine, "unknown")


def test_without_an_engine_there_are_no_models(home: Path) -> None:
    with pytest.raises(InstallError, match="not installed"):
        ensure_model(CpuEngine(home), "cycle")


def test_the_corpus_is_compiled_once(home: Path, fake: Fake) -> None:
    engine = install(home, python=fake.python)
    compiled = fake.calls("ngram_corpus")
    ensure_corpus(engine)
    assert len(compiled) == 1
    assert fake.calls("ngram_corpus") == compiled


def test_pip_is_reported_by_package_without_versions_or_places() -> None:
    shown = {
        "Collecting numpy<3,>=1.24 (from -r requirements.txt (line 3))": "Collecting numpy",
        "  Downloading https://x.org/a/torch-2.13.0-cp311-cp311-linux.whl.metadata (26 kB)": (
            "Downloading torch"
        ),
        "  Using cached flash_attn-4.0.0b4-py3-none-any.whl (9 kB)": "Using cached flash_attn",
        "Installing collected packages: zipp, yarl, xxhash": "Installing packages",
        "Building wheels for collected packages: sglang": "Building wheels",
    }
    said: list[str] = []
    progress = PipProgress(Path("missing"), lambda text, *_: said.append(text), single=False)
    for line in shown:
        progress.line(line)
    assert said == list(shown.values())
