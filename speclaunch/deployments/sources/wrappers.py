"""Wrappers before a server's program: ``env``, ``nohup``, ``numactl``, ``docker run`` and so on.

`find_program` searches for the program's own tokens, so an unknown wrapper does not hide it. The
list of known wrappers only states their effect on the server. This module also reads the SGLang
releases of images, and GPU requests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, lazy
from speclaunch.deployments.sources.fields import Field, Value
from speclaunch.deployments.sources.interface import VLLM, VLLM_IMAGE, Dropped, InvocationKind
from speclaunch.deployments.sources.source_text import Section
from speclaunch.engine import ResolvedVersion, declare, resolve_version

ROUTER = "sglang_router.launch_server"
MODULES = {
    "sglang.launch_server": InvocationKind.LAUNCH_SERVER,
    ROUTER: InvocationKind.LAUNCH_SERVER,
    "dynamo.sglang": InvocationKind.DYNAMO,
    "dynamo.sglang.main": InvocationKind.DYNAMO,
    "dynamo.sglang.worker": InvocationKind.DYNAMO,
    "dynamo.sglang.decode_worker": InvocationKind.DYNAMO,
    f"{VLLM}.entrypoints.openai.api_server": InvocationKind.VLLM,
}
"""Server modules for `python -m`. Dynamo's `worker` and `decode_worker` existed until 0.4."""
ROUTER_MODULES = frozenset(
    [
        *("sglang_router", "sglang_router.launch_router", "sglang_router.cli", "smg"),
        *("sglang_router.mini_lb", "sglang.srt.disaggregation.mini_lb"),
        *("sglang.srt.disaggregation.launch_lb", "dynamo.frontend"),
    ]
)
"""Modules that start a router.

Sources: the sglang_router wheel (launch_router.py, mini_lb.py, cli.py), sglang until 0.4.9
(disaggregation/launch_lb.py, mini_lb.py), and Dynamo's frontend.
"""
ROUTER_PROGRAMS = frozenset({"sglang-router", "sgl-model-gateway", "sglang_router", "smg", "amg"})
"""Programs that start a router (sglang_router's entry_points.txt; the gateway's own binary)."""
SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash"})
SILENT = frozenset(
    [
        *("echo", "printf", "cat", "grep", "egrep", "fgrep", "rg", "pgrep", "pkill", "kill"),
        *("killall", "ps", "git", "curl", "wget", "logger", "sed", "awk", "jq", "test", "["),
        *("which", "type", "man", "alias", "trap", "read", "complete", "find", "ls", "rm", "cp"),
        *("mv", "tar", "pip", "pip3", "apt", "apt-get", "sleep"),
        "dynamo-sglang-sidecar",  # its --sglang-endpoint names a server
    ]
)
"""Commands that run none of their arguments."""

