"""`speclaunch models`: checkpoint facts, and the contents of checkpoint files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.console import err, out
from speclaunch.app.output.findings import show_findings
from speclaunch.app.output.formats_services import finding_json
from speclaunch.app.output.terminal import label_line, plain_table
from speclaunch.app.verbs.change_options import (
    InspectOptions,
    ModelsCheckOptions,
    ModelsListOptions,
    ModelsShowOptions,
    PullOptions,
)
from speclaunch.app.verbs.launch_process import hide_secrets
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.core import ExitCode, InputError, Problem, SpeclaunchError, from_here
from speclaunch.engine import Checkpoint, CheckpointFile, UnknownFact
from speclaunch.measure import (
    FACTS,
    CheckpointSources,
    ComparedFacts,
    FactsState,
    Inspection,
    fact_value,
)

_COLORS = {
    FactsState.CURRENT: "green",
    FactsState.UPDATED: "green",
    FactsState.STALE: "yellow",
    FactsState.UNKNOWN: "red",
    FactsState.LOCAL: "dim",
}
_MOST_DIFFERENCES = 12


def _plain(fact_value: object) -> Text:
    """Return a fact from an untrusted file as text without control characters."""
    return Text("".join(c if c.isprintable() else "?" for c in str(fact_value)))


def show_stored(console: Console, found: Iterable[tuple[str, CheckpointFile | str]]) -> None:
    """Print a table of facts files, with the error for each unreadable file."""
    table = plain_table(("model", "read", "revision", "source"))
    for name, file in found:
        if isinstance(file, str):
            table.add_row(Text(name, "bold"), _plain("cannot be read: " + file))
        else:
            revision = Text((file.revision or "")[:12])
            table.add_row(Text(name, "bold"), Text(file.read), revision, _plain(file.source))
    console.print(table)


def stored_json(file: CheckpointFile | str) -> dict[str, Any]:
    """Return the origin of a facts file, or why it is unreadable, as JSON."""
    if isinstance(file, str):
        return {"error": file}
    row = {"kind": file.kind, "source": file.source, "read": file.read}
    return row | ({"revision": file.revision} if file.revision is not None else {})


def show_known(console: Console, name: str, known: CheckpointSources) -> None:
    """Print a checkpoint's facts with their source, then the differing facts of other sources."""
    console.print(Text(name, "bold"))
    used = known.used
    if isinstance(used, UnknownFact):
        console.print(label_line("unknown", _plain(used.why), 9, "yellow"))
    else:
        console.print(label_line("from", _plain(used.origin), 9))
        if used.origin is not None and used.origin.revision is not None:
            console.print(label_line("revision", used.origin.revision, 9))
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(style="dim", no_wrap=True)
        for fact in FACTS:
            value, source = _fact(used, fact)
            if source is not None:
                table.add_row(f"  {fact}", _plain(value), Text(source))
        console.print(table)
    for other in known.others:
        if isinstance(other, UnknownFact):
            console.print(label_line("not read", _plain(other.why), 9, "yellow"))
            continue
        console.print(label_line("also in", _plain(other.origin), 9))
        for line in _differing(used, other):
            console.print(_plain(f"           {line}"))


def known_json(name: str, known: CheckpointSources) -> dict[str, Any]:
    """Return the facts as a JSON document."""
    return {
        "version": 1,
        "model": name,
        **_checkpoint_json(known.used),
        "others": [_checkpoint_json(other) for other in known.others],
    }


def show_checked(console: Console, facts: ComparedFacts) -> None:
    """Print how a facts file compares with the hub: state and differences."""
    state = (f"{facts.state.value:<9}", _COLORS[facts.state])
    why = _plain(f"  {facts.why}" if facts.why else "")
    console.print(Text.assemble(state, (facts.name, "bold"), why))
    for line in facts.differences[:_MOST_DIFFERENCES]:
        console.print(_plain(f"         {line}"))
    if len(facts.differences) > _MOST_DIFFERENCES:
        console.print(f"         and {len(facts.differences) - _MOST_DIFFERENCES} more")
    if facts.help:
        console.print(Text.assemble(("         help", "bold cyan"), f": {facts.help}"))


def checked_json(facts: ComparedFacts) -> dict[str, Any]:
    """Return the comparison of a facts file as JSON."""
    document: dict[str, Any] = {"model": facts.name, "state": facts.state.value}
    document |= {"differences": list(facts.differences)} if facts.differences else {}
    return document | {key: v for key, v in (("why", facts.why), ("help", facts.help)) if v}


def _fact(found: Checkpoint, fact: str) -> tuple[str, str | None]:
    """Return a fact as text, and its source; `("", None)` if it has no value."""
    if fact in found.unread:
        return "unknown", "its source has not been read"
    value = fact_value(found, fact)
    if value is None:
        return "", None
    source = found.origin.provenance.value if found.origin is not None else ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {inner}" for key, inner in value.items())[:200], source
    if isinstance(value, tuple):
        return ", ".join(map(str, value)), source
    return (f"{value:,}" if fact == "weight_bytes" else str(value)), source


