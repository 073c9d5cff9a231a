"""Resets of groups with members, through the HTTP API of a Callboard server. Kafka's protocol has no such request."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ....actors.text import format_count
from ...client.errors import ClientError
from ...common.errors import StartError
from ...common.printing import print_error, print_json, print_line
from ..options import NUMBER_MAX, Reason, refuse_nan
from ..server_options import AsJson, TimeoutS
from ..tables import Column, Table, print_table, show_rows
from .http_client import HttpApi
from .reset import ResetMode, ResetTarget, change_table

WATCH_INTERVAL_S = 0.25

NEEDS_API = (
    "--evict needs --http-api URL, the HTTP API of a Callboard server (serve --web): Kafka's protocol has no request "
    "that removes members and sets offsets in one step. With a Kafka: stop the consumers, wait until they have left, "
    "and reset without --evict"
)

HttpApiUrl = Annotated[
    str | None,
    typer.Option(
        "--http-api",
        metavar="URL",
        envvar="CALLBOARD_HTTP_API",
        help="The HTTP API of a Callboard server (serve --web), as in http://127.0.0.1:9095.",
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        min=0.0,
        max=NUMBER_MAX,
        callback=refuse_nan,
        metavar="SECONDS",
        help="How long to wait until the removed members are back.",
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Write the offsets. Without it, only show them.")]
ChangeId = Annotated[str, typer.Argument(metavar="CHANGE")]

MEMBERS = (
    Column("member", "member", may_shorten=True),
    Column("instance", "instance"),
    Column("client", "client", may_shorten=True),
    Column("host", "host"),
    Column("partitions", "partitions", is_number=True),
)
CHANGES = (
    Column("change", "change"),
    Column("made_at", "made"),
    Column("by", "by"),
    Column("partitions", "partitions", is_number=True),
    Column("removed", "removed", is_number=True),
    Column("undoes", "undoes"),
    Column("reason", "reason", may_shorten=True),
)


def open_api(url: str | None, timeout_s: float, needed: str = "expected --http-api URL") -> HttpApi:
    """Raises StartError without a URL."""
    if url is None:
        raise StartError(needed)
    return HttpApi(url, timeout_s)


# Targets -------------------------------------------------------------------------------------------------------------


def targets_json(
    api: HttpApi,
    group: str,
    target: ResetTarget,
    selected: Sequence[tuple[str, tuple[int, ...] | None]],
) -> list[dict[str, Any]]:
    """For the API. Without a selection: all partitions for which the group has offsets."""
    if target.mode is ResetMode.FILE:
        offsets = sorted(target.file_offsets.items())
        return [{"topic": topic, "partition": number, "to": offset} for (topic, number), offset in offsets]
    to = TO[target.mode](target)
    if not selected:
        rows = api.get("groups", group, "offsets")["items"]
        return [{"topic": row["topic"], "partition": row["partition"], "to": to} for row in rows]
    return [
        {"topic": topic, "to": to} | ({} if number is None else {"partition": number})
        for topic, numbers in selected
        for number in ((None,) if numbers is None else numbers)
    ]


def _time(target: ResetTarget) -> Any:
    return {"time": datetime.fromtimestamp(target.number / 1000, UTC).isoformat()}


TO: Mapping[ResetMode, Any] = {
    ResetMode.EARLIEST: lambda _target: "earliest",
    ResetMode.LATEST: lambda _target: "latest",
    ResetMode.OFFSET: lambda target: target.number,
    ResetMode.SHIFT: lambda target: {"shift": target.number},
    ResetMode.DATETIME: _time,
    ResetMode.GROUP: lambda target: {"group": target.group},
}
"""What the API calls a target."""


# The reset -----------------------------------------------------------------------------------------------------------


def reset_live(
    api: HttpApi,
    group: str,
    targets: list[dict[str, Any]],
    reason: str,
    execute: bool,
    as_json: bool,
    wait_s: float,
) -> None:
    """Raises ClientError if it is refused, or members are not back in time."""
    if not targets:
        raise ClientError(f"group '{group}' has no offsets: name what to reset with --topic")
    body = {"targets": targets, "reason": reason, "dry_run": not execute}
    show_and_watch(api, api.post("groups", group, "reset", body=body), as_json, wait_s)


def show_and_watch(api: HttpApi, done: dict[str, Any], as_json: bool, wait_s: float) -> None:
    """Show a plan; or show what was done, and watch until the members are back. Raises ClientError if they are not."""
    if not as_json:
        _print_reset(done)
    progress = None
    if done["change"] is not None and wait_s > 0:
        progress = wait_until_back(api, done["change"], wait_s)
        if not as_json:
            print_line(progress["sentence"])
    if as_json:
        print_json({**done, "progress": progress})
    raise_if_missing(progress)


def raise_if_missing(progress: dict[str, Any] | None) -> None:
    """Raise ClientError if a reset is not complete."""
    if progress is not None and not progress["is_complete"]:
        raise ClientError(f"not all members are back; `callboard groups watch {progress['change']}` looks again")


def wait_until_back(api: HttpApi, change: str, wait_s: float) -> dict[str, Any]:
    """What has become of a reset when it is complete, or the time is over. Raises ClientError."""
    deadline_s = time.monotonic() + wait_s
    progress: dict[str, Any] = api.get("changes", change)
    while not progress["is_complete"] and time.monotonic() < deadline_s:
        time.sleep(WATCH_INTERVAL_S)
        progress = api.get("changes", change)
    return progress


def _print_reset(done: dict[str, Any]) -> None:
    changes = [
        ((row["topic"], row["partition"]), row["before"], row["after"], row["note"] or "") for row in done["partitions"]
    ]
    print_table(change_table(changes))
    removed = set(done["removed"])
    members = [member for member in done["members"] if member["member_id"] in removed]
    if members:
        print_line()
        print_table(Table(MEMBERS, list(map(_member_row, members))))
    print_line()
    for warning in done["warnings"]:
        print_error(f"warning: {warning}")
    what = f"{format_count(len(changes), 'offset')} of group '{done['group']}'"
    who = format_count(len(removed), "member")
    if done["is_plan"]:
        print_line(f"dry run: {who} would be removed, and {what} set; their work since the last commit is done again")
    else:
        print_line(f"{who} removed, and {what} set; to undo it: {_undo_command(done)}")


def _undo_command(done: dict[str, Any]) -> str:
    """A reset whose record could not be stored, on a full disk, has no id."""
    if done["change"]:
        return f"callboard groups undo {done['change']}"
    return "put the column 'before' into a file, and reset with --from-file"


def _member_row(member: dict[str, Any]) -> tuple[Any, ...]:
    assigned = member["assigned"]
    count = None if assigned is None else sum(len(each["partitions"]) for each in assigned)
    return (
        member["member_id"],
        member["instance_id"],
        member["client_id"],
        member["client_host"].removeprefix("/"),
        count,
    )


# Commands ------------------------------------------------------------------------------------------------------------


def resets(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    http_api: HttpApiUrl = None,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """List the last resets of a group with members, the newest first, with the ids by which they are undone."""
    items = open_api(http_api, timeout).get("groups", group, "resets")["items"]
    if as_json:
        print_json(items)
        return
    rows = [
        (
            item["change"],
            item["made_at"],
            item["by"],
            len(item["partitions"]),
            len(item["removed"]),
            item["undoes"],
            item["reason"],
        )
        for item in items
    ]
    show_rows(Table(CHANGES, rows), f"no reset of group '{group}' is recorded", as_json=False)


def watch(
    change: ChangeId,
    http_api: HttpApiUrl = None,
    wait: Wait = 60.0,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Wait until all members that a reset has removed are back. If some are not, name them; the exit code is 1."""
    progress = wait_until_back(open_api(http_api, timeout), change, wait)
    if as_json:
        print_json(progress)
    else:
        print_line(progress["sentence"])
    raise_if_missing(progress)


def undo(
    change: ChangeId,
    http_api: HttpApiUrl = None,
    reason: Reason = "undone by an operator",
    execute: Execute = False,
    wait: Wait = 60.0,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Reset a group to what it had before an earlier reset. A dry run, unless --execute is given."""
    api = open_api(http_api, timeout)
    show_and_watch(
        api, api.post("changes", change, "undo", body={"reason": reason, "dry_run": not execute}), as_json, wait
    )