HELP = frozenset({"--help", "-h"})
DIFFUSION = lazy(
    r"--(?:num-gpus|(?:ulysses|ring|sp)-degree|cfg-parallel-size|enable-cfg-parallel|dit-[a-z-]+"
    r"|(?:vae|text-encoder|image-encoder)-cpu-offload|use-fsdp-inference|pipeline-class-name"
    r"|model-type=diffusion)(?:=.*)?"
)
"""Pattern of `sglang serve` options that apply only to image and video models.

For these models, `sglang serve` starts a different server (0.5.23
multimodal_gen/runtime/server_args).
"""
_ASSIGNMENT = lazy(r"[A-Za-z_][A-Za-z0-9_.]*=")
_PROGRAM = lazy(r"\$[{(]?\w*sglang\w*[)}]?", re.IGNORECASE)
"""Pattern of a variable that is named after the program, such as `$SGLANG_BIN`."""
_NEXT = lazy(r",(?=[A-Za-z_]\w*=)")
"""Pattern of a comma between two assignments of Apptainer's `--env`."""
_CLEAN = frozenset({"-e", "--cleanenv", "-C", "--containall"})
"""Apptainer options that hide the host's environment from the container."""
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES = frozenset(
    [
        *("-d", "--detach", "-i", "--interactive", "-t", "--tty", "--rm", "--privileged", "--init"),
        *("--read-only", "-P", "--publish-all", "--no-healthcheck", "--oom-kill-disable"),
        *("--disable-content-trust", "-q", "--quiet", "--sig-proxy", "--use-api-socket"),
        *("--replace", "--no-hosts", "--no-hostname", "--tls-verify"),
    ]
)
_WHY = {
    "nohup": "the caller watches the engine",
    "setsid": "the caller watches the engine",
    "exec": "it only replaces the shell",
    "command": "it only sets how the shell finds the program",
    "time": "it only measures time",
} | {
    name: f"{what} not part of the server's arguments"
    for names, what in (
        ("numactl", "binding to NUMA nodes is"),
        ("taskset", "binding to cores is"),
        ("nice ionice chrt", "a priority is"),
        ("stdbuf unbuffer", "buffering is"),
        ("timeout", "a time limit is"),
        ("sudo", "the user is"),
        ("srun", "Slurm's options are"),
        ("mpirun mpiexec", "MPI's options are"),
        ("ray", "Ray's options are"),
        ("nsys ncu", "a profiler is"),
        ("conda uv", "the Python environment is"),
        ("kubectl", "the pod is"),
        ("ssh", "the remote host is"),
        ("apptainer singularity", "the container is"),
        ("tini dumb-init", "an init process is"),
        (" ".join(SHELLS), "the outer shell is"),
    )
    for name in names.split()
}


class ServerProgram(Struct, frozen=True):
    """Server program among a command's tokens."""

    kind: InvocationKind
    start: int
    """Index of the program's first token."""
    arguments: int
    """Index of the first argument."""


class Wrapping(Struct):
    """Effect of the wrappers on the server."""

    env: dict[str, Field] = {}
    unset: list[str] = []
    passed: dict[str, Field] = {}
    """Variables with the same value inside and outside the container: ``docker -e NAME``."""
    dropped: list[Dropped] = []
    name: str | None = None
    image: str | None = None
    isolated: bool = False
    """True if the server does not inherit the environment (a container, ``env -i``)."""
    entrypoint: Field | None = None


def base(text: str) -> str:
    """Return the name of a program without its directory."""
    return text.rsplit("/", 1)[-1]


def find_program(tokens: Sequence[Field]) -> ServerProgram | None:  # noqa: PLR0911
    """Return the first SGLang server in a command's tokens, or None."""
    texts = [token.text for token in tokens]
    if not texts or base(texts[0]) in SILENT:
        return None
    for index, text in enumerate(texts):
        follows = texts[index + 1] if index + 1 < len(texts) else ""
        if text in ("-m", "-um") and follows in MODULES:
            return ServerProgram(MODULES[follows], _interpreter(texts, index), index + 2)
        glued = text.removeprefix("-u" if text.startswith("-um") else "-").removeprefix("m")
        if text.startswith(("-m", "-um")) and glued in MODULES:
            return ServerProgram(MODULES[glued], _interpreter(texts, index), index + 1)
        if text.endswith("sglang/launch_server.py"):
            start = _interpreter(texts, index)
            return ServerProgram(InvocationKind.LAUNCH_SERVER, start, index + 1)
        if follows == "serve" and (base(text) == "sglang" or _PROGRAM.fullmatch(text)):
            return ServerProgram(InvocationKind.SERVE, index, index + 2)
        if base(text) == VLLM and follows == "serve":
            return ServerProgram(InvocationKind.VLLM, index, index + 2)
        if VLLM_IMAGE in text and (index == 0 or "run" in texts[:index]):  # the image starts it
            return ServerProgram(InvocationKind.VLLM, index, index + 1)
    return None


