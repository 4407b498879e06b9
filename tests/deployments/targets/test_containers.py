"""What the forms with containers say: probes, caches, secrets, ranks, the router, speclaunch itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from speclaunch.deployments.targets.interface import Needs, Role
from speclaunch.deployments.targets.launching import UNKNOWN_START, probes_of
from speclaunch.engine.releases.command import RenderedArgs, RenderedArgument
from speclaunch.engine.releases.images import official_image
from tests.deployments.targets import deployments
from tests.support import program
from tests.support.loops import rows

PODS = ("kubernetes", "leaderworkerset", "rolebasedgroup")


def rendered(folder: Path, name: str, target: str, *words: str, more: str = "") -> list[Any]:
    recipe = deployments.write(folder, name, more)
    done = program.run("render", f"recipe={recipe}", "--to", target, *words)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(found: list[Any], kind: str) -> list[Any]:
    return [one for one in found if one["kind"] == kind]


def containers(value: Any) -> list[dict[str, Any]]:
    """Every container of the engine in a document, wherever it is."""
    if isinstance(value, list):
        return [found for one in value for found in containers(one)]
    if not isinstance(value, dict):
        return []
    own = [one for one in value.get("containers", ()) if one["name"] == "sglang"]
    return own + [found for one in value.values() for found in containers(one)]


@rows(
    "version, vendor, gpu, image",
    [
        ("0.4.7.post1", "nvidia", "h100", "lmsysorg/sglang:v0.4.7.post1-cu124"),
        ("0.4.8.post1", "nvidia", "h100", "lmsysorg/sglang:v0.4.8.post1-cu126"),
        ("0.5.2", "nvidia", "", "lmsysorg/sglang:v0.5.2-cu126"),
        ("0.5.3.post3", "nvidia", "b200", "lmsysorg/sglang:v0.5.3.post3"),
        ("0.5.23", "nvidia", "h100", "lmsysorg/sglang:v0.5.23"),
        ("0.4.9.post6", "amd", "mi300x", "lmsysorg/sglang:v0.4.9.post6-rocm630"),
        ("0.4.10.post2", "amd", "mi300x", "lmsysorg/sglang:v0.4.10.post2-rocm630-mi30x"),
        ("0.5.17", "amd", "mi300x", "lmsysorg/sglang:v0.5.17-rocm700-mi30x"),
        ("0.5.17", "amd", "mi355x", "lmsysorg/sglang:v0.5.17-rocm700-mi35x"),
        ("0.5.23", "cpu", "cpu", None),
    ],
)
def test_the_official_image_of_a_release(
    version: str, vendor: str, gpu: str, image: str | None
) -> None:
    assert official_image(version, vendor=vendor, gpu=gpu) == image


def role(env: dict[str, str | None] | None = None, **said: str) -> Role:
    arguments = tuple(RenderedArgument(name, f"--{name}", (value,)) for name, value in said.items())
    return Role("server", ("python3",), RenderedArgs("0.5.23", arguments, env or {}), env or {})


def test_liveness_waits_longer_than_the_engines_own_watchdog() -> None:
    found = probes_of(role())
    assert found.liveness.timeout == 25  # the engine says 503 after 20
    assert 300 < found.liveness.slack < 400
    slow = probes_of(role(watchdog_timeout="1800"))
    assert 1800 < slow.liveness.slack < 1900
    patient = probes_of(role({"SGLANG_HEALTH_CHECK_TIMEOUT": "60"}))
    assert patient.liveness.timeout == 65 and patient.liveness.period > 65
    assert patient.liveness.slack > 300


def test_the_startup_probe_has_the_budget_of_the_plan() -> None:
    found = probes_of(role())
    assert found.startup.slack == UNKNOWN_START
    known = Role(
        "server", ("python3",), RenderedArgs("0.5.23", (), {}), {}, needs=Needs(start_seconds=1234)
    )
    assert 1234 <= probes_of(known).startup.slack < 1250


@pytest.mark.thorough
@pytest.mark.parametrize("target", PODS)
def test_secrets_are_references(target: str, tmp_path: Path) -> None:
    found = rendered(tmp_path, "prefill_decode_hosts", target)
    for one in containers(found):
        if "args" not in one:
            continue  # the patch of a leader
        env = {each["name"]: each for each in one["env"]}
        for name in ("API_KEY", "HF_TOKEN"):
            wanted = {"name": "prefill-decode-hosts-secrets", "key": name}
            assert env[name]["valueFrom"]["secretKeyRef"] == wanted
        words = one["args"]
        assert words[words.index("--api-key") + 1] == "$(API_KEY)"
        assert env["ODD"]["value"] == "a $$b $$(c) $${d}"
        assert list(env).index("API_KEY") < list(env).index("ODD")


def test_what_is_not_set_here_comes_from_the_secret(tmp_path: Path) -> None:
    (deployment,) = of_kind(rendered(tmp_path, "from_the_environment", "kubernetes"), "Deployment")
    (one,) = containers(deployment)
    assert one["args"][one["args"].index("--model-path") + 1] == "$(UNSET_DIR)/llama"
    env = {each["name"]: each for each in one["env"]}
    assert env["UNSET_DIR"]["valueFrom"]["secretKeyRef"]["key"] == "UNSET_DIR"
    assert env["WHERE"]["value"] == "/a/$(UNSET_DIR)"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("target", "address", "rank"),
    [
        ("leaderworkerset", "$(LWS_LEADER_ADDRESS):20000", "$(LWS_WORKER_INDEX)"),
        ("rolebasedgroup", "$(RBG_LWP_LEADER_ADDRESS):20000", "$(RBG_LWP_WORKER_INDEX)"),
        ("kubernetes", "several-hosts-0.several-hosts-hosts:20000", "$(NODE_RANK)"),
    ],
)
def test_the_platform_numbers_the_hosts(
    target: str, address: str, rank: str, tmp_path: Path
) -> None:
    found = rendered(tmp_path, "several_hosts", target)
    commands = [one["args"] for one in containers(found) if "args" in one]
    assert commands
    for words in commands:
        assert words[words.index("--dist-init-addr") + 1] == address
        assert words[words.index("--node-rank") + 1] == rank
        assert words[words.index("--nnodes") + 1] == "2"
        assert words[words.index("--host") + 1] == "0.0.0.0"


@pytest.mark.thorough
def test_the_hosts_of_a_server_restart_together(tmp_path: Path) -> None:
    (lws,) = of_kind(rendered(tmp_path, "several_hosts", "leaderworkerset"), "LeaderWorkerSet")
    group = lws["spec"]["leaderWorkerTemplate"]
    assert (group["size"], group["restartPolicy"]) == (2, "RecreateGroupOnPodRestart")
    (leader,) = containers(group["leaderTemplate"])
    (worker,) = containers(group["workerTemplate"])
    assert "livenessProbe" in leader and "livenessProbe" not in worker
    assert leader["args"] == worker["args"]
    (rbg,) = of_kind(rendered(tmp_path, "several_hosts", "rolebasedgroup"), "RoleBasedGroup")
    (one,) = rbg["spec"]["roles"]
    pattern = one["leaderWorkerPattern"]
    assert pattern["restartPolicyConfig"]["type"] == "RecreateRoleInstanceOnPodRestart"
    (patched,) = containers(pattern["leaderTemplatePatch"])
    assert "startupProbe" in patched and "args" not in patched
    assert "startupProbe" not in containers(pattern["template"])[0]


@pytest.mark.thorough
def test_a_service_leads_to_the_pod_that_answers(tmp_path: Path) -> None:
    found = rendered(tmp_path, "several_hosts", "kubernetes")
    hosts, address = of_kind(found, "Service")
    assert hosts["spec"]["clusterIP"] == "None" and hosts["spec"]["publishNotReadyAddresses"]
    assert address["spec"]["selector"]["apps.kubernetes.io/pod-index"] == "0"
    (stateful,) = of_kind(found, "StatefulSet")
    assert stateful["spec"]["serviceName"] == hosts["metadata"]["name"]
    assert stateful["spec"]["podManagementPolicy"] == "Parallel"
    assert len(of_kind(rendered(tmp_path, "hosts_twice", "kubernetes"), "StatefulSet")) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("target", PODS)
def test_a_router_finds_prefill_and_decode_by_their_labels(target: str, tmp_path: Path) -> None:
    found = rendered(tmp_path, "prefill_decode", target)
    text = yaml.safe_dump_all(found)
    assert "--pd-disaggregation" in text and "sglang.ai/bootstrap-port: '8998'" in text
    (access,) = of_kind(found, "Role")
    assert access["rules"][0]["resources"] == ["pods"]
    assert of_kind(found, "RoleBinding")[0]["subjects"][0]["name"] == access["metadata"]["name"]
    (service,) = (
        one for one in of_kind(found, "Service") if one["metadata"]["name"] == "prefill-decode"
    )
    assert service["spec"]["ports"][0]["port"] == 8000


@pytest.mark.thorough
def test_compose_gives_each_server_gpus_of_its_own(tmp_path: Path) -> None:
    (found,) = rendered(tmp_path, "prefill_decode", "docker-compose")
    services = found["services"]
    assert list(services) == ["prefill-0", "prefill-1", "decode", "router"]
    ids = [
        number
        for name in ("prefill-0", "prefill-1", "decode")
        for number in services[name]["deploy"]["resources"]["reservations"]["devices"][0][
            "device_ids"
        ]
    ]
    assert ids == [str(number) for number in range(24)]
    words = services["router"]["command"]
    assert words[words.index("--prefill") :][:3] == ["--prefill", "http://prefill-0:30000", "8998"]
    assert words[words.index("--decode") + 1] == "http://decode:30000"
    (amd,) = rendered(tmp_path, "amd", "docker-compose")
    visible = [
        amd["services"][n]["environment"]["HIP_VISIBLE_DEVICES"] for n in ("chat-0", "chat-1")
    ]
    assert visible == ["0,1", "2,3"]


@pytest.mark.thorough
def test_caches_are_where_the_recipe_says(tmp_path: Path) -> None:
    (lws,) = of_kind(rendered(tmp_path, "several_hosts", "leaderworkerset"), "LeaderWorkerSet")
    spec = lws["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert volumes["models"]["hostPath"]["path"] == "/data/models"
    assert volumes["kernels"]["hostPath"]["path"] == "/data/kernels"
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    env = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert env["HF_HOME"] == "/cache/models" and env["TRITON_CACHE_DIR"].startswith(
        "/cache/kernels"
    )
    (deployment,) = of_kind(rendered(tmp_path, "own_path", "kubernetes"), "Deployment")
    mounted = containers(deployment)[0]["volumeMounts"]
    assert {"name": "checkpoint-0", "mountPath": "/srv/models/llama", "readOnly": True} in mounted


def bytes_of(text: str) -> int:
    return int(text.removesuffix("Gi")) << 30


def pods(value: Any) -> list[dict[str, Any]]:
    """The `spec` of every pod of the engine, wherever it is."""
    if isinstance(value, list):
        return [found for one in value for found in pods(one)]
    if not isinstance(value, dict):
        return []
    own = [value] if any("args" in one for one in value.get("containers", ())) else []
    own = [one for one in own if one["containers"][0]["name"] == "sglang"]
    return own + [found for one in value.values() for found in pods(one)]


@pytest.mark.thorough
def test_several_pods_share_one_claim_for_their_checkpoints(tmp_path: Path) -> None:
    for name, target, weights in (
        ("hosts_twice", "kubernetes", 688e9),
        ("hosts_twice", "leaderworkerset", 688e9),
        ("hosts_twice", "rolebasedgroup", 688e9),
        ("prefill_decode", "kubernetes", 688e9),
        ("replicas", "leaderworkerset", 15e9),
    ):
        found = rendered(tmp_path, name, target)
        (claim,) = of_kind(found, "PersistentVolumeClaim")
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"], (name, target)
        stored = bytes_of(claim["spec"]["resources"]["requests"]["storage"])
        assert weights < stored < 1.5 * weights, (name, target, stored)
        volumes = [one for pod in pods(found) for one in pod["volumes"]]
        models = [one for one in volumes if one["name"] == "models"]
        wanted = {"claimName": claim["metadata"]["name"]}
        assert models and all(one["persistentVolumeClaim"] == wanted for one in models)


@pytest.mark.thorough
def test_checkpoints_are_on_a_nodes_own_disk_only_on_request(tmp_path: Path) -> None:
    for more, expected in (
        ("deploy: {models: emptyDir}\n", {"emptyDir": {}}),
        ("deploy: {models: 'pvc:shared'}\n", {"persistentVolumeClaim": {"claimName": "shared"}}),
        (
            "deploy: {models: /data/m}\n",
            {"hostPath": {"path": "/data/m", "type": "DirectoryOrCreate"}},
        ),
    ):
        found = rendered(tmp_path, "hosts_twice", "kubernetes", more=more)
        assert not of_kind(found, "PersistentVolumeClaim"), more
        for pod in pods(found):
            (models,) = (one for one in pod["volumes"] if one["name"] == "models")
            assert models == {"name": "models", **expected}
            disk = pod["containers"][0]["resources"]["requests"].get("ephemeral-storage")
            assert (disk is not None and bytes_of(disk) > 688e9) == ("emptyDir" in more)


def test_former_and_new_name_of_the_models_exclude_each_other(tmp_path: Path) -> None:
    recipe = deployments.write(tmp_path, "one_host", "deploy: {models: /a, model_cache: /b}\n")
    done = program.run("render", f"recipe={recipe}", "--to", "kubernetes")
    assert done.returncode == 2 and "remove deploy.model_cache" in done.stderr


@pytest.mark.thorough
def test_a_claim_for_checkpoints_of_unknown_size_is_to_be_filled_in(tmp_path: Path) -> None:
    text = written(tmp_path, "one_host", "kubernetes", "args.model_path=nobody/knows-this")
    assert "# FILL IN the size. Checkpoints of unknown size 150 GiB, kernels 50 GiB." in text
    text = written(tmp_path, "own_path", "kubernetes")
    assert "# Kernels 50 GiB." in text and "storage: 50Gi" in text


def written(folder: Path, name: str, target: str, *words: str) -> str:
    recipe = deployments.write(folder, name)
    done = program.run("render", f"recipe={recipe}", *words, "--to", target)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
def test_the_network_between_hosts_is_set_or_to_be_filled_in(tmp_path: Path) -> None:
    comments = set()
    for name in ("hosts_twice", "prefill_decode"):
        for target in PODS:
            text = " ".join(
                written(tmp_path, name, target, "deploy.rdma=null").replace("#", "").split()
            )
            assert "rdma/" not in text and "IPC_LOCK" in text, (name, target)
            start = text.index("FILL IN the RDMA devices")
            comments.add(text[start : text.index("resources:", start)])
            found = rendered(tmp_path, name, target, "deploy.rdma=rdma/ib:8")
            engines = [one for one in containers(found) if "args" in one]
            assert engines
            for one in engines:
                assert one["resources"]["requests"]["rdma/ib"] == "8"
                assert one["resources"]["limits"]["rdma/ib"] == "8"
                assert one["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
                env = {each["name"]: each.get("value") for each in one["env"]}
                interface = "eth0" if name == "hosts_twice" else None
                assert env.get("NCCL_SOCKET_IFNAME") == env.get("GLOO_SOCKET_IFNAME") == interface
    assert len(comments) == 1
    text = written(tmp_path, "hosts_twice", "kubernetes", "+engine.env.NCCL_SOCKET_IFNAME=net1")
    assert "value: net1" in text and "name: GLOO_SOCKET_IFNAME" in text


@pytest.mark.thorough
def test_what_is_left_to_fill_in_is_marked(tmp_path: Path) -> None:
    """A file without marks is complete: one host, its own claim, no secret."""
    marked = written(tmp_path, "prefill_decode_hosts", "leaderworkerset")
    secret = "kubectl -n llm create secret generic prefill-decode-hosts-secrets"
    assert f"FILL IN the Secret: {secret}" in " ".join(marked.replace("#", "").split())
    assert "Resolve each comment that begins with FILL IN" in marked
    assert "FILL IN a nodeSelector if the nodes' GPUs differ: this is planned for h200." in marked
    assert "FILL IN" not in written(tmp_path, "one_host", "kubernetes")


@pytest.mark.thorough
def test_compose_states_how_many_gpus_the_host_needs(tmp_path: Path) -> None:
    for name, text in (
        ("one_host", "The host needs 1 GPU: number 0."),
        ("prefill_decode", "The host needs 24 GPUs (h200): numbers 0 to 23. FILL IN a larger host"),
        ("amd", "The host needs 4 GPUs (mi300x): numbers 0 to 3. #"),
    ):
        head = " ".join(written(tmp_path, name, "docker-compose").split())
        assert text in head.replace(" # has", " has"), (name, head[:600])


@pytest.mark.thorough
def test_kubernetes_and_slurm_have_the_same_memory(tmp_path: Path) -> None:
    for name in ("one_host", "several_hosts", "prefill_decode"):
        found = rendered(tmp_path, name, "kubernetes")
        requested = {
            one["resources"]["requests"]["memory"] for one in containers(found) if "args" in one
        }
        (memory,) = requested
        assert not any("memory" in one["resources"].get("limits", {}) for one in containers(found))
        text = written(tmp_path, name, "slurm")
        assert f"#SBATCH --mem={memory.removesuffix('i')}\n" in text


@pytest.mark.thorough
def test_a_server_may_end_what_it_serves(tmp_path: Path) -> None:
    found = rendered(tmp_path, "prefill_decode_hosts", "kubernetes")
    (one, *_) = of_kind(found, "StatefulSet")
    spec = one["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == 10 + 600 + 30
    assert spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "10"]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["image", "wheel", "mounted"])
def test_speclaunch_itself_is_started_where_the_recipe_says_so(mode: str, tmp_path: Path) -> None:
    more = (
        f"deploy: {{speclaunch: {mode}, speclaunch_source: /srv/s}}\nrecovery: {{policy: budget}}\n"
    )
    found = rendered(tmp_path, "hosts_twice", "leaderworkerset", more=more)
    (recipe,) = of_kind(found, "ConfigMap")
    own = yaml.safe_load(recipe["data"]["recipe.yaml"])
    assert own["roles"]["chat"]["args"]["nnodes"] == 2
    (lws,) = of_kind(found, "LeaderWorkerSet")
    (leader,) = containers(lws["spec"]["leaderWorkerTemplate"]["leaderTemplate"])
    program_ = {"image": ["speclaunch"]}.get(
        mode, ["/opt/speclaunch/bin/python", "-m", "speclaunch"]
    )
    assert leader["command"] == program_
    words = leader["args"]
    assert words[:3] == ["launch", "recipe=/etc/speclaunch/recipe.yaml", "--role=chat"]
    assert "++roles.chat.args.node_rank=$(LWS_WORKER_INDEX)" in words
    assert "++roles.chat.launch.restart.policy=never" in words
    steps = lws["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"].get("initContainers", [])
    assert len(steps) == (1 if mode == "wheel" else 0)
    one_start = (
        10
        * leader["startupProbe"]["failureThreshold"]
        / own["roles"]["chat"]["recovery"]["max_attempts"]
    )
    assert one_start > 600
    bare = rendered(tmp_path, "hosts_twice", "leaderworkerset", "--bare", more=more)
    assert not of_kind(bare, "ConfigMap")
    assert containers(bare)[0]["command"] == ["python3", "-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    ("target", "more", "why", "help_"),
    [
        (
            "docker-compose",
            "roles: {a: {args: {nnodes: 2, tp_size: 16}}}",
            "one host",
            "leaderworkerset",
        ),
        ("docker-compose", "deploy: {model_cache: 'pvc:m'}", "volume claim", "directory"),
        (
            "docker-compose",
            "deploy: {models: emptyDir}",
            "an emptyDir, which only Kubernetes",
            "directory",
        ),
        (
            "kubernetes",
            "deploy: {speclaunch: mounted}",
            "speclaunch_source is not set",
            "speclaunch_source",
        ),
        (
            "kubernetes",
            "roles: {a: {}, b: {args: {port: 31000}}}\nrouter: {}",
            "one port",
            "same port",
        ),
        (
            "kubernetes",
            "roles: {prefill: {}}\nrouter: {}",
            "prefill and decode",
            "disaggregation_mode",
        ),
        ("kubernetes", "router: {args: {port: 1}}", "sets router.args.port itself", "remove it"),
        ("kubernetes", "engine: {env: {X: '{{y}}'}}", "template", "space"),
        ("shell", "roles: {a: {}, b: {}}", "shell supports only one", "--role"),
    ],
)
def test_what_a_target_cannot_carry_is_refused(
    target: str, more: str, why: str, help_: str, tmp_path: Path
) -> None:
    recipe = deployments.write(tmp_path, "one_host", f"{more}\n")
    done = program.run("render", f"recipe={recipe}", "--to", target)
    assert done.returncode == (2 if target == "shell" else 1) and done.stdout == ""
    assert why in done.stderr and help_ in done.stderr.split("help:", 1)[1]


@pytest.mark.thorough
def test_one_role_is_rendered_alone_and_into_a_file(tmp_path: Path) -> None:
    recipe = deployments.write(tmp_path, "prefill_decode")
    out = tmp_path / "out.sh"
    words = ("render", f"recipe={recipe}", "--to", "shell", "--role", "decode", "-o", str(out))
    done = program.run(*words)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert "--disaggregation-mode decode" in out.read_text()
    wrong = program.run(*words[:4], "--role", "decod")
    assert wrong.returncode == 2 and "the roles are prefill, decode" in wrong.stderr
