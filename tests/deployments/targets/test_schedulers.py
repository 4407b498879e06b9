"""Slurm, srt-slurm and Ray: what each host runs, found out by running the text with stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from speclaunch.checks.edit.render_check import plan_rendering, rendered
from speclaunch.checks.edit.round_trip import RoundTripError
from speclaunch.checks.rules.examine import Lookup, PreflightError
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.assemble import RENDERERS, Assembled
from speclaunch.engine.releases.argv import parse_argv
from tests.support import program

TARGETS = ("slurm", "srt-slurm", "ray")
STUB = (
    f"#!{sys.executable}\nimport json, os, sys\n"
    "with open(os.environ['RECORD'], 'a') as file:\n"
    "    file.write(json.dumps([sys.argv[1:], dict(os.environ)]) + '\\n')\n"
)
SRUN = f"""#!{sys.executable}
import os, subprocess, sys
options = [word for word in sys.argv[1:] if word.startswith('--')]
command = sys.argv[1 + sys.argv[1:].index('bash' if 'bash' in sys.argv else 'python3'):]
told = dict(word[2:].partition('=')[::2] for word in options)
for rank in range(int(told['ntasks'])):
    env = {{**os.environ, 'SLURM_PROCID': str(rank), 'FIRST': told['relative'],
           'OPTIONS': ' '.join(options)}}
    subprocess.run(command, env=env, check=True)
"""


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def assembled(target: str, recipe: str, *overrides: str, **how: Any) -> Assembled:
    carries = RENDERERS[target].carries_speclaunch
    how.setdefault("carries_speclaunch", carries)
    return plan_rendering(load(recipe, overrides), None, Lookup(), **how)


def text_of(target: str, recipe: str, *overrides: str, **how: Any) -> str:
    return rendered(RENDERERS[target](), assembled(target, recipe, *overrides, **how))


PD = """\
defaults: [base]
engine:
  version: "0.5.23"
  env: {NCCL_DEBUG: 'it''s "odd" $HOME', HF_TOKEN: "${oc.env:HF_TOKEN}"}
args:
  model_path: deepseek-ai/DeepSeek-V3
  revision: e815299
  tp_size: 8
  json_model_override_args: '{"a": "b c"}'
  api_key: "${oc.env:SERVE_KEY}"
hardware: {name: "h200:8"}
roles:
  prefill: {replicas: 2, args: {disaggregation_bootstrap_port: 9000}}
  decode: {args: {tp_size: 16, nnodes: 2}}
router: {args: {policy: cache_aware}}
deploy: {model_cache: /scratch/models, slurm: {partition: gpu, time: "1-00:00:00"}}
"""


@pytest.fixture
def pd(tmp_path: Path) -> str:
    path = tmp_path / "pd.yaml"
    path.write_text(PD)
    return str(path)


@pytest.fixture
def stand_ins(tmp_path: Path) -> dict[str, str]:
    """An environment whose python3, srun and scontrol only record, or run what they are given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = {"python3": STUB, "srun": SRUN, "scancel": "#!/bin/sh\n"}
    scripts["scontrol"] = "#!/bin/sh\nprintf 'h0\\nh1\\nh2\\nh3\\n'\n"
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "RECORD": str(tmp_path / "record"),
        **{"HF_TOKEN": "hf_1", "SERVE_KEY": "sk_1", "SLURM_JOB_ID": "1"},
        **{"SLURM_JOB_NODELIST": "h[0-3]", "SLURM_SUBMIT_DIR": str(tmp_path)},
    }


def recorded(env: dict[str, str]) -> list[tuple[list[str], dict[str, str]]]:
    path = Path(env["RECORD"])
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [(argv, found) for argv, found in map(json.loads, lines)]


def meaning(argv: list[str]) -> dict[str, Any]:
    from speclaunch.engine.releases.catalogue import load as catalogue

    assert argv[:2] == ["-m", "sglang.launch_server"]
    parsed = parse_argv(tuple(argv[2:]), catalogue("0.5.23"))
    assert parsed.error is None
    return {one.name: one.stored for one in parsed.parsed}


