"""What clients send whose sessions end (KIP-368): they authenticate again on time, too late, and as somebody else.

``python -m conformance.reauthentication_scripts`` in the folder of the tests records the answers of a real Kafka.
"""

from __future__ import annotations

import json
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from peers.wire import FRAME_SIZE, Hangup, Wire

from .sasl_scripts import (
    HANGUP,
    HEARTBEAT,
    METADATA,
    OTHER_USER,
    PASSWORD,
    RIGHT,
    USER,
    SaslKafka,
    Send,
    add_user,
    as_json,
    handshake,
    plain,
    receive,
    seen,
    token,
    versions,
)

GOLDEN = Path(__file__).parent / "golden" / "reauthentication.json"
SESSION_MS = 3_000
ROUNDED_ABOVE_MS, ROUNDED_TO_MS = 10_000, 100_000
"""A lifetime that depends on the time of the day is rounded up."""
FOREVER_S: Final = 2**33


class Wait(NamedTuple):
    ms: int


class Packet(NamedTuple):
    """Several frames in one write. They are answered afterwards."""

    sends: Sequence[Send]


BEHIND_ANOTHER_USER = "in a packet, a request behind another user"
IN_VERSION_0 = "handshake in version 0", "version 0 both times"
"""Tokens without a header."""

Step = Send | Wait | Packet
Script = Sequence[Step | Callable[[], Step]]


def bearer(user: str, lifetime_s: int) -> Send:
    """A token without a signature, which ends at a full second."""
    claims = {"sub": user, "iat": int(time.time()) - 1, "exp": int(time.time()) + lifetime_s}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    text = ".".join([*(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), ""])
    return token(f"n,,\x01auth=Bearer {text}\x01\x01".encode())


def undecoded(send: Send) -> Send:
    """The same, with the bytes of its answer, because answers may come in another order."""
    return Send(send.payload)


