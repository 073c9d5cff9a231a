"""Quotas over TCP: an asyncio service that keeps its state in actors, one for each customer.

    python examples/embed_actors.py       # a short demonstration
    python examples/embed_actors.py 7070  # serves until Ctrl-C; try it with: nc 127.0.0.1 7070

The line "ana 3" takes three tokens of Ana's quota, which a timer refills. The requests of one customer are handled one
after the other, also if they come from several connections, without a lock. A refused request gets an answer. A bug
affects only the request that triggered it. Before the program ends it answers all requests that it has received.
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
    """The request is refused, and the customer gets the message. This is not a bug."""


class Quota(Actor):
    """One customer's tokens."""

    handlers = {Take: "take", Expired: "refill"}
    supervision = Supervision(restarts=3, within_ms=10_000, domain_errors=(Refused,))

    def __init__(self, timer: ActorRef, clock: Clock) -> None:
        super().__init__()
        self.timer, self.clock, self.left = timer, clock, FULL

    def save_state(self, error: Exception | None) -> int:
        """Called after a bug: returns the state for the next instance. A real service would read its database."""
        return self.left

    def restore_state(self, kept: int) -> None:
        self.left = kept

    def on_start(self) -> None:
        """Called for the first instance and for each instance after a bug."""
        self.timer.tell(Schedule(self.actor_ref, "refill", self.clock.monotonic_ms() + REFILL_EVERY_MS))

    def take(self, message: Take) -> str:
        is_enough = self.left // message.tokens > 0  # the bug: a division by zero if tokens is 0
        if not is_enough:
            raise Refused(f"{self.left} left")
        self.left -= message.tokens
        return f"yes, {self.left} left"

    def refill(self, _message: Expired) -> None:
        self.left = min(self.left + 1, FULL)
        self.on_start()


class Service:
    """Sends each line that it receives to the actor of the customer."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.timer = system.start_timer()
        self.quotas: dict[str, ActorRef] = {}

    def quota(self, customer: str) -> ActorRef:
        if customer not in self.quotas:  # no await between the check and the assignment: one actor per customer
            self.quotas[customer] = self.system.spawn(Quota, self.timer, self.system.clock)
        return self.quotas[customer]

    async def answer(self, line: str) -> str:
        try:
            customer, tokens = line.split()
            return str(await self.quota(customer).ask(Take(int(tokens)), block=False, timeout=ANSWER_TIMEOUT_S))
        except (Refused, ValueError) as error:
            return f"no: {error}"
        except Exception as error:  # a bug, after which the actor was restarted; or Timeout, or ActorFailed
            return f"sorry: {error!r}"

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for line in reader:
                writer.write(f"{await self.answer(line.decode())}\n".encode())
                await writer.drain()
        finally:
            writer.close()


async def demonstrate(service: Service, port: int) -> None:
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]

    async def send(line: str, connection: int = 0) -> str:
        reader, writer = connections[connection]
        writer.write(f"{line}\n".encode())
        return (await reader.readline()).decode().strip()

    print("ana 2, on two connections:", await asyncio.gather(send("ana 2"), send("ana 2", connection=1)))
    for line in ("ana 50", "ana 0", "ana 1", "bob 10"):
        print(f"{line}: {await send(line)}")
    while (answer := await send("bob 3")).startswith("no"):  # until the timer has refilled it
        await asyncio.sleep(REFILL_EVERY_MS / 1000)
    print(f"bob 3, a little later: {answer}")
    print(f"actors restarted after a bug: {service.system.stats().restarts}")
    for _, writer in connections:
        writer.close()


async def wait_for_signal() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()


async def run(port: int | None) -> None:
    # At the end of this block each actor handles its pending messages before it stops.
    async with System.on_loop() as system:
        service = Service(system)
        server = await asyncio.start_server(service.handle_connection, "127.0.0.1", port or 0)
        actual_port = server.sockets[0].getsockname()[1]
        print(f"listening on 127.0.0.1:{actual_port}", flush=True)
        try:
            await (demonstrate(service, actual_port) if port is None else wait_for_signal())
        finally:
            server.close()
    print("stopped")


def main() -> None:
    asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else None))


if __name__ == "__main__":
    main()
