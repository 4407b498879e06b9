"""Job for an existing Ray cluster: `ray job submit --working-dir . -- python FILE`.

The job places one actor on each host (a placement group, `STRICT_SPREAD`). Each actor starts the
engine's own command with its rank, and ends the engine when the actor ends. This works for every
release, and for several roles and their router. The engine runs as it would without Ray.

Common alternatives are more limited. `--use-ray` (0.5.10 and later) only turns schedulers into
actors. It requires CUDA (0.5.23 srt/ray/scheduler_actor.py:131) and an engine process on a host of
the placement group (srt/ray/engine.py:68). It supports neither a router nor roles. Ray Serve's
SGLang server replaces the engine's HTTP server with Serve's, and accepts only the keywords that its
Ray release knows.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Sequence
from typing import ClassVar

from speclaunch.core import Problem, is_secret_variable
from speclaunch.deployments.targets.interface import (
    DIST_PORT,
    PlatformArgs,
    RenderedCommand,
    Renderer,
    Rendering,
    Role,
    RouterOptions,
    ShellDialect,
    platform_args_of,
)
from speclaunch.deployments.targets.launching import (
    ALONE,
    RECIPE_DIR,
    RECIPE_FILE,
    WITHIN,
    grace_of,
    launches_of_script,
    own_refusals,
    task_script,
    variables,
)
from speclaunch.deployments.targets.pods import (
    PROGRAM,
    api_key_of,
    is_disaggregated,
    own_words,
    router_refusals,
    start_words,
    upstream_words,
)
from speclaunch.deployments.targets.slurm import single_router_refusals
from speclaunch.engine import FromEnvironment, is_secret_text, is_written_secret

_RANK, _HEAD, _UPSTREAMS = "SERVER_RANK", "SERVER_HEAD", "UPSTREAMS"

_ACTOR = '''\
@ray.remote(max_concurrency=4)
class Host:
    """One host of a server: the engine's processes there, which end with it."""

    def __init__(self) -> None:
        self.processes = []

    def address(self) -> str:
        return ray.util.get_node_ip_address()

    def start(self, what: str, more: dict[str, str]) -> None:
        if RECIPE is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
                file.write(RECIPE)
            more["SPECLAUNCH_RECIPE"] = file.name
        self.processes.append(START[what]({**os.environ, **more}))

    def wait(self) -> int:
        """The first exit code."""
        while True:
            for process in self.processes:
                if process.poll() is not None:
                    return process.returncode
            time.sleep(0.5)

    def stop(self, grace: float) -> None:
        """SIGTERM for the engine's parent, which ends its children; then SIGKILL."""
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + grace
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def follow() -> None:
    """An engine whose actor is gone is killed by the kernel (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
'''
_MAIN = """\
def main() -> int:
    ray.init(log_to_driver=True)
    bundles = [BUNDLES[name] for name, _, _ in SERVERS for _ in range(HOSTS[name])]
    group = placement_group(bundles, strategy="STRICT_SPREAD" if len(bundles) > 1 else "PACK")
    print(f"waiting for {len(bundles)} hosts: {bundles[0]} and so on", flush=True)
    ray.get(group.ready())
    hosts = []
    for index, bundle in enumerate(bundles):
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        cpus, gpus = bundle["CPU"], bundle.get("GPU", 0)
        hosts.append(Host.options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy=where).remote())
    addresses = ray.get([host.address.remote() for host in hosts])
    secrets = {name: os.environ[name] for name in SECRETS}

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        at, upstreams = 0, []
        for name, port, flag in SERVERS:
            head = f"{addresses[at]}:%(dist_port)d"
            for rank in range(HOSTS[name]):
                more = {**secrets, "%(rank)s": str(rank), "%(head)s": head}
                ray.get(hosts[at + rank].start.remote(name, more))
            url = f"{SCHEME[name]}://{addresses[at]}:{port}"
            print(f"{name}: {url}", flush=True)
            upstreams.append(flag.format(url=url))
            at += HOSTS[name]
        if "router" in START:
            more = {**secrets, "%(upstreams)s": " ".join(upstreams)}
            ray.get(hosts[0].start.remote("router", more))
        done, _ = ray.wait([host.wait.remote() for host in hosts])
        code = ray.get(done[0])
        print(f"a server ended with {code}", flush=True)
        return code or 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ray.wait([host.stop.remote(GRACE) for host in hosts], num_returns=len(hosts))


if __name__ == "__main__":
    sys.exit(main())
