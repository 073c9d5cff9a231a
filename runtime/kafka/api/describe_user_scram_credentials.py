"""DescribeUserScramCredentials (50): which users exist, with their mechanisms and iterations (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.steps import Steps, counted, pieces, sorted_in_steps
from ...security.credentials import SCRAM_MECHANISMS, find_credential
from ...security.document import USERS, Section
from ..authorization.authorize import authorize
from ..authorization.checks import DESCRIBE_SECURITY
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps


def handle(call: Call) -> Steps[None]:
    verdict = authorize(call, DESCRIBE_SECURITY)
    requested = call.request.users
    if verdict.error:
        _respond(call, verdict.error, _denied_results(call, len(requested or ()), verdict.error))
        return
    users = call.services.security.get(USERS)
    occurrences = yield from counted(user.name for user in requested or ())
    names = list(occurrences) or (yield from sorted_in_steps(users))
    _respond(call, ErrorCode.NONE, _results(call, names, occurrences, users))


def _respond(call: Call, error: ErrorCode, results: Iterator[Any]) -> None:
    response = call.make(
        "DescribeUserScramCredentialsResponse",
        throttle_time=NO_THROTTLE,
        error_code=kafka_error(error),
        error_message=None,
        results=results,
    )
    call.encode_and_respond(lambda: write_in_steps(response))


def _denied_results(call: Call, count: int, error: ErrorCode) -> Iterator[Any]:
    """As in Kafka, the entries of denied users have no names."""
    fields = {"user": "", "error_code": kafka_error(error), "error_message": None, "credential_infos": ()}
    for _ in range(count):
        yield call.make("DescribeUserScramCredentialsResult", **fields)


def _results(call: Call, names: list[str], occurrences: Any, users: Section) -> Iterator[Any]:
    """The results, for ``step_writer``."""
    for piece in pieces(names):
        for name in piece:
            yield _result(call, name, occurrences.get(name, 1), users)
        yield None


def _result(call: Call, name: str, occurrences: int, users: Section) -> Any:
    error, message = ErrorCode.NONE, None
    if occurrences > 1:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif name not in users:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    credentials = () if error else _credentials(call, name, users)
    return call.make(
        "DescribeUserScramCredentialsResult",
        user=name,
        error_code=kafka_error(error),
        error_message=message,
        credential_infos=credentials,
    )


def _credentials(call: Call, name: str, users: Section) -> tuple[Any, ...]:
    found = ((mechanism, find_credential(users, name, mechanism)) for mechanism in SCRAM_MECHANISMS)
    return tuple(
        call.make("CredentialInfo", mechanism=mechanism.number, iterations=credential.iterations)
        for mechanism, credential in found
        if credential is not None
    )
