"""Objects of a Kubernetes manifest: ConfigMaps, role templates, pod settings, probes.

RoleBasedGroup: the pod templates of its roles are composed as its controller composes them. A role
has its own template, or one of `roleTemplates` with a patch. A leader-worker pattern applies one
more patch to the leader and one to the workers. All are strategic merge patches of a pod template.
Source: sgl-project/rbg, api/workloads/v1alpha1 and v1alpha2/rolebasedgroup_types.go.
Probes are Kubernetes' startup, readiness and liveness probes, and Compose's healthcheck.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources import nodes
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.interface import ConfigFile, Dropped
from speclaunch.deployments.sources.nodes import Entries, changed, mapping, sequence, strategic
from speclaunch.deployments.sources.source_text import MARK, Document
from speclaunch.engine import Pod, Probe, ProbeKind, Setting, Volume

_VARIABLE_NAME = lazy(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""Pattern of valid variable names. Kubernetes skips other keys."""
_REFERENCES = {"configMapRef": "ConfigMap", "secretRef": "Secret"}


class ConfigMaps(Struct, frozen=True):
    """ConfigMaps of a file by namespace and name, to resolve references from `namespace`."""

    held: Mapping[tuple[str | None, str], Entries]
    document: Document
    namespace: str | None = None

    def seen_from(self, root: yaml.Node) -> ConfigMaps:
        """Return the ConfigMaps that the object `root` can refer to."""
        return ConfigMaps(self.held, self.document, _metadata(root)[0])

    def value(self, source: yaml.Node) -> Field | None:
        """Return the ConfigMap value that `valueFrom` refers to; None if this file lacks it."""
        reference = nodes.entries(nodes.entries(source).get("configMapKeyRef"))
        data = self._data(nodes.text(reference.get("name")))
        node = (data or {}).get(nodes.text(reference.get("key")) or "")
        return nodes.field(node, self.document) if isinstance(node, yaml.ScalarNode) else None

    def variables(self, node: yaml.Node | None) -> dict[str, Field]:
        """Return the `envFrom` variables from this file's ConfigMaps."""
        found: dict[str, Field] = {}
        for item in nodes.items(node):
            entry = nodes.entries(item)
            prefix = nodes.text(entry.get("prefix")) or ""
            data = self._data(nodes.text(nodes.entries(entry.get("configMapRef")).get("name")))
            for key, value in (data or {}).items():
                if isinstance(value, yaml.ScalarNode) and _VARIABLE_NAME.fullmatch(prefix + key):
                    found[prefix + key] = nodes.field(value, self.document)
        return found

    def config(self, path: str) -> ConfigFile | None:
        """Return the `--config` file `path`; None unless just one ConfigMap key is its file name.

        Blank lines replace the manifest's preceding lines, so places in the text are exact.
        """
        name = path.rpartition("/")[2]
        found = [data[name] for data in self.held.values() if name in data]
        node = found[0] if len(found) == 1 else None
        if not isinstance(node, yaml.ScalarNode) or node.style not in ("|", "file"):
            return None
        start, end = nodes.offsets(node, self.document)
        place = self.document.place(start)
        if node.style == "file":  # a separate file, from which a ConfigMap is made
            return ConfigFile(place.path, str(node.value))
        held = self.document.text[start:end].split("\n")[1:]
        if held and not held[-1].strip():
            held.pop()
        return ConfigFile(place.path, "\n" * place.line + "\n".join(held) + "\n")

    def elsewhere(self, node: yaml.Node | None) -> Iterator[Dropped]:
        """Yield one remark if `envFrom` refers to objects that this file does not contain."""
        missing: list[str] = []
        for item in nodes.items(node):
            entry = nodes.entries(item)
            for key, kind in _REFERENCES.items():
                name = nodes.text(nodes.entries(entry.get(key)).get("name"))
                if name is not None and (kind != "ConfigMap" or self._data(name) is None):
                    missing.append(f"{kind} {name}")
        if missing and node is not None:
            why = f"the variables of {', '.join(missing)} are not in this file"
            yield Dropped("envFrom", nodes.place(node, self.document), why)

    def _data(self, name: str | None) -> Entries | None:
        """Return a ConfigMap's data, or None. An unset namespace matches any namespace."""
        if name is None:
            return None
        exact = self.held.get((self.namespace, name))
        if exact is not None:
            return exact
        others = [data for (space, known), data in self.held.items() if known == name
                  and None in (space, self.namespace)]  # fmt: skip
        return others[0] if len(others) == 1 else None


