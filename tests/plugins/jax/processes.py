"""Two processes of one program, under jax.distributed."""

import socket
import subprocess
import sys
from pathlib import Path


def in_two_processes(*arguments: str) -> list[str]:
    """What each of them says of two_processes.py, called with these arguments; both end well."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    program = Path(__file__).with_name("two_processes.py")
    running = [subprocess.Popen([sys.executable, str(program), str(port), str(rank), *arguments], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    texts = [one.communicate(timeout=280)[0] for one in running]
    for one, text in zip(running, texts):
        assert one.returncode == 0, text
    return texts