def expected(**own: Any) -> dict[str, Any]:
    shared = {"model_path": "deepseek-ai/DeepSeek-V3", "revision": "e815299", "api_key": "sk_1"}
    shared |= {"json_model_override_args": '{"a": "b c"}', "host": "0.0.0.0", "port": 30000}
    return {**shared, **own}


def check_servers(found: list[tuple[list[str], dict[str, str]]], heads: list[str]) -> None:
    """Two prefill servers of one host, one decode server of two, whatever the order."""
    servers = [(meaning(argv), env) for argv, env in found if argv[1] == "sglang.launch_server"]
    prefill = expected(tp_size=8, disaggregation_mode="prefill", disaggregation_bootstrap_port=9000)
    decode = expected(tp_size=16, nnodes=2, disaggregation_mode="decode")
    wanted = [prefill, prefill] + [
        {**decode, "node_rank": rank, "dist_init_addr": heads[0]} for rank in (0, 1)
    ]
    key: Callable[[dict[str, Any]], str] = lambda one: json.dumps(one, sort_keys=True)  # noqa: E731
    assert sorted((one for one, _ in servers), key=key) == sorted(wanted, key=key)
    for _, env in servers:
        assert env["NCCL_DEBUG"] == 'it\'s "odd" $HOME'
        assert (env["HF_TOKEN"], env["HF_HOME"]) == ("hf_1", "/scratch/models")


@pytest.mark.thorough
def test_a_slurm_job_runs_every_server_on_its_hosts(pd: str, stand_ins: dict[str, str]) -> None:
    script = text_of("slurm", pd)
    subprocess.run(["bash"], input=script, env=stand_ins, text=True, check=False, timeout=60)
    found = recorded(stand_ins)
    check_servers(found, ["h2:20000"])
    first = sorted(env["FIRST"] for argv, env in found if argv[1] == "sglang.launch_server")
    assert first == ["0", "1", "2", "2"]
    (router,) = [argv for argv, _ in found if argv[1] == "sglang_router.launch_router"]
    told = " ".join(router)
    assert "--prefill http://h0:30000 9000 --prefill http://h1:30000 9000" in told
    assert "--decode http://h2:30000" in told and "--policy cache_aware" in told
    assert "--api-key sk_1" in told
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert "#SBATCH --nodes=4" in lines and "#SBATCH --gpus-per-node=8" in lines
    assert "#SBATCH --partition=gpu" in lines and "#SBATCH --requeue" in lines
    assert "sk_1" not in script and "hf_1" not in script


