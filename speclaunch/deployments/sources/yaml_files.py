"""Read YAML that may contain server commands: choose the reader, and read Compose and tasks.

Tasks are all other YAML and JSON with commands: dstack and SkyPilot tasks, CI jobs, playbooks,
chart values, the containers of cloud services. The case of keys does not matter. A string is a
script. A list below `commands`, `script` and similar keys is a script with
one line per item. A list of tokens is a command. Sibling and parent keys set the environment, the
image and the GPUs. SkyPilot and dstack set variables from the `resources`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import is_secret_variable, lazy
from speclaunch.deployments.sources import containers, nodes, sglang_yaml, srt_slurm
from speclaunch.deployments.sources.containers import (
    Collected,
    Env,
    ServiceSite,
    image_in,
    image_of,
    image_program,
    interpolated,
    left_out,
    listed,
    substituted,
    text_at,
)
from speclaunch.deployments.sources.effective_words import read_below
from speclaunch.deployments.sources.fields import Field, split
from speclaunch.deployments.sources.interface import (
    SERVER,
    VLLM,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.deployments.sources.source_text import (
    Document,
    SourceBuilder,
    SourceText,
    WordPiece,
    joined,
)
from speclaunch.deployments.sources.wrappers import declared


def plain_data(text: str) -> Any:
    """Return the data of a YAML text; None if it is empty, invalid or not plain."""
    from speclaunch.deployments.recipe.source import (  # noqa: PLC0415  scripts need none
        NotPlainError,
        compose_node,
        plain_value,
    )

    with suppress(yaml.YAMLError, NotPlainError, ValueError, RecursionError):
        node = compose_node(text)
        return None if node is None else plain_value(node)
    return None


def read_yaml_document(
    document: Document, read_document: Callable[[Document], Reading] | None = None
) -> Reading:
    """Return the servers in a YAML document; see `files.read_yaml`.

    `read_document` reads strings that are documents themselves (Markdown).
    """
    roots = nodes.load(document)
    if not roots:
        return Reading()
    if any(_is_object(root) for root in roots):
        reading = containers.read_kubernetes(roots, document)
        is_known = reading.invocations or any("apiVersion" in nodes.entries(r) for r in roots)
        reading = reading if reading.invocations else _with_values(reading, roots, document)
        return reading if is_known else read_tasks(roots, document, read_document)
    keys = nodes.entries(roots[0])
    is_akash = "services" in keys and {"profiles", "deployment"} <= keys.keys()
    if isinstance(keys.get("services"), yaml.MappingNode) and not is_akash:
        return read_compose(roots[0], document)
    if any(srt_slurm.looks_like(root) for root in roots):
        return srt_slurm.read_recipes(roots, document)
    if len(roots) == 1 and not _is_task(roots[0]) and sglang_yaml.looks_like(roots[0]):
        return sglang_yaml.read_root(roots[0], document)
    return read_tasks(roots, document, read_document)


_CHART_KINDS = ("Application", "ApplicationSet", "HelmRelease", "HelmChart", "HelmChartConfig")
_VALUES = ("values", "valuesObject", "valuesContent")


def _is_object(root: yaml.Node) -> bool:
    keys = nodes.entries(root)
    return "kind" in keys and ("apiVersion" in keys or "spec" in keys or "items" in keys)


def _with_values(reading: Reading, roots: Sequence[yaml.Node], document: Document) -> Reading:
    """Add the servers in the values that objects of Argo CD, Flux and K3s set for a chart."""
    found = Collected(document)
    found.add(reading)
    charts = (r for r in roots if nodes.text(nodes.entries(r).get("kind")) in _CHART_KINDS)
    for keys in map(nodes.entries, chain.from_iterable(map(nodes.walk, charts))):
        for value in (keys[name] for name in _VALUES if name in keys):
            with found.tolerant():
                part, held = document, [value]
                if isinstance(value, yaml.ScalarNode):
                    part = nodes.StringDocument(nodes.source(value, document))
                    held = nodes.load(part)
                found.add(read_tasks(held, part))
    return found.reading()


def _is_task(root: yaml.Node) -> bool:
    """True if a key runs a command. `model`, `port` and `env` are ignored: they may be SGLang's."""
    return bool(nodes.entries(root).keys() & {"commands", "run", "script", "jobs"})


