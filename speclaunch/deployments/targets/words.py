"""Texts in a platform's file: object names, command arguments, addresses, YAML with comments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from speclaunch.core import is_secret_variable
from speclaunch.deployments.targets.interface import Rendering, Role
from speclaunch.engine import FromEnvironment, RenderedArgument, is_secret_text, is_written_secret

_MOST = 40
"""Maximum length of a name, so that it fits into 63 characters with the platforms' suffixes."""
_NAME = "app.kubernetes.io/name"
_COMPONENT = "app.kubernetes.io/component"
ROUTER = "router"
LEADER = {"speclaunch.io/part": "leader"}
"""Label of the pod that answers requests, if a server has several."""


def name_of(deployment: Rendering) -> str:
    """Return the deployment's name as a DNS label."""
    label = re.sub(r"[^a-z0-9]+", "-", deployment.name.lower()).strip("-")[:_MOST].strip("-")
    return label if label[:1].isalpha() else f"d-{label}".rstrip("-")


def object_of(deployment: Rendering, role: Role) -> str:
    """Return the name of the object that runs a role."""
    name = name_of(deployment)
    return name if len(deployment.roles) == 1 else f"{name}-{role.name}"


def secret_of(deployment: Rendering) -> str:
    """Return the name of the Secret that holds the secret values by variable."""
    return f"{name_of(deployment)}-secrets"


def selector(deployment: Rendering, component: str) -> dict[str, str]:
    """Return the labels that select the pods of a role."""
    return {_NAME: name_of(deployment), _COMPONENT: component}


def labels(deployment: Rendering, component: str) -> dict[str, str]:
    """Return the labels of a role's objects."""
    version = re.sub(r"[^A-Za-z0-9._-]", "-", deployment.version)[:63].strip("._-")
    return {**selector(deployment, component), "app.kubernetes.io/version": version}


def metadata(deployment: Rendering, name: str, component: str | None = None) -> dict[str, object]:
    """Return the `metadata` of an object."""
    found: dict[str, object] = {"name": name}
    if deployment.options.namespace is not None:
        found["namespace"] = deployment.options.namespace
    if component is None:
        found["labels"] = {_NAME: name_of(deployment)}
    else:
        found["labels"] = labels(deployment, component)
    return found


def instances(deployment: Rendering) -> int:
    """Return the total number of hosts."""
    return sum(role.replicas * role.nodes for role in deployment.roles)


PlatformArgs = Mapping[str, tuple[str, ...] | None]
"""Argument values set by the platform, by the newest engine's names; None omits an argument."""

FLAGS = {"host": "--host", "node_rank": "--node-rank", "dist_init_addr": "--dist-init-addr"}
"""Flags with the same name in every release."""
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  address of a container
HF_TOKEN = "HF_TOKEN"  # noqa: S105  a variable's name
CHECKPOINTS = ("model_path", "speculative_draft_model_path", "tokenizer_path")


class Dialect:
    """Syntax of a file's texts and variables; `variables` collects the required variables."""

    escaped = "$$"
    """A literal dollar sign."""

    def __init__(self) -> None:
        self.variables: dict[str, None] = {}

    def variable(self, name: str) -> str:
        """Return a reference to an environment variable."""
        return f"$({name})"

    def literal(self, text: str) -> str:
        """Return a text, escaped."""
        return text.replace("$", self.escaped)

    def text(self, value: str, name: str, *, secret: bool) -> str:
        """Return a value, or references to its variables.

        `name` is the variable for a secret that has none.
        """
        if isinstance(value, FromEnvironment) and not is_written_secret(value):
            if secret or value.unset or is_secret_text(value):
                return "".join(
                    self.literal(part) if isinstance(part, str) else self._reference(part.name)
                    for part in value.template
                )
        elif secret or is_written_secret(value):
            return self._reference(name.upper())
        return self.literal(value)

    def _reference(self, name: str) -> str:
        self.variables[name] = None
        return self.variable(name)


class ComposeDialect(Dialect):
    """Compose's syntax. Compose reads the user's environment and fails if a variable is unset."""

    def variable(self, name: str) -> str:
        """Return a reference to an environment variable."""
        return f"${{{name}:?}}"


class ShellDialect(Dialect):
    """Shell syntax. Variables must be set, and every text is quoted."""

    def variable(self, name: str) -> str:
        """Return a reference to an environment variable."""
        return f'"${{{name}:?}}"'

    def literal(self, text: str) -> str:
        """Return a text, quoted."""
        return shlex.quote(text)


def argument_words(role: Role, platform_args: PlatformArgs, dialect: Dialect) -> list[str]:
    """Return the arguments after the program: the role's, then the platform's.

    The values of `platform_args` are in the platform's syntax, including references.
    """
    words = [
        word
        for argument in role.rendered_args.arguments
        if argument.name not in platform_args
        for word in _tokens(argument, dialect)
    ]
    for name, texts in platform_args.items():
        words += [] if texts is None else [FLAGS[name], *texts]
    return words


