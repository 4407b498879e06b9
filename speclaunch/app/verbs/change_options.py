"""The options of the verbs that read or write deployments, engines and checkpoints' facts."""

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

    return f"The format to write: {', '.join(RENDERERS)}."


class InitOptions(VerbOptions):
    """The options of `speclaunch init`."""

    target = required(
        str, metavar="TARGET", help="The model to serve: `organisation/name`, or a directory."
    )
    hardware = option(
        str,
        "--hardware",
        metavar="NAME[:COUNT]",
        help="The hardware to serve on: h200:8, h100-80gb:4, rtx4090, mi300x:8.",
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="The SGLang version to write for. Default: the installed one, else the newest.",
    )
    output = option(
        Path, "--output", "-o", metavar="FILE", help="The recipe to write. Default: print it."
    )
    overwrite = OVERWRITE
    force = FORCE
    algorithm = option(
        str,
        "--algorithm",
        metavar="NAME",
        help="Take this way: mtp, eagle3, eagle2, dflash, dspark, standalone, ngram. Default: "
        "the best-founded one that serves.",
    )
    draft = option(str, "--draft", metavar="NAME", help="Take this draft of `speclaunch drafts`.")
    unknown_memory = flag(
        "--unknown-memory", help="Write a recipe, too, of which it is not known whether it fits."
    )
    context = option(
        int,
        "--context",
        metavar="L",
        least=1,
        most=MOST_TOKENS,
        help="Tokens of the longest request, prompt and output. Default: the model's context.",
    )
    tight = flag(
        "--tight",
        help="If nothing is likely to fit, write a recipe that fits only in the best case.",
    )
    interactive = flag("--interactive", help="Ask for what was not said.")
    models = MODELS
    online = ONLINE
    assume = ASSUME


class ImportOptions(VerbOptions):
    """The options of `speclaunch import`."""

    words = repeated(
        str,
        is_required=True,
        metavar="FILE | - | -- COMMAND…",
        help="A shell script, docker-compose or Kubernetes file, a document, `-` for standard"
        " input, or a command after `--`.",
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="The version that the command is written for. Default: that of its image, else "
        "the installed one, else the newest; an older one if only that accepts the command.",
    )
    command = option(
        int,
        "--command",
        metavar="N",
        help="The command to import, by number, if the file has several.",
    )
    to_dir = option(
        Path,
        "--to-dir",
        help="Write every command of the file as a recipe into this directory, which is created.",
    )
    overwrite = OVERWRITE
    force = FORCE


class MigrateOptions(VerbOptions):
    """The options of `speclaunch migrate`."""

    file = required(str, metavar="FILE | -", help="A script, manifest or recipe.")
    to = required(str, "--to", metavar="VERSION", help="The SGLang version to migrate to.")
    source = option(
        str,
        "--from",
        metavar="VERSION",
        help="The SGLang version it was written for. Default: that of its image, else the "
        "newest that accepts the whole command.",
    )
    diff = flag("--diff", help="Print the change as a patch; write nothing.")
    force = FORCE


class RenderOptions(VerbOptions):
    """The options of `speclaunch render`."""

    overrides = OVERRIDES
    to = required(str, "--to", help=_render_help)
    config_dir = CONFIG_DIR
    role = ROLE
    engine = ENGINE
    hardware = HARDWARE
    models = MODELS
    bare = flag("--bare", help="Start the engine alone; deploy.speclaunch is ignored.")
    output = option(Path, "--output", "-o", metavar="FILE", help="Write FILE, whole or not at all.")
    force = FORCE
    trust_engine = TRUST_ENGINE


class DraftsOptions(VerbOptions):
    """The options of `speclaunch drafts`."""

    target = required(
        str,
        metavar="TARGET",
        help="The model to speculate for: `organisation/name`, or a directory.",
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION[,VERSION…]",
        help="Only these SGLang versions count. Default: all that speclaunch knows.",
    )
    hardware = HARDWARE
    models = MODELS
    online = ONLINE
    assume = ASSUME
    every = flag("--all", help="Also show the ways that no version accepts.")
    output_format = OUTPUT_FORMAT


class PullOptions(VerbOptions):
    """The options of `speclaunch models pull`."""

    words = repeated(
        str,
        is_required=True,
        metavar="RECIPE|NAME|DIR…",
        help="A recipe (its target and its draft; overrides may follow), a model on the hub, "
        "or with --as a directory.",
    )
    called = option(str, "--as", metavar="ORG/NAME", help="The name of the directory's checkpoint.")
    revision = option(
        str, "--revision", help="A branch, a tag or a commit on the hub. Default: main."
    )
    into = option(
        Path,
        "--into",
        metavar="DIR",
        help="Where to write. Default: the nearest `.speclaunch/models` from the recipe "
        "(else the working directory) upward, else a new one beside it.",
    )
    config_dir = CONFIG_DIR


_START = option(
    Path,
    metavar="[PATH]",
    default=Path(),
    help="A file or directory: `.speclaunch/models` counts from there upward.",
)


