"""What clients send before they are authenticated: each cell of the table of Kafka's SaslServerAuthenticator.

``python -m conformance.sasl_scripts`` in the folder of the tests records the answers of a real Kafka.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from peers.wire import FRAME_SIZE, Hangup, Wire, decode, encode
from real_kafka.kafka import TEST_SETTINGS, RealKafka, free_ports

GOLDEN = Path(__file__).parent / "golden" / "sasl.json"
USER, OTHER_USER, PASSWORD = "alice", "bob", "secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HANGUP = "closed"


class Send(NamedTuple):
    """One frame. ``api`` and ``version``: how its answer is decoded; "" for a token without a header."""

    payload: bytes
    api: str = ""
    version: int = 0


Script = Sequence[Send]


def request(api: str, version: int, **values: Any) -> Send:
    return Send(encode(api, version, values), api, version)


def versions(version: int = 3, name: str = "wire") -> Send:
    return request("api_versions", version, client_software_name=name, client_software_version="1")


def handshake(mechanism: str = "PLAIN", version: int = 1) -> Send:
    return request("sasl_handshake", version, mechanism=mechanism)


def token(data: bytes, version: int = 2) -> Send:
    return request("sasl_authenticate", version, auth_bytes=data)


def plain(*parts: str, version: int = 2) -> Send:
    return token("\0".join(parts).encode(), version)


def of_version(send: Send, version: int) -> Send:
    """The same bytes with another version in the header, which no schema has."""
    return Send(send.payload[:2] + version.to_bytes(2, "big") + send.payload[4:], send.api, send.version)


RIGHT = plain("", USER, PASSWORD)
HEARTBEAT = request("heartbeat", 4, group_id="none", generation_id=0, member_id="", group_instance_id=None)
METADATA = request(
    "metadata",
    12,
    topics=[{"topic_id": UUID(int=0), "name": "t"}],
    allow_auto_topic_creation=False,
    include_cluster_authorized_operations=False,
    include_topic_authorized_operations=False,
)
UNKNOWN_VERSIONS = Send(of_version(versions(), 99).payload, "api_versions", 0)

SCRIPTS: Mapping[str, Script] = {
    "versions, handshake, token, request": [versions(), handshake(), RIGHT, HEARTBEAT],
    "handshake, token, request": [handshake(), RIGHT, HEARTBEAT],
    "versions of an unknown version, then again": [UNKNOWN_VERSIONS, UNKNOWN_VERSIONS, versions(), handshake()],
    "versions with a bad client name, then again": [versions(name="-"), versions(), handshake()],
    "versions twice": [versions(), versions()],
    "token first": [RIGHT],
    "another request first": [METADATA],
    "another request after the versions": [versions(), METADATA],
    "token after the versions": [versions(), RIGHT],
    "another mechanism": [handshake("GSSAPI")],
    "mechanism in lower case": [handshake("plain")],
    "handshake of an unknown version": [of_version(handshake(), 2)],
    "token of an unknown version": [handshake(), of_version(RIGHT, 3)],
    "versions instead of a token": [handshake(), versions()],
    "handshake instead of a token": [handshake(), handshake()],
    "heartbeat instead of a token": [handshake(), HEARTBEAT],
    "metadata instead of a token": [handshake(), METADATA],
    "token without a header": [handshake(version=0), Send(b"\0alice\0secret"), HEARTBEAT],
    "wrong token without a header": [handshake(version=0), Send(b"\0alice\0wrong")],
    "another mechanism in version 0": [handshake("GSSAPI", version=0)],
    "too short": [Send(b"\0\x12")],
    "nothing": [Send(b"")],
    "cut off": [Send(handshake().payload[:-2], "sasl_handshake", 1)],
    "token after success": [handshake(), RIGHT, RIGHT, HEARTBEAT],
    "handshake after success": [handshake(), RIGHT, handshake(), HEARTBEAT],
    "versions after success": [handshake(), RIGHT, versions(), HEARTBEAT],
    "plain, two parts": [handshake(), plain(USER, PASSWORD)],
    "plain, four parts": [handshake(), plain("", USER, PASSWORD, "x")],
    "plain, six parts": [handshake(), plain("", USER, PASSWORD, "x", "y", "z")],
    "plain, nothing": [handshake(), token(b"")],
    "plain, no user": [handshake(), plain("", "", PASSWORD)],
    "plain, no password": [handshake(), plain("", USER, "")],
    "plain, wrong password": [handshake(), plain("", USER, "wrong")],
    "plain, unknown user": [handshake(), plain("", "mallory", PASSWORD)],
    "plain, no UTF-8": [handshake(), token(b"\0alice\0\xff\xfe")],
    "plain, another authorization id": [handshake(), plain("bob", USER, PASSWORD)],
    "plain, another authorization id and a wrong password": [handshake(), plain("bob", USER, "wrong")],
    "plain, the same authorization id": [handshake(), plain(USER, USER, PASSWORD), HEARTBEAT],
    **{f"plain in version {version}": [handshake(), plain("", USER, PASSWORD, version=version)] for version in (0, 1)},
    **{
        f"plain, wrong password in version {version}": [handshake(), plain("", USER, "wrong", version=version)]
        for version in (0, 1)
    },
    **{
        f"{mechanism}, {name}": [handshake(mechanism), token(first)]
        for mechanism in MECHANISMS[1:]
        for name, first in {
            "nothing": b"",
            "garbage": b"\xff\xfe",
            "channel binding supported": b"y,,n=alice,r=abc",
            "channel binding used": b"p=tls-unique,,n=alice,r=abc",
            "no user": b"n,,n=,r=abc",
            "no nonce": b"n,,n=alice,r=",
            "user with a comma": b"n,,n=al,ice,r=abc",
            "user with an equals sign": b"n,,n=al=ice,r=abc",
            "user that is not ASCII": "n,,n=ålice,r=abc".encode(),
            "another authorization id": b"n,a=bob,n=alice,r=abc",
            "delegation token": b"n,,n=alice,r=abc,tokenauth=true",
        }.items()
    },
    "SCRAM-SHA-256, last message is garbage": [handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc"), token(b"x")],
    "SCRAM-SHA-256, last message with another nonce": [
        handshake("SCRAM-SHA-256"),
        token(b"n,,n=alice,r=abc"),
        token(b"c=biws,r=xyz,p=AAAA"),
    ],
}
WITHOUT_SASL: Mapping[str, Script] = {
    "handshake": [handshake(), HEARTBEAT],
    "handshake in version 0": [handshake(version=0), HEARTBEAT],
    "token": [RIGHT, HEARTBEAT],
    "token in version 0": [plain("", USER, PASSWORD, version=0), HEARTBEAT],
}
"""On a listener without SASL."""


def play(address: tuple[str, int], script: Script) -> list[Any]:
    """The answers, decoded; ``HANGUP`` if the connection is closed instead."""
    answers: list[Any] = []
    with Wire(*address) as wire:
        for send in script:
            try:
                wire.send(send.payload)
                answers.append(seen(send, receive(wire)))
            except (Hangup, ConnectionError):
                answers.append(HANGUP)
                break
    return answers


def receive(wire: Wire) -> bytes:
    """The next frame, which may be empty."""
    (size,) = FRAME_SIZE.unpack(wire._exactly(FRAME_SIZE.size))
    return wire._exactly(int(size))


def seen(send: Send, answer: bytes) -> Any:
    """What of an answer is the same each time."""
    if not send.api:
        return answer.hex()
    decoded = decode(send.api, send.version, answer)
    if send.api == "api_versions":
        return {"error_code": decoded["error_code"]}
    if send.api == "metadata":
        return {"topics": decoded["topics"]}
    if "mechanisms" in decoded:
        decoded["mechanisms"] = sorted(decoded["mechanisms"])
    if isinstance(decoded.get("auth_bytes"), bytes):
        decoded["auth_bytes"] = "random" if decoded["auth_bytes"].startswith(b"r=") else decoded["auth_bytes"].hex()
    return decoded


class SaslKafka(RealKafka):
    """A real Kafka with a second listener, which has SASL."""

    def __init__(self, folder: Path, more: Mapping[str, object] | None = None) -> None:
        self._plain_port, controller_port, self.sasl_port = free_ports(3)
        listeners = {"PLAINTEXT": self._plain_port, "CONTROLLER": controller_port, "SASL": self.sasl_port}
        addresses = {name: f"{name}://127.0.0.1:{port}" for name, port in listeners.items()}
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        plain_module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        users = " ".join(f'user_{user}="{PASSWORD}"' for user in (USER, OTHER_USER))
        settings = {
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": f"{addresses['PLAINTEXT']},{addresses['SASL']}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl.plain.sasl.jaas.config": f"{plain_module} {users};",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": scram,
        }
        super().__init__(folder, {**TEST_SETTINGS, **settings, **(more or {})})

    def _is_ready(self) -> bool:
        self.port = self._plain_port
        return super()._is_ready()


def add_user(address: tuple[str, int]) -> None:
    """For SCRAM. The keys do not matter: no script authenticates by it."""
    upsertions = [
        {"name": USER, "mechanism": number, "iterations": 4096, "salt": b"0123456789", "salted_password": b"x" * 32}
        for number in (1, 2)
    ]
    with Wire(*address) as wire:
        for upsertion in upsertions:
            wire.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=[upsertion])


def as_json(value: Any) -> Any:
    """With ids as texts."""
    return json.loads(json.dumps(value, default=str))


def record() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kafka = SaslKafka(Path(folder))
        kafka.start()
        try:
            add_user((kafka.host, kafka.port))
            recorded = {
                "sasl": {name: play((kafka.host, kafka.sasl_port), script) for name, script in SCRIPTS.items()},
                "without sasl": {name: play((kafka.host, kafka.port), script) for name, script in WITHOUT_SASL.items()},
            }
        finally:
            kafka.stop()
    GOLDEN.write_text(json.dumps(as_json(recorded), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
