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
    """Await methods of `commands` by name, with arguments, and send back results, until the connection
    closes.
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