def _differing(used: Checkpoint | UnknownFact, other: Checkpoint) -> Iterable[str]:
    if isinstance(used, UnknownFact):
        return
    for fact in FACTS:
        mine, theirs = fact_value(used, fact), fact_value(other, fact)
        if mine != theirs and mine is not None and theirs is not None:
            yield f"{fact}: {_fact(other, fact)[0]}"


def _checkpoint_json(found: Checkpoint | UnknownFact) -> dict[str, Any]:
    if isinstance(found, UnknownFact):
        return {"unknown": found.why} | ({"help": found.help} if found.help else {})
    origin = found.origin
    where: dict[str, Any] = {}
    if origin is not None:
        fields = {"provenance": origin.provenance.value, "where": origin.where, "read": origin.read}
        fields |= {"revision": origin.revision, "doubt": origin.doubt, "assumed": origin.assumed}
        where = {key: value for key, value in fields.items() if value is not None}
    facts = {
        fact: {"value": fact_value(found, fact), "from": where.get("provenance")}
        for fact in FACTS
        if fact not in found.unread and fact_value(found, fact) is not None
    }
    return {"origin": where, "facts": facts, "not_known": sorted(found.unread)}


_MOST_ROWS = 40
_ODD = ("wrong shape", "not read")


def show_inspection(console: Console, found: Inspection) -> None:
    """Print the checkpoint's role, its tensors (only suspicious ones if many), and findings."""
    console.print(Text.assemble((found.checkpoint.name, "bold"), " ", _about(found)))
    names = list(found.headers)
    if len(names) > _MOST_ROWS:
        names = [name for name in names if found.status(name) in _ODD][:_MOST_ROWS]
    table = Table.grid(padding=(0, 2))
    for name in sorted(names):
        header, status = found.headers[name], found.status(name)
        style = "yellow" if status in _ODD else "dim" if status != "loaded" else ""
        shape = "x".join(map(str, header.shape)) or "1"
        table.add_row(Text(name), Text(header.dtype), Text(shape), Text(status, style))
    if names:
        console.print(table)
    console.print(_sum(found), style="dim")
    show_findings(console, found.findings)
    if not found.findings:
        if found.comparison is None:
            console.print("No problem in the files; the engine's requirements are unknown.")
        else:
            console.print(f"The files contain every tensor that SGLang {found.engine} loads.")


def _about(found: Inspection) -> str:
    what = found.checkpoint.architecture or "no architecture in its config"
    drafts = f", as a draft of {found.algorithm}" if found.algorithm else ""
    loader = f"; loaded by {found.loader}" if found.loader not in (None, what) else ""
    return f"({what}{drafts}{loader})"


def _sum(found: Inspection) -> str:
    """Return the tensor counts as text: `15 tensors: 14 loaded, 1 skipped; …`."""
    counts = Counter(map(found.status, found.headers))
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    text = f"{len(found.headers)} tensors: {text}"
    if not found.numbers_read:
        text += "; only headers were read: zeros, NaN and token maps are unchecked"
    if found.comparison is None and found.loader is None:
        text += f"; the tensors that SGLang {found.engine} loads for this class are unknown"
    return text


def inspection_json(found: Inspection) -> dict[str, Any]:
    """Return the inspection as JSON; see docs/reference/models.md."""
    compared = found.comparison
    return {
        "version": 1,
        "checkpoint": found.checkpoint.name,
        "target": None if found.target is None else found.target.name,
        "engine": found.engine,
        "architecture": found.checkpoint.architecture,
        "algorithm": found.algorithm,
        "loader": found.loader,
        "source": found.source,
        "numbers_read": found.numbers_read,
        "tensors": [
            {
                "name": name,
                "dtype": header.dtype,
                "shape": list(header.shape),
                "status": found.status(name),
            }
            for name, header in sorted(found.headers.items())
        ],
        "missing": {} if compared is None else dict(compared.missing),
        "findings": [finding_json(finding) for finding in found.findings],
    }


class NoFactsError(SpeclaunchError):
    """Error if no `.speclaunch/models` directory contains facts (exit code 3)."""

    exit_code = ExitCode.NOTHING