def find_router(words: Sequence[Field]) -> tuple[str, int] | None:
    """Return the first router's program and the index of its first argument, or None."""
    texts = [word.text for word in words]
    if not texts or base(texts[0]) in SILENT or "install" in texts:
        return None
    for index, text in enumerate(texts):
        if text in ("-m", "-um") and texts[index + 1 : index + 2]:
            if texts[index + 1] in ROUTER_MODULES:
                return texts[index + 1], index + 2
        elif base(text) in ROUTER_PROGRAMS and (index == 0 or texts[index - 1][:1] != "-"):
            launched = texts[index + 1 : index + 2] == ["launch"]
            return base(text), index + 1 + launched
    return None


def _interpreter(texts: Sequence[str], index: int) -> int:
    """Return the index of the interpreter that the option at `index` belongs to."""
    at = index - 1
    while at > 0 and (texts[at].startswith("-") or texts[at - 1] in ("-X", "-W")):
        at -= 1
    return max(at, 0)


def read_wrappers(words: Sequence[Field]) -> Wrapping:
    """Return the effect of the tokens before a program."""
    found = Wrapping()
    at = 0
    while at < len(words) and _ASSIGNMENT.match(words[at].text):
        _assign(words[at], found)
        at += 1
    while at < len(words):
        head = base(words[at].text)
        if head == "env":
            at = _env(words, at, found)
        elif head in _CONTAINERS and (run := _container(words, at)) is not None:
            at = _container_options(words, at, run, found)
        elif head in _WHY:
            is_apptainer = head in ("apptainer", "singularity")
            end = at + 1 + is_apptainer  # not the verb, which may be `exec`
            while end < len(words) and not _is_wrapper(words[end].text):
                end += 1
            rest = []
            for word in _apptainer(words[at:end], found) if is_apptainer else words[at:end]:
                if head == "sudo" and _ASSIGNMENT.match(word.text):
                    _assign(word, found)
                else:
                    rest.append(word)
            images = (word.text for word in rest if word.text.endswith(".sif"))
            found.image = next(images, found.image) if is_apptainer else found.image
            _drop(rest, _WHY[head], found)
            at = end
        else:
            _drop(words[at : at + 1], "its effect on the command is unknown", found)
            at += 1
    return found


def _is_wrapper(text: str) -> bool:
    return "=" not in text and base(text) in {*_WHY, "env", *_CONTAINERS}


def _drop(words: Sequence[Field], why: str, found: Wrapping) -> None:
    if words:
        text = " ".join(word.text for word in words)
        found.dropped.append(Dropped(text, words[0].place, why))


def _assign(word: Field, found: Wrapping) -> None:
    name, _, _ = word.text.partition("=")
    found.env[name] = cut(word, len(name) + 1)


def _apptainer(words: Sequence[Field], found: Wrapping) -> list[Field]:
    """Apply Apptainer's environment options. Return the other tokens."""
    if not _CLEAN.isdisjoint(word.text for word in words):
        found.isolated = True
        found.env.clear()
    rest: list[Field] = []
    index = 0
    while index < len(words):
        word = words[index]
        option, equals, _ = word.text.partition("=")
        size = 1 if equals or option not in ("--env", "--env-file") else 2
        value = cut(word, len(option) + 1) if equals else words[min(index + 1, len(words) - 1)]
        if option == "--env":
            text = "".join(piece.text for piece in value.pieces)
            starts = [0, *(mark.end() for mark in _NEXT.finditer(text)), len(text) + 1]
            for start, stop in pairwise(starts):
                if _ASSIGNMENT.match(text, start):
                    _assign(cut(value, start, stop - 1), found)
        elif option == "--env-file":
            why = f"{_WHY['apptainer']}; the variables in that file are not read"
            _drop(words[index : index + size], why, found)
        else:
            rest.append(word)
        index += size
    return rest


def cut(word: Field, count: int, stop: int | None = None) -> Field:
    """Return a token without its first `count` characters and those from `stop` on."""
    pieces = []
    at = 0
    for piece in word.pieces:
        size = len(piece.text)
        start, end = max(count - at, 0), size if stop is None else min(stop - at, size)
        is_default = not size and bool(piece.default_of) and start == end  # an empty `${X:-}`
        at += size
        if start < end or is_default:
            pieces.append(piece.slice(start, end))
    if pieces:
        return Field(tuple(pieces), None, word.used)
    if word.span is not None:
        return Field((), replace(word.span, start=word.span.end), word.used)
    last = word.pieces[-1]
    return Field((last.slice(len(last.text), len(last.text)),), None, word.used)


