"""Names that were given up do not come back. docs/design.md has a glossary of those in use."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator

import pytest
from import_graph import ROOT

FOLDERS = ("actors", "runtime", "spark", "bench", "examples")
GIVEN_UP = {
    "are_taken": "is_reached",
    "Around": "Environment",
    "Arrival": "LoadSink",
    "Asleep": "PackedGroups",
    "asleep": "passivated",
    "asleep_now": "take_newly_passivated",
    "at_once": "immediate_outcome",
    "Attention": "TurnInterrupt",
    "Awake": "UnpackedGroups",
    "Backlog": "ResponseQueue",
    "BadAnswer": "BadResponse",
    "BadAssignment": "InvalidAssignment",
    "begin_anew": "restart_at",
    "belong_to": "set_current_dispatcher",
    "Beside": "SteppedProcess",
    "BlockingShare": "BlockingShard",
    "break_down": "handle_broken_turn",
    "cause_now": "current_cause",
    "ChildAsleep": "ChildPassivated",
    "Claims": "OwnedPartitions",
    "compact_beside": "compact_in_subprocess",
    "Complain": "ProblemCallback",
    "Complaints": "ProblemPrinter",
    "Connected": "RemoteCoordinator",
    "ConnectedThread": "RemoteThreadCoordinator",
    "Crowd": "MemberGroup",
    "death": "dead_error",
    "_disappoint": "_fail_pending_requests",
    "distrust": "mark_unsynced",
    "door_of": "admission_threshold_of",
    "end_with_parent": "exit_with_parent",
    "Ends": "CommittedEnds",
    "Extent": "JournalScan",
    "fall_asleep": "passivate_after_turn",
    "ForgetTopics": "DeleteTopicOffsets",
    "Gather": "ScatterGather",
    "give_back": "trim",
    "GroupGone": "GroupDeleted",
    "hang_up": "disconnect_all",
    "has_struck": "has_occurred",
    "has_troubles": "has_disk_faults",
    "hold_back": "withhold_owned",
    "in_crowds": "comes_in_bursts",
    "is_asleep": "is_passivated",
    "Kept": "GroupSnapshot",
    "known_ends": "expected_ends",
    "KnownEnd": "ExpectedEnd",
    "Lane": "LoadConnection",
    "lay_in": "flush",
    "leave_note": "write_note",
    "Life": "Incarnations",
    "Lives": "SimulatedCoordinator",
    "load_at_once": "load_inline",
    "load_beside": "load_in_subprocesses",
    "LocalDoor": "LocalConnector",
    "look_round": "audit_folders",
    "Lossy": "LossyStream",
    "may_sleep": "may_passivate",
    "Meeting": "Interception",
    "Mend": "FileRepair",
    "next_work": "next_assignment",
    "no_room_reason": "no_space_reason",
    "NoRoom": "NoSpace",
    "OldOffsets": "TombstoneBatch",
    "on_leave": "save_state",
    "on_return": "restore_state",
    "OnCaller": "InlineFileWork",
    "OneOfMany": "QueuedReplySlot",
    "open_anew": "open_new_file",
    "overtake": "supersede",
    "Own": "MemberState",
    "Places": "DescriptorLimit",
    "ProducerGiven": "ProducerIdAssigned",
    "Purge": "TopicCleanup",
    "put_aside": "quarantine_bytes",
    "Quarantine": "DamageRegistry",
    "rang": "handle_alarm",
    "Reel": "FrameSequence",
    "refuse_kafkas": "refuse_kafka_folder",
    "refuse_strangers": "refuse_unrecognized_files",
    "reply_bytes": "respond_with_bytes",
    "reply_nothing": "respond_with_nothing",
    "Rest": "LazyColumns",
    "Rig": "Harness",
    "Rigged": "HarnessInstance",
    "RiggedCoordinator": "HarnessCoordinator",
    "RiggedThread": "HarnessThread",
    "RoundWork": "RoundWriter",
    "salvaged": "salvageable",
    "SearchGivenUp": "SearchAborted",
    "Seat": "LoadedMember",
    "send_soon": "schedule_responses",
    "Share": "Shard",
    "share_name": "shard_name",
    "share_out": "allocate_partitions",
    "Spans": "RecordSpans",
    "stand_in": "placeholder",
    "SteadfastActor": "ResilientActor",
    "Stretch": "DamagedRange",
    "Surroundings": "GroupEnvironment",
    "surroundings": "environment",
    "survey": "scan_past_damage",
    "SWEEP": "RETENTION_SCAN",
    "Sweep": "RetentionScan",
    "take_join": "pop_join",
    "take_next": "requeue_first",
    "take_slots": "allocate_slots",
    "take_soon": "schedule_turn",
    "Tap": "Interceptor",
    "TappedCall": "InterceptedCall",
    "TcpDoor": "TcpConnector",
    "tell_because": "tell_with_cause",
    "tell_me_later": "tell_self_after_turn",
    "tell_of_sleep": "notify_parent_of_passivation",
    "tell_on_terminal": "print_hint",
    "transactions_with_data": "transactions_partitions_with_data",
    "Trouble": "DiskFaults",
    "troubles": "problems",
    "Underway": "InFlight",
    "underway": "in_flight",
    "Unserved": "Availability",
    "unserved": "availability",
    "unwatch": "remove_watcher",
    "Walk": "GroupScan",
    "walk_before": "skip_before_field",
    "walk_files": "scan_files",
    "Walked": "GroupScanned",
    "WalkOn": "ContinueScan",
    "Wiretap": "FaultInterceptor",
    "witnesses": "stored_counts",
    "WorkLost": "ShardLost",
    "write_claims": "write_owned_partitions",
    "write_places": "write_topic_partitions",
}
"""A name, and what is said instead."""


def given_up(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string in GIVEN_UP:
            yield f"line {token.start[0]}: {token.string}, say {GIVEN_UP[token.string]}"


def test_no_file_uses_a_name_that_was_given_up() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert [f"{path.relative_to(ROOT)}: {use}" for path in files for use in given_up(path.read_text())] == []


@pytest.mark.parametrize("line", ["class Tap:\n    pass\n", "from a import Share\n", "node.surroundings = 1\n"])
def test_name_that_was_given_up_is_found(line: str) -> None:
    assert len(list(given_up(line))) == 1


def test_comments_and_strings_are_not_looked_at() -> None:
    assert list(given_up('x = "Tap"  # Share\n')) == []
