"""`speclaunch engine`: the engines on this machine, the CPU engine, catalogues and judges."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.console import err, out
from speclaunch.app.verbs.change_options import (
    CatalogueAddOptions,
    CatalogueShowOptions,
    EngineRemoveOptions,
    InstallOptions,
    JudgeAddOptions,
    JudgeRemoveOptions,
)
from speclaunch.app.verbs.options import VerbOptions
from speclaunch.core import EVERY_SECONDS, InputError, LaunchError, judges_home, speclaunch_home
from speclaunch.engine import (
    RELEASES,
    SGLANG_VERSION,
    Argument,
    CpuEngine,
    NoEngineError,
    add_from_package,
    download_wheel,
    find_runtime,
    held_versions,
    history,
    is_installed,
    suggest,
)
from speclaunch.engine import load as load_catalogue
from speclaunch.serving import (
    InstallStep,
    StepState,
    install,
    on_demand_engines,
    remove_engine,
)

if TYPE_CHECKING:
    from speclaunch.checks import AddedJudge


_INSTALLABLE = ("cpu",)
_SHOWN_CHOICES = 80


def list_engines(_options: VerbOptions) -> None:
    """List the engines that a launch can use."""
    table = Table.grid(padding=(0, 2))
    try:
        runtime = find_runtime(None)
        found = (f"SGLang {runtime.sglang}", str(runtime.interpreter))
        table.add_row(Text("installed", "bold"), *found)
    except NoEngineError as error:
        table.add_row(Text("installed", "bold"), "none found", "set engine.python=…")
        for why in error.failed:
            table.add_row("", "unknown", Text(why))
    on_demand = {entry.engine.release for entry in on_demand_engines(speclaunch_home())}
    for cpu in (CpuEngine(speclaunch_home(), release) for release in RELEASES):
        if is_installed(cpu):
            note = "installed on demand" if cpu.release in on_demand else ""
            table.add_row(Text("cpu", "bold"), f"SGLang {cpu.release}", str(cpu.python), note)
        elif cpu.release == SGLANG_VERSION:
            table.add_row(Text("cpu", "bold"), "not installed", cpu.install_command)
    out().print(table)


def install_engine(options: InstallOptions) -> None:
    """Install an SGLang engine for the CPU. Raises InputError, LaunchError."""
    _require_cpu(options.name)
    release = (options.release or SGLANG_VERSION).removeprefix("v")
    engine = CpuEngine(speclaunch_home(), release)
    installed = f"SGLang {release} for the CPU is installed: {engine.python}"
    if release != SGLANG_VERSION:
        installed += f"\nUse it in a CPU recipe: engine.version={release} engine.requires={release}"
    if release in RELEASES and is_installed(engine) and not options.force:
        out().print(installed)
        return
    show = _LiveSteps(err()) if err().is_terminal else _PlainSteps(err())
    index, force = options.torch_index, options.force
    with show:
        install(engine.home, release, report=show, torch_index=index, force=force)
    out().print(installed)


def _require_cpu(name: str) -> None:
    if name not in _INSTALLABLE:
        help_ = suggest(name, _INSTALLABLE) or "use cpu"
        raise InputError(f"unknown engine {name!r}", help=help_)


def remove(options: EngineRemoveOptions) -> None:
    """Remove a CPU engine. Raises InputError, LaunchError."""
    _require_cpu(options.name)
    release = (options.release or SGLANG_VERSION).removeprefix("v")
    engine = CpuEngine(speclaunch_home(), release)
    if release not in RELEASES or not engine.venv.exists():
        raise InputError(
            f"SGLang {release} for the CPU is not installed",
            help="list the installed engines: speclaunch engine ls",
        )
    remove_engine(engine)
    out().print(f"SGLang {release} for the CPU was removed")


def list_catalogues(_options: VerbOptions) -> None:
    """List the catalogued versions, each with its number of server arguments."""
    for version in held_versions():
        out().print(f"{version:<14} {len(load_catalogue(version).arguments)} arguments")


def show_argument(options: CatalogueShowOptions) -> None:
    """Show one server argument across versions. Raises InputError."""
    name = options.name
    span = history(name)
    if span is None:
        newest_first = map(load_catalogue, reversed(held_versions()))
        close = next(filter(None, (catalogue.close(name) for catalogue in newest_first)), ())
        hint = f"did you mean {' or '.join(f'`{flag}`' for flag in close)}?" if close else None
        raise InputError(f"no known SGLang version has a server argument {name!r}", help=hint)
    table = Table.grid(padding=(0, 2))
    before: tuple[str, ...] | None = None
    for version in held_versions():
        argument = load_catalogue(version).by_name(name)
        row = _argument_row(argument) if argument else ("absent", "", "", "")
        if row != before:
            table.add_row(Text(version, "bold"), *row)
        before = row
    out().print(table)


def add_catalogue(options: CatalogueAddOptions) -> None:
    """Create the catalogue of an engine that is newer than speclaunch."""
    with tempfile.TemporaryDirectory() as directory:
        if options.what == "installed":
            package = find_runtime(options.python).sglang_path
        elif Path(options.what).exists():
            package = Path(options.what)
        else:
            package = download_wheel(options.what, Path(directory))
        if package is None:
            raise LaunchError("the installed sglang has no readable package directory")
        catalogue = add_from_package(package)
    out().print(f"SGLang {catalogue.version}: {len(catalogue.arguments)} server arguments")


def _argument_row(argument: Argument) -> tuple[str, str, str, str]:
    choices = ", ".join(str(choice) for choice in argument.choices or ())
    return (
        argument.flag + (" (deprecated)" if argument.deprecated else ""),
        argument.type if argument.kind.takes_value else argument.kind.value,
        f"default {argument.default}",
        choices if len(choices) <= _SHOWN_CHOICES else choices[:_SHOWN_CHOICES] + "…",
    )


class _PlainSteps:
    """Progress printed line by line: as a step begins, every 15 seconds, and as it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: tuple[int, StepState] | None = None
        self._printed_at = 0.0

    def __enter__(self) -> _PlainSteps:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no resource was opened."""

    def __call__(self, step: InstallStep) -> None:
        now = time.monotonic()
        changed = (step.index, step.state) != self._last
        if not changed and (not step.detail or now - self._printed_at < EVERY_SECONDS):
            return
        self._last, self._printed_at = (step.index, step.state), now
        detail = step.detail if not changed or step.state is StepState.NOTE else ""
        line = f"[{step.index}/{step.total}] {step.title}: {step.state.value}"
        self._console.print(f"{line}: {detail}" if detail else line, soft_wrap=True)


class _LiveSteps(_PlainSteps):
    """Progress in a status line; notes and failures are printed above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._status = console.status("")

    def __enter__(self) -> _LiveSteps:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def __call__(self, step: InstallStep) -> None:
        if step.state not in (StepState.NOTE, StepState.FAILED):
            text = Text(f"[{step.index}/{step.total}] {step.title}  ")
            text.append(step.detail[: max(20, self._console.width - len(text) - 6)], "dim")
            self._status.update(text)
        else:
            super().__call__(step)