def _env(words: Sequence[Field], at: int, found: Wrapping) -> int:
    start = at
    at += 1
    while at < len(words):
        text, following = words[at].text, words[at + 1 : at + 2]
        size, why = 1, "not part of the server's arguments"
        if text in ("-u", "--unset") and following:
            found.unset.append(following[0].text)
            size, why = 2, "the variable is removed"
        elif text.startswith(("--unset=", "-u")):
            found.unset.append(text.removeprefix("--unset=").removeprefix("-u"))
            why = "the variable is removed"
        elif text in ("-i", "-", "--ignore-environment"):
            found.isolated = True
            found.env.clear()
            why = "the surrounding environment is not passed on"
        elif text in ("-C", "--chdir", "-S") and following:
            size = 2
        elif _ASSIGNMENT.match(text):
            _assign(words[at], found)
            at += 1
            continue
        elif not text.startswith("-"):
            break
        _drop(words[at : at + size], why, found)
        at += size
    return max(at, start + 1)


def _container(words: Sequence[Field], at: int) -> int | None:
    """Return the index of a container tool's ``run``, ``exec`` or ``create``, or None."""
    verbs = ("run", "exec", "create")
    return next((i for i in range(at + 1, min(at + 8, len(words))) if words[i].text in verbs), None)


def _container_options(words: Sequence[Field], at: int, run: int, found: Wrapping) -> int:
    tool = f"{words[at].text} {words[run].text}"
    found.isolated = True
    found.env.clear()
    index = run + 1
    while index < len(words) and words[index].text.startswith("-"):
        text = words[index].text
        option, equals, _ = text.partition("=")
        size = 1
        value: Field | None = None
        if re.match(r"-e[A-Za-z_]", text):
            option, value = "-e", cut(words[index], 2)
        elif equals:
            value = cut(words[index], len(option) + 1)
        elif option not in _SWITCHES and not re.match(r"-[ditqP]+\Z", option):
            size = 2
            value = words[index + 1] if index + 1 < len(words) else None
        if option in ("-e", "--env") and value is not None:
            if "=" in value.text:
                _assign(value, found)
            else:
                found.passed[value.text] = value
        else:
            if option == "--name" and value is not None:
                found.name = value.text
            if option == "--entrypoint":
                found.entrypoint = value
            why = f"an option of `{tool}`"
            if option == "--env-file":
                why += "; the variables in that file are not read"
            _drop(words[index : index + size], why, found)
        index += size
    found.image = words[index].text if index < len(words) else None
    _drop(words[index : index + 1], f"the image or container of `{tool}`", found)
    return min(index + 1, len(words))


ELSEWHERE = lazy(
    r"^(?:sudo )?(?:exit|ssh|kubectl|srun|apptainer|singularity|docker[ -]compose)\b"
    r"|\b(?:conda|mamba|uv|venv)\b|\bgit (?:clone\b.{0,300}sglang|checkout|switch|pull|apply)\b"
    r"|\binstall\b.{0,300}(?:sglang|\.whl| -[er]\b| --editable| \.)"
)
"""Pattern of a command that leaves the shell, or may install another SGLang."""
_OTHER = lazy(r"without|native|bare|local|source|pip|conda|host|option|\b0\.[4-9]\.\d", re.I)
"""Pattern of a heading of commands for another environment or release."""
_OPENS = lazy(
    r"(?:sudo )?(?:docker|podman|nerdctl) (?:container )?(run|create|exec|pull)(.*?) (\S+)"
    r"( (?:\S*/)?(?:(?:ba|da|k|z)?sh(?: -[il]+| --login)*|(?:sleep|tail) .*))?"
)
_TERMINAL = lazy(r" (?:-[a-z]*[it][a-z]*|--interactive|--tty)(?!\S)")


