"""The options of the verbs that read or write deployments, engines and checkpoint facts."""

from __future__ import annotations

from pathlib import Path

from speclaunch.app.verbs.options import (
    ASSUME,
    CONFIG_DIR,
    ENGINE,
    ENGINES,
    FORCE,
    HARDWARE,
    MODELS,
    MOST_TOKENS,
    ONLINE,
    OUTPUT_FORMAT,
    OVERRIDES,
    OVERWRITE,
    ROLE,
    TRUST_ENGINE,
    VerbOptions,
    flag,
    option,
    repeated,
    required,
)


def _render_help() -> str:
    from speclaunch.deployments import RENDERERS

    return f"Format to write: {', '.join(RENDERERS)}."


def _release_help() -> str:
    from speclaunch.engine import SGLANG_VERSION

    return f"SGLang version to install. Other versions remain installed. Default: {SGLANG_VERSION}."


def _removed_release_help() -> str:
    from speclaunch.engine import SGLANG_VERSION

    return f"SGLang version of the engine. Default: {SGLANG_VERSION}."


class InitOptions(VerbOptions):
    """The options of `speclaunch init`."""

    target = required(
        str, metavar="TARGET", help="Model to serve: `organization/name`, or a directory."
    )
    hardware = option(
        str,
        "--hardware",
        metavar="NAME[:COUNT]",
        help="Hardware to serve on, for example h200:8, h100-80gb:4 or rtx4090. Required without "
        "--interactive.",
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="SGLang version to write the recipe for. Default: the installed version, else the "
        "newest known.",
    )
    output = option(
        Path,
        "--output",
        "-o",
        metavar="FILE",
        section="Output",
        help="File to write. Default: standard output.",
    )
    overwrite = OVERWRITE
    force = FORCE
    algorithm = option(
        str,
        "--algorithm",
        metavar="NAME",
        help="Speculation method: mtp, eagle3, eagle2, dflash, dspark, standalone, ngram. "
        "Default: selected as described above.",
    )
    draft = option(
        str, "--draft", metavar="NAME", help="Draft to use, as listed by `speclaunch drafts`."
    )
    unknown_memory = flag(
        "--unknown-memory", help="Write the recipe even if its memory use is unknown."
    )
    context = option(
        int,
        "--context",
        metavar="L",
        least=1,
        most=MOST_TOKENS,
        help="Maximum number of tokens per request (prompt plus output). Default: the model's "
        "context length.",
    )
    tight = flag(
        "--tight",
        help="If no recipe is likely to fit, write one that fits only in the best case.",
    )
    interactive = flag("--interactive", help="Prompt for missing options.")
    models = MODELS
    online = ONLINE
    assume = ASSUME


class ImportOptions(VerbOptions):
    """The options of `speclaunch import`."""

    words = repeated(
        str,
        is_required=True,
        metavar="FILE | - | -- COMMAND…",
        help="Shell script, docker-compose or Kubernetes file, Markdown document, `-` for "
        "standard input, or a command after `--`.",
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="SGLang version of the command. Default: the image's version. Without an image: the "
        "installed version, else the newest known. If that version rejects the command: the newest "
        "version that accepts it.",
    )
    command = option(
        int,
        "--command",
        metavar="N",
        help="Number of the command to import, if the file has several.",
    )
    to_dir = option(
        Path,
        "--to-dir",
        metavar="DIR",
        section="Output",
        help="Write every command of the file as a recipe into DIR, which is created if missing.",
    )
    overwrite = flag("--overwrite", section="Output", help="With --to-dir: replace existing files.")
    force = FORCE


class MigrateOptions(VerbOptions):
    """The options of `speclaunch migrate`."""

    file = required(str, metavar="FILE | -", help="Script, manifest or recipe.")
    to = required(str, "--to", metavar="VERSION", help="SGLang version to migrate to.")
    source = option(
        str,
        "--from",
        metavar="VERSION",
        help="SGLang version of the file. Default: the image's version. Without an image: the new "
        "version if it accepts the command, else the newest version that does.",
    )
    diff = flag("--diff", section="Output", help="Print the change as a patch without writing it.")
    force = FORCE


