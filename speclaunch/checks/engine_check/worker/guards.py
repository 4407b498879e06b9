# ruff: noqa: PLC0415, PTH
"""Limits on a question: no network, no programs, no writes, no code from a model.

The kernel isolates the network and limits memory, time and files. A Python audit hook, which cannot
be removed, blocks programs, writes and new code. Optional attempts of a release (query the driver
version, look up a name) fail as on a machine without a driver or network. Code from outside the
installed packages ends the question.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG = 1
LARGEST_FILE = 16 << 20
PROGRAMS = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"),
    *("os.fork", "os.forkpty", "os.startfile"),
}
NETWORK = {
    *("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"),
    *("socket.gethostbyaddr", "socket.sendmsg"),
}
CHANGES = {
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link"),
    *("os.symlink", "os.truncate", "os.utime", "shutil.rmtree", "shutil.move"),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class NotChecked(BaseException):
    """The question needs an action that is forbidden here.

    Not an Exception, because the engine's `except Exception` would catch it.
    """


def without_network() -> bool:
    """Isolate this process from the network; False if the kernel does not allow it.

    Call before any thread starts.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return any(libc.unshare(flags) == 0 for flags in (CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWNET))


class AuditGuard:
    """Audit hook that blocks the network and, after `arm`, programs, writes and new code."""

    def __init__(self) -> None:
        self.scratch: str | None = None
        self.roots: tuple[str, ...] = ()

    def install(self) -> None:
        sys.addaudithook(self._audit)

    def arm(self, scratch: str) -> None:
        """Forbid programs, writes outside of `scratch`, and new code from here on."""
        roots = {os.path.realpath(entry) for entry in (sys.prefix, sys.base_prefix)}
        roots |= {os.path.realpath(entry) for entry in sys.path if entry}
        self.roots = tuple(root.rstrip("/") + "/" for root in roots if len(root) > 1)
        self.scratch = os.path.realpath(scratch) + "/"

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in NETWORK:
            raise OSError(errno.ENETUNREACH, "the judge has no network")
        if self.scratch is None:
            return
        if event == "open":
            self._opened(*args)
        elif event == "exec":
            self._executed(args[0].co_filename)
        elif event in PROGRAMS:
            raise FileNotFoundError(
                errno.ENOENT, "the judge is not allowed to start programs", str(args[:1])[:80]
            )
        elif event in CHANGES:
            for path in args:
                if isinstance(path, (str, bytes)):
                    self._written(os.fsdecode(path))
        elif event == "pickle.find_class":
            raise NotChecked(f"a pickle requests {args[0]}.{args[1]}, which may run code")

    def _opened(self, path: Any, _mode: Any, flags: Any) -> None:
        if isinstance(path, (str, bytes)) and isinstance(flags, int) and flags & WRITING:
            self._written(os.fsdecode(path))

    def _written(self, path: str) -> None:
        real = os.path.realpath(path)
        if not (real + "/").startswith(str(self.scratch)) and real != "/dev/null":
            why = "the judge is not allowed to write files"
            raise PermissionError(errno.EACCES, why, path[:200])

    def _executed(self, name: str) -> None:
        if name.startswith("<") or name.startswith(self.roots):
            return
        real = os.path.realpath(name)
        if os.path.isabs(name) and not real.startswith(self.roots):
            raise NotChecked(f"{os.path.basename(name)} is code outside the installed packages")


def refuse_remote_code() -> None:
    """Make transformers use its own class for a checkpoint that includes code (`auto_map`).

    If there is no such class, loading raises NotChecked. Without `--trust-remote-code`,
    transformers itself refuses such a checkpoint.
    """
    import transformers.dynamic_module_utils as dynamic

    own = dynamic.resolve_trust_remote_code

    def resolve(trust: Any, model: Any, local: bool, remote: bool, *rest: Any, **more: Any) -> bool:
        if remote and trust and local:
            return False
        if remote and trust:
            raise NotChecked(
                "the config.json names the model's own Python code (auto_map), which is never "
                "executed here"
            )
        decided: bool = own(trust, model, local, remote, *rest, **more)
        return decided

    def load(*_: Any, **__: Any) -> Any:
        raise NotChecked("the model includes its own Python code, which is never executed here")

    replace: dict[str, Callable[..., Any]] = {
        "resolve_trust_remote_code": resolve,
        "get_class_from_dynamic_module": load,
        "get_class_in_module": load,
    }
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith(("transformers", "sglang")):
            for function, other in replace.items():
                if function in vars(module):
                    setattr(module, function, other)


def end_with(parent: int, number: int) -> None:
    """Send this process the signal `number` when its parent ends, or now if it has ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def limit(seconds: float, memory: int) -> None:
    """Limit this process to `seconds` + 2 s CPU time and `memory` bytes beyond its current size.

    Core dumps are disabled, and files are limited to `LARGEST_FILE` bytes.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0])
    space = size * resource.getpagesize() + memory
    cpu = int(seconds) + 2
    bounds = {
        resource.RLIMIT_AS: space,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
    }
    for which, most in bounds.items():
        with contextlib.suppress(ValueError, OSError):  # a lower limit is already set
            resource.setrlimit(which, (most, most))
