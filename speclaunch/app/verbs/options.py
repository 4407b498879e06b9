"""Option records, from which typer, the quick reader and completion derive their options.

A verb's options are a class: `engine = option(str, "--engine", help=…)`. On an instance of the
class, `options.engine` is the value. Options of several verbs are at the end of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class Option(Generic[T]):
    """An option, or an argument if it has no `names`."""

    def __init__(
        self,
        kind: type,
        names: tuple[str, ...],
        default: T,
        help: str | Callable[[], str],  # noqa: A002 - as typer calls it
        *,
        metavar: str | None = None,
        is_list: bool = False,
        is_required: bool = False,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        self.kind = kind
        self.names = names
        self.default = default
        self._help = help
        self.metavar = metavar
        self.is_list = is_list
        self.is_required = is_required
        self.least = least
        self.most = most

    @property
    def help(self) -> str:
        """Text of `--help`; completion shows its first sentence."""
        return self._help if isinstance(self._help, str) else self._help()

    @property
    def is_flag(self) -> bool:
        """True if no value follows it."""
        return self.kind is bool

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names; `--exit-zero/--no-exit-zero` counts as two."""
        return tuple(part for name in self.names for part in name.split("/"))

    @overload
    def __get__(self, options: None, owner: type) -> Self: ...
    @overload
    def __get__(self, options: object, owner: type) -> T: ...
    def __get__(self, options: object, owner: type) -> Any:
        return self if options is None else self.default


@overload
def option(kind: type[T], *names: str, default: T, **more: Any) -> Option[T]: ...
@overload
def option(kind: type[T], *names: str, **more: Any) -> Option[T | None]: ...
def option(kind: type[T], *names: str, default: Any = None, **more: Any) -> Option[Any]:
    """Return an option with one value."""
    return Option(kind, names, default, **more)


def required(kind: type[T], *names: str, **more: Any) -> Option[T]:
    """Return a required option, or a required argument if without names."""
    return Option(kind, names, None, is_required=True, **more)  # type: ignore[arg-type]


def repeated(kind: type[T], *names: str, **more: Any) -> Option[tuple[T, ...]]:
    """Return an option with any number of values, or arguments if without names."""
    return Option(kind, names, (), is_list=True, **more)


def flag(*names: str, default: bool = False, **more: Any) -> Option[bool]:
    """Return an option without a value."""
    return Option(bool, names, default, **more)


class VerbOptions:
    """Option values of a verb, by attribute name."""

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - vars(type(self)).keys():
            raise TypeError(f"no such options: {', '.join(unknown)}")
        vars(self).update(values)

    @classmethod
    def declared(cls) -> dict[str, Option[Any]]:
        """Return the options by attribute name, in the order of the help."""
        return {name: option for name, option in vars(cls).items() if isinstance(option, Option)}

    def changed(self, **values: Any) -> Self:
        """Return a copy of the options with `values` replaced."""
        return type(self)(**{**vars(self), **values})

    def __eq__(self, other: object) -> bool:
        names = self.declared()
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in names
        )

    __hash__ = None  # type: ignore[assignment]


class OutputFormat(StrEnum):
    """Formats of results."""

    TEXT = "text"
    JSON = "json"


class LintFormat(StrEnum):
    """Formats of `lint`, each with a module in output/formats/."""

    TEXT = "text"
    CONCISE = "concise"
    JSON = "json"
    GITHUB = "github"
    GITLAB = "gitlab"
    SARIF = "sarif"
    JUNIT = "junit"
    RDJSON = "rdjson"
    AZURE = "azure"


class CertificateFormat(StrEnum):
    """Formats of a certificate of `bench`."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


class DifferenceFormat(StrEnum):
    """Formats of `bench compare`."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


MOST_TOKENS = 1 << 24
"""Maximum number of tokens of a request."""

ASSUME = repeated(
    str,
    "--assume",
    metavar="NAME=SIBLING",
    help="Take the checkpoint NAME, of which nothing is known, to be as the checkpoint "
    "SIBLING. Repeatable.",
)
CONFIG_DIR = repeated(
    Path, "--config-dir", metavar="DIR", help="Your own recipes and groups. Repeatable."
)
ENGINE = option(
    str, "--engine", metavar="VERSION", help="The SGLang version to write the arguments for."
)
ENGINES = option(
    str,
    "--engine",
    metavar="VERSION[,VERSION…]",
    help="SGLang versions to check for; `installed`, or the path of a package, checkout or "
    "wheel for an engine that is not a release. Default: the recipe's, else the "
    "installed engine's, else the newest known.",
)
FORCE = flag("--force", help="Write it despite errors that the rules find in it.")
HARDWARE = option(
    str,
    "--hardware",
    metavar="NAME[:COUNT]",
    help="The hardware to run on: h100, h100-80gb:8, a100-40gb, rtx4090, b200, mi300x, cpu.",
)
IGNORE = repeated(str, "--ignore", metavar="CODE,…", help="Skip rules whose code starts with this.")
MODELS = repeated(
    Path,
    "--models",
    metavar="DIR",
    help="Where checkpoints are: DIR/organisation/name/config.json, or a hub cache. Repeatable.",
)
ONLINE = flag("--online", help="Fetch missing model configurations from the hub.")
OUTPUT_FORMAT = option(
    OutputFormat, "--output-format", default=OutputFormat.TEXT, help="Output format."
)
OVERRIDES = repeated(
    str,
    is_required=True,
    metavar="RECIPE [key=value]…",
    help="The recipe (`recipe=NAME`, `NAME` or a path to a YAML file) and Hydra overrides.",
)
OVERWRITE = flag("--overwrite", help="Replace an existing file.")
ROLE = option(str, "--role", metavar="NAME", help="The role, of a recipe that has several.")
SELECT = repeated(
    str, "--select", metavar="CODE,…", help="Check only rules whose code starts with this."
)
STRICT = flag("--strict", help="Fail on warnings, too.")
TRUST_ENGINE = flag(
    "--trust-engine",
    help="Run the interpreter that a recipe names (engine.python) to identify its engine. "
    "Without it only the files of its environment are read, unless the engine is started.",
)