class ModelsListOptions(VerbOptions):
    """The options of `speclaunch models ls`."""

    start = _START
    index = flag("--index", help="List the index that ships with speclaunch, too.")
    output_format = OUTPUT_FORMAT


class ModelsShowOptions(VerbOptions):
    """The options of `speclaunch models show`."""

    name = required(str, metavar="NAME|PATH", help="A checkpoint.")
    models = MODELS
    online = ONLINE
    assume = ASSUME
    output_format = OUTPUT_FORMAT


class ModelsCheckOptions(VerbOptions):
    """The options of `speclaunch models check`."""

    start = _START
    update = flag("--update", help="Write the stale files again.")
    output_format = OUTPUT_FORMAT


class InspectOptions(VerbOptions):
    """The options of `speclaunch models inspect`."""

    checkpoint = required(str, metavar="PATH|NAME", help="A checkpoint's directory, or its name.")
    target = option(
        str, "--target", metavar="PATH|NAME", help="The target that this checkpoint drafts for."
    )
    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="The SGLang version whose loader is asked. Default: the newest known.",
    )
    output_format = OUTPUT_FORMAT


class RecipesOptions(VerbOptions):
    """The options of `speclaunch recipes` and `recipes ls`."""

    config_dir = CONFIG_DIR


class CopyOptions(VerbOptions):
    """The options of `speclaunch recipes cp`."""

    name = required(str, help="A recipe's name.")
    dest = required(Path, help="The file to write, or the directory to put it in.")
    force = flag("--force", help="Overwrite an existing file.")
    config_dir = CONFIG_DIR


class SchemaOptions(VerbOptions):
    """The options of `speclaunch recipes schema`."""

    engine = option(
        str,
        "--engine",
        metavar="VERSION",
        help="The SGLang version whose arguments are known. Default: the newest.",
    )
    section = option(
        str,
        "--section",
        metavar="NAME",
        help="For options of a group that fill this section of a recipe: `args`, `engine`.",
    )
    output = option(Path, "--output", "-o", metavar="FILE", help="The file to write it to.")
    config_dir = CONFIG_DIR


class InstallOptions(VerbOptions):
    """The options of `speclaunch engine install`."""

    name = required(str, help="The engine to install: cpu.")
    release = option(
        str,
        "--release",
        metavar="VERSION",
        help="The SGLang version, in its own folder next to the default. Default: 0.5.23.",
    )
    torch_index = option(
        str,
        "--torch-index",
        metavar="URL",
        help="A package index with torch's CPU build. The default index may have only GPU "
        "builds of several GB.",
    )
    force = flag("--force", help="Rebuild it from scratch.")


class CatalogueShowOptions(VerbOptions):
    """The options of `speclaunch engine catalogue show`."""

    name = required(str, help="A server argument: its flag or its name.")


class CatalogueAddOptions(VerbOptions):
    """The options of `speclaunch engine catalogue add`."""

    what = required(
        str,
        metavar="VERSION|installed|PATH",
        help="A released version (its wheel is downloaded), the installed engine, or a wheel or"
        " package directory.",
    )
    python = option(str, "--python", help="The interpreter of the installed engine.")


class JudgeAddOptions(VerbOptions):
    """The options of `speclaunch engine judge add`."""

    name = required(str, metavar="VERSION", help="A released version, or a name for a fork.")
    source = option(
        str,
        "--from",
        metavar="WHEEL|PATH|installed",
        help="A wheel, a checkout or package folder, or the SGLang of an interpreter, instead "
        "of the released wheel.",
    )
    python = option(str, "--python", help="The interpreter of `--from installed`.")
    torch = flag(
        "--torch", help="Over the CPU engine's torch, even where the judge would do without."
    )


class JudgeRemoveOptions(VerbOptions):
    """The options of `speclaunch engine judge rm`."""

    name = required(str, help="The judge, as `ls` names it.")


class ExplainOptions(VerbOptions):
    """The options of `speclaunch explain`."""

    code = required(str, metavar="CODE", help="A rule's code or name.")


class AdvisoriesListOptions(VerbOptions):
    """The options of `speclaunch advisories` and `advisories ls`."""

    engine = option(
        str,
        "--engine",
        metavar="VERSION[,VERSION…]",
        help="Only advisories that affect one of these SGLang versions.",
    )
    output_format = OUTPUT_FORMAT


class AdvisoriesShowOptions(VerbOptions):
    """The options of `speclaunch advisories show`."""

    id = required(str, metavar="ID", help="An advisory's ID or name.")
    output_format = OUTPUT_FORMAT


class AdvisoriesCheckOptions(VerbOptions):
    """The options of `speclaunch advisories check`."""

    words = OVERRIDES
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

    osv = flag("--osv", help="The format: OSV, schema 1.6.")


class LspOptions(VerbOptions):
    """The options of `speclaunch lsp`."""

    stdio = flag(
        "--stdio", default=True, help="Speak on standard input and output: it always does."
    )
