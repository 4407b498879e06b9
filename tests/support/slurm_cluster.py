"""A Slurm cluster on this machine, for tests: its own daemons, configuration and key in one folder.

    python tests/support/slurm_cluster.py up FOLDER     # then: export SLURM_CONF=FOLDER/slurm.conf
    python tests/support/slurm_cluster.py down FOLDER

Two nodes, `n1` and `n2`, are two `slurmd` of this machine; their CPUs, memory and GPUs are
declared, not looked for. Needs root and Debian's or Ubuntu's packages:
    apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
Nothing outside of the folder is written, and the system's own Slurm and munge are left alone.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
NODES = ("n1", "n2")
_WAIT_S = 30.0

_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
KillWait=20
OverTimeLimit=0
ReturnToService=2
MinJobAge=300
SchedulerParameters=requeue_delay=1
{nodes}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why no cluster can be had here; None where one can."""
    absent = [name for name in PROGRAMS if _found(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return None if os.geteuid() == 0 else "slurmd needs root"


def up(folder: Path) -> dict[str, str]:
    """Start a cluster in `folder`; the variables of who wants to use it."""
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    (folder / "munge").chmod(0o755)
    host = socket.gethostname().partition(".")[0]
    ports = _free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 "
        "RealMemory=2000000 Gres=gpu:8 State=UNKNOWN"
        for name, port in zip(NODES, ports[1:], strict=True)
    )
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(host=host, folder=folder, port=ports[0], nodes=nodes))
    for number in range(8):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={folder}/gpu[0-7]\n")
    files = ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log")
    munge = [f"--{option}={folder}/munge/{name}" for option, name in files]
    _start("munged", "--force", *munge, f"--seed-file={folder}/munge/seed")
    env = {"SLURM_CONF": str(conf)}
    _start("slurmctld", "-f", str(conf), env=env)
    for name in NODES:
        _start("slurmd", "-f", str(conf), "-N", name, env=env)
    deadline = time.monotonic() + _WAIT_S
    while True:
        said = _asked(["sinfo", "-h", "-N", "-o", "%T"], {**os.environ, **env}).split()
        if said == ["idle"] * len(NODES):
            return env
        if time.monotonic() > deadline:
            down(folder)
            raise SystemExit(f"the nodes are {said}: see {folder}/*.log")
        time.sleep(0.2)


def down(folder: Path) -> None:
    """End all jobs, then the daemons."""
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    if (folder / "slurm.conf").exists():
        _asked(["scancel", "--partition=test"], env)
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            if not _asked(["squeue", "-h"], env).strip():
                break
            time.sleep(0.3)
    pids = [*folder.glob("slurmd-*.pid"), folder / "slurmctld.pid", folder / "munge" / "pid"]
    for path in pids:
        try:
            os.kill(int(path.read_text()), signal.SIGTERM)
        except (OSError, ValueError):
            continue


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _asked(words: list[str], env: dict[str, str]) -> str:
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False).stdout


def _start(name: str, *words: str, env: dict[str, str] | None = None) -> None:
    """Start a daemon: it returns when it is in the background."""
    subprocess.run([_found(name) or name, *words], check=True, env={**os.environ, **(env or {})})


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("up", "down"))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    folder = given.folder.absolute()
    if given.what == "down":
        down(folder)
        return
    why = missing()
    if why is not None:
        sys.exit(why)
    for name, value in up(folder).items():
        print(f"export {name}={value}")


if __name__ == "__main__":
    main()
