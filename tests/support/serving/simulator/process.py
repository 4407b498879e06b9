"""The simulated engine as a process: `python -m tests.support.serving.simulator.process CASE [--changes JSON]`.

Prints what the engine would, and ends as it would: with an error where memory ran out; else it
stays until it is told to stop.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time

from tests.support.serving.simulator.cases import random_case
from tests.support.serving.simulator.engine import start


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", type=int)
    parser.add_argument("--changes", type=json.loads, default={})
    parser.add_argument("--seconds-a-line", type=float, default=0.0)
    asked = parser.parse_args()
    case = random_case(asked.case)
    run = start(case, case.planner()(asked.changes))
    for line in run.lines:
        print(line, flush=True)
        time.sleep(asked.seconds_a_line)
    if not run.served:
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