def config_maps(roots: Sequence[yaml.Node], document: Document) -> ConfigMaps:
    """Return the ConfigMaps among the objects of a file, including those of a `List`."""
    held: dict[tuple[str | None, str], Entries] = {}
    for root in roots:
        for root_item in (root, *nodes.items(nodes.entries(root).get("items"))):
            keys = nodes.entries(root_item)
            namespace, name = _metadata(root_item)
            if nodes.text(keys.get("kind")) == "ConfigMap" and name is not None:
                held[namespace, name] = nodes.entries(keys.get("data"))
    return ConfigMaps(held, document)


def _metadata(root: yaml.Node) -> tuple[str | None, str | None]:
    keys = nodes.entries(nodes.entries(root).get("metadata"))
    return nodes.text(keys.get("namespace")), nodes.text(keys.get("name"))


Steps = tuple[tuple[str, Entries], ...]


class Site(Struct, frozen=True):
    """Container that runs servers or routers; `steps` are the keys and mappings that lead to it."""

    root: yaml.Node
    steps: Steps
    servers: range
    """Indexes of its servers among the file's invocations."""
    routers: range
    envs: tuple[yaml.Node, ...] = ()


def objects(roots: Sequence[yaml.Node], document: Document) -> list[yaml.Node]:
    """Return a file's objects, including those of a `List`, with composed role templates."""
    found: list[yaml.Node] = []
    for root in roots:
        keys = nodes.entries(root)
        held = nodes.items(keys.get("items")) if "spec" not in keys else []
        found += held or [root]
    return [_with_roles(item, document) for item in found]


_WITH_ROLES = frozenset({"RoleBasedGroup", "RoleBasedGroupSet"})
_LEADER_WORKER = {
    "leaderWorkerSet": ("patchLeaderTemplate", "patchWorkerTemplate"),
    "leaderWorkerPattern": ("leaderTemplatePatch", "workerTemplatePatch"),
}
"""Keys of the leader-worker pattern in v1alpha1 and v1alpha2, with the keys of its two patches."""
_PATTERNS = ("standalonePattern", "customComponentsPattern")
_SHARED = "roleTemplates"


def _with_roles(root: yaml.Node, document: Document) -> yaml.Node:
    """Compose the template of each role of a RoleBasedGroup; return any other object unchanged.

    Templates are in `leaderTemplate` and `workerTemplate` if they differ, else in `template`.
    """
    keys = nodes.entries(root)
    kind, spec = nodes.text(keys.get("kind")), keys.get("spec")
    if kind not in _WITH_ROLES or spec is None:
        return root
    if kind == "RoleBasedGroup":
        return changed(root, {"spec": _spec(spec, document)})
    inside = nodes.entries(spec).get("template")
    if inside is None:
        return root
    held = nodes.entries(inside).get("spec")
    if held is not None:
        inside = changed(inside, {"spec": _spec(held, document)})
    else:  # its roles are in the template itself
        inside = _spec(inside, document)
    return changed(root, {"spec": changed(spec, {"template": inside})})


def _spec(spec: yaml.Node, document: Document) -> yaml.Node:
    keys = nodes.entries(spec)
    roles = keys.get("roles")
    if not isinstance(roles, yaml.SequenceNode):
        return spec
    shared = {
        nodes.text(nodes.entries(item).get("name")): nodes.entries(item).get("template")
        for item in nodes.items(keys.get(_SHARED))
    }
    items = [_role(item, shared, document) for item in roles.value]
    return changed(spec, {"roles": sequence(items, roles), _SHARED: None})


Shared = Mapping[str | None, yaml.Node | None]


def _role(role: yaml.Node, shared: Shared, document: Document) -> yaml.Node:
    keys = nodes.entries(role)
    for pattern, patches in _LEADER_WORKER.items():
        if pattern in keys:
            held = nodes.entries(keys[pattern])
            template = _template(held, shared, document) or _template(keys, shared, document)
            return _leader_worker(role, held, template, patches, document)
    for pattern in _PATTERNS:
        held = nodes.entries(keys.get(pattern))
        template = _template(held, shared, document)
        if template is not None:
            return changed(role, {pattern: None, "template": template})
    template = _template(keys, shared, document)
    taken = {"templateRef": None, "templatePatch": None}
    return role if template is None else changed(role, {**taken, "template": template})


