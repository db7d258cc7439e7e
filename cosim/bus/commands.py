"""The command loop of a test under cocotb, which obeys the process that started it (`cosim.bus.process`)."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import Any

#: Variable with the number of the descriptor over which commands come.
VARIABLE = "HEALD_COMMANDS"


def connect() -> Connection:
    """The way to the process that gives commands."""
    return Connection(int(os.environ[VARIABLE]))


async def obey(connection: Connection, commands: Any) -> None:
    """Await methods of `commands` by name, with arguments, until there are no more; answer with the results.

    While nothing is asked, simulated time stands still. A `TimeoutError` is an answer too; any other
    exception ends the simulation.
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
