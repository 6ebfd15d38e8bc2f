"""Boards reached by SSH: nothing runs there but the runner.

In: an address, as in "ssh://pi@board:2222". Out: a `Device`. The one idea: whom to trust and how to
be trusted is what the user's own SSH says (its config, keys, agent and known_hosts), so that where
`ssh` works, candidates can be measured; the runner is put into the user's cache folder there, under
the name of what is in it.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import socket
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Overdue
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tilewright.support.errors import InputError
from tilewright.target.processors import architecture
from tilewright.target.target import Target
from tilewright.tune.farm.board import Board
from tilewright.tune.farm.device import MISSING, Function, StandDevice, Vanished
from tilewright.tune.farm.program import runner_program
from tilewright.tune.stand import Stand

T = TypeVar("T")

CONNECTING = 20.0  # seconds that connecting may take, and what is asked of the board's shell
SENDING = 120.0  # and sending it something
ALIVE = 10  # seconds between questions to a board that says nothing
FOLDER = '"${XDG_CACHE_HOME:-$HOME/.cache}/tilewright"'


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop that all lines share, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="ssh").start()
    return loop


def _begun(what: Awaitable[T]) -> Future[T]:
    """Something that the loop does from now on."""

    async def awaited() -> T:
        return await what

    return asyncio.run_coroutine_threadsafe(awaited(), _loop())


def _asyncssh(asked: str) -> Any:
    try:
        import asyncssh
    except ImportError:
        why = "the package that speaks SSH is not installed"
        raise InputError(asked, why, remedy=MISSING) from None
    return asyncssh


class SshDevice(StandDevice):
    """A board. Nothing is connected before `open`.

    Args:
        address: "ssh://host", with user and port if SSH's config does not say them.
        options: what `asyncssh.connect` is given besides, as `client_keys`.

    Raises:
        InputError: it is no such address, or asyncssh is not installed.
    """

    def __init__(self, address: str, **options: Any) -> None:
        self.name, self._options = address, options
        self._asked = f"cannot measure on {address}"
        self._ssh = _asyncssh(self._asked)
        self._host, self._where = _parsed(self._asked, address)
        self._connection: Any = None
        self._process: Any = None
        self._board: Board | None = None

    # ---- A device ---------------------------------------------------------------------------

    def open(self, machine: Target, threads: int) -> None:
        """See `Device`."""
        self._connection = self._connected()
        system, _, processor = self._said("uname -s -m").strip().partition(" ")
        of = architecture(processor) or processor
        if system != "Linux" or of != architecture(machine.triple):
            raise InputError(
                f"cannot measure code for '{machine}' on {self.name}",
                f"it is {system} on {of}",
                remedy="name a device of the target's kind; boards run Linux",
            )
        path = self._runner(runner_program(machine.triple))
        started = self._connection.create_process(f"exec {path}", encoding=None)
        self._process = self._waited(started, CONNECTING)
        self._board = Board(self, machine, threads)
        self._board.check(self.name)

    def begin(self, function: Function) -> float:
        """See `Device`."""
        assert self._board is not None
        self._board.take(function.setup)
        self._stand = Stand(self._board, function.setup.func.name, lambda: None)
        return self._stand.begin(function.default)

    def close(self) -> None:
        """See `Device`."""
        connection, self._connection, self._process = self._connection, None, None
        if connection is not None:
            _loop().call_soon_threadsafe(connection.abort)

    # ---- A line, as a board has it ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        """See `Line`."""

        async def written(process: Any) -> None:
            process.stdin.write(data)
            await process.stdin.drain()

        self._waited(written(self._there()), SENDING)

    def receive(self, size: int, seconds: float) -> bytes:
        """See `Line`."""
        return self._waited(self._there().stdout.readexactly(size), seconds)

    def _there(self) -> Any:
        process = self._process
        if process is None:
            raise Vanished("the connection was closed")
        return process

    # ---- SSH --------------------------------------------------------------------------------

    def _connected(self) -> Any:
        """A connection. Raises InputError for who is refused, Vanished for who is not there."""
        ssh, asked = self._ssh, self._asked
        told = {"keepalive_interval": ALIVE, "connect_timeout": CONNECTING, **self._where}
        try:
            connecting = ssh.connect(self._host, **{**told, **self._options})
            return _begun(connecting).result(2 * CONNECTING)
        except ssh.HostKeyNotVerifiable as fault:
            remedy = f"connect once with ssh {self._host}, and compare the key that it shows"
            why = f"its host key is not trusted ({fault.reason})"
            raise InputError(asked, why, remedy=remedy) from None
        except ssh.PermissionDenied as fault:
            remedy = f"see that ssh {self._host} needs no password: a key in ~/.ssh or an agent"
            raise InputError(asked, f"it refused the key ({fault.reason})", remedy=remedy) from None
        except socket.gaierror as fault:
            remedy = "check the name, also in ~/.ssh/config"
            raise InputError(asked, f"no host of that name ({fault})", remedy=remedy) from None
        except ValueError as fault:  # a key that is none, a config that cannot be read
            raise InputError(asked, str(fault), remedy="check what is in ~/.ssh") from None
        except (ssh.Error, OSError, Overdue, asyncio.TimeoutError) as fault:
            raise Vanished(f"no connection: {fault or 'it does not answer'}") from None

    def _said(self, command: str, given: bytes = b"") -> str:
        """What a command of the board's shell prints. Raises Vanished where it fails."""
        asked = self._connection.run(command, input=given, encoding=None)
        done = self._waited(asked, SENDING if given else CONNECTING)
        if done.exit_status:
            told = (done.stderr or b"").decode(errors="replace").strip()
            raise Vanished(f"'{command.split()[0]}' fails there: {told or done.exit_status}")
        return done.stdout.decode(errors="replace")

    def _runner(self, program: bytes) -> str:
        """Where the runner is on the board; it is sent, if it is not there."""
        path = f'{FOLDER}"/runner-{hashlib.sha256(program).hexdigest()[:32]}"'
        if "here" in self._said(f"test -x {path} && echo here || true"):
            return path
        parts = f"mkdir -p {FOLDER}", f"cat > {path}.$$", f"chmod 700 {path}.$$"
        self._said(" && ".join([*parts, f"mv {path}.$$ {path}"]), program)
        return path

    def _waited(self, what: Awaitable[T], seconds: float) -> T:
        """What comes of something that the loop does. Raises Vanished."""
        asked = _begun(what)
        try:
            return asked.result(seconds)
        except (Overdue, asyncio.TimeoutError):
            asked.cancel()
            raise Vanished(f"it said nothing for {seconds:g} s") from None
        except (self._ssh.Error, OSError, asyncio.IncompleteReadError) as fault:
            raise Vanished(f"the connection was lost ({self._last_words(fault)})") from None

    def _last_words(self, fault: Exception) -> str:
        """What the runner said last, if it ended; else what happened."""
        process = self._process
        if process is not None and isinstance(fault, asyncio.IncompleteReadError):
            told = self._waited_quietly(process.stderr.read(1000))
            return told.strip().splitlines()[-1] if told.strip() else "its runner ended"
        return str(fault) or type(fault).__name__

    def _waited_quietly(self, what: Awaitable[bytes]) -> str:
        asked = _begun(what)
        try:
            return asked.result(1.0).decode(errors="replace")
        except (Exception, asyncio.CancelledError):
            asked.cancel()
            return ""


def _parsed(asked: str, address: str) -> tuple[str, dict[str, Any]]:
    """The host of an address, and user and port, where it says them."""
    remedy = 'write it as "ssh://user@host:port", where user and port may be left out'
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as fault:
        raise InputError(asked, str(fault), remedy=remedy) from None
    if parts.scheme != "ssh" or not host or parts.path.strip("/") or parts.query:
        raise InputError(asked, "it is no address of a board", remedy=remedy)
    if parts.password is not None:
        remedy = "leave it out, and give your user a key there"
        raise InputError(f"cannot measure on {host}", "its address has a password", remedy=remedy)
    told: dict[str, Any] = {"port": port, "username": parts.username}
    return host, {name: value for name, value in told.items() if value is not None}