class RenderOptions(VerbOptions):
    """The options of `speclaunch render`."""

    overrides = OVERRIDES
    to = required(str, "--to", metavar="FORMAT", help=_render_help)
    config_dir = CONFIG_DIR
    role = ROLE
    engine = ENGINE
    hardware = HARDWARE
    models = MODELS
    bare = flag("--bare", help="Omit speclaunch from the output, ignoring deploy.speclaunch.")
    acceptance = option(
        str,
        "--acceptance",
        metavar="LENGTH|MEASUREMENT",
        help="With --to prometheus-rules or grafana: expected acceptance length (tokens per "
        "verification), or the saved measurement that contains it, named as in `bench show`. "
        "Default for alerts: the server's mean over the last day.",
    )
    output = option(
        Path,
        "--output",
        "-o",
        metavar="FILE",
        section="Output",
        help="File to write. Default: standard output.",
    )
    force = FORCE
    trust_engine = TRUST_ENGINE


class DraftsOptions(VerbOptions):
    """The options of `speclaunch drafts`."""

    target = required(
        str,
        metavar="TARGET",
        help="Model to speculate for: `organization/name`, or a directory.",
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION[,VERSION…]",
        section="Deployment",
        help="SGLang versions to consider. Default: all known versions.",
    )
    hardware = option(
        str,
        "--hardware",
        metavar=HARDWARE.metavar,
        section="Deployment",
        help="Hardware for memory estimates, for example h100-80gb:8. Default: no estimates.",
    )
    models = MODELS
    online = ONLINE
    assume = ASSUME
    every = flag(
        "--all", help="Also show methods that no version accepts, and all published measurements."
    )
    output_format = OUTPUT_FORMAT


class PullOptions(VerbOptions):
    """The options of `speclaunch models pull`."""

    words = repeated(
        str,
        is_required=True,
        metavar="RECIPE|NAME|DIR…",
        help="Recipe (with overrides), Hugging Face model, or directory (with --as).",
    )
    called = option(
        str,
        "--as",
        metavar="ORG/NAME",
        help="Read the directory and store its facts under this name.",
    )
    revision = option(
        str,
        "--revision",
        metavar="REV",
        help="Branch, tag or commit on Hugging Face. Default: main.",
    )
    into = option(
        Path,
        "--into",
        metavar="DIR",
        help="Directory to write to. Default: the nearest `.speclaunch/models` in or above the "
        "recipe's directory (without a recipe: the working directory), else a new one in "
        "that directory.",
    )
    config_dir = CONFIG_DIR


_START = option(
    Path,
    metavar="PATH",
    default=Path(),
    help="File or directory. The search for `.speclaunch/models` starts here and goes upward.",
)


class ModelsListOptions(VerbOptions):
    """The options of `speclaunch models ls`."""

    start = _START
    index = flag("--index", help="Also list the checkpoints in the index shipped with speclaunch.")
    output_format = OUTPUT_FORMAT


class ModelsShowOptions(VerbOptions):
    """The options of `speclaunch models show`."""

    name = required(str, metavar="NAME|PATH", help="Name or directory of the checkpoint.")
    models = MODELS
    online = ONLINE
    assume = ASSUME
    output_format = OUTPUT_FORMAT


class ModelsCheckOptions(VerbOptions):
    """The options of `speclaunch models check`."""

    start = _START
    update = flag("--update", help="Rewrite stale files.")
    output_format = OUTPUT_FORMAT


class InspectOptions(VerbOptions):
    """The options of `speclaunch models inspect`."""

    checkpoint = required(str, metavar="PATH|NAME", help="Directory or name of the checkpoint.")
    target = option(
        str, "--target", metavar="PATH|NAME", help="Target model, if the checkpoint is a draft."
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="SGLang version whose loader must accept the checkpoint. Default: the newest known.",
    )
    output_format = OUTPUT_FORMAT


class RecipesOptions(VerbOptions):
    """The options of `speclaunch recipes` and `recipes ls`."""

    config_dir = CONFIG_DIR


class CopyOptions(VerbOptions):
    """The options of `speclaunch recipes cp`."""

    name = required(str, help="Name of the recipe.")
    dest = required(Path, help="File or directory to copy to.")
    overwrite = flag("--overwrite", aliases=("--force",), help="Replace an existing file.")
    config_dir = CONFIG_DIR


class SchemaOptions(VerbOptions):
    """The options of `speclaunch recipes schema`."""

    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="SGLang version whose arguments the schema accepts. Default: the newest known.",
    )
    section = option(
        str,
        "--section",
        metavar="NAME",
        help="Write the schema of config-group files for one recipe section, such as `args`.",
    )
    output = option(
        Path, "--output", "-o", metavar="FILE", help="File to write. Default: standard output."
    )
    config_dir = CONFIG_DIR


