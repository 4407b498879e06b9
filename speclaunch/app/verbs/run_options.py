"""The options of the verbs for launches: `ps`, `logs`, `stop`, `runs`, `diagnose`."""

from __future__ import annotations

from pathlib import Path

from speclaunch.app.verbs.options import (
    OUTPUT_FORMAT,
    VerbOptions,
    flag,
    option,
    repeated,
    required,
)

_DIRECTORY = option(
    Path,
    "--dir",
    metavar="DIR",
    help="Directory of the launches. Set it if `launch.log_dir` is not the default.",
)


class FormatOptions(VerbOptions):
    """The options of verbs that accept only an output format."""

    output_format = OUTPUT_FORMAT


class StopOptions(VerbOptions):
    """The options of `speclaunch stop`."""

    name = option(str, help="Launch, recipe, port or process. Default: the only running engine.")
    every = flag("--all", help="Stop every engine of this user.")
    timeout = option(
        float,
        "--timeout",
        metavar="SECONDS",
        least=0,
        default=60,
        help="Time to wait for the engine to exit.",
    )


class WatchOptions(VerbOptions):
    """The options of `speclaunch watch`."""

    names = repeated(
        str,
        metavar="NAME|URL…",
        help="Launch, recipe, port or process, or the address of any SGLang server or router. "
        "Default: all running engines.",
    )
    once = flag(
        "--once",
        help="Show the state once. Exit 1 if a server has a problem, 2 if a server is "
        "unreachable or still starting.",
    )
    interval = option(
        float,
        "--interval",
        metavar="SECONDS",
        least=0.5,
        most=3600,
        default=2,
        help="Time between readings.",
    )
    output_format = OUTPUT_FORMAT


class LogsOptions(VerbOptions):
    """The options of `speclaunch logs`."""

    name = option(str, help="Launch, recipe, port or process. Default: the latest launch.")
    follow = flag("--follow", "-f", help="Follow the log as it grows.")
    tail = option(int, "--tail", "-n", least=0, help="Print only the last N lines.")
    attempt = option(
        int,
        "--attempt",
        least=1,
        help="Print the log of start attempt N. Default: the last attempt.",
    )
    own = flag("--speclaunch", help="Print the output of the detached speclaunch process.")


class RunsOptions(VerbOptions):
    """Options of `speclaunch runs` that precede its subcommand."""

    directory = _DIRECTORY


class RunsListOptions(VerbOptions):
    """The options of `speclaunch runs ls`."""

    directory = _DIRECTORY
    output_format = OUTPUT_FORMAT


class RunsShowOptions(VerbOptions):
    """The options of `speclaunch runs show`."""

    name = option(str, default="last", help="Launch, recipe (selects its newest launch) or `last`.")
    directory = _DIRECTORY
    output_format = OUTPUT_FORMAT


class RunsPruneOptions(VerbOptions):
    """The options of `speclaunch runs prune`."""

    keep = option(int, "--keep", least=0, default=20, help="Number of launches to keep.")
    directory = _DIRECTORY


class DiagnoseOptions(VerbOptions):
    """The options of `speclaunch diagnose`."""

    log = required(
        str,
        metavar="LOGFILE|RUN|-",
        help="Engine log, or a launch: its name, its recipe (selects the newest launch) or "
        "`last`. `-` reads standard input.",
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="SGLang version that wrote the log. Default: inferred from its text.",
    )
    output_format = OUTPUT_FORMAT