@pytest.mark.thorough
def test_a_ray_job_starts_every_server_with_its_rank(
    pd: str, stand_ins: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = text_of("ray", pd)
    module = _as_module(text, monkeypatch)
    assert module["SECRETS"] == ["SERVE_KEY", "HF_TOKEN"]
    assert [name for name, _, _ in module["SERVERS"]] == ["prefill", "prefill", "decode"]
    assert module["BUNDLES"]["decode"]["GPU"] == 8 and module["HOSTS"]["decode"] == 2
    upstreams = []
    for number, (name, port, flag) in enumerate(module["SERVERS"]):
        for rank in range(module["HOSTS"][name]):
            more = {"SERVER_RANK": str(rank), "SERVER_HEAD": f"h{number}:20000"}
            assert module["START"][name]({**stand_ins, **more}).wait(60) == 0
        upstreams.append(flag.format(url=f"http://h{number}:{port}"))
    env = {**stand_ins, "UPSTREAMS": " ".join(upstreams)}
    assert module["START"]["router"](env).wait(60) == 0
    found = recorded(stand_ins)
    check_servers(found, ["h2:20000"])
    told = " ".join(found[-1][0])
    assert "--prefill http://h0:30000 9000 --prefill http://h1:30000 9000" in told
    assert "--decode http://h2:30000" in told and "--pd-disaggregation" in told
    assert "sk_1" not in text and "hf_1" not in text


def _as_module(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a rendered program defines, without a Ray."""
    fake = types.ModuleType("ray")
    fake.remote = lambda **_: lambda cls: cls  # type: ignore[attr-defined]
    modules = {"ray": fake, "ray.util": types.ModuleType("ray.util")}
    for name, what in (
        ("placement_group", "placement_group"),
        ("scheduling_strategies", "PlacementGroupSchedulingStrategy"),
    ):
        modules[f"ray.util.{name}"] = types.ModuleType(name)
        setattr(modules[f"ray.util.{name}"], what, None)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    found: dict[str, Any] = {"__name__": "job"}
    exec(compile(text, "job.py", "exec"), found)
    return found


def test_srt_slurm_makes_the_same_commands_of_its_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "pd.yaml"
    without = [line for line in PD.splitlines() if "env:" not in line and "odd" not in line]
    recipe.write_text("\n".join(line for line in without if "api_key" not in line))
    document = yaml.safe_load(text_of("srt-slurm", str(recipe)))
    assert document["resources"] == {
        **{"gpu_type": "h200", "gpus_per_node": 8, "prefill_nodes": 2, "prefill_workers": 2},
        **{"decode_nodes": 2, "decode_workers": 1},
    }
    assert document["slurm"] == {"partition": "gpu", "time_limit": "1-00:00:00"}
    assert document["frontend"]["args"] == {"policy": "cache_aware"}
    for side, sizes in (("prefill", {"tp_size": 8}), ("decode", {"tp_size": 16})):
        argv = ["-m", "sglang.launch_server", "--model-path", "deepseek-ai/DeepSeek-V3"]
        for key, value in sorted(document["backend"]["sglang_config"][side].items()):
            # NVIDIA/srt-slurm src/srtctl/backends/sglang.py, `_config_to_cli_args`
            argv += [f"--{key.replace('_', '-')}"] if value is True else [f"--{key}", str(value)]
        found = meaning(argv)
        wanted = expected(**sizes)
        for name in ("api_key", "host", "port"):
            del wanted[name]
        assert found == wanted


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS)
def test_every_recipe_is_rendered_or_says_why_not(target: str, tmp_path: Path) -> None:
    refused: dict[str, str] = {}
    for name in sorted(recipe_names()):
        try:
            text = text_of(target, name)
        except PreflightError as error:
            refused[name] = str(error)
            continue
        assert name in text
        if target == "slurm":
            assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
        if target == "ray":
            compile(text, name, "exec")
    cpu = {name for name in recipe_names() if name.startswith("cpu_")}
    assert set(refused) == (cpu if target == "srt-slurm" else set())
    for why in refused.values():
        assert "cannot run without GPUs" in why


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_rendered_has_no_finding_of_its_own(target: str, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "defaults: [base]\nengine: {version: '0.5.23'}\nhardware: {name: 'h200:8'}\n"
        "args: {model_path: Qwen/Qwen3-235B-A22B, tp_size: 8, api_key: '${oc.env:K}'}\n"
        if target != "srt-slurm"
        else "args: {model_path: Qwen/Qwen3-235B-A22B, tp_size: 8}\n"
    )
    file = tmp_path / f"rendered{RENDERERS[target].suffix}"
    file.write_text(text_of(target, str(recipe)))
    words = ["lint", file.name, "--engine=0.5.23", "--hardware=h200:8", "--output-format=json"]
    done = program.run(*words, cwd=tmp_path)
    (found,) = json.loads(done.stdout)["files"]
    assert (done.returncode, found["findings"]) == (0, [])


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["slurm", "ray"])
def test_speclaunch_itself_is_started_where_the_recipe_says_so(
    target: str, tmp_path: Path, stand_ins: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "defaults: [base]\nengine: {version: '0.5.23'}\nhardware: {name: 'h200:8'}\n"
        "args: {model_path: x/y, tp_size: 16, nnodes: 2, api_key: '${oc.env:SERVE_KEY}'}\n"
        f"deploy: {{speclaunch: mounted, speclaunch_source: {tmp_path}, shared_dir: {tmp_path}}}\n"
    )
    (tmp_path / "bin" / "python").write_text(STUB)
    (tmp_path / "bin" / "python").chmod(0o755)
    text = text_of(target, str(recipe))
    assert "sk_1" not in text and "Runs plain SGLang" not in text
    if target == "slurm":
        subprocess.run(["bash"], input=text, env=stand_ins, text=True, check=False, timeout=60)
    else:
        module = _as_module(text, monkeypatch)
        for rank in ("0", "1"):
            more = {"SERVER_RANK": rank, "SERVER_HEAD": "h0:20000", "SPECLAUNCH_RECIPE": "r.yaml"}
            assert module["START"]["server"]({**stand_ins, **more}).wait(60) == 0
    for rank, (argv, env) in enumerate(recorded(stand_ins)):
        assert argv[:3] == ["-m", "speclaunch", "launch"]
        assert env["SPECLAUNCH_HOME"] == str(tmp_path)
        assert f"++args.node_rank={rank}" in argv and "++args.dist_init_addr=h0:20000" in argv
        if target == "slurm":
            own = load(argv[3].removeprefix("recipe="))
            assert own.deployment.args["tp_size"] == 16
    assert "Runs plain SGLang" in text_of(target, str(recipe), bare=True)


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["slurm", "ray"])
def test_a_text_that_starts_another_deployment_is_refused(
    target: str, pd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = assembled(target, pd)
    renderer = RENDERERS[target]()
    text = renderer.render(whole.rendering)
    for before, after in (
        ("--tp-size 16", "--tp-size 8"),
        ('--node-rank="$', '--node-rank="0$'),
        ("--host=", "--hostx="),
        ("NCCL_DEBUG", "NCCL_DEBUGS"),
        ("--nnodes 2", ""),
    ):
        assert before in text
        broken = text.replace(before, after)
        monkeypatch.setattr(type(renderer), "render", lambda _self, _one, broken=broken: broken)
        with pytest.raises(RoundTripError):
            rendered(renderer, whole)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("target", "overrides", "said"),
    [
        ("slurm", ["++deploy.slurm.partion=gpu"], "deploy.slurm has no option 'partion'"),
        (
            "slurm",
            ["++deploy.slurm.time='1; rm -rf /'"],
            "is not a valid value for sbatch's --time",
        ),
        ("slurm", ["++deploy.slurm.module='a b'"], "is not the name of a module"),
        ("slurm", ["++router.port=30000"], "listen on port 30000 of one host"),
        ("slurm", ["++router.replicas=2"], "a job can run only one router"),
        ("slurm", ["++deploy.model_cache='pvc:x'"], "is a volume claim"),
        ("slurm", ["++deploy.speclaunch=wheel"], "cannot install speclaunch before a start"),
        ("slurm", ["++deploy.speclaunch=mounted"], "deploy.speclaunch_source is not set"),
        ("slurm", ["++deploy.speclaunch=image", "++deploy.image=a/b:c"], "in a container"),
        ("ray", ["++args.use_ray=true"], "use_ray makes the engine place its own actors"),
        ("ray", ["++deploy.image=a/b:c"], "cannot set the image"),
        ("srt-slurm", ["++args.api_key=sk-1"], "cannot refer to a secret: --api-key"),
        ("srt-slurm", ["++engine.env.HF_TOKEN=x"], "cannot refer to a secret: HF_TOKEN"),
        ("srt-slurm", ["++engine.env.A=null"], "cannot remove a variable: A"),
        ("srt-slurm", ["++engine.env.A='{node}'"], "as its own parameter"),
    ],
)
def test_what_a_target_cannot_carry_is_said(target: str, overrides: list[str], said: str) -> None:
    with pytest.raises((PreflightError, InputError)) as refused:
        text_of(target, "mtp_deepseek_v3", *overrides)
    assert said in str(refused.value)


@pytest.mark.thorough
def test_a_container_sees_the_caches(tmp_path: Path) -> None:
    words = ["++deploy.image=lmsysorg/sglang:v0.5.23", "++deploy.model_cache=/scratch/models"]
    text = text_of("slurm", "mtp_deepseek_v3", *words)
    assert "--container-image=docker://lmsysorg/sglang:v0.5.23" in text
    assert "--container-mounts=/scratch/models:/scratch/models" in text
