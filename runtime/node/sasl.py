"""The listeners of a node that have SASL, from its options."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..common.errors import StartError
from ..common.logs import get_logger
from ..common.thread_pool import ThreadPool
from ..engine.clock import wall_clock_ms
from ..kafka.authentication.sasl_listener import SaslListener
from ..kafka.connections.login_counts import LoginCounts
from ..security.mechanisms import MECHANISMS, OAUTHBEARER, Mechanism, MechanismParts
from ..security.plain import RememberedPasswords
from ..settings.listener_settings import number_of, value_of
from ..settings.listeners import is_reachable
from ..settings.rows import list_items
from .token_keys import TokenKeys, make_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..security.store import SecurityStore
    from ..settings.listeners import Listener
    from .environment import Environment

NONCE_BYTES = 24

log = get_logger("callboard.runtime")


class WorkerThread:
    """``sasl_listener.Worker``: one thread, which starts with the first job. For use on the loop's thread."""

    def __init__(self) -> None:
        self._executor = ThreadPool(1, "callboard-sasl")

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        loop = asyncio.get_running_loop()
        self._executor.submit(work).add_done_callback(partial(_report, loop, done))

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def _report(loop: asyncio.AbstractEventLoop, done: Callable[[Any], None], future: Future[Any]) -> None:
    """Called on the worker thread."""
    if not future.cancelled():
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done, future.result())


class InlineWorker:
    """Runs jobs on the caller's thread, for nodes that may not use others."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())

    def close(self) -> None:
        pass


class SaslListeners:
    """The listeners with SASL, by name. ``logins``: of all listeners."""

    def __init__(self, listeners: Sequence[Listener], store: SecurityStore, environment: Environment) -> None:
        """Raises StartError for settings that cannot work, or are not safe."""
        self.logins = LoginCounts()
        self._worker = WorkerThread() if environment.allows_workers else InlineWorker()
        self._keys: list[TokenKeys] = []
        self._listeners = {
            listener.name: self._make(listener, store, environment) for listener in listeners if listener.has_sasl
        }

    def get(self, name: str) -> SaslListener | None:
        """None for a listener without SASL."""
        return self._listeners.get(name)

    async def keep_keys_fresh(self) -> None:
        """Read the keys of signed tokens again from time to time, until cancelled."""
        await asyncio.gather(*(keys.keep_fresh() for keys in self._keys))

    def close(self) -> None:
        self._worker.close()

    def _make(self, listener: Listener, store: SecurityStore, environment: Environment) -> SaslListener:
        mechanisms = enabled_mechanisms(listener)
        _check_passwords(listener, mechanisms)
        _warn_of_readers(listener, mechanisms)
        clock = environment.clock
        tokens = None
        if OAUTHBEARER in mechanisms:
            tokens, keys = make_tokens(listener, environment)
            self._keys += [] if keys is None else [keys]
        remembered = RememberedPasswords(secrets.token_bytes(), clock.monotonic_ms)
        return SaslListener(
            mechanisms=mechanisms,
            parts=MechanismParts(store, remembered, lambda: secrets.token_urlsafe(NONCE_BYTES), tokens),
            worker=self._worker,
            failure_delay_ms=number_of(listener.settings, "connection_failed_authentication_delay_ms"),
            timeout_ms=number_of(listener.settings, "authentication_timeout_ms"),
            max_receive_bytes=number_of(listener.settings, "sasl_server_max_receive_size"),
            session_ms=number_of(listener.settings, "connections_max_reauth_ms"),
            monotonic_ms=clock.monotonic_ms,
            wall_ms=wall_clock_ms,
        )


def enabled_mechanisms(listener: Listener) -> Mapping[str, Mechanism]:
    """Raises StartError for an unknown mechanism."""
    names = [name.upper() for name in list_items(value_of(listener.settings, "sasl_enabled_mechanisms"))]
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown or not names:
        raise StartError(
            f"bad value '{','.join(names)}' for setting 'sasl_enabled_mechanisms' of the listener {listener.name}: "
            f"expected one or more of {', '.join(MECHANISMS)}, with commas"
        )
    return {name: MECHANISMS[name] for name in names}


def _check_passwords(listener: Listener, mechanisms: Mapping[str, Mechanism]) -> None:
    open_names = [mechanism.name for mechanism in mechanisms.values() if mechanism.sends_password]
    if open_names and not listener.has_tls and value_of(listener.settings, "allow_plain_without_tls") != "true":
        raise StartError(
            f"the listener {listener.name} has the mechanism {open_names[0]} without TLS, so that everybody on the "
            "network can read passwords and tokens: expected the protocol SASL_SSL, another mechanism "
            "(SCRAM-SHA-512), or the setting allow_plain_without_tls=true"
        )


def _warn_of_readers(listener: Listener, mechanisms: Mapping[str, Mechanism]) -> None:
    """Log what others can read, if the listener has no TLS and other machines can reach it."""
    if listener.has_tls or not is_reachable(listener):
        return
    names = [mechanism.name for mechanism in mechanisms.values() if mechanism.sends_password]
    first = f"passwords and tokens ({', '.join(names)}), and " if names else ""
    log.warning(
        "a listener that other machines can reach has no TLS",
        listener=listener.name,
        address=str(listener.listen),
        reason=f"whoever can read the network reads {first}all requests, and can change them; expected SASL_SSL",
    )
