"""A worker that does what its questions' first word says; faults alone are its matter."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any


def say(text: str) -> None:
    if text.startswith("{"):
        number = json.dumps(ASKED["number"])
        text = f'{{"number": {number}, {text[1:]}'.replace(", }", "}")
    print(text, flush=True)


ASKED: dict[str, Any] = {}


def main() -> None:
    ASKED.update(json.loads(sys.stdin.readline()))
    scratch = ASKED["scratch"]
    if "mute" in sys.argv:
        time.sleep(600)
    early = ["SGLANG_EARLY", "SGLANG_PLUGINS", "SGLANG_CACHE_DIR", "PATH"]
    say(json.dumps({"sglang": "0.0.1", "at_import": early}))
    for line in sys.stdin:
        question = json.loads(line)
        ASKED["number"] = question["number"]
        act, *rest = question["words"]
        if act == "hang":
            subprocess.Popen(["sleep", "600"])  # what it started ends with it, too
            print(rest, file=sys.stderr, flush=True)
            time.sleep(600)
        elif act == "garbage":
            say("[1, 2")
        elif act == "list":
            say("[]")
        elif act == "twice":
            say('{"verdict": "accepted"}')
            say('{"verdict": "accepted", "values": {"tp_size": 8}}')
        elif act == "unasked":
            print('{"verdict": "accepted"}', flush=True)
        elif act == "nothing":
            say("{}")
        elif act == "die":
            print("Fatal: " + " ".join(rest), file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        elif act == "exit":
            os._exit(3)
        elif act == "huge":
            while True:
                sys.stdout.write("x" * (1 << 20))
        elif act == "chatter":
            sys.stderr.write("y" * (4 << 20))
            say(json.dumps({"verdict": "accepted", "values": {"tp_size": 1}}))
        elif act == "raise":
            said = {"verdict": "refused", "error": rest[0], "message": rest[1]}
            say(json.dumps(said))
        elif act == "repeat":
            said = " ".join([*rest, *question["env"].values(), question["cwd"]])
            say(json.dumps({"verdict": "refused", "error": "ValueError", "message": said}))
        elif act == "echo":
            values = {"words": rest, "cwd": question["cwd"], "env": question["env"]}
            values["early"] = os.environ.get("SGLANG_EARLY")
            values["pid"] = os.getpid()
            say(json.dumps({"verdict": "accepted", "values": values}))
    shutil.rmtree(scratch, ignore_errors=True)


main()
