"""Process that passes a sweep's jobs to Hydra's launcher: `python -m … FOLDER NUMBERS WORDS…`.

Hydra sees a job only as a number. Each job's configuration is in the sweep's folder, so a launcher
needs no recipes, wherever its jobs run.
"""

from __future__ import annotations

import sys

import hydra
from hydra.core.config_store import ConfigStore

from speclaunch.measure.sweep_run import task


def main() -> None:
    """Run the jobs with the launcher that the arguments select."""
    _, folder, numbers, *words = sys.argv
    escaped = folder.replace("\\", "\\\\").replace("${", "\\${")
    own = {
        "defaults": ["_self_", {"override hydra/job_logging": "disabled"}],
        "folder": escaped,
        "job": -1,
        "hydra": {
            "sweep": {"dir": f"{escaped}/hydra", "subdir": "${hydra.job.num}"},
            "output_subdir": None,
            "job": {"name": "sweep"},
        },
    }
    ConfigStore.instance().store(name="speclaunch_sweep", node=own)
    sys.argv = [sys.argv[0], "--multirun", f"job={numbers}", *words]
    hydra.main(version_base="1.3", config_path=None, config_name="speclaunch_sweep")(task)()


if __name__ == "__main__":
    main()
