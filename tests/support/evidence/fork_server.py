"""Start servers in forks of a process that has imported SGLang: seconds instead of a minute each.

For the CPU engine's interpreter. A line on standard input is `{"start": {"words": …, "folder": …,
"env": …, "log": …, "lifted": …}}`, answered by `{"pid": …}`, or `{"poll": PID}`, answered by `{"code": …}` (null
while it runs). A server runs `python -m sglang.launch_server WORDS` in a session of its own; its
scheduler is forked, too, where it is otherwise spawned: the one difference.
"""

import __future__

import inspect
import json
import multiprocessing
import os
import runpy
import signal
import sys
import traceback

import sglang.launch_server
import sglang.srt.arg_groups.speculative_hook
import sglang.srt.entrypoints.http_server
import sglang.srt.managers.detokenizer_manager
import sglang.srt.managers.scheduler
import sglang.srt.speculative.eagle_worker_v2
import sglang.srt.speculative.standalone_worker_v2
import torch


def lift() -> None:
    """Let DFLASH pass the engine's check of the device, and that of the draft's backend."""
    hook = sglang.srt.arg_groups.speculative_hook
    own = inspect.getsource(hook._handle_dflash)
    lifted = own.replace('cfg.device == "xpu"', 'cfg.device == "cpu"')
    if lifted == own:
        raise RuntimeError("the check of the device is not where it was")
    flags = __future__.annotations.compiler_flag
    exec(compile(lifted, hook.__file__, "exec", flags), vars(hook))
    hook.DRAFT_ATTENTION_BACKEND_CHOICES = [*hook.DRAFT_ATTENTION_BACKEND_CHOICES, "intel_amx"]


def serve(words: list, folder: str, env: dict, log: str, lifted: bool) -> int:
    """In the fork: be a server to its end; the exit code."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    said = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for here, there in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(here, there)
    os.chdir(folder)
    os.environ.update(env)
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda *_, **__: None  # the engine asks for "spawn"
    if lifted:
        lift()
    sys.argv = ["launch_server.py", *words]
    del sys.modules["sglang.launch_server"]
    try:
        runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    """Answer each line."""
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        if "start" in asked:
            pid = os.fork()
            if pid == 0:
                answers.close()
                os._exit(serve(**asked["start"]))
            answer = {"pid": pid}
        else:
            ended, status = os.waitpid(asked["poll"], os.WNOHANG)
            answer = {"code": os.waitstatus_to_exitcode(status) if ended else None}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


main()