def _template(keys: Entries, shared: Shared, document: Document) -> yaml.Node | None:
    """Return the template of a role or pattern: its own, or a patched shared template, or None."""
    own = keys.get("template")
    if own is not None:
        return own
    reference = nodes.entries(keys.get("templateRef"))
    found = shared.get(nodes.text(reference.get("name"))) if reference else None
    if found is None:
        return None
    patch = reference.get("patch", keys.get("templatePatch"))
    return _patched(found, patch, document)


def _patched(template: yaml.Node, patch: yaml.Node | None, document: Document) -> yaml.Node:
    if not isinstance(patch, yaml.MappingNode) or not patch.value:
        return template
    return strategic(template, patch, document) or template


def _leader_worker(
    role: yaml.Node,
    held: Entries,
    template: yaml.Node | None,
    patches: tuple[str, str],
    document: Document,
) -> yaml.Node:
    """Return a role with one template for all hosts, or one for the leader and one for workers."""
    leader, worker = (held.get(name) for name in patches)
    base = template if template is not None else mapping([], role)
    size = held.get("size")
    gone = dict.fromkeys((*_LEADER_WORKER, "template", "templateRef", "templatePatch"))
    found: dict[str, yaml.Node | None] = {**gone, "size": size}
    # v1alpha1 has the policy in the role itself; v1alpha2's newer field wins over the older
    config = nodes.entries(held.get("restartPolicyConfig"))
    policy = config.get("type", held.get("restartPolicy"))
    if policy is not None:
        found["restartPolicy"] = policy
    if not any("spec" in nodes.entries(patch) for patch in (leader, worker)):
        found["template"] = _patched(base, leader, document)
    else:
        found["leaderTemplate"] = _patched(base, leader, document)
        if nodes.text(size) not in (None, "1"):  # a group of one host has only a leader
            found["workerTemplate"] = _patched(base, worker, document)
    return changed(role, found)


_OPEN = lazy(
    r"\{\{.*?\}\}|\$\{[^}]*\}|\$\([^)]*\)|\$[A-Za-z_]\w*|__[A-Z][A-Z0-9_]*__|" + MARK.pattern
)
"""Pattern of text that another program fills in."""
_INTEGER = lazy(r"[-+]?\d+\Z")
_QUANTITY = lazy(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<unit>[A-Za-z]{0,2}|e[+-]?\d+)\Z")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_COMPOSE = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}
_TRUE = frozenset({"true", "yes", "on"})
_DURATION = lazy(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>us|ms|s|m|h)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def setting(node: yaml.Node | None, document: Document) -> Setting | None:
    """Return a scalar with its YAML type, unknown if it has a placeholder; None if missing."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    text = nodes.text(node)
    if text is None:
        return None
    place = nodes.place(node, document)
    if _OPEN.search(text):
        return Setting(text, place, known=False)
    return Setting(_typed(node, text), place)


def _typed(node: yaml.ScalarNode, text: str) -> Any:
    tag = node.tag.rpartition(":")[2]
    if tag == "bool":
        return text.lower() in _TRUE
    if tag == "int" and _INTEGER.match(text) and len(text) < 19:
        return int(text)
    if tag == "float":
        try:
            return float(text)
        except ValueError:
            return text
    return text


def settings(node: yaml.Node | None, document: Document) -> dict[str, Setting]:
    """Return the scalars of a mapping."""
    read = ((key, setting(value, document)) for key, value in nodes.entries(node).items())
    return {key: found for key, found in read if found is not None}


def numeric(found: Setting | None) -> Setting | None:
    """Return a setting, as an integer if its text is one (`"8"`); None without a setting."""
    if found is not None and found.known and isinstance(found.value, str):
        text = found.value.strip()
        if _INTEGER.match(text) and len(text) < 19:
            return Setting(int(text), found.place)
    return found


def number_at(node: yaml.Node | None, document: Document) -> Setting | None:
    """Return a scalar, as an integer if its text is one; None if it is missing."""
    return numeric(setting(node, document))


def in_bytes(found: Setting | None, *, compose: bool = False) -> Setting | None:
    """Return a memory amount in bytes, marked unknown if invalid; None for None.

    Kubernetes counts `M` as 10^6 and `Mi` as 2^20 (API reference, Quantity), Compose `m` as 2^20
    (compose-spec, Byte values).
    """
    if found is None or not found.known:
        return found
    count = byte_count(str(found.value), compose=compose)
    return Setting(found.value if count is None else count, found.place, known=count is not None)


def byte_count(text: str, *, compose: bool = False) -> int | None:
    """Return an amount such as `16Gi` in bytes; None if it is not an amount."""
    match = _QUANTITY.match(text.strip())
    if match is None or len(text) > 30:
        return None
    number, unit = float(match["number"]), match["unit"]
    if compose:
        power = _COMPOSE.get(unit.lower())
        return None if power is None else int(number * 2**power)
    if unit in _BINARY:
        return int(number * 2 ** _BINARY[unit])
    if unit in _DECIMAL:
        return int(number * 10 ** _DECIMAL[unit])
    if unit[:1] == "e" and unit[1:].lstrip("+-").isdigit() and len(unit) <= 4:
        return int(number * 10 ** min(int(unit[1:]), 18))
    return None


def in_seconds(found: Setting | None) -> Setting | None:
    """Return a Compose duration (`1m30s`) in seconds, marked unknown if invalid; None for None."""
    if found is None or not found.known or isinstance(found.value, (int, float)):
        return found
    text = str(found.value).strip()
    parts = list(_DURATION.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return Setting(found.value, found.place, known=False)
    total = sum((float(part["number"]) * _SECONDS[part["unit"]] for part in parts), 0.0)
    return Setting(int(total) if total.is_integer() else total, found.place)


def texts_in(node: yaml.Node | None) -> Mapping[str, str]:
    """Return the text values of a mapping."""
    found = {key: nodes.text(value) for key, value in nodes.entries(node).items()}
    return {key: value for key, value in found.items() if value is not None}


def known_texts(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the nonempty texts that no other program fills in."""
    return {key: value for key, value in texts.items() if value and not _OPEN.search(value)}


