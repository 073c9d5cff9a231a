"""Exchange: the requests and responses of one connection, without I/O.

It numbers and encodes requests, splits what arrives into frames, and matches responses to requests in order. The
blocking client (``blocking.py``) and the asyncio client (``connection.py``) move its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..kafka.codec.frames import BadResponse, decode, encode, split_frames
from .versions import API_VERSIONS, APIS, common_versions


class UnsupportedApi(Exception):
    """The server does not serve the API in a version that this client writes."""


class PendingRequest(NamedTuple):
    name: str
    version: int
    correlation_id: int


class Exchange:
    """Starts with ApiVersions v0 only; ``use_versions`` adds the other APIs from its response."""

    def __init__(self, client_id: str) -> None:
        self.versions = {API_VERSIONS: 0}
        self._client_id = client_id
        self._correlation_id = 0
        self._pending: deque[PendingRequest] = deque()
        self._received = bytearray()

    def request(self, name: str, values: Mapping[str, Any]) -> bytes:
        """The frame of the next request, in the newest common version. Raises UnsupportedApi."""
        version = self.version_of(name)
        self._correlation_id += 1
        frame = encode(name, version, self._correlation_id, self._client_id, values)
        self._pending.append(PendingRequest(name, version, self._correlation_id))
        return frame

    def version_of(self, name: str) -> int:
        """The version in which an API is requested. Raises UnsupportedApi."""
        version = self.versions.get(name)
        if version is None:
            ours = APIS[name]
            raise UnsupportedApi(f"does not serve {name} in a version from {ours.min_version} to {ours.max_version}")
        return version

    def receive(self, data: bytes) -> Iterator[Any]:
        """Responses that are complete with ``data``, as kio's entities, in the order of their requests.

        Raises BadResponse, after which the connection cannot be used.
        """
        self._received += data
        for payload in split_frames(self._received):
            yield self.response(payload)

    def response(self, payload: bytes) -> Any:
        """The response in a frame without its size, to the oldest pending request. Raises BadResponse."""
        if not self._pending:
            raise BadResponse("sent a response without a request")
        request = self._pending.popleft()
        try:
            return decode(request.name, request.version, request.correlation_id, payload)
        except BadResponse as error:
            raise BadResponse(f"answered {request.name} with {error}") from error

    def use_versions(self, response: Any) -> None:
        """Take the versions from the response to ApiVersions."""
        self.versions |= common_versions(response)
