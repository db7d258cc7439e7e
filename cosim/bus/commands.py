"""The command loop of a cocotb test, which serves the process that started it (`cosim.bus.process`)."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import Any

#: Environment variable with the file descriptor of the command connection.
VARIABLE = "HEALD_COMMANDS"


def connect() -> Connection:
    """Connect to the process that sends commands."""
    return Connection(int(os.environ[VARIABLE]))


async def obey(connection: Connection, commands: Any) -> None:
    """Serve method calls on `commands`, one after the other, until the connection closes.

    Each method is awaited, and its result is sent back. Simulated time stands still between commands. A
    `TimeoutError` is sent back too; any other exception ends the simulation.
    """
    connection.send((True, None))
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, await getattr(commands, name)(*arguments)))
        except TimeoutError as error:
            connection.send((False, str(error)))
