"""A board in this process: an SSH server whose commands run here, the runner's under an emulator.

In: a folder, perhaps an emulator. Out: addresses and what a client needs to be let in. As on a
board, nobody but a key that is known gets in, and the client has to know the host's key.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import asyncssh

from tilewright.tune.farm.ssh import _begun, _loop

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
CORTEX = "cpu -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


class Board:
    """A server on a port of its own: `address`, and `options` for who may get in."""

    def __init__(self, folder: Path, processor: str = "aarch64") -> None:
        self.folder, self.processor = folder, processor
        self.commands: list[str] = []
        self.running: list[asyncio.subprocess.Process] = []  # runners
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        host = asyncssh.generate_private_key("ssh-ed25519")
        started = asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host],
            authorized_client_keys=asyncssh.import_authorized_keys(
                self.key.export_public_key().decode()
            ),
            process_factory=self._run,
            encoding=None,
        )
        self._server: Any = _begun(started).result(30)
        self.port = self._server.get_port()
        self.address = f"ssh://somebody@127.0.0.1:{self.port}"
        known = f"[127.0.0.1]:{self.port} {host.export_public_key().decode()}"
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(known)
        self.options: dict[str, Any] = {
            "client_keys": [self.key],
            "known_hosts": str(self.known_hosts),
            "config": None,
            "agent_path": None,
        }

    async def _run(self, session: Any) -> None:
        command = session.command
        self.commands.append(command)
        if command.startswith("uname"):
            session.stdout.write(f"Linux {self.processor}\n".encode())
            session.exit(0)
            return
        is_runner = command.startswith("exec ")
        if is_runner and self.processor == "aarch64":
            command = command.replace("exec ", f"exec {QEMU} -cpu cortex-a72 ", 1)
        pipe = asyncio.subprocess.PIPE
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"]}
        child = await asyncio.create_subprocess_shell(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )
        if is_runner:
            self.running.append(child)
        given = asyncio.create_task(_carried(session.stdin, child.stdin, True))
        printed = _carried(child.stdout, session.stdout), _carried(child.stderr, session.stderr)
        await asyncio.gather(*printed)
        status = await child.wait()
        given.cancel()
        session.exit(status if status >= 0 else 255)

    def cut(self) -> None:
        """End the runners, as a board does that is switched off."""
        for child in self.running:
            if child.returncode is None:
                child.kill()

    def close(self) -> None:
        self.cut()
        _loop().call_soon_threadsafe(self._server.close)


async def _carried(source: Any, to: Any, is_closed: bool = False) -> None:
    """Carry bytes until there are no more, or nobody takes them."""
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            to.write(data)
            await to.drain()
    if is_closed:
        to.close()
