"""A FastAPI service whose instances share out work, and say over HTTP who does what and how far it is. No broker.

    pip install callboard fastapi uvicorn
    uvicorn --app-dir examples fastapi_service:app    # then GET /owners and /progress, PUT /tenants/acme

Background work of a web service runs in every instance of it, unless something decides who does what. This instance is
the one that decides: the coordinator lives as long as the application does, and keeps what was committed in a folder.
Two workers run beside it in this process; more of them, in other processes or on other machines, join by its address:
``callboard.connect(address).member("importers", resources=...)``, with the same list of tenants.

Tenants come and go while it runs. A new one is dealt out within a second; those that stay are not disturbed.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Request

import callboard

log = logging.getLogger(__name__)

GROUP = "importers"
WORKERS = 2
STEP_S = 0.05


class Service:
    """What the endpoints know."""

    def __init__(self, coordinator: callboard.Coordinator, tenants: list[str]) -> None:
        self.coordinator = coordinator
        self.tenants = tenants
        self.members: list[callboard.Member] = []

    async def keep_working(self) -> None:
        """One worker. A real one would import the tenant's data where this one counts."""
        async with self.coordinator.member(
            GROUP, resources={"tenants": lambda: self.tenants}, client_id=f"worker-{len(self.members)}"
        ) as member:
            self.members.append(member)
            await member.run(self.do_imports)

    async def do_imports(self, shard: callboard.Shard) -> None:
        """Import one tenant's pages. Cancelled when the shard is revoked or lost."""
        page = shard.next_offset or 0
        while True:
            await asyncio.sleep(STEP_S)
            page += 1
            await shard.commit(page, note=f"page {page}")


def report(worker: asyncio.Task[None]) -> None:
    """A task that fails would say so only at the end of the program. The others go on, with its share of the work."""
    if not worker.cancelled() and (error := worker.exception()) is not None:
        log.error("a worker has ended", exc_info=error)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with callboard.Coordinator(
        data=os.environ.get("CALLBOARD_DATA", "state"),
        listen=os.environ.get("CALLBOARD_LISTEN", "127.0.0.1:0"),
        group_initial_rebalance_delay_ms=0,  # work begins at once, and is dealt again when others come
    ) as coordinator:
        service = app.state.service = Service(coordinator, ["acme", "zenith", "initech"])
        workers = [asyncio.create_task(service.keep_working()) for _ in range(WORKERS)]
        for worker in workers:
            worker.add_done_callback(report)
        try:
            yield
        finally:
            for worker in workers:
                worker.cancel()  # hands its work back, and leaves
            await asyncio.gather(*workers, return_exceptions=True)


app = FastAPI(lifespan=lifespan)


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


# A shard's name becomes part of a topic's name, which has a maximum length.
Name = Annotated[str, Path(pattern="^[A-Za-z0-9-]+$", max_length=100)]
Running = Annotated[Service, Depends(service_of)]


@app.get("/owners")
async def owners(service: Running) -> dict[str, dict[str, Any]]:
    """The shards of the workers in this process."""
    return {
        str(shard.name): {"member": member.member_id, "token": shard.token}
        for member in service.members
        for shard in member.shards
    }


@app.get("/members")
async def members(service: Running) -> dict[str, list[str]]:
    """All members of the group, in any process."""
    try:
        group = await service.coordinator.describe(GROUP)
    except callboard.CoordinatorError as error:
        raise HTTPException(404, str(error)) from error
    return {group.state: sorted(member.client_id for member in group.members)}


@app.get("/progress")
async def progress(service: Running) -> dict[str, str]:
    """The last note of each tenant. It is durable, whichever worker committed it."""
    committed = await service.coordinator.progress(GROUP, "tenants")
    return {str(name): found.metadata for name, found in committed.items()}


@app.put("/tenants/{name}")
async def add_tenant(name: Name, service: Running) -> list[str]:
    if name not in service.tenants:
        service.tenants.append(name)
    return service.tenants


@app.delete("/tenants/{name}")
async def remove_tenant(name: Name, service: Running) -> list[str]:
    if name not in service.tenants:
        raise HTTPException(404, f"there is no tenant {name!r}")
    service.tenants.remove(name)
    return service.tenants
