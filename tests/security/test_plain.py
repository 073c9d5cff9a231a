"""PLAIN against the credentials of SCRAM: Kafka's errors in their order, and what is remembered."""

from __future__ import annotations

import pytest

from callboard.runtime.security.credentials import SHA_256, SHA_512, Credential, ScramMechanism, credential_of
from callboard.runtime.security.exchange import MESSAGE_BYTES_MAX, Accepted, AuthenticationFailed, Blocking
from callboard.runtime.security.plain import REMEMBERED_MAX, REMEMBERED_MS, PlainExchange, RememberedPasswords
from callboard.runtime.security.scram import OTHER_AUTHORIZATION_ID

WRONG = "Authentication failed: Invalid username or password"


def credential(mechanism: ScramMechanism, password: bytes) -> Credential:
    salt = b"0123456789"
    return credential_of(mechanism, mechanism.salted_password(password, salt, 4096), salt, 4096)


class Users:
    """alice has both mechanisms, bob only one. ``now_ms``: the clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.credentials = {
            ("alice", SHA_256): credential(SHA_256, b"secret"),
            ("alice", SHA_512): credential(SHA_512, b"secret"),
            ("bob", SHA_512): credential(SHA_512, b"hidden"),
        }
        self.remembered = RememberedPasswords(b"of the process", lambda: self.now_ms)

    def find(self, name: str, mechanism: ScramMechanism) -> Credential | None:
        return self.credentials.get((name, mechanism))

    def begin(self, token: bytes) -> Accepted | Blocking:
        return PlainExchange(self.find, b"of the servers", self.remembered).evaluate(token)

    def log_in(self, token: bytes) -> Accepted:
        step = self.begin(token)
        return step.finish(step.work()) if isinstance(step, Blocking) else step


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0secret\0x\0y", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", WRONG),
        (b"\0nobody\0secret", WRONG),
        (b"\0alice\0\xff", WRONG),
        pytest.param(b"\0alice\0" + b"x" * MESSAGE_BYTES_MAX, "", id="long"),
        (b"bob\0alice\0wrong", WRONG),
        (b"bob\0alice\0secret", OTHER_AUTHORIZATION_ID),
    ],
)
def test_error(token: bytes, text: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        Users().log_in(token)
    assert caught.value.text == text


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret", b"\0bob\0hidden"])
def test_right_password_is_accepted(token: bytes) -> None:
    name = token.split(b"\0")[1].decode()
    assert Users().log_in(token) == Accepted(name)


def test_accepted_password_is_remembered_for_minutes_and_until_it_changes() -> None:
    users = Users()
    assert isinstance(users.begin(b"\0alice\0secret"), Blocking)
    users.log_in(b"\0alice\0secret")
    assert users.begin(b"\0alice\0secret") == Accepted("alice")
    assert isinstance(users.begin(b"\0alice\0wrong"), Blocking)
    with pytest.raises(AuthenticationFailed) as caught:
        users.begin(b"bob\0alice\0secret")
    assert caught.value.text == OTHER_AUTHORIZATION_ID
    users.now_ms = REMEMBERED_MS
    assert isinstance(users.begin(b"\0alice\0secret"), Blocking)
    users.log_in(b"\0alice\0secret")
    users.credentials["alice", SHA_256] = credential(SHA_256, b"new")
    with pytest.raises(AuthenticationFailed):
        users.log_in(b"\0alice\0secret")
    del users.credentials["alice", SHA_256], users.credentials["alice", SHA_512]
    with pytest.raises(AuthenticationFailed):
        users.log_in(b"\0alice\0secret")


def test_wrong_password_is_not_remembered() -> None:
    users = Users()
    for _ in range(2):
        step = users.begin(b"\0alice\0wrong")
        assert isinstance(step, Blocking)
        with pytest.raises(AuthenticationFailed):
            step.finish(step.work())


def test_unknown_user_takes_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number of iterations of the same hash as for a user who was added with the defaults."""
    users = Users()
    calls: list[tuple[str, int]] = []

    def count(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        calls.append((hash_name, iterations))
        return b"x" * 32

    monkeypatch.setattr("hashlib.pbkdf2_hmac", count)
    for name in (b"alice", b"nobody"):
        step = users.begin(b"\0" + name + b"\0wrong")
        assert isinstance(step, Blocking) and step.work() is False
    assert calls == [("sha256", 4096)] * 2


def test_remembered_passwords_are_bounded() -> None:
    users = Users()
    for number in range(REMEMBERED_MAX + 5):
        users.remembered.add(f"user{number}", b"secret", users.credentials["alice", SHA_256])
    assert not users.remembered.has("user0", b"secret", users.credentials["alice", SHA_256])
    assert users.remembered.has(f"user{REMEMBERED_MAX}", b"secret", users.credentials["alice", SHA_256])


def test_no_password_is_printed() -> None:
    users = Users()
    step = users.begin(b"\0bob\0hidden")
    users.log_in(b"\0bob\0hidden")
    assert "hidden" not in f"{step!r} {users.remembered!r} {vars(users.remembered)!r}"