# -- Compose: the services that start servers

_READ_OF_SERVICES = frozenset({"image", "entrypoint", "command", "environment", "env_file"})
_ENV_LINE = lazy(r"(?m)^(?:export )?([A-Za-z_]\w*)=([^\n]+)")
_ENV_FILE = "the variables in that file are not read"


def read_compose(root: yaml.Node, document: Document) -> Reading:
    """Return the server commands of a docker-compose file."""
    reading = Collected(document)
    sites: list[ServiceSite] = []
    outside = _variables_in(".env", root, document)
    services = nodes.entries(root).get("services")
    named = nodes.entries(services)
    for name, key, service in nodes.pairs(services):
        first, before = len(reading.invocations), len(reading.routers)
        keys = nodes.entries(service)
        own, passed = _compose_environment(keys.get("environment"), document, outside)
        parent = nodes.entries(keys.get("extends"))
        base = nodes.text(parent.get("service", keys.get("extends"))) or ""
        below = nodes.entries(named.get(base)) if "file" not in parent else {}
        others = [_compose_environment(below.get("environment"), document, outside)[0]]
        keys = below | keys
        dropped = tuple(left_out(keys, _READ_OF_SERVICES, document))
        for item in reversed(listed(keys.get("env_file"))):  # the last file wins
            file = nodes.text(nodes.entries(item).get("path", item))
            others.append(_variables_in(file, item, document))
            if not others[-1]:
                dropped = (Dropped("env_file", nodes.place(item, document), _ENV_FILE), *dropped)
        inherited = dict(chain.from_iterable(held.items() for held in reversed(others)))
        env = {name: inherited[name] for name in inherited.keys() - passed.keys()} | own
        words = [
            *image_program(keys, "entrypoint", document),
            *_compose_words(keys.get("entrypoint"), document, outside),
            *_compose_words(keys.get("command"), document, outside),
        ]
        with reading.within(image_in(keys, document, outside)):
            reading.command(words, env, passed, name, dropped)
        servers = range(first, len(reading.invocations))
        routers = range(before, len(reading.routers))
        if servers or routers:
            sites.append(ServiceSite(name, service, key, servers, routers))
    done = reading.reading()
    if not done.invocations:
        return done
    from speclaunch.deployments.sources import compose_and_jobs  # noqa: PLC0415  few files have a server

    return compose_and_jobs.add_compose_context(done, sites, document)


