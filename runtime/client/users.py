"""Users of a cluster, for commands. Each function raises what ``Cluster`` raises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..security.credentials import SCRAM_BY_NUMBER, ScramMechanism
from .cluster import Cluster
from .errors import raise_if_error


class UserListing(NamedTuple):
    """``iterations``: by the name of the mechanism."""

    name: str
    iterations: dict[str, int]


class NewPassword(NamedTuple):
    """The password of a user, salted for a mechanism."""

    mechanism: ScramMechanism
    salt: bytes
    salted_password: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"NewPassword({self.mechanism.name}, iterations={self.iterations})"  # no secrets in log lines


def list_users(cluster: Cluster) -> list[UserListing]:
    """All users, sorted by name."""
    response = cluster.ask("describe_user_scram_credentials", users=None)
    raise_if_error("the users are not listed", response.error_code, response.error_message)
    return sorted(
        UserListing(
            user.user,
            {
                SCRAM_BY_NUMBER[info.mechanism].name: info.iterations
                for info in user.credential_infos
                if info.mechanism in SCRAM_BY_NUMBER
            },
        )
        for user in response.results
    )


def set_password(cluster: Cluster, user: str, passwords: Iterable[NewPassword]) -> None:
    """Set the password of a user, which need not exist, for each of the mechanisms."""
    for password in passwords:  # a request may name a user once only
        upsertion = {
            "name": user,
            "mechanism": password.mechanism.number,
            "iterations": password.iterations,
            "salt": password.salt,
            "salted_password": password.salted_password,
        }
        _alter(cluster, f"the password of user '{user}' was not changed", upsertions=[upsertion])


def remove_user(cluster: Cluster, user: UserListing) -> None:
    """Remove all credentials of a user."""
    numbers = [number for number, mechanism in SCRAM_BY_NUMBER.items() if mechanism.name in user.iterations]
    for number in numbers:
        deletion = {"name": user.name, "mechanism": number}
        _alter(cluster, f"user '{user.name}' was not removed", deletions=[deletion])


def _alter(cluster: Cluster, failure: str, **values: Any) -> None:
    request = {"deletions": [], "upsertions": [], **values}
    [result] = cluster.ask("alter_user_scram_credentials", **request).results
    raise_if_error(failure, result.error_code, result.error_message)