def inspect(options: InspectOptions) -> ExitCode:
    """Compare a checkpoint's tensors with those that the engine loads. Raises InputError."""
    from speclaunch.app.verbs.shared import engine_versions
    from speclaunch.checks import Severity
    from speclaunch.engine import held_versions
    from speclaunch.measure import inspect_checkpoint

    versions = engine_versions(options.engine)
    if len(versions) > 1:
        raise InputError(f"--engine {options.engine} names several versions", help="name one")
    found = inspect_checkpoint(
        options.checkpoint, options.target, versions[0] if versions else held_versions()[-1]
    )
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(inspection_json(found), indent=2, ensure_ascii=False))
    else:
        show_inspection(out(), found)
    failing = any(finding.severity is Severity.ERROR for finding in found.findings)
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def pull(options: PullOptions) -> ExitCode:
    """Fetch the facts of checkpoints into files. Raises InputError."""
    from speclaunch.app.output.problems import show_problems
    from speclaunch.core import UnreadableFileError
    from speclaunch.engine import HubRefusedError, store_facts
    from speclaunch.measure import checkpoints_to_pull, pulled

    hide_secrets("models pull", options.words)
    checkpoints, problems = checkpoints_to_pull(
        options.words,
        options.config_dir,
        called=options.called,
        revision=options.revision,
        into=options.into,
    )
    for checkpoint in checkpoints:
        try:
            path, new = store_facts(checkpoint.folder, pulled(checkpoint, _today()))
        except HubRefusedError as error:
            problems.append(Problem(f"{checkpoint.name}: {error}", help=error.help))
        except UnreadableFileError as error:
            problems.append(Problem(f"{checkpoint.name}: {error}"))
        except OSError as error:
            problems.append(Problem(f"cannot write {checkpoint.folder}: {error.strerror}"))
        else:
            out().print(f"{from_here(path)}: {'written' if new else 'unchanged'}")
    show_problems(err(), problems)
    return ExitCode.FAILED if problems else ExitCode.CLEAN


def list_models(options: ModelsListOptions) -> ExitCode:
    """List the checkpoints whose facts are in the repository. Raises InputError."""
    from speclaunch.core import UnreadableFileError, models_dir
    from speclaunch.engine import stored_names
    from speclaunch.measure import read_stored

    def read(folder: Path, name: str) -> CheckpointFile | str:
        try:
            return read_stored(folder, name)[1]
        except UnreadableFileError as error:
            return str(error)

    folders = _folders(options.start, needed=not options.index)
    named = {from_here(folder): folder for folder in folders}
    named |= {"index": models_dir()} if options.index else {}
    found = {
        title: [
            (name, read(folder, name))
            for name in stored_names(folder)
            if title != "index" or "/" in name  # that folder has other files, too
        ]
        for title, folder in named.items()
    }
    if options.output_format is OutputFormat.JSON:
        rows = [
            {"model": name, "folder": title, **stored_json(file)}
            for title, files in found.items()
            for name, file in files
        ]
        typer.echo(json.dumps({"version": 1, "models": rows}, indent=2))
    else:
        for title, files in found.items():
            err().print(f"{title}: {len(files)}", style="dim")
            show_stored(out(), files)
    unreadable = any(isinstance(file, str) for files in found.values() for _, file in files)
    return ExitCode.USAGE if unreadable else ExitCode.CLEAN


def show(options: ModelsShowOptions) -> ExitCode:
    """Show all facts of a checkpoint and their sources. Raises InputError."""
    from speclaunch.app.output.problems import show_problems
    from speclaunch.app.verbs.shared import lookup
    from speclaunch.core import models_dir
    from speclaunch.engine import SettingsFrom, Sources, models_folders
    from speclaunch.measure import sources_of

    name = options.name
    requested = lookup(options.models, None, online=options.online, assume=options.assume)
    here = Path.cwd()
    project = SettingsFrom().of(here)
    folders = (*requested.model_dirs, *project.model_dirs)
    assumed = (*requested.assume, *project.assume)
    sources = Sources(folders, models_folders(here), models_dir(), options.online, assumed)
    found = sources_of(name, sources)
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(known_json(name, found), indent=2, default=list))
    elif isinstance(found.used, UnknownFact) and not found.others:
        show_problems(err(), [Problem(f"{name}: {found.used.why}", help=found.used.help)])
    else:
        show_known(out(), name, found)
    return ExitCode.FAILED if isinstance(found.used, UnknownFact) else ExitCode.CLEAN


def check(options: ModelsCheckOptions) -> ExitCode:
    """Compare the repository's facts with the hub. Raises InputError, NoFactsError."""
    from speclaunch.measure import check as compare

    folders = _folders(options.start, needed=True)
    as_json = options.output_format is OutputFormat.JSON
    states, rows = [], []
    for folder in folders:
        for facts in compare(folder, _today(), update=options.update):
            states.append(facts.state)
            if as_json:
                rows.append(checked_json(facts))
            else:
                show_checked(out(), facts)
    if as_json:
        typer.echo(json.dumps({"version": 1, "models": rows}, indent=2))
    if not states:
        raise NoFactsError(_nothing(options.start))
    bad = {FactsState.STALE, FactsState.UNKNOWN}.intersection(states)
    return ExitCode.FAILED if bad else ExitCode.CLEAN


def _folders(start: Path, *, needed: bool) -> tuple[Path, ...]:
    from speclaunch.engine import models_folders

    if not start.exists():
        raise InputError(f"{start}: no such file or directory")
    found = models_folders(start)
    if needed and not found:
        raise NoFactsError(_nothing(start))
    return found


def _nothing(start: Path) -> Problem:
    return Problem(
        f"no .speclaunch/models with facts at or above {start.absolute()}",
        help="create it with `speclaunch models pull RECIPE`",
    )


def _today() -> date:
    """Return today's date in UTC, or that of SOURCE_DATE_EPOCH for reproducible output."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.now(UTC)
    return (datetime.fromtimestamp(int(epoch[:11]), UTC) if epoch.isdecimal() else now).date()