class InstallOptions(VerbOptions):
    """The options of `speclaunch engine install`."""

    name = required(str, help="Engine to install: cpu.")
    release = option(
        str,
        "--release",
        metavar="VERSION",
        help=_release_help,
    )
    torch_index = option(
        str,
        "--torch-index",
        metavar="URL",
        help="Package index with torch's CPU build. Default: pip's index, else "
        "PyTorch's CPU index.",
    )
    force = flag("--force", help="Reinstall the engine from scratch.")


class EngineRemoveOptions(VerbOptions):
    """The options of `speclaunch engine rm`."""

    name = required(str, help="Engine to remove: cpu.")
    release = option(str, "--release", metavar="VERSION", help=_removed_release_help)


class CatalogueShowOptions(VerbOptions):
    """The options of `speclaunch engine catalogue show`."""

    name = required(str, help="Flag or name of a server argument.")


class CatalogueAddOptions(VerbOptions):
    """The options of `speclaunch engine catalogue add`."""

    what = required(
        str,
        metavar="VERSION|installed|PATH",
        help="Release (its wheel is downloaded), the installed engine, or a wheel or package "
        "directory.",
    )
    python = option(
        str,
        "--python",
        metavar="PATH",
        help="Interpreter of the installed engine. Default: the interpreter that a launch uses.",
    )


class JudgeAddOptions(VerbOptions):
    """The options of `speclaunch engine judge add`."""

    name = required(str, metavar="VERSION", help="Release, or a name for a fork.")
    source = option(
        str,
        "--from",
        metavar="WHEEL|PATH|installed",
        help="Wheel, checkout or package directory to use instead of the released wheel. "
        "`installed` uses the SGLang of the --python interpreter.",
    )
    python = option(
        str,
        "--python",
        metavar="PATH",
        help="Interpreter for `--from installed`. Default: the interpreter that a launch uses.",
    )
    torch = flag("--torch", help="Use the CPU engine's torch, even if the judge does not need it.")


class JudgeRemoveOptions(VerbOptions):
    """The options of `speclaunch engine judge rm`."""

    name = required(str, metavar="NAME", help="Name of the judge, as listed by `engine judge ls`.")


class ExplainOptions(VerbOptions):
    """The options of `speclaunch explain`."""

    code = required(str, metavar="CODE", help="Code or name of the rule.")


class AdvisoriesListOptions(VerbOptions):
    """The options of `speclaunch advisories` and `advisories ls`."""

    engine = option(
        str,
        "--engine",
        metavar="VERSION[,VERSION…]",
        help="List only advisories that affect one of these SGLang versions.",
    )
    output_format = OUTPUT_FORMAT


class AdvisoriesShowOptions(VerbOptions):
    """The options of `speclaunch advisories show`."""

    id = required(str, metavar="ID", help="ID or name of the advisory.")
    output_format = OUTPUT_FORMAT


class AdvisoriesCheckOptions(VerbOptions):
    """The options of `speclaunch advisories check`."""

    words = repeated(
        str,
        is_required=True,
        metavar="RECIPE [key=value]…|PATH…",
        help="Recipe (`recipe=NAME`, `NAME` or the path of a YAML file) with Hydra overrides, or "
        "files and directories as for `lint`.",
    )
    config_dir = CONFIG_DIR
    role = ROLE
    engine = ENGINES
    hardware = HARDWARE
    models = MODELS
    online = ONLINE
    assume = ASSUME
    trust_engine = TRUST_ENGINE
    output_format = OUTPUT_FORMAT


class AdvisoriesExportOptions(VerbOptions):
    """The options of `speclaunch advisories export`."""

    osv = flag("--osv", help="Use the OSV format, schema 1.6.")


class AdvisoriesUpdateOptions(VerbOptions):
    """The options of `speclaunch advisories update`."""

    source = required(
        str,
        metavar="FILE|DIR|URL",
        help="A file written by `speclaunch advisories export`, a directory with "
        "`advisories.json`, or an https address.",
    )
    sha256 = option(
        str,
        "--sha256",
        metavar="HEX",
        help="SHA-256 checksum of the file. Default: read from FILE.sha256 or URL.sha256.",
    )


class LspOptions(VerbOptions):
    """The options of `speclaunch lsp`."""

    stdio = flag("--stdio", help="Ignored. Some editors pass it.")