_URL = lazy(r"https?://[^\s\"'`|;)]+")
_PROBES = (ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS)


def probes_of_container(keys: Mapping[str, yaml.Node], document: Document) -> Iterator[Probe]:
    """Yield the probes of a Kubernetes container."""
    ports = {
        nodes.text(nodes.entries(item).get("name")): nodes.entries(item).get("containerPort")
        for item in nodes.items(keys.get("ports"))
    }
    for kind in _PROBES:
        node = keys.get(kind.value)
        held = nodes.entries(node)
        if node is None or not held:
            continue
        probe = _probe(kind, nodes.place(node, document), held, document)
        if probe.port is not None and (named := ports.get(str(probe.port.value))) is not None:
            probe = replace(probe, port=number_at(named, document))
        yield replace(
            probe,
            initial_delay=number_at(held.get("initialDelaySeconds"), document),
            period=number_at(held.get("periodSeconds"), document),
            timeout=number_at(held.get("timeoutSeconds"), document),
            failure_threshold=number_at(held.get("failureThreshold"), document),
        )


def _probe(
    kind: ProbeKind, place: Place, held: Mapping[str, yaml.Node], document: Document
) -> Probe:
    http = nodes.entries(held.get("httpGet"))
    if http:
        path = setting(http.get("path"), document)
        port = number_at(http.get("port"), document)
        listed = map(nodes.entries, nodes.items(http.get("httpHeaders")))
        headers = (nodes.text(header.get("name")) for header in listed)
        return Probe(
            kind,
            place,
            path,
            port,
            scheme=nodes.text(http.get("scheme")),
            host=nodes.text(http.get("host")),
            headers=frozenset(name.lower() for name in headers if name),
        )
    if "exec" in held:
        command = nodes.items(nodes.entries(held["exec"]).get("command"))
        return with_command(Probe(kind, place), command, document)
    for name in ("tcpSocket", "grpc"):
        if name in held:
            port = number_at(nodes.entries(held[name]).get("port"), document)
            return Probe(kind, place, port=port)
    return Probe(kind, place)


def with_command(probe: Probe, words: list[yaml.Node], document: Document) -> Probe:
    """Return `probe` with the command `words`, and the path and port of the first URL in it."""
    scalars = [word for word in words if isinstance(word, yaml.ScalarNode)]
    found = replace(probe, command=tuple(str(word.value) for word in scalars))
    for word in scalars:
        source = nodes.source(word, document)
        url = _URL.search(source.text)
        if url is None:
            continue
        known = "$" not in url[0] and "{" not in url[0]
        where = source.place(url.start(), url.end())
        try:
            parts = urlsplit(url[0])
            port = parts.port if known else None
        except ValueError:  # no port, or a URL without a host
            return found
        path = Setting(parts.path or "/", where, known="$" not in parts.path)
        default = 443 if parts.scheme == "https" else 80
        number = Setting(port or default, where) if known else Setting(url[0], where, known=False)
        return replace(found, path=path, port=number)
    return found


