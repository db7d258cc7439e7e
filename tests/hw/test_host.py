"""The host's registers, driven word by word in Amaranth's simulator."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from amaranth.sim import Simulator

from hw import csr, fabric
from hw.config import MachineConfig, load
from hw.rtl.core.host import Host

TEST = load("test")
PROGRAM = [0x08000000, 0x04000000, 0x08000000]
Access = Callable[..., Awaitable[int]]


def drive(body: Callable[[Any, Host, Access], Awaitable[None]], config: MachineConfig = TEST) -> None:
    """Run a host beside a machine that is never finished, and always quiet unless the body says so."""
    host = Host(config)

    async def bench(ctx: Any) -> None:
        async def access(name: str, value: int | None = None) -> int:
            payload = host.request.payload
            ctx.set(host.request.valid, 1)
            ctx.set(payload.address, csr.offset(TEST, name))
            ctx.set(payload.write, value is not None)
            ctx.set(payload.data, value or 0)
            await ctx.tick()
            ctx.set(host.request.valid, 0)
            while not ctx.get(host.response.valid):
                await ctx.tick()
            answer = int(ctx.get(host.response.payload))
            await ctx.tick()
            return answer

        ctx.set(host.response.ready, 1)
        ctx.set(host.quiet, 1)
        await body(ctx, host, access)

    simulator = Simulator(host)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def crc(words: list[int]) -> int:
    return zlib.crc32(struct.pack(f"<{len(words)}I", *words))


async def program(access: Access, at: int, words: list[int], check: int) -> None:
    await access("PROGRAM_ADDRESS", at)
    for word in words:
        await access("PROGRAM_DATA", word)
    await access("PROGRAM_CHECK", check)


@pytest.mark.parametrize(
    ("at", "words", "check", "accepted"),
    [
        (0, PROGRAM, crc(PROGRAM), True),
        (0, PROGRAM, crc(PROGRAM) ^ 1, False),
        (0, [], crc([]), False),
        (1, PROGRAM, crc(PROGRAM), False),
        (TEST.imem_words, PROGRAM, crc(PROGRAM), False),
        (TEST.imem_words * 16, PROGRAM, crc(PROGRAM), False),
    ],
    ids=["right", "wrong", "no words", "not from pc 0", "another warp", "no such warp"],
)
def test_only_a_whole_program_that_was_checked_may_start(
    at: int, words: list[int], check: int, accepted: bool
) -> None:
    async def body(ctx: Any, host: Host, access: Access) -> None:
        await access("ENABLE", 1)
        await program(access, at, words, check)
        assert await access("STATUS") >> csr.PROGRAM_OK & 1 == accepted
        await access("CONTROL", 1 << csr.START)
        status = await access("STATUS")
        assert (status >> csr.RUNNING & 1, status >> csr.ERROR & 1) == ((1, 0) if accepted else (0, 1))

    drive(body)


def test_warps_windows_and_base_stay_as_they_are_during_a_run() -> None:
    async def body(ctx: Any, host: Host, access: Access) -> None:
        await access("ENABLE", 1)
        await access("WINDOW0_LAST", 99)
        await access("BASE", 0x8765_4FFF)
        await program(access, 0, PROGRAM, crc(PROGRAM))
        await access("CONTROL", 1 << csr.START)
        await access("ENABLE", 3)
        await access("WINDOW0_LAST", 7)
        await access("BASE", 0)
        assert (await access("ENABLE"), await access("WINDOW0_LAST")) == (1, 99)
        assert (await access("BASE"), ctx.get(host.base)) == (0x8765_4000, 0x8765_4000)

    drive(body)


def test_a_run_is_cleared_only_when_memory_owes_no_answer() -> None:
    async def body(ctx: Any, host: Host, access: Access) -> None:
        await access("ENABLE", 1)
        await access("WATCHDOG", 5)
        await program(access, 0, PROGRAM, crc(PROGRAM))
        ctx.set(host.quiet, 0)
        await access("CONTROL", 1 << csr.START)
        await ctx.tick().until(host.expired)
        await ctx.tick()
        ctx.set(host.error, 1)  # as the machine tells it
        await ctx.tick()
        ctx.set(host.error, 0)
        await ctx.tick().repeat(20)  # in which the watchdog ends the wait for memory, too
        await access("CONTROL", 1 << csr.CLEAR)
        assert await access("STATUS") == 1 << csr.DONE | 1 << csr.ERROR | 1 << csr.PROGRAM_OK
        ctx.set(host.quiet, 1)
        await access("CONTROL", 1 << csr.CLEAR)
        assert await access("STATUS") == 1 << csr.QUIET | 1 << csr.PROGRAM_OK

    drive(body)


@pytest.mark.parametrize("grid", [None, TEST.cgra], ids=["no grid", "grid"])
def test_identification_and_capabilities(grid: fabric.Fabric | None) -> None:
    machine = TEST.replace(cgra=grid)
    sizes = {f"cgra_{name}": getattr(grid, name, 0) for name in ("rows", "cols", "contexts")}

    async def body(ctx: Any, host: Host, access: Access) -> None:
        assert await access("ID") == csr.IDENTIFICATION
        assert await access("HASH_HIGH") << 32 | await access("HASH_LOW") == int(machine.hash, 16)
        for name in csr.CAPABILITIES:
            value = sizes[name] if name in sizes else getattr(machine, name)
            assert await access(f"CONFIG_{name.upper()}") == value

    drive(body, machine)


def test_sizes_of_the_grid() -> None:
    grid = fabric.load("mesh2x3")

    async def body(ctx: Any, host: Host, access: Access) -> None:
        found = [await access(f"CONFIG_CGRA_{name}") for name in ("ROWS", "COLS", "CONTEXTS")]
        assert found == [2, 3, grid.contexts]

    drive(body, TEST.replace(cgra=grid))
