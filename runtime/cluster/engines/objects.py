"""A store in a bucket: Amazon S3, Google Cloud Storage, Azure Blob Storage, MinIO and others that speak S3's protocol.

``create`` is a PUT that the service does only if the object does not exist. Requests are never repeated here: a create
whose answer was lost would be refused by its own object. Credentials come from the environment, as each service's own
tools read them, or from the machine's role.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from ....actors.text import format_count
from ...common.errors import StartError
from ..store import StoreRefused, StoreUnavailable, check_key
from .operations import Operations

T = TypeVar("T")

LIMIT_S = 5.0
CLOSE_S = 1.0
"""For requests in progress, when a store is closed."""
THREADS_END_S = 0.2
"""After its answer or its cancellation a request has objects of Python in a thread of obstore for some microseconds. If
Python ends meanwhile it is aborted."""
KEYS_AT_ONCE = 64
"""Requests of a get at the same time."""

ERRORS = (BaseError, OSError)
"""Those of obstore; an object that is not there is a FileNotFoundError."""
REFUSED_ERRORS = (PermissionDeniedError, UnauthenticatedError)
STATUS = re.compile(r"status code: ([0-9]{3})[^:\n]*")
CODE = re.compile(r"<Code>(\w+)</Code>(?:\s*<Message>([^<]*)</Message>)?")
NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
TEMPORARY = re.compile(r"RequestTimeout|SlowDown|OperationAborted|ServerBusy")
WRONG_REGION = "redirect without LOCATION"
TEMPORARY_STATUSES = frozenset((408, 409, 412, 425, 429))
"""Those of 4xx after which another attempt may succeed."""


class Service(NamedTuple):
    """``parameters``: of the URL's query, with the names that ``make`` has for them.

    ``endpoint_variables``: of the environment, from which ``make`` takes the endpoint if the query has none.
    """

    name: str
    make: Callable[..., Any]
    example: str
    parameters: dict[str, str]
    endpoint_variables: tuple[str, ...] = ()

    def endpoint(self, query: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> str:
        """ "" for that of the provider."""
        variables = (environment[name] for name in self.endpoint_variables if name in environment)
        return query.get("endpoint") or next(variables, "")


SERVICES = {
    "s3": Service(
        "S3",
        S3Store,
        "s3://bucket/prefix",
        {"endpoint": "endpoint", "region": "region"},
        ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    ),
    "gs": Service("Google Cloud Storage", GCSStore, "gs://bucket/prefix", {}),
    "az": Service(
        "Azure",
        AzureStore,
        "az://container/prefix",
        {"account": "account_name", "endpoint": "endpoint"},
        ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    ),
}


def open_store(url: str, client: str) -> ObjectStore:
    """The store in the bucket of a URL like ``s3://bucket/prefix?region=eu-central-1``. The bucket must exist.

    ``endpoint`` in the query is the URL of another service with the same protocol: ``http://minio:9000``. ``client`` is
    not used. Raises StartError.
    """
    return ObjectStore(url)


class ObjectStore:
    """A ``Store``. ``limit_s``: of each operation. ``address``: as errors show it."""

    def __init__(self, url: str, limit_s: float = LIMIT_S) -> None:
        self._requests = BucketRequests(url, limit_s)
        self.address = self._requests.address
        self._operations = Operations(self.address, limit_s)
        self._limit_s = limit_s

    async def create(self, key: str, value: bytes) -> bool:
        check_key(key)
        return await self._operations.run(f"create of {key}", self._requests.create(key, value))

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        values: list[bytes | None] = []
        for start in range(0, max(1, len(keys)), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            values += await self._operations.run(f"get of {format_count(len(some), 'key')}", self._requests.get(some))
        return values

    async def put(self, key: str, value: bytes) -> None:
        check_key(key)
        await self._operations.run(f"put of {key}", self._requests.put(key, value))

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return await self._operations.run(f"list of {prefix}", self._requests.list(prefix, after))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._operations.run(f"delete of {format_count(len(keys), 'key')}", self._requests.delete(keys))

    async def sync(self) -> None:
        """A service shows only what is durable."""
        await self._operations.run("sync", asyncio.sleep(0))

    async def announce_change(self) -> None:
        """Nobody can be told: all nodes look from time to time."""
        await self._operations.run("announcement", asyncio.sleep(0))

    async def wait_for_change(self, timeout_s: float) -> None:
        await self._operations.run("wait", asyncio.sleep(timeout_s), timeout_s + self._limit_s)

    async def close(self) -> None:
        await self._operations.close()
        await self._requests.end()


class BucketRequests:
    """The requests to one bucket.

    A request that nobody waits for any more goes on until it is answered, or until twice the time limit is over.
    """

    def __init__(self, url: str, limit_s: float) -> None:
        scheme, parts = url.partition("://")[0], urlsplit(url)
        service, prefix = SERVICES[scheme], unquote(parts.path).strip("/")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = query.keys() - service.parameters.keys()
        if not parts.netloc or "@" in parts.netloc or parts.fragment or unknown:
            problem = f"has an unknown parameter, {min(unknown)}" if unknown else "names no bucket"
            names = " and ".join(service.parameters) or "none"
            raise StartError(
                f"{url!r} {problem}; expected one like {service.example} (parameters behind '?': {names}); "
                "credentials belong into the environment"
            )
        self.address = f"{service.name} at {scheme}://{parts.netloc}/{prefix}".rstrip("/")
        self._bucket = parts.netloc
        self._running: set[asyncio.Future[Any]] = set()
        try:
            self._store = service.make(
                parts.netloc,
                prefix=prefix or None,
                client_options={
                    "timeout": timedelta(seconds=2 * limit_s),
                    "connect_timeout": timedelta(seconds=limit_s),
                    "allow_http": service.endpoint(query).startswith("http://"),
                },
                retry_config={"max_retries": 0},
                **{service.parameters[name]: value for name, value in query.items()},
            )
        except BaseError as error:
            raise StartError(f"{self.address}: {_first_line(error)}") from None

    async def create(self, key: str, value: bytes) -> bool:
        """False also for a conflict with another create in progress, after which nobody's value may be there."""
        try:
            await self._run(obstore.put_async(self._store, key, value, mode="create", use_multipart=False))
        except (AlreadyExistsError, PreconditionError):
            return False
        except ERRORS as error:
            raise self._translated(error) from error
        return True

    async def put(self, key: str, value: bytes) -> None:
        try:
            await self._run(obstore.put_async(self._store, key, value, use_multipart=False))
        except ERRORS as error:
            raise self._translated(error) from error

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return list(await asyncio.gather(*map(self._value, keys)))

    async def list(self, prefix: str, after: str) -> list[str]:
        """In order, which some services do not keep. obstore takes whole folders for a prefix."""
        try:
            keys = await self._run(self._list(prefix.rpartition("/")[0] or None, after or None))
        except ERRORS as error:
            raise self._translated(error) from error
        return sorted(key for key in keys if key.startswith(prefix) and key > after)

    async def delete(self, keys: Sequence[str]) -> None:
        """Some services refuse a list with a key that is not there."""
        try:
            await self._run(obstore.delete_async(self._store, list(keys)))
        except ERRORS as error:
            if not _is_absent(error):
                raise self._translated(error) from error
            await asyncio.gather(*map(self._delete_one, keys))

    async def end(self) -> None:
        """Wait for the requests in progress, but not for long, and for the threads of obstore."""
        if self._running:
            _, running = await asyncio.wait(self._running, timeout=CLOSE_S)
            for request in running:
                request.cancel()
        await asyncio.sleep(THREADS_END_S)

    async def _value(self, key: str) -> bytes | None:
        try:
            return await self._run(self._get(key))
        except ERRORS as error:
            if not _is_absent(error):
                raise self._translated(error) from error
            return None

    async def _get(self, key: str) -> bytes:
        result = await obstore.get_async(self._store, key)
        return bytes(await result.bytes_async())

    async def _list(self, folder: str | None, after: str | None) -> Sequence[str]:
        chunks = obstore.list(self._store, prefix=folder, offset=after)
        return [entry["path"] async for chunk in chunks for entry in chunk]

    async def _delete_one(self, key: str) -> None:
        try:
            await self._run(obstore.delete_async(self._store, key))
        except ERRORS as error:
            if not _is_absent(error):
                raise self._translated(error) from error

    async def _run(self, request: Awaitable[T]) -> T:
        task = asyncio.ensure_future(request)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more

    def _translated(self, error: Exception) -> StoreUnavailable | StoreRefused:
        return translated(error, self.address, self._bucket)