class DocumentShells(Struct):
    """Shells of a document's blocks. Each key is a section and the number of servers above."""

    assigned: Counter[str]
    """Number of different texts that the document assigns to each variable."""
    images: set[str] = set()
    opened: list[tuple[tuple[Section, int], str]] = []
    """Image of each container in which a shell was opened; "" if it is unknown."""
    variables: dict[str, tuple[tuple[Section, int], Value]] = {}

    def known(self, section: Section) -> dict[str, Value]:
        """Return the variables in a section; those that another section sets are not exported."""
        found = {}
        for name, ((at, _), value) in self.variables.items():
            is_near = section[: len(at)] == at
            if is_near or self.assigned[name] == 1:
                found[name] = replace(value, exported=value.exported and is_near)
        return found

    def image(self, section: Section) -> str | None:
        """Return the image in which the shell of a section runs; None if it is uncertain."""
        key, image = self.opened[-1] if self.opened else (((), 0), "")
        is_near = section[: len(key[0])] == key[0]
        rivals = {other for at, other in self.opened if at == key or not is_near}
        is_other = any(_OTHER.search(title[2]) for title in section if title not in key[0])
        is_known = len(rivals) == 1 and not is_other and tagged_version(image) is not None
        return image if is_known else None

    def opens(self, words: Sequence[Field]) -> str | None:
        """Return the image whose shell a command opens: "" if unknown, None if it opens none."""
        text = " ".join(word.text for word in words)
        if ELSEWHERE.search(text):
            return ""
        if (found := _OPENS.fullmatch(text)) is None:
            return None
        verb, options, image, shell = found.groups()
        has_terminal = verb != "exec" and _TERMINAL.search(options)
        if verb == "exec":
            image = "".join(self.images) if len(self.images) == 1 else ""
        elif verb != "pull" and not shell and not (has_terminal and ":" in image):
            image = ""
        self.images.add(image)
        return image if shell or has_terminal else None


_TAG = lazy(
    r"sglang[^:@]*:v?(?P<version>\d+\.\d+\.\d+(?:\.post\d+)?)"
    r"(?P<more>\.?(?:rc|dev)\d+)?(?![\d.])"
)


def tagged_version(image: str | None) -> str | None:
    """Return the SGLang release in an image's tag (`lmsysorg/sglang:v0.5.10-cu129`), or None.

    For a Dynamo image, whose tag states Dynamo's release, return its SGLang release.
    """
    if image is not None and ("dynamo" in image or "sglang-runtime" in image):
        from speclaunch.deployments.sources import dynamo  # noqa: PLC0415  few images are Dynamo's

        if dynamo.is_image(image):
            return dynamo.sglang_release(image)
    found = _TAG.search(image or "")
    return None if found is None else found["version"]


def image_version(image: str | None) -> str | None:
    """Return the supported version for the release in an image's tag, or None."""
    found = image_release(image)
    return None if found is None else found.held


def image_release(image: str | None) -> ResolvedVersion | None:
    """Return the release in an image's tag, and a note if speclaunch does not know it.

    This includes release candidates and development versions. None if the tag names no release
    (`latest`, `nightly-dev-20260101`).
    """
    version = tagged_version(image)
    if version is None:
        return None
    found = _TAG.search(image or "")
    more = found["more"] if found is not None and found["version"] == version else None
    return resolve_version(version + (more or ""))


_GPUS = lazy(r"(?P<name>[A-Za-z][\w.-]*?)(?P<memory>[:-]\d+GB)?(?::(?P<count>\d+))?\Z")


def declared(label: str | None) -> str | None:
    """Return a label's GPUs as a `--hardware` value; None unless all are of one known type."""
    found = _GPUS.match(label.strip()) if label else None
    if found is None:
        return None
    memory = (found["memory"] or "").lower().lstrip(":-")
    count = f":{found['count']}" if found["count"] else ""
    name = found["name"].lower()
    for text in ([f"{name}-{memory}{count}"] if memory else []) + [f"{name}{count}"]:
        try:
            declare(text)
        except InputError:
            continue
        return text
    return None
