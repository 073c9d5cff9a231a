"""Quotas over TCP: an asyncio service whose state lives in actors, one for each customer.

    python examples/embed_actors.py       # a short demonstration
    python examples/embed_actors.py 7070  # serves until Ctrl-C; try it with: nc 127.0.0.1 7070

A line "ana 3" takes three tokens of Ana's quota, which a timer fills again. One customer's lines are handled one after
the other, whatever connections they come on, and there is no lock. A refusal is an answer. A bug costs the message that
met it, and no other. At the end all that was asked is answered.
"""

import asyncio
import signal
import sys
from typing import NamedTuple

from callboard.actors import Actor, ActorRef, Expired, Schedule, Supervision
from callboard.actors.engine_ports import Clock
from callboard.runtime import System

FULL = 10
REFILL_EVERY_MS = 50
ANSWER_TIMEOUT_S = 2.0


class Take(NamedTuple):
    tokens: int


class Refused(Exception):
    """What a customer may hear. Not a bug."""


class Quota(Actor):
    """One customer's tokens."""

    handlers = {Take: "take", Expired: "refill"}
    supervision = Supervision(restarts=3, within_ms=10_000, domain_errors=(Refused,))

    def __init__(self, timer: ActorRef, clock: Clock) -> None:
        super().__init__()
        self.timer, self.clock, self.left = timer, clock, FULL

    def save_state(self, error: Exception | None) -> int:
        """There was a bug. What the next instance should know; a real service would ask its database."""
        return self.left

    def restore_state(self, kept: int) -> None:
        self.left = kept

    def on_start(self) -> None:
        """Of the first instance, and of the one after a bug."""
        self.timer.tell(Schedule(self.actor_ref, "refill", self.clock.monotonic_ms() + REFILL_EVERY_MS))

    def take(self, message: Take) -> str:
        more = self.left // message.tokens  # nobody thought of 0 tokens: that is the bug
        if not more:
            raise Refused(f"{self.left} left")
        self.left -= message.tokens
        return f"yes, {self.left} left"

    def refill(self, _message: Expired) -> None:
        self.left = min(self.left + 1, FULL)
        self.on_start()


class Service:
    """Lines come in on connections; each is asked of its customer's actor."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.timer = system.start_timer()
        self.quotas: dict[str, ActorRef] = {}

    def quota(self, customer: str) -> ActorRef:
        if customer not in self.quotas:  # no await between the question and the answer, so each is made once
            self.quotas[customer] = self.system.spawn(Quota, self.timer, self.system.clock)
        return self.quotas[customer]

    async def answer(self, line: str) -> str:
        try:
            customer, tokens = line.split()
            return str(await self.quota(customer).ask(Take(int(tokens)), block=False, timeout=ANSWER_TIMEOUT_S))
        except (Refused, ValueError) as error:
            return f"no: {error}"
        except Exception as error:  # a bug, and the actor has begun anew by now; or Timeout, or ActorFailed
            return f"sorry: {error!r}"

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for line in reader:
                writer.write(f"{await self.answer(line.decode())}\n".encode())
                await writer.drain()
        finally:
            writer.close()


async def demonstrate(service: Service, port: int) -> None:
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]

    async def say(line: str, on: int = 0) -> str:
        reader, writer = connections[on]
        writer.write(f"{line}\n".encode())
        return (await reader.readline()).decode().strip()

    print("ana 2, twice at once:", await asyncio.gather(say("ana 2"), say("ana 2", on=1)))
    for line in ("ana 50", "ana 0", "ana 1", "bob 10"):
        print(f"{line}: {await say(line)}")
    while (answer := await say("bob 3")).startswith("no"):  # until the timer has filled it
        await asyncio.sleep(REFILL_EVERY_MS / 1000)
    print(f"bob 3, a little later: {answer}")
    print(f"actors begun anew after a bug: {service.system.stats().restarts}")
    for _, writer in connections:
        writer.close()


async def until_a_signal() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()


async def run(port: int | None) -> None:
    # Each actor handles what it was sent before it stops: the end of this block answers all that was asked.
    async with System.on_loop() as system:
        service = Service(system)
        server = await asyncio.start_server(service.converse, "127.0.0.1", port or 0)
        port_got = server.sockets[0].getsockname()[1]
        print(f"listening on 127.0.0.1:{port_got}", flush=True)
        try:
            await (demonstrate(service, port_got) if port is None else until_a_signal())
        finally:
            server.close()
    print("stopped")


def main() -> None:
    asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else None))


if __name__ == "__main__":
    main()