def _variables_in(file: str | None, node: yaml.Node, document: Document) -> Env:
    """Return the nonempty variables in a file next to a Compose file, at the place of `node`."""
    found: Env = {}
    text = read_below(file or ".", [Path(document.shown).parent]).text or ""
    document.spend(10 + len(text) // 20)
    for name, written in _ENV_LINE.findall(text):
        value = written.strip()
        if len(value) > 1 and value[0] in "\"'" and value[0] == value[-1]:
            value = value[1:-1]
        if not value or is_secret_variable(name):
            continue
        why = f"`{name}` is set in {file}"
        is_plain = not set("\"'$\\#") & set(value)
        (piece,) = text_at(value, node, document).pieces
        found[name] = Field((replace(piece, note=why, unknown=None if is_plain else why),))
    return found


def _compose_words(node: yaml.Node | None, document: Document, outside: Env) -> list[Field]:
    if isinstance(node, yaml.SequenceNode):
        scalars = (item for item in node.value if isinstance(item, yaml.ScalarNode))
        return [interpolated(nodes.source(item, document), outside) for item in scalars]
    if not isinstance(node, yaml.ScalarNode) or nodes.text(node) is None:
        return []
    field = interpolated(nodes.source(node, document), outside)
    document.spend(len(field.pieces) + len(str(node.value)) // 20)
    return split(field.pieces)


def _compose_environment(
    node: yaml.Node | None, document: Document, outside: Env
) -> tuple[Env, Env]:
    """Return a service's own variables, and those from the user's environment."""
    env: Env = {}
    passed: Env = {}
    for key, key_node, value in nodes.pairs(node):
        if isinstance(value, yaml.ScalarNode) and nodes.text(value) is not None:
            env[key] = interpolated(nodes.source(value, document), outside)
        else:
            passed[key] = nodes.field(key_node, document)
    for item in nodes.items(node):
        if not isinstance(item, yaml.ScalarNode):
            continue
        source = nodes.source(item, document)
        name, equals, _ = source.text.partition("=")
        if equals:
            env[name] = interpolated(source.part(len(name) + 1, len(source.text)), outside)
        else:
            passed[name] = nodes.field(item, document)
    return env, passed


# -- tasks

_ENVIRONMENTS = (
    *("variables", "environment", "env", "envs"),
    *("environmentvariables", "environment_variables", "containerenv"),
)
_SCRIPTS = frozenset(
    {"commands", "script", "before_script", "after_script", "run", "setup", "cmds", "steps"}
)
"""Keys of lists whose items one shell runs in sequence."""
_WORDS = (
    *("dockerentrypoint", "entrypoint", "module", "command", "dockerstartcmd"),
    *("cmd", "args", "extraargs", "argv"),
)
"""Keys of token lists that together form one command, in this order; `module` is for `-m`."""
_IMAGES = ("image", "container", "image_id", "imagename", "imageuri", "base_image")
_MODEL = frozenset({"--model-path", "--model"})
_IMAGE = lazy(r"(?:^|/)sglang\b")
_PROGRAM = "a template adds the program, and may add arguments"
_PROSE = frozenset({"name", "description", "title", "help", "summary", "comment", "message"})
_MARK = lazy(r"\$?\{\{|\$\(|\$\{?[A-Za-z_]")
"""Pattern of a placeholder's beginning in a variable's value. Another program fills it in."""
_ENCODED = lazy(r"\s*(?:\[\s*[\"\[{]|\{\s*\")")
"""Pattern of JSON in a string, such as the record of a run. Strings in it are escaped twice."""
_MARKDOWN = lazy(r"(?m)^[ \t]*(?:```\w*[ \t]*\n|\|[^\n]*\|[ \t]*$)")
"""Pattern of a code block or table row, which marks a YAML string as a Markdown document."""
_KEY = lazy(r"(?<![$\w])\{([a-z]\w*)\}")
"""Pattern of a reference to a key of `defaults` in a sparkrun command."""
_GITHUB = lazy(r"\$\{\{\s*((?:env|matrix)\.\w+)\s*\}\}")
_EXPORTED = lazy(r"\becho [\"']?(\w+)=[^\n]{0,500}GITHUB_ENV")
_SEVERAL = frozenset({"nodes", "num_nodes"})
"""Keys that set the machine count. With them, GPU counts are per machine."""
_COUNT = lazy(r"(?<![^:])\d+(?![^:])")
"""Pattern of the count in GPUs like `H100:8` or `8:H100`, not of a range."""
_SET = "the GPUs and nodes of this file, which the launch may change"
_FILLED_IN = "the platform fills it in"


class TaskContext(Struct, frozen=True):
    """Settings outside a mapping that apply inside it."""

    env: tuple[tuple[str, Field], ...] = ()
    passed: tuple[tuple[str, Field], ...] = ()
    image: str | None = None
    hardware: str | None = None
    counts: tuple[tuple[str, Field], ...] = ()
    """Variables that the platform sets."""


def read_tasks(
    roots: Sequence[yaml.Node],
    document: Document,
    read_document: Callable[[Document], Reading] | None = None,
) -> Reading:
    """Return the server commands in YAML without a dedicated reader."""
    reading = Collected(document)
    reading.read_document = read_document
    reading.exported = frozenset(_EXPORTED.findall(document.text))
    if "sglang" not in document.text and VLLM not in document.text:
        return reading.reading()
    for root in roots:
        if isinstance(root, yaml.ScalarNode) and not root.style:  # a script, not YAML
            continue
        seen: set[int] = set()
        waiting: list[tuple[yaml.Node, str, TaskContext]] = [(root, "", TaskContext())]
        while waiting:
            node, key, context = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            document.spend()
            if isinstance(node, yaml.MappingNode):
                named = nodes.entries(node).items()
                keys = {name.lower(): value for name, value in named}
                context = _inside(keys, context, document)
                done = _command(keys, context, reading) | _template(keys, context, reading)
                left = [(v, name.lower(), context) for name, v in named if name.lower() not in done]
                waiting += reversed(left)
            elif isinstance(node, yaml.SequenceNode):
                rest = reversed(_list(node, key, context, reading))
                waiting += [(item, key, context) for item in rest]
            elif key not in _PROSE:
                _script([node], context, reading)
    return reading.reading()


def _command(keys: Mapping[str, yaml.Node], context: TaskContext, reading: Collected) -> set[str]:
    """Read a command that is spread over several keys of a mapping. Return the keys it uses."""
    parts = [name for name in _WORDS if name in keys]
    words: list[Field] = []
    for name in parts:
        node = keys[name]
        if isinstance(node, yaml.ScalarNode) and not words and "\n" in str(node.value).strip():
            return set()  # a script
        words += [text_at("-m", node, reading.document)] if name == "module" else []
        words += _task_words(node, reading.document)
    is_list = any(isinstance(keys[name], yaml.SequenceNode) for name in parts)
    if parts == ["module"] or not (is_list or "module" in parts):
        return set()
    before = len(reading.invocations)
    with reading.within(context.image, context.hardware):
        reading.command(words, dict(context.env), dict(context.passed), None, ())
    if len(reading.invocations) == before and _are_arguments(words, context.image):
        reading.invocations.append(_of_a_chart(words, context))
    return set(parts) if len(reading.invocations) > before else set()


def _template(keys: Mapping[str, yaml.Node], context: TaskContext, reading: Collected) -> set[str]:
    """Read sparkrun's `command`, in which `{key}` refers to `defaults`. Return the keys used.

    Source: sparkrun at 10ba68a, RECIPES.md, "Command Templates".
    """
    command, values = keys.get("command"), dict(nodes.entries(keys.get("defaults")))
    if not values or not isinstance(command, yaml.ScalarNode):
        return set()
    document, source = reading.document, nodes.source(command, reading.document)
    if not SERVER.search(source.text) or not _KEY.search(source.text):
        return set()
    values.setdefault("model", keys.get("model", command))
    filled, at = SourceBuilder(document), 0
    for mark in [*_KEY.finditer(source.text), None]:
        start, end = mark.span() if mark else (len(source.text), 0)
        filled.put(source.text[at:start], map(source.offset, range(at, start)))
        at = end
        node = values.get(mark[1]) if mark else None
        if mark and isinstance(node, yaml.ScalarNode) and node is not command:
            document.spend(6 + len(str(node.value)) // 2)
            value = nodes.source(node, document)
            filled.put(value.text, map(value.offset, range(len(value.text))))
        elif mark:
            filled.stand_in(f"${{{mark[1]}}}", source.offset(start), source.offset(end - 1))
    with reading.within(context.image, context.hardware):
        reading.run_script(filled.source(), dict(context.env), dict(context.passed))
    return {"command"}


def _are_arguments(words: Sequence[Field], image: str | None) -> bool:
    """True if tokens from a chart's values are server arguments for SGLang's image."""
    flags = [word.text.partition("=")[0] for word in words]
    names_model = not _MODEL.isdisjoint(flags) and flags[0].startswith("--")
    return names_model and _IMAGE.search(image or "") is not None


def _of_a_chart(words: Sequence[Field], context: TaskContext) -> Invocation:
    place = words[0].place
    more = Word("*", place, evaluated=False, inside=True, why=_PROGRAM)
    return Invocation(
        InvocationKind.LAUNCH_SERVER,
        (more, *(word.word() for word in words)),
        place,
        {name: value.word() for name, value in context.env},
        image=context.image,
        hardware=context.hardware,
    )


def _list(
    node: yaml.SequenceNode, key: str, context: TaskContext, reading: Collected
) -> list[yaml.Node]:
    """Read a command or script in a list; return unread items."""
    scalars = [item for item in node.value if isinstance(item, yaml.ScalarNode)]
    words = [str(item.value) for item in scalars]
    if any(word in ("-m", "sglang") for word in words):
        fields = _task_words(node, reading.document)
        with reading.within(context.image, context.hardware):
            reading.command(fields, dict(context.env), dict(context.passed), None, ())
        return []
    if key in _SCRIPTS and scalars:
        _script(scalars, context, reading)
        return [item for item in node.value if not isinstance(item, yaml.ScalarNode)]
    return list(node.value)


def _script(lines: Sequence[yaml.Node], context: TaskContext, reading: Collected) -> None:
    scalars = (line for line in lines if isinstance(line, yaml.ScalarNode))
    texts = [line for line in scalars if not _ENCODED.match(str(line.value))]
    if len(texts) == 1 and _MARKDOWN.search(str(texts[0].value)):
        if reading.read_document is not None:
            part = nodes.StringDocument(nodes.source(texts[0], reading.document))
            reading.add(reading.read_document(part))
    elif any(SERVER.search(str(line.value)) for line in texts):
        with reading.within(context.image, context.hardware):
            first, changed = len(reading.invocations), reading.exported
            env = {name: value for name, value in context.env if name not in changed}
            known = dict(context.counts) | {f"env.{name}": value for name, value in env.items()}
            sources = [_filled(nodes.source(text, reading.document), known) for text in texts]
            reading.lines(sources, dict(context.counts) | env, dict(context.passed))
            reading.forget(first, dict(context.counts).keys() - env.keys())


def _filled(source: SourceText, known: Mapping[str, Field]) -> SourceText:
    """Return a script with the known values of GitHub's expressions such as `${{ env.NAME }}`."""
    pieces: list[WordPiece | SourceText] = []
    at = 0
    for mark in _GITHUB.finditer(source.text):
        if (value := known.get(mark[1])) is not None:
            pieces += [source.part(at, mark.start()), *value.pieces]
            at = mark.end()
    return joined([*pieces, source.part(at, len(source.text))], source.document) if at else source


def _task_words(node: yaml.Node, document: Document) -> list[Field]:
    if isinstance(node, yaml.ScalarNode):
        return split(substituted(nodes.source(node, document), {}).pieces)
    return [_task_word(item, document) for item in nodes.items(node)]


def _task_word(item: yaml.Node, document: Document) -> Field:
    """Return an item of a command, unknown if it is a function such as CloudFormation's `!Ref`."""
    field = text_at("*", item, document)
    if isinstance(item, yaml.ScalarNode):
        field = substituted(nodes.source(item, document), {})
        if not item.tag.startswith("!"):
            return field
    return Field(tuple(replace(piece, unknown=_FILLED_IN) for piece in field.pieces))


def _inside(keys: Mapping[str, yaml.Node], context: TaskContext, document: Document) -> TaskContext:
    env, passed = dict(context.env), dict(context.passed)
    document.spend(1 + (len(env) + len(passed)) // 10)
    for name in _ENVIRONMENTS:
        for variable, value in _variables(keys.get(name), document):
            known = value.text and not _MARK.search(value.text)
            (env if known else passed)[variable] = value
            (passed if known else env).pop(variable, None)
    image = _task_image(keys, document) or context.image
    hardware = _hardware(keys.get("resources")) or context.hardware
    if keys.keys() & _SEVERAL:
        hardware = None
    counts = dict(context.counts) | dict(_counts(keys, document))
    both = tuple(env.items()), tuple(passed.items())
    return TaskContext(*both, image, hardware, tuple(counts.items()))


def _counts(keys: Mapping[str, yaml.Node], document: Document) -> Iterator[tuple[str, Field]]:
    """Yield the variables that SkyPilot and dstack set, and the matrix of one GitHub job.

    Sources: SkyPilot, "Environment variables"; dstack, "System environment variables".
    """
    matrix = nodes.entries(nodes.entries(keys.get("strategy")).get("matrix"))
    for name, axis in matrix.items() if "include" not in matrix else ():
        if len(only := nodes.items(axis)) == 1 and isinstance(only[0], yaml.ScalarNode):
            yield f"matrix.{name}", nodes.field(only[0], document)
    gpus = _gpus(keys.get("resources"))
    if isinstance(gpus, yaml.MappingNode):
        inner = nodes.entries(gpus)
        gpus = inner.get("count", next(iter(inner.values())) if len(inner) == 1 else None)
    per_node = ["SKYPILOT_NUM_GPUS_PER_NODE", "DSTACK_GPUS_PER_NODE"]
    per_node += [] if "nodes" in keys else ["DSTACK_GPUS_NUM"]
    machines = keys.get("num_nodes", keys.get("nodes"))
    for names, node in ((per_node, gpus), (("SKYPILOT_NUM_NODES", "DSTACK_NODES_NUM"), machines)):
        if not isinstance(node, yaml.ScalarNode):
            continue
        for count in islice(_COUNT.finditer(str(node.value)), 1):
            source = nodes.source(node, document)
            piece = WordPiece(count[0], source, count.start(), quoted=True, note=_SET)
            yield from ((name, Field((piece,))) for name in names)


def _variables(node: yaml.Node | None, document: Document) -> Iterator[tuple[str, Field]]:
    """Yield variables of a mapping, or of a list of `NAME=value`, `NAME` or `{name, value}`."""
    for key, key_node, value in nodes.pairs(node):
        if isinstance(value, yaml.ScalarNode) and nodes.text(value) is not None:
            yield key, nodes.field(value, document)
        elif isinstance(value, yaml.ScalarNode):
            yield key, _nothing(key_node, document)
    for item in nodes.items(node):
        if isinstance(item, yaml.ScalarNode):
            source = nodes.source(item, document)
            name, equals, _ = source.text.partition("=")
            rest = source.part(len(name) + 1, len(source.text))
            yield name, substituted(rest, {}) if equals else _nothing(item, document)
            continue
        entry = {key.lower(): value for key, value in nodes.entries(item).items()}
        found, entry_value = nodes.text(entry.get("name", entry.get("key"))), entry.get("value")
        if found is not None and isinstance(entry_value, yaml.ScalarNode):
            yield found, nodes.field(entry_value, document)


def _nothing(node: yaml.ScalarNode, document: Document) -> Field:
    """Return a reference to a variable that the user of the file must set."""
    return text_at(f"${{{node.value}}}", node, document)


def _task_image(keys: Mapping[str, yaml.Node], document: Document) -> str | None:
    for name in _IMAGES:
        node = keys.get(name)
        if isinstance(node, yaml.MappingNode):
            inner = nodes.entries(node)
            repository, tag = nodes.text(inner.get("repository")), nodes.text(inner.get("tag"))
            if repository and tag:
                return f"{repository}:{tag}"
            node = inner.get("image", inner.get("name"))
        if isinstance(node, yaml.ScalarNode) and nodes.text(node):
            return image_of(node, document).removeprefix("docker:")
    resources = nodes.entries(keys.get("resources"))
    return _task_image(resources, document) if "image_id" in resources else None


def _gpus(resources: yaml.Node | None) -> yaml.Node | None:
    keys = nodes.entries(resources)
    return keys.get("accelerators", keys.get("accelerator", keys.get("gpu")))


def _hardware(resources: yaml.Node | None) -> str | None:
    """Return `--hardware` for GPUs in `resources` (`gpu: H100:8`, `accelerators: …`), or None."""
    node = _gpus(resources)
    gpus = nodes.text(node)
    if isinstance(node, yaml.MappingNode):
        inner = nodes.entries(node)
        name, count = nodes.text(inner.get("name")), nodes.text(inner.get("count"))
        if len(inner) == 1 and name is None:  # {H100: 8}
            name, count = next((key, nodes.text(value)) for key, value in inner.items())
        gpus = f"{name}:{count}" if name and count else name
    return declared(gpus)