ON_TIME, MOST, AFTER_THE_END = Wait(SESSION_MS // 2), Wait(2_000), Wait(SESSION_MS + 500)
"""``MOST`` of a session."""
AN_INTERVAL = Wait(1_200)
"""A client may begin again after a second."""
LOGIN = [handshake(), RIGHT]

SCRIPTS: Mapping[str, Script] = {
    **{
        f"lifetime in version {version}": [handshake(), plain("", USER, PASSWORD, version=version)]
        for version in (0, 1, 2)
    },
    "on time": [*LOGIN, HEARTBEAT, ON_TIME, *LOGIN, HEARTBEAT, MOST, HEARTBEAT, AN_INTERVAL, HEARTBEAT],
    "at once": [*LOGIN, *LOGIN, HEARTBEAT],
    "before half of the session": [*LOGIN, AN_INTERVAL, *LOGIN, HEARTBEAT, MOST, HEARTBEAT, AN_INTERVAL, HEARTBEAT],
    "once, then not at all": [*LOGIN, ON_TIME, *LOGIN, HEARTBEAT, AFTER_THE_END, HEARTBEAT],
    "not at all": [*LOGIN, HEARTBEAT, AFTER_THE_END, HEARTBEAT],
    "too late, by a handshake": [*LOGIN, AFTER_THE_END, *LOGIN, HEARTBEAT, AFTER_THE_END, *LOGIN, HEARTBEAT],
    "too late, by versions": [*LOGIN, AFTER_THE_END, versions()],
    "too late, by a token": [*LOGIN, AFTER_THE_END, RIGHT],
    "too late between handshake and token": [*LOGIN, ON_TIME, handshake(), AFTER_THE_END, RIGHT, HEARTBEAT],
    "token without a handshake": [*LOGIN, RIGHT, HEARTBEAT],
    "another user": [*LOGIN, handshake(), plain("", OTHER_USER, PASSWORD), HEARTBEAT],
    "wrong password": [*LOGIN, handshake(), plain("", USER, "wrong"), HEARTBEAT],
    "unknown user": [*LOGIN, handshake(), plain("", "nobody", PASSWORD), HEARTBEAT],
    "another mechanism": [*LOGIN, handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc")],
    "another mechanism, then a request": [*LOGIN, handshake("SCRAM-SHA-256"), HEARTBEAT],
    "a mechanism that is not enabled": [*LOGIN, handshake("GSSAPI"), HEARTBEAT],
    "handshake again within a second": [*LOGIN, *LOGIN, handshake(), HEARTBEAT],
    "handshake again after a second": [*LOGIN, *LOGIN, AN_INTERVAL, *LOGIN, HEARTBEAT],
    "handshake twice": [*LOGIN, handshake(), handshake()],
    "versions instead of a token": [*LOGIN, handshake(), versions()],
    "heartbeat instead of a token": [*LOGIN, handshake(), HEARTBEAT],
    "metadata instead of a token": [*LOGIN, handshake(), METADATA],
    "versions before": [*LOGIN, versions(), *LOGIN, HEARTBEAT],
    "handshake in version 0": [*LOGIN, handshake(version=0), Send(b"\0alice\0secret"), HEARTBEAT],
    "handshake in version 0, wrong token": [*LOGIN, handshake(version=0), Send(b"\0alice\0wrong")],
    "handshake in version 0, another user": [*LOGIN, handshake(version=0), Send(b"\0bob\0secret"), HEARTBEAT],
    "version 0 both times": [
        *(handshake(version=0), Send(b"\0alice\0secret"), HEARTBEAT),
        *(handshake(version=0), Send(b"\0alice\0secret"), HEARTBEAT),
    ],
    "in one packet": [Packet([*LOGIN, HEARTBEAT, *LOGIN, HEARTBEAT])],
    "in a packet between requests": [*LOGIN, Packet([HEARTBEAT, HEARTBEAT, *LOGIN, HEARTBEAT, HEARTBEAT])],
    "in a packet, a request before the token": [*LOGIN, Packet([handshake(), HEARTBEAT, RIGHT])],
    "in a packet, a wrong password between requests": [
        *LOGIN,
        Packet([HEARTBEAT, handshake(), plain("", USER, "wrong"), HEARTBEAT]),
    ],
    "in a packet, another user after a request": [
        *LOGIN,
        Packet([HEARTBEAT, handshake(), plain("", OTHER_USER, PASSWORD)]),
    ],
    BEHIND_ANOTHER_USER: [
        *LOGIN,
        Packet([handshake(), undecoded(plain("", OTHER_USER, PASSWORD)), undecoded(HEARTBEAT)]),
    ],
    "in a packet after the end": [*LOGIN, AFTER_THE_END, Packet([*LOGIN, HEARTBEAT])],
    "in a packet after the end, behind a request": [*LOGIN, AFTER_THE_END, Packet([HEARTBEAT, *LOGIN, HEARTBEAT])],
    "token that outlives the session": [handshake("OAUTHBEARER"), bearer(USER, FOREVER_S), HEARTBEAT],
    "token again": [
        *(handshake("OAUTHBEARER"), bearer(USER, FOREVER_S), ON_TIME),
        *(handshake("OAUTHBEARER"), bearer(USER, FOREVER_S), HEARTBEAT),
    ],
    "token of another user": [
        *(handshake("OAUTHBEARER"), bearer(USER, FOREVER_S)),
        *(handshake("OAUTHBEARER"), bearer(OTHER_USER, FOREVER_S), HEARTBEAT),
    ],
    "token, then a password": [handshake("OAUTHBEARER"), bearer(USER, FOREVER_S), handshake(), RIGHT],
    "token, then a bad one": [
        *(handshake("OAUTHBEARER"), bearer(USER, FOREVER_S)),
        *(handshake("OAUTHBEARER"), bearer(USER, -1_000), token(b"\x01")),
    ],
}
WITHOUT_SESSION: Mapping[str, Script] = {
    "password": [*LOGIN, *LOGIN[:1], HEARTBEAT],
    "token": [handshake("OAUTHBEARER"), lambda: bearer(USER, ROUNDED_TO_MS // 1_000), handshake("OAUTHBEARER")],
}
"""On a listener without ``connections_max_reauth_ms``."""


def play(address: tuple[str, int], script: Script, wait: Callable[[int], None]) -> list[Any]:
    """The answers, decoded; ``HANGUP`` if the connection is closed instead. ``wait`` passes some milliseconds."""
    answers: list[Any] = []
    with Wire(*address) as wire:
        try:
            for each in script:
                step = each() if callable(each) else each
                if isinstance(step, Wait):
                    wait(step.ms)
                    continue
                sends = step.sends if isinstance(step, Packet) else [step]
                wire.socket.sendall(b"".join(FRAME_SIZE.pack(len(send.payload)) + send.payload for send in sends))
                for send in sends:
                    answers.append(_rounded(seen(send, receive(wire))))
        except (Hangup, ConnectionError):
            answers.append(HANGUP)
    return answers


def _rounded(answer: Any) -> Any:
    lifetime_ms = answer.get("session_lifetime", 0) if isinstance(answer, dict) else 0
    if lifetime_ms > ROUNDED_ABOVE_MS:
        answer["session_lifetime"] = -(-lifetime_ms // ROUNDED_TO_MS) * ROUNDED_TO_MS
    return answer


def _kafka(folder: Path, more: Mapping[str, object]) -> SaslKafka:
    bearer_module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    return SaslKafka(
        folder,
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl.oauthbearer.sasl.jaas.config": (
                f'{bearer_module} unsecuredLoginStringClaim_sub="admin" unsecuredValidatorAllowableClockSkewMs="3000";'
            ),
            **more,
        },
    )


def _record(scripts: Mapping[str, Script], more: Mapping[str, object]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        kafka = _kafka(Path(folder), more)
        kafka.start()
        try:
            add_user((kafka.host, kafka.port))
            address = kafka.host, kafka.sasl_port
            return {name: play(address, script, lambda ms: time.sleep(ms / 1_000)) for name, script in scripts.items()}
        finally:
            kafka.stop()


def record() -> None:
    recorded = {
        "session": _record(SCRIPTS, {"connections.max.reauth.ms": SESSION_MS}),
        "without session": _record(WITHOUT_SESSION, {}),
    }
    GOLDEN.write_text(json.dumps(as_json(recorded), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