def add_judge(options: JudgeAddOptions) -> None:
    """Install a judge. Raises InputError, LaunchError."""
    from speclaunch.checks import add as make

    if options.python is not None and options.source != "installed":
        raise InputError("--python needs `--from installed`")
    began = time.monotonic()
    made = make(
        options.name,
        options.source,
        python=options.python,
        torch=options.torch,
        tell=lambda what: err().print(what),
    )
    seconds = time.monotonic() - began
    out().print(
        f"judge {made.name}: SGLang {made.release}, {_kind(made)}, {_size(made.size)},"
        f" {seconds:.0f} s"
    )


def list_judges(_options: VerbOptions) -> None:
    """List the installed judges with their sizes on disk."""
    from speclaunch.checks import added_judges, cpu_judge

    table = Table.grid(padding=(0, 2))
    for judge in added_judges():
        size = _size(judge.size) if judge.site else "-"
        row = (f"SGLang {judge.release}", size, f"from {judge.source}", _kind(judge), judge.python)
        table.add_row(Text(judge.name, "bold"), *row)
    if (engine := cpu_judge()) is not None:
        row = (f"SGLang {engine.release}", "-", "the CPU engine", "its torch", str(engine.python))
        table.add_row(Text("cpu", "bold"), *row)
    if not table.row_count:
        out().print("no judge: add one with `speclaunch engine judge add VERSION`")
        return
    out().print(table)


def remove_judge(options: JudgeRemoveOptions) -> None:
    """Remove a judge and its packages. Raises InputError."""
    from speclaunch.checks import remove

    name = options.name
    if not remove(name):
        names = [path.name for path in judges_home().glob("[!.]*")]
        hint = suggest(name, names) or "list the judges: speclaunch engine judge ls"
        raise InputError(f"there is no judge {name!r}", help=hint)
    out().print(f"judge {name} was removed")


def _kind(judge: AddedJudge) -> str:
    if judge.light:
        return "without torch"
    return "over the CPU engine's torch" if judge.site else "its own torch"


def _size(bytes_: int) -> str:
    return f"{bytes_ / 2**20:.0f} MiB"