"""


class RayRenderer(Renderer):
    """Renderer of a program for `ray job submit`. Each rank of a server runs on a separate host."""

    target = "ray"
    suffix: ClassVar[str] = ".py"

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        message = "use_ray makes the engine place its own actors, as this job does"
        problem = Problem(message, help="remove use_ray, or run the engine's command on a Ray host")
        found = [problem for role in deployment.roles if role.rendered_args.value("use_ray")]
        found += own_refusals(deployment, self.target)
        if deployment.options.image is not None:
            help_ = "remove deploy.image, and build the cluster from that image"
            found.append(Problem("a Ray job cannot set the image of its hosts", help=help_))
        return [*found, *router_refusals(deployment), *single_router_refusals(deployment)]

    def render(self, deployment: Rendering) -> str:
        stop = grace_of(deployment) + 10
        file = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', deployment.name)}.py"
        notes = [
            f"{_ascii_safe(deployment.title)}.",
            "",
            f"    ray job submit --working-dir . -- python3 {file}",
            "    ray job stop ID     # the engines finish their requests first",
            "",
            "Every host needs the engine and its checkpoints. `ray job stop` waits for the engines",
            f"if the cluster was started with RAY_JOB_STOP_WAIT_TIME_S={stop}.",
            WITHIN if deployment.runs_speclaunch else ALONE,
            *deployment.notes,
        ]
        head = "\n".join(map(_ascii_safe, notes)).rstrip()
        imports = (
            "from __future__ import annotations\n\nimport ctypes\nimport os\nimport signal\n"
            "import subprocess\nimport sys\nimport tempfile\nimport time\n\nimport ray\n"
            "from ray.util.placement_group import placement_group\n"
            "from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy\n"
        )
        names = {"dist_port": DIST_PORT, "rank": _RANK, "head": _HEAD, "upstreams": _UPSTREAMS}
        starts = [
            _start(role.name, task_script(deployment, role, _platform_args(role)))
            for role in deployment.roles
        ]
        if deployment.router is not None:
            starts.append(_start("router", _router(deployment, deployment.router)))
        return "\n\n".join(
            [
                f'"""{head}\n"""\n\n{imports}\n{_settings(deployment)}',
                _ACTOR,
                *starts,
                _table(deployment) + "\n\n\n" + _MAIN % names,
            ]
        )

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        return tuple(
            RenderedCommand(role, _platform_args(role), variables(deployment, role))
            for role in deployment.roles
        )

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        return tuple(launches_of_script(text, f"{RECIPE_DIR}/{RECIPE_FILE}", {}))

    def recipe_in(self, text: str) -> str | None:
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RECIPE":
                found = ast.literal_eval(node.value)
                return found if isinstance(found, str) else None
        return None


def _platform_args(role: Role) -> PlatformArgs:
    return platform_args_of(role, f"${_HEAD}", f"${_RANK}")


def _router(deployment: Rendering, options: RouterOptions) -> str:
    dialect = ShellDialect()
    disaggregated = is_disaggregated(deployment)
    words = [*PROGRAM, *start_words(deployment, options)]
    lines = [shlex.join(["exec", *words, *(["--pd-disaggregation"] if disaggregated else [])])]
    parts = (api_key_of(deployment, dialect), own_words(options, dialect))
    lines += [" ".join(part) for part in parts if part]
    lines.append(f"{'' if disaggregated else '--worker-urls '}${_UPSTREAMS}")
    return "\n" + " \\\n  ".join(lines) + "\n"


def _start(name: str, script: str) -> str:
    return (
        f"def start_{_identifier(name)}(env: dict[str, str]) -> subprocess.Popen:\n"
        f'    """Start the processes of a host of {name}."""\n'
        f'    return subprocess.Popen(["bash", "-c", {_literal(script)}], env=env, '
        "preexec_fn=follow)\n"
    )


def _settings(deployment: Rendering) -> str:
    secrets = ", ".join(map(repr, _secrets(deployment)))
    return (
        f"GRACE = {grace_of(deployment)}.0\n"
        '"""Seconds for an engine to finish its requests."""\n'
        f"SECRETS = [{secrets}]\n"
        '"""Variables of the submitter that the hosts get."""\n'
        f"RECIPE = {deployment.recipe!r}\n"
    )


def _table(deployment: Rendering) -> str:
    bundles, hosts, schemes, servers, starts = [], [], [], [], []
    for role in deployment.roles:
        gpus = f', "GPU": {role.gpus_per_node}' if role.gpus_per_node else ""
        bundles.append(f'    {role.name!r}: {{"CPU": {role.needs.cpus}{gpus}}},')
        hosts.append(f"    {role.name!r}: {role.nodes},")
        schemes.append(f"    {role.name!r}: {'https' if role.tls else 'http'!r},")
        flag = " ".join(upstream_words(role, "{url}"))
        servers += [f"    ({role.name!r}, {role.port}, {flag!r}),"] * role.replicas
        starts.append(f"    {role.name!r}: start_{_identifier(role.name)},")
    if deployment.router is not None:
        starts.append("    'router': start_router,")
    blocks = [
        ("BUNDLES = {", bundles, "}", "Resources of a host of each role."),
        ("HOSTS = {", hosts, "}", "Hosts of one server of each role."),
        ("SCHEME = {", schemes, "}", ""),
        ("SERVERS = [", servers, "]", "Role, port and router flag of each server."),
        ("START = {", starts, "}", ""),
    ]
    found = []
    for first, lines, last, comment in blocks:
        text = "\n".join([first, *lines, last])
        found.append(f'{text}\n"""{comment}"""' if comment else text)
    return "\n".join(found)


def _secrets(deployment: Rendering) -> list[str]:
    """Return the names of variables that the submitter must set."""
    found: list[str] = []
    for role in deployment.roles:
        env = [(name, value) for name, value in role.env.items() if value]
        values = [(a.name, a.secret, v) for a in role.rendered_args.arguments for v in a.values]
        values += [(n, is_secret_variable(n) or is_written_secret(v), v) for n, v in env]
        for name, secret, value in values:
            if isinstance(value, FromEnvironment) and not is_written_secret(value):
                if secret or is_secret_text(value) or value.unset:
                    found += value.variables
            elif secret:
                found.append(name if name in role.env else name.upper())
    return list(dict.fromkeys(found))


def _literal(text: str) -> str:
    plain = '"""' not in text and not text.endswith(("\\", '"'))
    return f'r"""{text}"""' if plain else repr(text)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _ascii_safe(text: str) -> str:
    """Return the text as one line that is safe in a docstring."""
    return " ".join(text.split()).replace("\\", "/").replace('"', "'") if text.strip() else ""
