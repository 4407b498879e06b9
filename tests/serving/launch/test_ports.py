from __future__ import annotations

import os
import socket

import pytest

from speclaunch.core.errors import LaunchError
from speclaunch.serving.launch.runs import require_free


def test_a_free_port_passes_and_stays_free(port: int) -> None:
    require_free("127.0.0.1", port)
    require_free("0.0.0.0", port)
    require_free("localhost", port)


def test_a_busy_port_is_refused_and_its_holder_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(LaunchError, match=f"in use .held by .*process {os.getpid()}") as caught:
            require_free("127.0.0.1", port)
        with pytest.raises(LaunchError):
            require_free("0.0.0.0", port)
    assert caught.value.problems[0].help is not None
    assert "args.port" in caught.value.problems[0].help


def test_a_host_that_is_not_ours() -> None:
    with pytest.raises(LaunchError, match=r"cannot listen on no\.such\.host"):
        require_free("no.such.host.invalid", 30000)
    with pytest.raises(LaunchError, match=r"cannot listen on 192\.0\.2\.1"):
        require_free("192.0.2.1", 30000)
