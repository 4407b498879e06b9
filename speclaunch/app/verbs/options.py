"""Option records from which typer, the quick reader and completion derive their options.

A verb's options are a class: `engine = option(str, "--engine", help=…)`. On an instance of the
class, `options.engine` is the value. Options that verbs share are at the end of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


_METAVARS: dict[type, str] = {int: "N", float: "NUMBER", Path: "PATH"}


class Option(Generic[T]):
    """An option, or an argument if it has no `names`. `aliases` are accepted but not shown."""

    def __init__(
        self,
        kind: type,
        names: tuple[str, ...],
        default: T,
        help: str | Callable[[], str],  # noqa: A002 - as typer calls it
        *,
        metavar: str | None = None,
        aliases: tuple[str, ...] = (),
        is_list: bool = False,
        is_required: bool = False,
        least: float | None = None,
        most: float | None = None,
        section: str = "Options",
    ) -> None:
        self.kind = kind
        self.names = names
        self.default = default
        self._help = help
        self.metavar = metavar or (_METAVARS.get(kind) if names else None)
        self.aliases = aliases
        self.is_list = is_list
        self.is_required = is_required
        self.least = least
        self.most = most
        self.section = section

    @property
    def help(self) -> str:
        """Text of `--help`; completion shows its first sentence."""
        return self._help if isinstance(self._help, str) else self._help()

    @property
    def is_flag(self) -> bool:
        return self.kind is bool

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names and aliases; `--exit-zero/--no-exit-zero` counts as two."""
        return tuple(part for name in self.names for part in name.split("/")) + self.aliases

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
    """Return a required option, or, without names, a required argument."""
    return Option(kind, names, None, is_required=True, **more)  # type: ignore[arg-type]


def repeated(kind: type[T], *names: str, **more: Any) -> Option[tuple[T, ...]]:
    """Return an option with any number of values, or, without names, repeated arguments."""
    return Option(kind, names, (), is_list=True, **more)


def flag(*names: str, default: bool = False, **more: Any) -> Option[bool]:
    """Return an option without a value."""
    return Option(bool, names, default, **more)


class VerbOptions:
    """Option values of a verb, by attribute name."""

    is_configurable = False
    """True if keys of speclaunch.toml set options of the same name."""

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - vars(type(self)).keys():
            raise TypeError(f"no such options: {', '.join(unknown)}")
        vars(self).update(values)

    @classmethod
    def declared(cls) -> dict[str, Option[Any]]:
        """Return the options by attribute name, in the order of the help."""
        return {name: option for name, option in vars(cls).items() if isinstance(option, Option)}

    def changed(self, **values: Any) -> Self:
        return type(self)(**{**vars(self), **values})

    def __eq__(self, other: object) -> bool:
        names = self.declared()
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in names
        )

    __hash__ = None  # type: ignore[assignment]


class OutputFormat(StrEnum):
    """Output formats of most verbs."""

    TEXT = "text"
    JSON = "json"


class LintFormat(StrEnum):
    """Formats of `lint`; see `FORMATS` in output/formats.py."""

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
    """Formats of a `bench` certificate."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    SPECULATION_PROFILE = "speculation_profile"


class ProveFormat(StrEnum):
    """Formats of `prove`; HTML only for request contracts."""

    TEXT = "text"
    JSON = "json"
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
    section="Facts",
    help="Assume the facts of checkpoint SIBLING for the unknown checkpoint NAME. Repeatable.",
)
CONFIG_DIR = repeated(
    Path,
    "--config-dir",
    metavar="DIR",
    section="Deployment",
    help="Directory with your own recipes and config groups. Repeatable.",
)
ENGINE = option(
    str,
    "--engine",
    metavar="VERSION",
    section="Deployment",
    help="Expected SGLang version of the engine. Default: the recipe's version, else the "
    "installed one, else the newest known.",
)
ENGINE_PYTHON = repeated(
    str,
    "--engine-python",
    metavar="VERSION=PATH",
    section="Run",
    help="Python interpreter with SGLang VERSION. Repeatable. Default: CPU engines, installed as "
    "needed.",
)
ENGINES = option(
    str,
    "--engine",
    metavar="VERSION[,VERSION…]",
    section="Deployment",
    help="SGLang versions to check: numbers, `installed`, or the path of a package, checkout or "
    "wheel. Default: the deployment's version, else the installed one, else the newest known.",
)
FORCE = flag("--force", section="Output", help="Write the result even if the rules find errors.")
HARDWARE = option(
    str,
    "--hardware",
    metavar="NAME[:COUNT]",
    section="Deployment",
    help="Hardware of the engine, for example h100-80gb:8, rtx4090 or cpu. Default: the "
    "deployment's.",
)
IGNORE = repeated(
    str,
    "--ignore",
    metavar="CODE,…",
    section="Rules",
    help="Skip rules whose code starts with CODE.",
)
LOCK = flag(
    "--lock",
    section="Output",
    help="Write a lock file next to the recipe: the working settings, and the versions and "
    "digests of the engine, its packages and the weights.",
)
MODELS = repeated(
    Path,
    "--models",
    metavar="DIR",
    section="Facts",
    help="Directory of checkpoints (DIR/organization/name/config.json) or Hugging Face cache. "
    "Repeatable.",
)
ONLINE = flag("--online", section="Facts", help="Fetch missing model configs from Hugging Face.")
OUTPUT_FORMAT = option(
    OutputFormat,
    "--output-format",
    default=OutputFormat.TEXT,
    section="Output",
    help="Output format.",
)
OVERRIDES = repeated(
    str,
    is_required=True,
    metavar="RECIPE [key=value]…",
    help="Recipe (`recipe=NAME`, `NAME` or the path of a YAML file) and Hydra overrides.",
)
OVERWRITE = flag("--overwrite", section="Output", help="Replace an existing file.")
ROLE = option(
    str,
    "--role",
    metavar="NAME",
    section="Deployment",
    help="Role to use, if the recipe has several.",
)
SELECT = repeated(
    str,
    "--select",
    metavar="CODE,…",
    section="Rules",
    help="Check only rules whose code starts with CODE.",
)
STRICT = flag("--strict", section="Rules", help="Also fail on warnings.")
TIMEOUT = option(
    float,
    "--timeout",
    metavar="SECONDS",
    least=1,
    default=1800,
    section="Run",
    help="Time limit for each engine start.",
)
TRUST_ENGINE = flag(
    "--trust-engine",
    section="Facts",
    help="Allow running the recipe's interpreter (engine.python) to identify the engine.",
)
