"""Runs the commands on a store."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from ...cluster.engines import checks_of, open_store
from ...cluster.engines.finding import Level
from ...cluster.patient_store import PatientStore
from ...cluster.register import Register
from ...cluster.register_log import RegisterLog
from ...cluster.session_environment import SessionEnvironment
from ...cluster.store import Store
from ...disk.disk import Disk
from ...engine.clock import SystemRandom
from .check import RIVALS, Report, check_store
from .drain import drain, undo_drain
from .export_folder import ExportResult, export_folder
from .import_folder import ImportResult, import_folder
from .seal import SealPlan, plan_seal, seal
from .status import ClusterStatus, read_status
from .stores import require_register, with_store

LAST_LOOK_S = 5.0


def run_status(url: str, timeout_s: float) -> ClusterStatus:
    async def read(store: Store) -> ClusterStatus:
        register = await require_register(store, url)
        return await read_status(store, register)

    return with_store(url, timeout_s, read)


def run_accept_loss(url: str, timeout_s: float, *, execute: bool) -> str:
    """Why no node may serve, "" if they may. With ``execute`` they may afterwards."""

    async def accept(store: Store) -> str:
        register = await require_register(store, url)
        if register.damage and execute:
            environment = SessionEnvironment(ttl_s=register.session_timeout_ms / 1000)
            await RegisterLog(store, environment, reads_damaged=True).change(Register.accepted, _nothing)
        return register.damage

    return with_store(url, timeout_s, accept)


def run_check(url: str, timeout_s: float, *, is_single: bool) -> Report:
    """The engine's settings first: a store that must not be used is not written to."""

    async def check(store: Store) -> Report:
        settings = await checks_of(url)(url, is_single)
        if any(finding.level == Level.ERROR for finding in settings):
            return Report(settings)
        async with AsyncExitStack() as rivals:
            stores = [store]
            for number in range(1, RIVALS):
                rival = open_store(url, f"check-{number}")
                rivals.push_async_callback(rival.close)
                stores.append(PatientStore(rival))
            report = await check_store(stores)
        return report._replace(findings=[*settings, *report.findings])

    return with_store(url, timeout_s, check)


def run_drain(url: str, timeout_s: float, node: str, *, undoes: bool) -> str:
    async def work(store: Store) -> str:
        register = await require_register(store, url)
        return await (undo_drain(store, register, node) if undoes else drain(store, register, node, timeout_s))

    return with_store(url, timeout_s + LAST_LOOK_S, work)


def run_seal(url: str, timeout_s: float, node: str, *, executes: bool) -> SealPlan:
    async def work(store: Store) -> SealPlan:
        plan = await plan_seal(store, await require_register(store, url), node)
        if executes:
            await seal(store, plan)
        return plan

    return with_store(url, timeout_s, work)


def run_import(url: str, timeout_s: float, data: Path, session_timeout_ms: int) -> ImportResult:
    return with_store(url, timeout_s, lambda store: import_folder(store, data, session_timeout_ms, Disk()))


def run_export(url: str, timeout_s: float, target: Path) -> ExportResult:
    async def work(store: Store) -> ExportResult:
        await require_register(store, url)
        return await export_folder(store, target, Disk(), SystemRandom())

    return with_store(url, timeout_s, work)


async def _nothing() -> None:
    """Nobody may have declared this program dead."""
