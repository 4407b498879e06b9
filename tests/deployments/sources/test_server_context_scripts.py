"""Scripts that start several servers: batch jobs of Slurm, servers in the background, routers."""

from __future__ import annotations

from textwrap import dedent

from speclaunch.deployments.sources.files import read_shell
from speclaunch.deployments.sources.interface import Invocation
from tests.deployments.sources.test_server_context import line, of, value
from tests.support.loops import rows

SERVER = "python3 -m sglang.launch_server --model-path meta/x"


def servers(text: str, name: str = "x.sh") -> list[Invocation]:
    reading = read_shell(dedent(text), name)
    assert not reading.problems
    return list(reading.invocations)


JOB = f"""\
    #!/bin/bash
    #SBATCH --job-name=pd
    #SBATCH -N 4
    #SBATCH --gres=gpu:h100:8 --ntasks-per-node=1
    # a remark
    #SBATCH --time=01:00:00   # an hour

    nodes=($(scontrol show hostnames $SLURM_JOB_NODELIST))
    srun -N 2 --ntasks=2 bash -c '{SERVER} --tp 16 --nnodes 2 --node-rank $SLURM_NODEID \\
      --disaggregation-mode prefill --port 30000' &
    srun --nodes=2 bash -c "{SERVER} --tp 16 --nnodes 2 --node-rank \\$SLURM_NODEID \\
      --dist-init-addr ${{nodes[2]}}:5000 --disaggregation-mode decode --port 30001" &
    python3 -m sglang_router.launch_router --pd-disaggregation --policy random \\
      --prefill http://${{nodes[0]}}:30000 8998 --decode http://${{nodes[2]}}:30001 &
    #SBATCH --gpus-per-node=1
    wait
"""


def test_a_job_with_prefill_decode_and_a_router() -> None:
    """One deployment; the nodes are those of each step, the GPUs those of the job."""
    prefill, decode = map(of, servers(JOB, "job.sbatch"))
    assert prefill.group == decode.group
    assert (prefill.group.name, prefill.group.platform) == ("pd", "sbatch")
    assert (prefill.role, decode.role) == ("prefill", "decode")
    assert (value(prefill.nodes), value(decode.nodes)) == (2, 2)
    assert value(prefill.gpus_per_node) == 8
    assert line(JOB, prefill.nodes) == "2"
    assert line(JOB, prefill.gpus_per_node) == "gpu:h100:8"
    (router,) = prefill.group.routers
    assert value(router.options["policy"]) == "random"
    assert [
        (one.role, one.host, one.port and value(one.port), one.bootstrap and value(one.bootstrap))
        for one in router.upstreams
    ] == [("prefill", None, 30000, 8998), ("decode", None, 30001, None)]


def test_an_element_behind_unknown_ones_is_not_known() -> None:
    """`nodes=($(…))` may have any number of elements."""
    _, decode = servers(JOB)
    word = next(one for one in decode.words if one.text.endswith(":5000"))
    assert not word.evaluated


def test_a_server_for_all_nodes_of_a_job() -> None:
    """Without nodes of its own a step has those of the job; a server without a step runs once."""
    text = f"""\
    #SBATCH --nodes=3
    #SBATCH --gpus-per-node=h100:4
    srun bash -c '{SERVER} --nnodes 3 --node-rank $SLURM_NODEID'
    """
    (found,) = map(of, servers(text))
    assert (value(found.nodes), value(found.gpus_per_node)) == (3, 4)
    assert line(text, found.nodes) == "3"
    assert found.part is None
    (found,) = map(of, servers(text.replace("srun bash -c '", "").replace("NODEID'", "NODEID")))
    assert found.nodes is None


def test_ranks_that_are_written_out() -> None:
    """One command a rank, with the address that they meet at."""
    text = f"""\
    {SERVER} --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000 &
    ssh other {SERVER} --nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:5000
    """
    first, second = map(of, servers(text))
    assert first.group == second.group
    assert (first.part, second.part) == ("leader", "worker")
    assert first.group.platform == "script"


def test_a_router_on_this_machine() -> None:
    """It finds its servers by their ports; another server is none of its."""
    text = f"""\
    {SERVER} --port 30001 &
    {SERVER} --port 30002 &
    {SERVER} --port 9 &
    python -m sglang_router.launch_router --worker-urls http://localhost:30001 http://127.0.0.1:30002
    """
    first, second, other = map(of, servers(text))
    assert first.group == second.group
    assert first.group != other.group
    assert [one.role for one in first.group.routers[0].upstreams] == ["worker", "worker"]


@rows(
    "text",
    [
        SERVER,
        f"{SERVER}\n{SERVER} --tp 2\n",
        "pip install sglang-router\n" + SERVER,
        f"{SERVER} --disaggregation-mode prefill\n{SERVER} --disaggregation-mode prefill\n",
        f"docker run --name sglang-router image {SERVER}",
    ],
)
def test_a_script_without_a_deployment(text: str) -> None:
    """Servers that nothing ties together."""
    assert all(one.server_context is None for one in servers(text))


@rows(
    "command",
    [
        "python3 -m sglang_router.launch_router --prefill http://a:1 2 --decode http://b:3",
        "python -m sglang_router.launch_router --prefill=http://a:1 2 --decode=http://b:3",
        "smg launch --prefill http://a:1 2 --decode http://b:3",
        "sgl-model-gateway --prefill http://a:1 2 --decode http://b:3",
        "python -m sglang.srt.disaggregation.mini_lb --prefill http://a:1 --decode http://b:3 "
        "--prefill-bootstrap-ports 2",
        "docker run --rm lmsysorg/sgl-model-gateway smg launch --prefill http://a:1 2 "
        "--decode http://b:3",
    ],
)
def test_routers_of_all_kinds(command: str) -> None:
    text = f"{SERVER} --disaggregation-mode decode &\n{command}\n"
    (found,) = map(of, servers(text))
    (router,) = found.group.routers
    told = [
        (one.role, one.host, one.port and value(one.port), one.bootstrap and value(one.bootstrap))
        for one in router.upstreams
    ]
    assert told == [("prefill", "a", 1, 2), ("decode", "b", 3, None)]


def test_secrets_of_a_router_are_not_kept() -> None:
    text = f"{SERVER} &\npython -m sglang_router.launch_router --api-key very-secret --port 1\n"
    (found,) = map(of, servers(text))
    assert "very-secret" not in repr(found.group)
    assert value(found.group.routers[0].options["port"]) == 1
