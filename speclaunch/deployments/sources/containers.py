"""Read the server commands of containers: in Kubernetes objects of any kind, and in Compose files.

A container gets variables from ConfigMaps in the same file: `envFrom` applies first, in order, and
`env` overrides it (Kubernetes, API reference: Container v1 core). A ConfigMap's value is used
unchanged: `$(NAME)` is only substituted in `env`, `command` and `args`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from types import MappingProxyType

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources import nodes
from speclaunch.deployments.sources.commands import CommandContext, look
from speclaunch.deployments.sources.effective_words import config_path
from speclaunch.deployments.sources.fields import Field, ShellScope, Value
from speclaunch.deployments.sources.interface import (
    SERVER,
    VLLM_IMAGE,
    Comment,
    Dropped,
    Reading,
    ReadingBuilder,
    Word,
)
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.nodes import Entries
from speclaunch.deployments.sources.pods import ConfigMaps, Site, Steps, config_maps, objects
from speclaunch.deployments.sources.source_text import (
    DefaultOf,
    Document,
    SourceBuilder,
    SourceSpan,
    SourceText,
    WordPiece,
    joined,
)

_VARIABLE = lazy(r"\$(?:\{([A-Za-z_][\w.:-]*)\}|([A-Z_][A-Z0-9_]*)\b)")
_COMMENT = lazy(r"(?:^|[ \t])#[^\n]*", re.MULTILINE)

Env = dict[str, Field]
_NO_ENV: Mapping[str, Field] = MappingProxyType({})


class Collected(ReadingBuilder):
    """Commands and problems found in a file's containers."""

    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document
        self.read_document: Callable[[Document], Reading] | None = None
        """Reader of strings that are documents themselves."""
        self.exported: frozenset[str] = frozenset()
        """Variables that a script sets for later steps of a GitHub job."""

    @contextmanager
    def within(self, image: str | None, hardware: str | None = None) -> Iterator[None]:
        """On exit, set `image` and `hardware` of commands added in the block, if unset."""
        first = len(self.invocations)
        yield
        for index in range(first, len(self.invocations)):
            found = self.invocations[index]
            self.invocations[index] = replace(
                found, image=found.image or image, hardware=found.hardware or hardware
            )

    def leave_open(self, first: int) -> None:
        """Add an unknown argument to commands without arguments, from index `first` on."""
        why = "the arguments are set elsewhere"
        for index in range(first, len(self.invocations)):
            found = self.invocations[index]
            if not found.words:
                words = (Word("*", found.place, evaluated=False, inside=True, why=why),)
                self.invocations[index] = replace(found, words=words)

    def command(
        self,
        words: Sequence[Field],
        env: Env,
        passed: Env,
        name: str | None,
        dropped: tuple[Dropped, ...],
        set_env: Env | None = None,
    ) -> None:
        """Read a command from its tokens: a server, or a shell with a script.

        `set_env`: additional variables that the container's controller sets for a script.
        """
        found = look(words)
        if found.invocation is not None and (filled := _filled_in(words, env)) is not None:
            found = look(filled)
        known = _environment(env, passed, "container")
        known |= {key: value.word() for key, value in found.wrapping.env.items()}
        rest = (*dropped, *found.wrapping.dropped)
        if found.invocation is not None:
            dropped = (*rest, *found.invocation.dropped)
            more = {"env": MappingProxyType(known), "comments": self._comments(words)}
            server = replace(found.invocation, dropped=dropped, name=name, **more)
            self.invocations.append(server)
            self.problems.extend(found.problems)
        elif found.router is not None:
            self.routers.append(replace(found.router, name=found.router.name or name))
        elif found.script:
            pieces = [piece for field in found.script for piece in field.pieces]
            before = tuple(field.word() for field in found.before)
            context = CommandContext(before, rest, name, base=known)
            texts = " ".join(piece.text for piece in pieces if piece.unknown)
            unknown = frozenset(re.findall(r"[A-Za-z_]\w*", texts))
            seen = {k: value for k, value in (set_env or {}).items() if value.unknown is None}
            scope = _scope({**seen, **env}, unknown, found.positional)
            first = len(self.invocations)
            self._run(joined(pieces, self.document), scope, context)
            self.forget(first, seen.keys() - env.keys())

    def forget(self, first: int, names: Set[str]) -> None:
        """Remove variables that the platform sets from the commands from index `first` on."""
        for index in range(first, len(self.invocations) if names else first):
            found = self.invocations[index]
            env = {name: word for name, word in found.env.items() if name not in names}
            self.invocations[index] = replace(found, env=MappingProxyType(env))

    def script(self, node: yaml.Node | None, context: CommandContext) -> None:
        if isinstance(node, yaml.ScalarNode) and SERVER.search(str(node.value)):
            self._run(nodes.source(node, self.document), ShellScope(), context)

    def lines(self, lines: Sequence[SourceText], env: Env, passed: Env) -> None:
        """Read texts that one shell, whose caller sets the variables `passed`, runs in sequence."""
        if not any(SERVER.search(line.text) for line in lines):
            return
        script = SourceBuilder(self.document)
        for source in lines:
            self.document.spend(6 + len(source.text) // 20)
            script.put(source.text + "\n", map(source.offset, range(len(source.text) + 1)))
        self.run_script(script.source(), env, passed)

    def run_script(self, source: SourceText, env: Env, passed: Env) -> None:
        """Read a script whose caller sets the variables `passed`."""
        context = CommandContext(base=_environment(env, passed, "caller"))
        self._run(source, _scope(env, frozenset(passed), None), context)

    def _run(self, source: SourceText, scope: ShellScope, context: CommandContext) -> None:
        with self.tolerant():
            self.add(run(source, scope, context))

    def _comments(self, words: Sequence[Field]) -> tuple[Comment, ...]:
        """Return the comments on the lines of the command and between them."""
        offsets = [piece.offset(0) for word in words for piece in word.pieces[:1]]
        if not offsets:
            return ()
        text = self.document.text
        first, last = self.document.stretch(offsets[0])  # words of a patch are elsewhere
        offsets = [offset for offset in offsets if first <= offset <= last]
        start = text.rfind("\n", 0, min(offsets)) + 1
        end = text.find("\n", max(offsets))
        quoted = [(o, o + len(w.text)) for o, w in zip(offsets, words, strict=False)]
        found = []
        for match in _COMMENT.finditer(text, start, len(text) if end < 0 else end):
            at = match.start() + match[0].index("#")
            if not any(first <= at < last for first, last in quoted):
                place = self.document.place(at, match.end() - at)
                found.append(Comment(match[0].strip().lstrip("#").strip(), place))
        return tuple(found)


class ServiceSite(Struct, frozen=True):
    """Compose service that runs servers or routers, with their indexes in the file's `Reading`."""

    name: str
    node: yaml.Node
    key: yaml.Node
    servers: range
    routers: range


def _filled_in(words: Sequence[Field], env: Env) -> list[Field] | None:
    """Return the tokens with unset `${NAME}` marked as unknown; None if no token has one.

    No shell expands these variables and `env` lacks them. Only a program that fills in the file
    (`envsubst`, a platform) can set them.
    """

    def open_(piece: WordPiece) -> WordPiece:
        names = [match[1] or match[2] for match in _VARIABLE.finditer(piece.text)]
        name = next((name for name in names if name not in env), None)
        if name is None or piece.unknown or not piece.exact:
            return piece
        return replace(piece, unknown=f"`{name}` is not set in this file")

    filled = [replace(word, pieces=tuple(map(open_, word.pieces))) for word in words]
    return filled if filled != list(words) else None


def _environment(env: Env, passed: Env, outside: str) -> dict[str, Word]:
    """Return variables as tokens; the values of those `passed` from `outside` are unknown."""
    known = {key: value.word() for key, value in env.items()}
    for key, value in passed.items():
        why = f"`{key}` comes from the environment of the {outside}"
        known[key] = Word(value.text, value.place, evaluated=False, why=why)
    return known


def _scope(env: Env, unknown: frozenset[str], positional: tuple[Field, ...] | None) -> ShellScope:
    variables = {
        key: Value(value.stretch, value.pieces, exported=True)
        for key, value in env.items()
        if value.pieces and key not in unknown
    }
    return ShellScope(variables, positional=positional, passed=unknown)


_MARK = r"\{\{[^{}\n]*\}\}"
"""Pattern of a template's placeholder."""
_OPERAND = r"(?:[^{}]|\{[^{}]*\})*"
_COMPOSE = lazy(rf"\$(?:\$|\{{([A-Za-z_]\w*)(?:(:?[-?+])({_OPERAND}))?\}}|([A-Za-z_]\w*))|{_MARK}")
_KUBERNETES = lazy(rf"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))|{_MARK}")


def image_in(
    keys: Mapping[str, yaml.Node], document: Document, env: Mapping[str, Field] = _NO_ENV
) -> str | None:
    """Return the image of a container; None if it has none."""
    node = keys.get("image")
    if not isinstance(node, yaml.ScalarNode) or nodes.text(node) is None:
        return None
    return image_of(node, document, env)


def image_of(node: yaml.ScalarNode, document: Document, env: Mapping[str, Field] = _NO_ENV) -> str:
    """Return the image of a container, with values filled in for Compose's variables."""
    return interpolated(nodes.source(node, document), env).text


def image_program(keys: Mapping[str, yaml.Node], program: str, document: Document) -> list[Field]:
    """Return a vLLM image as the program if the container sets none; else an empty list.

    `program`: the key that sets a program. The image runs `vllm serve` (vLLM's Dockerfile).
    """
    node = keys.get("image")
    if program in keys or not isinstance(node, yaml.ScalarNode):
        return []
    return [interpolated(nodes.source(node, document))] if VLLM_IMAGE in str(node.value) else []


def listed(node: yaml.Node | None) -> list[yaml.Node]:
    """Return the items of a list, or a scalar as a list of one item."""
    return [node] if isinstance(node, yaml.ScalarNode) else nodes.items(node)


def text_at(text: str, node: yaml.Node, document: Document) -> Field:
    """Return `text`, which the file does not contain, at the place of `node`."""
    start, _ = nodes.offsets(node, document)
    return Field((WordPiece(text, SourceText(document, text, [start] * len(text) or [start]), 0),))


def left_out(
    keys: Mapping[str, yaml.Node], read: frozenset[str], document: Document, what: str = "container"
) -> Iterator[Dropped]:
    """Yield a remark, if any, on the keys of a container or pod (`what`) that are not in `read`."""
    rest = [name for name in keys if name not in read]
    if rest:
        why = f"the caller sets up the {what}"
        yield Dropped(", ".join(rest), nodes.place(keys[rest[0]], document), why)


def substituted(source: SourceText, env: Mapping[str, Field]) -> Field:
    """Return a text with Kubernetes' ``$(NAME)`` filled in from `env`; unset names are unchanged.

    Placeholders of a template (`{{ name }}`) become unknown.
    """
    pieces: list[WordPiece] = []
    at = 0
    for match in _KUBERNETES.finditer(source.text):
        pieces.append(_exact(source, at, match.start()))
        at = match.end()
        if match[0].startswith("{"):
            pieces.append(_template_mark(source, match))
        elif match[1] is None:
            pieces.append(WordPiece("$", source, match.start(), quoted=True, exact=False))
        elif match[1] in env:
            pieces.extend(env[match[1]].pieces)
        else:
            why = f"`{match[1]}` is not set in this object"
            raw = _exact(source, match.start(), match.end())
            pieces.append(replace(raw, unknown=why))
        source.document.spend(1 + len(pieces) // 50)
        if sum(len(piece.text) for piece in pieces) > 1 << 16:
            why = "it is longer than 65536 characters"
            return Field((WordPiece(source.text, source, 0, quoted=True, unknown=why),))
    pieces.append(_exact(source, at, len(source.text)))
    nonempty = tuple(piece for piece in pieces if piece.text)
    span = SourceSpan(source, 0, len(source.text))
    if len({id(piece.source) for piece in nonempty}) > 1:
        return Field(nonempty, span)  # from several sources
    if nonempty and nonempty[0].source is not source:
        return Field(nonempty, None, span)
    return Field(nonempty or (WordPiece("", source, 0, quoted=True),))


def _template_mark(source: SourceText, mark: re.Match[str]) -> WordPiece:
    why = f"a template fills in `{mark[0]}`"
    return replace(_exact(source, mark.start(), mark.end()), unknown=why, inside=True)


def _exact(source: SourceText, start: int, end: int) -> WordPiece:
    return WordPiece(source.text[start:end], source, start, quoted=True)


def _default(source: SourceText, match: re.Match[str], name: str) -> list[WordPiece]:
    """Return the default of a Compose variable, which may contain other variables."""
    start = match.start(3)
    written: Sequence[WordPiece] = [_exact(source, start, match.end(3))]
    if "$" in match[3]:
        written = interpolated(source.part(start, match.end(3))).pieces
    if any(piece.unknown for piece in written):
        why = f"the default of `{name}` comes from the environment of Compose"
        return [replace(_exact(source, match.start(), match.end()), unknown=why)]
    note = f"the default of `{name}`, which comes from the environment of Compose"
    found: list[WordPiece] = []
    for number, piece in enumerate(written):
        default = DefaultOf(name, match[2] == ":-", start, number)
        found.append(replace(piece, note=note, default_of=(default, *piece.default_of)))
    return found


def interpolated(source: SourceText, env: Mapping[str, Field] = _NO_ENV) -> Field:
    """Expand Compose's ``${NAME:-default}``. Variables without a value become unknown."""
    pieces: list[WordPiece] = []
    at = 0
    for match in _COMPOSE.finditer(source.text):
        pieces.append(_exact(source, at, match.start()))
        at = match.end()
        name = match[1] or match[4]
        if match[0].startswith("{"):
            pieces.append(_template_mark(source, match))
        elif name is None:
            pieces.append(WordPiece("$", source, match.start(), quoted=True, exact=False))
        elif name in env and "+" not in (match[2] or ""):
            pieces.extend(env[name].pieces)
        elif match[2] in ("-", ":-"):
            pieces.extend(_default(source, match, name))
        else:
            why = f"`{name}` comes from the environment of Compose"
            pieces.append(replace(_exact(source, match.start(), match.end()), unknown=why))
    pieces.append(_exact(source, at, len(source.text)))
    source.document.spend(len(pieces))
    nonempty = tuple(piece for piece in pieces if piece.text)
    return Field(nonempty or (WordPiece("", source, 0, quoted=True),))


_CONTROLLER_VARIABLES = lazy(
    r"LWS_(?:LEADER_ADDRESS|GROUP_SIZE|WORKER_INDEX)|PARALLELISM_SIZE|POD_GROUP_INDEX"
    r"|RBG_(?:LWP|ROLE|GROUP|COMPONENT)_|ROLE_(?:NAME|INDEX|REPLICA_INDEX)|ROLESET_NAME"
)
"""Pattern of variables that a controller sets in its pods (`kubernetes_kinds.py`)."""
_READ_OF_CONTAINERS = frozenset({"name", "image", "command", "args", "env", "envFrom"})
_CONTAINERS = ("initContainers", "containers")
_ROLES = frozenset({"roles", "components"})
_READ_OF_PODS = frozenset(_CONTAINERS)


def read_kubernetes(roots: Sequence[yaml.Node], document: Document) -> Reading:
    """Return the server commands of every container in Kubernetes objects.

    A container is any mapping with `command` or `args`: those of a pod, and their equivalents in
    custom objects (Dynamo's `mainContainer`, the `runner` of OME, the `model` of KServe).
    """
    reading = Collected(document)
    maps = config_maps(roots, document)
    sites: list[Site] = []
    has_controllers = _CONTROLLER_VARIABLES.search(document.text) is not None
    for root in objects(roots, document):
        owner = nodes.text(nodes.entries(nodes.entries(root).get("metadata")).get("name"))
        seen: set[tuple[int, int]] = set()
        start: tuple[yaml.Node, str | None, Owned] = (root, None, Owned())
        waiting = [start]
        while waiting:
            node, key, owned = waiting.pop()
            if key in _ROLES and isinstance(node, yaml.MappingNode):
                owned = replace(owned, item=id(node))
            if (id(node), owned.item) in seen:
                continue
            seen.add((id(node), owned.item))
            keys = nodes.entries(node)
            if keys:
                document.spend()
                owned = owned.below(key, keys, document)
                # the script of a RayJob
                reading.script(keys.get("entrypoint"), CommandContext(name=owner))
                if "command" in keys or "args" in keys:
                    first, before = len(reading.invocations), len(reading.routers)
                    site = Site(root, owned.steps, range(0), range(0), owned.envs)
                    set_env = _controller_variables(site, document) if has_controllers else {}
                    _container(keys, owner, maps.seen_from(root), owned, reading, set_env)
                    if key not in _CONTAINERS:
                        reading.leave_open(first)
                    servers = range(first, len(reading.invocations))
                    routers = range(before, len(reading.routers))
                    if servers or routers:
                        sites.append(replace(site, servers=servers, routers=routers))
            waiting += [(value, name, owned) for name, value in reversed(keys.items())]
            waiting += [(item, key, owned) for item in reversed(nodes.items(node))]
        if nodes.text(nodes.entries(root).get("kind")) == "ConfigMap":
            for name, value in nodes.entries(nodes.entries(root).get("data")).items():
                reading.script(value, CommandContext(name=f"{owner}/{name}" if owner else name))
    done = reading.reading()
    if not done.invocations:
        return done
    invocations = []
    for found in done.invocations:  # with the `--config` file that a ConfigMap contains
        path = config_path(found)
        config = maps.config(path) if path is not None else None
        invocations.append(found if config is None else replace(found, config=config))
    done = replace(done, invocations=tuple(invocations))
    from speclaunch.deployments.sources import kubernetes_kinds  # noqa: PLC0415  few manifests have a server

    return kubernetes_kinds.add_server_context(done, sites, roots, maps)


class Owned(Struct, frozen=True):
    """Settings that a container gets from its enclosing objects.

    `envs` contains the variable lists of a Dynamo service and of its graph.
    """

    pod: tuple[Dropped, ...] = ()
    envs: tuple[yaml.Node, ...] = ()
    name: str | None = None
    """Name of the service or component, if any; container names do not distinguish services."""
    steps: Steps = ()
    """Mappings on the path from the object to the container, each with its key."""
    item: int = 0
    """Identity of the role. Several roles may share one template."""

    def below(self, key: str | None, keys: Entries, document: Document) -> Owned:
        """Return the settings for the mapping `keys`, which is the value of `key`."""
        pod = self.pod
        if keys.keys() & set(_CONTAINERS):
            pod = tuple(left_out(keys, _READ_OF_PODS, document, "pod"))
        envs = keys.get("envs")
        name = self.name
        if "extraPodSpec" in keys:
            name = key
        elif "podTemplate" in keys:
            name = nodes.text(keys.get("name"))
        all_envs = (*self.envs, envs) if envs is not None else self.envs
        return Owned(pod, all_envs, name, (*self.steps, (key or "", keys)), self.item)


def _container(
    keys: Entries,
    owner: str | None,
    maps: ConfigMaps,
    owned: Owned,
    reading: Collected,
    pod_env: Env,
) -> None:
    document = maps.document
    env: Env = maps.variables(keys.get("envFrom"))
    lists = [*owned.envs, keys.get("env")]
    for item in (entry for held in lists for entry in nodes.items(held)):
        entry = nodes.entries(item)
        name = nodes.text(entry.get("name"))
        if name is None:
            continue
        value = entry.get("value")
        if isinstance(value, yaml.ScalarNode):
            text = substituted(nodes.source(value, document), pod_env | env)
            env[name] = (_filled_in([text], {}) or [text])[0]
        elif entry.get("valueFrom") is not None:
            source = entry["valueFrom"]
            known = pod_env.get(name) if "fieldRef" in nodes.entries(source) else None
            env[name] = maps.value(source) or known or _elsewhere(name, source, document)
        else:
            env[name] = text_at("", item, document)
    words = image_program(keys, "command", document)
    words += [
        substituted(nodes.source(item, document), pod_env | env)
        for key in ("command", "args")
        for item in listed(keys.get(key))
        if isinstance(item, yaml.ScalarNode)
    ]
    own = nodes.text(keys.get("name"))
    if owned.name is not None and own in (None, "main"):
        own = owned.name
    name = "/".join(part for part in (owner, own) if part) or None
    dropped = (
        *maps.elsewhere(keys.get("envFrom")),
        *left_out(keys, _READ_OF_CONTAINERS, document),
        *owned.pod,
    )
    with reading.within(image_in(keys, document)):
        reading.command(words, env, {}, name, dropped, pod_env)


def _controller_variables(site: Site, document: Document) -> Env:
    from speclaunch.deployments.sources import kubernetes_kinds  # noqa: PLC0415  few manifests use one

    return kubernetes_kinds.controller_variables(site, document)


def _elsewhere(name: str, node: yaml.Node, document: Document) -> Field:
    kind = next(iter(nodes.entries(node)), "another object")
    detail = nodes.entries(nodes.entries(node).get(kind))
    shown = (nodes.text(detail.get(key)) for key in ("name", "key", "fieldPath"))
    which = "/".join(filter(None, shown))
    why = f"`{name}` comes from the cluster ({kind}{' ' + which if which else ''})"
    found = text_at(f"$({name})", node, document)
    return Field(tuple(replace(piece, unknown=why) for piece in found.pieces))
