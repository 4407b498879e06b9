"""Read servers of one script that work together: a Slurm batch job, a script with a router.

Directives are `#SBATCH` lines before the first command (sbatch's manual). A step (`srun`) uses its
own nodes if it states any, else the job's. A server that no `srun` starts runs on the first node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources import pods
from speclaunch.deployments.sources.interface import Invocation, Reading, Word
from speclaunch.deployments.sources.server_context.groups import (
    MODE,
    SBATCH,
    SCRIPT,
    Member,
    Owner,
    read_router,
    text_of,
    with_server_context,
)
from speclaunch.deployments.sources.source_text import Document
from speclaunch.engine import Pod, Setting

_DIRECTIVE = lazy(r"#SBATCH[ \t]+([^\n]*)")
_OPTION = lazy(
    r"(?P<name>--[a-z][a-z-]*|-[A-Za-z])(?:(?:[= \t]+|(?<=-[A-Za-z]))(?P<value>[^\s#-]\S*))?"
)
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-J": "--job-name", "-G": "--gpus", "-w": "--nodelist"}
_GRES = lazy(r"gpu(?::[^:,\s]+)?:(\d+)")
_COUNT = lazy(r"(?:[a-z][\w-]*:)?(\d+)\Z", 2)
_NNODES = "--nnodes"


def may_form_deployment(reading: Reading, text: str) -> bool:
    """True if a script's servers may form one deployment. This test is cheap."""
    if not reading.invocations:
        return False
    if reading.routers or "#SBATCH" in text:
        return True
    if len(reading.invocations) < 2:
        return False
    modes = {text_of(invocation.words, MODE) for invocation in reading.invocations}
    ranked = [
        invocation
        for invocation in reading.invocations
        if text_of(invocation.words, _NNODES) not in (None, "1")
    ]
    return {"prefill", "decode"} <= modes or len(ranked) > 1


def add_server_context(reading: Reading, document: Document) -> Reading:
    """Return a reading of a script with the server context of its servers."""
    job = directives(document)
    platform = SBATCH if "#SBATCH" in document.text else SCRIPT
    title = job.get("--job-name")
    name = str(title.value) if title is not None else PurePath(document.shown).stem
    place = title.place if title is not None else Place(document.shown)
    members: list[Member] = []
    for index, found in enumerate(reading.invocations):
        step = _step(found.program)
        owner = Owner(
            f"{index}",
            name,
            platform,
            place,
            role=text_of(found.words, MODE) or name,
            role_place=found.place,
            nodes=_nodes(job, step, found, platform),
            gpus_per_node=_gpus(step) or _gpus(job),
        )
        members.append(Member(owner, Pod(image=_image(found)), found, index))
    for number, command in enumerate(reading.routers):
        owner = Owner(f"router {number}", name, platform, place)
        members.append(Member(owner, Pod(), router=read_router(command)))
    return with_server_context(reading, members, (), document)


def directives(document: Document) -> dict[str, Setting]:
    """Return the options of a batch job by their long names; the last duplicate wins."""
    found: dict[str, Setting] = {}
    at = 0
    for line in document.text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        match = _DIRECTIVE.match(line)
        if match is not None:
            for option in _OPTION.finditer(match[1]):
                start = at + match.start(1) + option.start()
                place = document.place(start, len(option[0]))
                name = _SHORT.get(option["name"], option["name"])
                value = option["value"]
                if value is not None:
                    begin = at + match.start(1) + option.start("value")
                    place = document.place(begin, len(value))
                found[name] = Setting(True if value is None else value.strip("\"'"), place)
        at += len(line) + 1
    return found


def _step(program: Sequence[Word]) -> dict[str, Setting]:
    """Return the options of a server's `srun` by their long names; empty without `srun`."""
    at = next((i for i, word in enumerate(program) if word.text.rpartition("/")[2] == "srun"), None)
    if at is None:
        return {}
    found = {"srun": Setting(True, program[at].place)}
    words = program[at + 1 :]
    for index, word in enumerate(words):
        if not word.text.startswith("-"):
            continue
        name, equals, value = word.text.partition("=")
        if not name.startswith("--") and len(name) > 2:
            name, value, equals = name[:2], name[2:], "="
        holder = word
        if not equals and index + 1 < len(words) and not words[index + 1].text.startswith("-"):
            holder = words[index + 1]
            value = holder.text
        found[_SHORT.get(name, name)] = Setting(value, holder.place, holder.evaluated)
    return found


def _nodes(
    job: Mapping[str, Setting], step: Mapping[str, Setting], found: Invocation, platform: str
) -> Setting | None:
    """Return a server's hosts, if the script states the nodes of the job or step."""
    if platform != SBATCH or "srun" not in step:
        return None
    held = step.get("--nodes") or (None if "--nodelist" in step else job.get("--nodes"))
    if (text_of(found.words, "--node-rank") or "").isdecimal():
        return None  # each rank has a separate command
    return pods.numeric(held)


def _gpus(options: Mapping[str, Setting]) -> Setting | None:
    """Return the GPUs of one node from `--gpus-per-node` or `--gres=gpu:…`."""
    for name, pattern in (("--gpus-per-node", _COUNT), ("--gres", _GRES)):
        option = options.get(name)
        match = pattern.search(str(option.value)) if option is not None and option.known else None
        if option is not None and match is not None and len(match[1]) < 5:
            return Setting(int(match[1]), option.place)
    return None


def _image(found: Invocation) -> Setting | None:
    if found.image is None:
        return None
    word = next((w for w in found.program if w.text == found.image), None)
    place = found.place if word is None else word.place
    return Setting(found.image, place, word is None or word.evaluated)