def probes_of_service(node: yaml.Node | None, document: Document) -> Iterator[Probe]:
    """Yield the healthcheck of a Compose service, unless it is disabled."""
    keys = nodes.entries(node)
    test = keys.get("test")
    off = setting(keys.get("disable"), document)
    words = nodes.items(test) or ([test] if isinstance(test, yaml.ScalarNode) else [])
    if node is None or not words or (off is not None and off.value is True):
        return
    if nodes.text(words[0]) == "NONE":
        return
    probe = with_command(Probe(ProbeKind.HEALTHCHECK, nodes.place(node, document)), words, document)
    yield replace(
        probe,
        initial_delay=in_seconds(setting(keys.get("start_period"), document)),
        period=in_seconds(setting(keys.get("interval"), document)),
        timeout=in_seconds(setting(keys.get("timeout"), document)),
        failure_threshold=number_at(keys.get("retries"), document),
    )


_SOURCES = {
    "hostPath": "path",
    "persistentVolumeClaim": "claimName",
    "secret": "secretName",
    "configMap": "name",
    "nfs": "server",
}
"""Key that names a volume's source, by the kind of volume."""


def pod_of_container(
    container: Entries,
    pod: Entries,
    labels: Mapping[str, str],
    maps: ConfigMaps,
    envs: tuple[yaml.Node, ...] = (),
) -> Pod:
    """Return a container's pod from the pod's `spec` (`pod`) and its metadata's `labels`.

    `envs` contains lists of variables that a custom object sets in addition to the container's.
    """
    document = maps.document
    resources = nodes.entries(container.get("resources"))
    security = nodes.entries(container.get("securityContext"))
    own = container.get("env")
    written, secret = variables_of([*envs, *([] if own is None else [own])], document)
    listed = map(nodes.entries, nodes.items(container.get("ports")))
    ports = (number_at(port.get("containerPort"), document) for port in listed)
    return Pod(
        image=setting(container.get("image"), document),
        requests=resource_amounts(resources.get("requests"), document),
        limits=resource_amounts(resources.get("limits"), document),
        probes=tuple(probes_of_container(container, document)),
        volumes=tuple(_volumes(container, pod, document)),
        ipc_host=setting(pod.get("hostIPC"), document),
        grace=number_at(pod.get("terminationGracePeriodSeconds"), document),
        privileged=setting(security.get("privileged"), document),
        host_network=setting(pod.get("hostNetwork"), document),
        ports=tuple(port for port in ports if port is not None),
        env=written,
        secrets=secret,
        labels=dict(labels),
        restart=setting(pod.get("restartPolicy"), document),
    )


def resource_amounts(node: yaml.Node | None, document: Document) -> dict[str, Setting]:
    """Return resource amounts by name, integers as numbers."""
    return {name: numeric(amount) or amount for name, amount in settings(node, document).items()}


def variables_of(
    lists: list[yaml.Node], document: Document
) -> tuple[dict[str, Setting], frozenset[str]]:
    """Return the variables with literal values, and the names of variables from secrets."""
    written: dict[str, Setting] = {}
    secret: set[str] = set()
    for item in (entry for held in lists for entry in nodes.items(held)):
        entry = nodes.entries(item)
        name = nodes.text(entry.get("name"))
        if name is None:
            continue
        value = setting(entry.get("value"), document)
        if value is not None:
            written[name] = value
        elif "secretKeyRef" in nodes.entries(entry.get("valueFrom")):
            secret.add(name)
    return written, frozenset(secret)


def _volumes(container: Entries, pod: Entries, document: Document) -> Iterator[Volume]:
    named = {
        nodes.text(nodes.entries(item).get("name")): item
        for item in nodes.items(pod.get("volumes"))
    }
    for item in nodes.items(container.get("volumeMounts")):
        entry = nodes.entries(item)
        mount = setting(entry.get("mountPath"), document)
        if mount is None:
            continue
        held = named.get(nodes.text(entry.get("name")))
        place = nodes.place(item if held is None else held, document)
        keys = {key: value for key, value in nodes.entries(held).items() if key != "name"}
        kind = next(iter(keys), "unknown" if held is None else "emptyDir")
        details = nodes.entries(keys.get(kind))
        yield Volume(
            mount,
            kind,
            place,
            source=setting(details.get(_SOURCES.get(kind, "")), document),
            medium=nodes.text(details.get("medium")),
            size=in_bytes(setting(details.get("sizeLimit"), document)),
        )