def _tokens(argument: RenderedArgument, dialect: Dialect) -> list[str]:
    values = [
        dialect.text(value, argument.name, secret=argument.secret) for value in argument.values
    ]
    if len(argument.values) == 1 and argument.values[0].startswith("-"):
        return [f"{argument.flag}={values[0]}"]
    return [argument.flag, *values]


def is_secret_env(name: str, value: str) -> bool:
    """True if an engine variable comes from a secret."""
    return is_secret_variable(name) or is_secret_text(value)


def uses_hub(role: Role) -> bool:
    """True if a checkpoint comes from the hub and may require a token."""
    named = [role.rendered_args.value(name) for name in CHECKPOINTS]
    return any(name is not None and not name.startswith(("/", ".", "~")) for name in named)


def host_paths(role: Role) -> tuple[str, ...]:
    """Return the host directories of checkpoints that are set by path."""
    named = [role.rendered_args.value(name) for name in CHECKPOINTS]
    return tuple(dict.fromkeys(path for path in named if path is not None and path.startswith("/")))


DIST_PORT = 20000
"""Port on which the first host waits for the other hosts (`dist_init_addr`)."""
FILL_IN = "FILL IN"
"""Beginning of a comment about a value that depends on the cluster."""
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Variables for the network interface that ranks on several hosts use."""
POD_INTERFACE = "eth0"
"""Interface of a pod's own network. containerd, CRI-O and cri-dockerd all use this name."""


def platform_args_of(role: Role, first: str = "", rank: str = "") -> PlatformArgs:
    """Return the platform's arguments for a host: an address that is reachable from outside.

    For several hosts: `first` is the first host's address, and `rank` is this host's rank.
    """
    if role.nodes > 1:
        return {"host": (ALL_ADDRESSES,), "dist_init_addr": (first,), "node_rank": (rank,)}
    return {"host": (ALL_ADDRESSES,), "dist_init_addr": None, "node_rank": None}


def crosses_hosts(deployment: Rendering, role: Role) -> bool:
    """True if the role's GPUs exchange tensors or KV cache with GPUs of other hosts."""
    is_pair = role.mode is not None and instances(deployment) > 1
    return role.gpus_per_node > 0 and (role.nodes > 1 or is_pair)


def unset_interfaces(role: Role) -> tuple[str, ...]:
    """Return the INTERFACES variables that a multi-host server needs and the recipe lacks."""
    return tuple(name for name in INTERFACES if role.nodes > 1 and name not in role.env)


def rdma_devices(deployment: Rendering) -> tuple[str, str] | None:
    """Return the RDMA resource and its devices per pod; None if the recipe has none."""
    if deployment.options.rdma is None:
        return None
    name, _, count = deployment.options.rdma.partition(":")
    return name, count or "1"


COMMENT = "#"
"""Prefix of keys that are comments. The value becomes a comment line above the next key."""
_LINE = re.compile(r"^(\s*)(- )?'#[^']*': \d+\n", re.MULTILINE)
_WIDTH = 96
"""Width of a line with a comment."""


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(data: Any) -> str:
    """Return one document without the line `---`."""
    comments: list[str] = []
    marked = _marked(data, comments)
    text: str = yaml.dump(
        marked,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 30,
    )
    found = iter(comments)
    return _LINE.sub(lambda match: _comment(next(found), len(match[1])), text)


def documents(header: Iterable[str], data: Iterable[Mapping[str, Any]]) -> str:
    """Return several documents below a header of comment lines."""
    head = "".join(_comment(line, 0) for line in header)
    return head + "---\n".join(yaml_text(document) for document in data)


def _comment(text: str, indent: int) -> str:
    """Return a text as lines that begin with `# `. Line breaks cannot end the comment."""
    words = " ".join(text.split()).split(" ")
    room = max(40, _WIDTH - indent - 2)
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    printable = ("".join(char for char in line if char.isprintable()) for line in lines)
    return "".join(f"{' ' * indent}# {line}\n" for line in printable)


def _marked(data: Any, comments: list[str]) -> Any:
    """Return the data with a number for each comment, in the order of the text."""
    if isinstance(data, Mapping):
        found: dict[Any, Any] = {}
        for key, value in data.items():
            if isinstance(key, str) and key.startswith(COMMENT):
                comments.append(str(value))
                found[key] = len(comments)
            else:
                found[key] = _marked(value, comments)
        return found
    if isinstance(data, list | tuple):
        return [_marked(item, comments) for item in data]
    return str(data) if isinstance(data, str) else data