def translated(error: Exception, address: str, bucket: str) -> StoreUnavailable | StoreRefused:
    """What an error of obstore means for a user, who knows the store by its ``address``."""
    text = str(error)
    status = STATUS.search(text)
    number, reason = int(status[1]) if status else 0, _reason(error)
    if NO_BUCKET.search(text):
        return StoreRefused(f"{address}: there is no bucket {bucket}; create it, or correct the URL")
    is_final = 400 <= number < 500 and number not in TEMPORARY_STATUSES and not TEMPORARY.search(text)
    is_final = is_final or WRONG_REGION in text
    if is_final or isinstance(error, REFUSED_ERRORS):
        return StoreRefused(
            f"{address} refused: {reason}; check the credentials in the environment, the bucket's region "
            "and the permissions to read, write, list and delete"
        )
    return StoreUnavailable(f"{address} is not available: {reason}")


def _is_absent(error: Exception) -> bool:
    """Whether there is a bucket, but no such object."""
    return isinstance(error, (FileNotFoundError, NotFoundError)) and not NO_BUCKET.search(str(error))


def _reason(error: Exception) -> str:
    """The status and code of the service's answer; without an answer what happened."""
    text = str(error)
    status, code = STATUS.search(text), CODE.search(text)
    if status is None:
        return _first_line(error)
    return f"{status[0].partition(': ')[2].strip()}{f' ({code[1]}: {code[2] or code[1]})' if code else ''}"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
