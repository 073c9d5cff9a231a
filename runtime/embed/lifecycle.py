"""The interface of a coordinator on an event loop: start, stop, members, admin methods, figures and health."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, Unpack

from ..common.context_forms import AsyncForm
from ..common.one_process import OfOneProcess
from ..settings.table import Settings
from .admin import Admin
from .explaining import Explaining
from .monitoring import Monitoring

if TYPE_CHECKING:
    from ..member.channel import Connector
    from ..member.member import Member
    from ..member.options import MemberArguments

EndMode = Literal["stopped", "killed", "power lost"]
"""How the old process ends in a restart."""

ON_ANOTHER_LOOP = (
    "this Coordinator runs on another event loop: call it there, or create it with Coordinator.in_thread(), which any "
    "thread may call"
)


class AsyncCoordinator(Admin, Explaining, Monitoring, OfOneProcess, AsyncForm, ABC):
    """The interface of ``Coordinator``. ``ThreadCoordinator`` runs any of these on a thread of its own."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    async def restart(self, end: EndMode = "stopped") -> None: ...

    @abstractmethod
    async def loaded(self) -> None: ...

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @property
    @abstractmethod
    def settings(self) -> Settings: ...

    @property
    @abstractmethod
    def connector(self) -> Connector: ...

    @abstractmethod
    def member(self, group: str, **options: Unpack[MemberArguments]) -> Member: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
