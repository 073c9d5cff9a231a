"""/metrics/groups, as Prometheus parses it: figures of single groups with the names of other exporters."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from harness import async_test
from health_helpers import get, serving
from project_paths import DOCS
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from callboard import Coordinator
from callboard.actors.engine_ports import ReplyTo
from callboard.actors.messages import GroupRequest
from callboard.runtime.cli.serve import Serving, serving_health
from callboard.runtime.node import group_page
from callboard.runtime.node.group_figures import (
    Assigned,
    GroupFigures,
    PartitionFigures,
    TopicFigures,
)
from callboard.runtime.node.group_page import FamilyCollector, GroupPages, TopGroups
from callboard.runtime.node.group_query import GroupQuery, InvalidQuery, matcher, parse_query
from callboard.runtime.node.group_series import STYLES, Style, families
from callboard.runtime.node.health import BadQuery
from callboard.runtime.node.metrics import pages
from callboard.runtime.settings.metric_options import MetricOptions
from callboard.runtime.settings.table import Options


def samples(page: bytes) -> dict[str, float]:
    """All samples, as the parser of Prometheus reads them: ``name{label=value,label=value}``."""
    return {
        sample.name
        + "{"
        + ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
        + "}": sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def style_families(style: Style, group: GroupFigures) -> Iterable[Metric]:
    return families(style, style.of_group(group, 1))


def text_of(metrics: Iterable[Metric]) -> str:
    return generate_latest(FamilyCollector(metrics)).decode()


def pages_of(coordinator: Coordinator) -> GroupPages:
    """Each page is a new one: two seconds pass at each look at the clock."""
    return GroupPages(lambda: coordinator.node, count(step=2).__next__)


def raise_end(coordinator: Coordinator, topic: str, partition: int, end: int) -> None:
    found = coordinator.node.topics.get(topic)
    assert found is not None
    found.raise_end(partition, end)


@asynccontextmanager
async def three_groups(folder: Path) -> AsyncIterator[Coordinator]:
    """``packed`` is passivated; ``classic`` and ``modern`` have a member with both partitions of ``jobs``."""
    async with Coordinator(folder, topics={"jobs": 2}) as coordinator:
        await coordinator.reset("packed", {"jobs": 3})
    async with Coordinator(folder, topics={"jobs": 2}) as coordinator:
        raise_end(coordinator, "jobs", 0, 10)
        raise_end(coordinator, "jobs", 1, 5)
        async with (
            coordinator.member("classic", resources={"jobs": 2}) as classic,
            coordinator.member("modern", resources={"jobs": 2}, protocol="consumer") as modern,
        ):
            for member, offset in ((classic, 8), (modern, 10)):
                [shard, _] = sorted((await member.next_assignment()).shards, key=str)
                await shard.commit(offset)
            yield coordinator


KAFKA_EXPORTER_PAGE = {
    "kafka_topic_partitions{topic=jobs}": 2,
    "kafka_topic_partition_current_offset{partition=0,topic=jobs}": 10,
    "kafka_topic_partition_current_offset{partition=1,topic=jobs}": 5,
    "kafka_topic_partition_oldest_offset{partition=0,topic=jobs}": 10,
    "kafka_topic_partition_oldest_offset{partition=1,topic=jobs}": 5,
    **{f"kafka_topic_partition_leader{{partition={number},topic=jobs}}": 1 for number in range(2)},
    **{f"kafka_topic_partition_replicas{{partition={number},topic=jobs}}": 1 for number in range(2)},
    **{f"kafka_topic_partition_in_sync_replica{{partition={number},topic=jobs}}": 1 for number in range(2)},
    **{f"kafka_topic_partition_leader_is_preferred{{partition={number},topic=jobs}}": 1 for number in range(2)},
    **{f"kafka_topic_partition_under_replicated_partition{{partition={number},topic=jobs}}": 0 for number in range(2)},
    "kafka_consumergroup_members{consumergroup=classic}": 1,
    "kafka_consumergroup_members{consumergroup=modern}": 1,
    "kafka_consumergroup_members{consumergroup=packed}": 0,
    "kafka_consumergroup_current_offset{consumergroup=classic,partition=0,topic=jobs}": 8,
    "kafka_consumergroup_current_offset{consumergroup=modern,partition=0,topic=jobs}": 10,
    "kafka_consumergroup_current_offset{consumergroup=packed,partition=0,topic=jobs}": 3,
    "kafka_consumergroup_current_offset{consumergroup=packed,partition=1,topic=jobs}": 3,
    "kafka_consumergroup_current_offset_sum{consumergroup=classic,topic=jobs}": 8,
    "kafka_consumergroup_current_offset_sum{consumergroup=modern,topic=jobs}": 10,
    "kafka_consumergroup_current_offset_sum{consumergroup=packed,topic=jobs}": 6,
    "kafka_consumergroup_lag{consumergroup=classic,partition=0,topic=jobs}": 2,
    "kafka_consumergroup_lag{consumergroup=modern,partition=0,topic=jobs}": 0,
    "kafka_consumergroup_lag{consumergroup=packed,partition=0,topic=jobs}": 7,
    "kafka_consumergroup_lag{consumergroup=packed,partition=1,topic=jobs}": 2,
    "kafka_consumergroup_lag_sum{consumergroup=classic,topic=jobs}": 2,
    "kafka_consumergroup_lag_sum{consumergroup=modern,topic=jobs}": 0,
    "kafka_consumergroup_lag_sum{consumergroup=packed,topic=jobs}": 9,
    "callboard_group_series_dropped{}": 0,
    "callboard_groups_unread{}": 0,
}


KMINION_TOPIC = {
    "kminion_kafka_topic_partition_high_water_mark{partition_id=0,topic_name=jobs}": 10,
    "kminion_kafka_topic_partition_high_water_mark{partition_id=1,topic_name=jobs}": 5,
    "kminion_kafka_topic_partition_low_water_mark{partition_id=0,topic_name=jobs}": 10,
    "kminion_kafka_topic_partition_low_water_mark{partition_id=1,topic_name=jobs}": 5,
    "callboard_group_series_dropped{}": 0,
    "callboard_groups_unread{}": 0,
}


def kminion_group(group: str, protocol: str, offset: int, lag: int) -> dict[str, float]:
    """The series of a stable group whose member has both partitions, of which one has an offset."""
    info = f"coordinator_id=1,group_id={group},protocol={protocol},protocol_type=consumer,state=Stable"
    prefix, topic = "kminion_kafka_consumer_group", f"group_id={group},topic_name=jobs"
    return {
        f"{prefix}_info{{{info}}}": 1,
        f"{prefix}_members{{group_id={group}}}": 1,
        f"{prefix}_empty_members{{group_id={group}}}": 0,
        f"{prefix}_topic_members{{{topic}}}": 1,
        f"{prefix}_topic_assigned_partitions{{{topic}}}": 2,
        f"{prefix}_topic_offset_sum{{{topic}}}": offset,
        f"{prefix}_topic_partition_lag{{group_id={group},partition_id=0,topic_name=jobs}}": lag,
        f"{prefix}_topic_lag{{{topic}}}": lag,
    }


@async_test
async def test_pages_have_the_names_of_other_exporters(tmp_path: Path) -> None:
    async with three_groups(tmp_path) as coordinator:
        assert set(coordinator.node.groups.passivated) == {"packed"}
        groups = pages_of(coordinator)
        assert samples(await groups.get("")) == KAFKA_EXPORTER_PAGE
        kminion_page = samples(await groups.get("style=kminion&group=classic|modern"))
        assert kminion_page == (
            kminion_group("classic", "cooperative-sticky", 8, 2)
            | kminion_group("modern", "uniform", 10, 0)
            | KMINION_TOPIC
        )
        assert set(coordinator.node.groups.passivated) == {"packed"}, "a scrape activates no group"


@async_test
async def test_page_has_the_first_groups_of_the_order_and_counts_the_series_of_the_others(tmp_path: Path) -> None:
    async with three_groups(tmp_path) as coordinator:
        groups = pages_of(coordinator)
        shown = {
            query: samples(await groups.get(query))
            for query in ("top=1", "top=1&by=name", "top=1&by=members", "top=1&group=mod.*")
        }
    members = "kafka_consumergroup_members"
    assert [[name for name in page if name.startswith(members)] for page in shown.values()] == [
        [f"{members}{{consumergroup=packed}}"],
        [f"{members}{{consumergroup=classic}}"],
        [f"{members}{{consumergroup=classic}}"],
        [f"{members}{{consumergroup=modern}}"],
    ]
    # packed has 7 series; classic and modern have 5 each
    assert [page["callboard_group_series_dropped{}"] for page in shown.values()] == [10, 12, 12, 0]


@async_test
async def test_series_that_do_not_fit_are_dropped_by_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_page, "SERIES_MAX", 11)
    async with three_groups(tmp_path) as coordinator:
        page = samples(await pages_of(coordinator).get("style=kafka_exporter"))
    assert {name for name in page if "_members" in name} == {"kafka_consumergroup_members{consumergroup=packed}"}
    assert page["callboard_group_series_dropped{}"] == 10


@async_test
async def test_groups_that_are_not_read_in_time_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_page, "WORK_TIMEOUT_S", 0)
    async with three_groups(tmp_path) as coordinator:
        page = samples(await pages_of(coordinator).get(""))
    assert page == {"callboard_group_series_dropped{}": 0, "callboard_groups_unread{}": 3}


@async_test
async def test_group_that_does_not_answer_is_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_page, "LAG_TIMEOUT_S", 0.05)
    async with three_groups(tmp_path) as coordinator:
        with monkeypatch.context() as silent:
            silent.setattr(coordinator.node.local, "post", lambda message, reply: None)
            page = samples(await pages_of(coordinator).get(""))
    assert {name for name in page if "_members" in name} == {"kafka_consumergroup_members{consumergroup=packed}"}
    assert page["callboard_groups_unread{}"] == 2


@async_test
async def test_group_whose_actor_fails_is_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three_groups(tmp_path) as coordinator:
        post = coordinator.node.local.post

        def post_others(message: GroupRequest, reply: ReplyTo) -> None:
            if message.group_id == "classic":
                reply.set_exception((RuntimeError, RuntimeError("a bug"), None))
            else:
                post(message, reply)

        with monkeypatch.context() as failing:
            failing.setattr(coordinator.node.local, "post", post_others)
            page = samples(await pages_of(coordinator).get(""))
    shown = {name for name in page if "_members" in name}
    assert shown == {
        "kafka_consumergroup_members{consumergroup=packed}",
        "kafka_consumergroup_members{consumergroup=modern}",
    }
    assert page["callboard_groups_unread{}"] == 1


def group_of(name: str, *topics: TopicFigures) -> GroupFigures:
    return GroupFigures(name, "Stable", "consumer", "range", 1, 0, {"t": Assigned(1, 1)}, topics)


def test_unknown_lag_has_no_series_and_is_no_part_of_a_sum() -> None:
    topic = TopicFigures("t", (PartitionFigures(0, 5, 1), PartitionFigures(1, 7, None)))
    assert (topic.lag, topic.offset_sum, group_of("g", topic).known_lag) == (None, 12, 1)
    for style in STYLES.values():
        names = [series.name for series in style.of_group(group_of("g", topic), 1) if "lag" in series.name]
        assert len(names) == 1, "that of partition 0, and no sum"


def test_groups_without_a_known_lag_come_last() -> None:
    top = TopGroups(GroupQuery(top=2), STYLES["kminion"], 1)
    known = TopicFigures("t", (PartitionFigures(0, 5, 0),))
    for number in range(20):
        top.add(group_of(f"unknown-{number}"))
    for name in ("b", "a"):
        top.add(group_of(name, known))
    assert [group.group_id for group in top.groups()] == ["a", "b"]
    top.add(group_of("a", known))  # a group that is activated meanwhile is added twice
    assert [group.group_id for group in top.groups()] == ["a", "b"]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a b\t{}=,", "ümläut", "日本", "\r", "'"])
def test_label_values_are_escaped(name: str) -> None:
    for style in STYLES.values():
        found = [
            sample.labels
            for family in text_string_to_metric_families(text_of(style_families(style, group_of(name))))
            for sample in family.samples
        ]
        assert found
        assert {labels.get("group_id") or labels["consumergroup"] for labels in found} == {name}


def test_group_id_that_is_no_unicode_is_shown_with_its_code() -> None:
    page = text_of(style_families(STYLES["kafka_exporter"], group_of("a\udc80b")))
    [family] = text_string_to_metric_families(page)
    assert family.samples[0].labels == {"consumergroup": "a\\udc80b"}


def test_group_with_a_very_long_id_is_left_out() -> None:
    top = TopGroups(GroupQuery(), STYLES["kafka_exporter"], 1)
    top.add(group_of("x" * 256))
    assert (top.groups(), top.series_count) == ([], 1)


# Queries -------------------------------------------------------------------------------------------------------------


def test_query_has_defaults() -> None:
    assert parse_query("") == GroupQuery("kafka_exporter", "", 200, "lag")
    query = parse_query("style=kminion&group=etl-.%2A&top=7&by=name")
    assert query == GroupQuery("kminion", "etl-.*", 7, "name")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("style=burrow", "style='burrow': expected one of kafka_exporter, kminion"),
        ("by=size", "by='size': expected one of lag, members, name"),
        ("top=0", "top='0': expected a number from 1 to 1000"),
        ("top=1001", "expected a number from 1 to 1000"),
        ("top=²", "expected a number from 1 to 1000"),
        ("limit=5", "unknown field 'limit', expected one of style, group, top, by"),
        ("style", "expected fields such as style=kminion&top=50"),
        ("group=" + "x" * 257, "group= has 257 characters, expected at most 256"),
        ("&".join(["top=1"] * 9), "expected fields such as"),
    ],
)
def test_invalid_query_says_what_was_expected(query: str, expected: str) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(expected)):
        parse_query(query)


def test_regular_expression_matches_the_whole_id() -> None:
    matches = matcher("a.c|b")
    assert [name for name in ("abc", "b", "abcd", "bb", "xabc") if matches(name)] == ["abc", "b"]
    assert matcher("")("anything")
    with pytest.raises(InvalidQuery, match="group= is not a valid regular expression: missing closing"):
        matcher("(")


def test_regular_expression_that_backtracks_takes_no_long_time() -> None:
    assert not matcher("(a|aa)+$")("a" * 250 + "b")


def test_regular_expression_without_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidQuery, match=re.escape("pip install 'callboard[regex]'")):
        matcher("a regular expression that is in no cache")


# Over HTTP -----------------------------------------------------------------------------------------------------------


@async_test
async def test_page_over_http(tmp_path: Path) -> None:
    async with three_groups(tmp_path) as coordinator:
        served = pages(lambda: coordinator.node, count(step=2).__next__, has_groups=True)
        async with serving(served) as port:
            found = await asyncio.to_thread(get, port, "/metrics/groups?group=packed")
            refused = await asyncio.to_thread(get, port, "/metrics/groups?top=many")
            ordinary = await asyncio.to_thread(get, port, "/metrics")
        async with serving(pages(lambda: coordinator.node)) as port:
            off = await asyncio.to_thread(get, port, "/metrics/groups")
    assert found.status == 200
    assert found.content_type.startswith("text/plain; version=")
    assert 'kafka_consumergroup_lag_sum{consumergroup="packed",topic="jobs"} 9.0' in found.text
    assert (refused.status, refused.text) == (400, "top='many': expected a number from 1 to 1000\n")
    assert (off.status, off.text) == (404, "/metrics/groups needs the option --group-metrics\n")
    assert "consumergroup" not in ordinary.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:9644", 421),
        ("LOCALHOST:9644", 200),
        ("127.0.0.1", 200),
        ("[::1]:9644", 200),
    ],
)
@async_test
async def test_page_of_another_site_cannot_read_names_of_groups(host: str, status: int, tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    async with coordinator, serving(pages(lambda: coordinator.node, has_groups=True)) as port:
        found = await asyncio.to_thread(get, port, "/metrics/groups", headers={"host": host})
        ordinary = await asyncio.to_thread(get, port, "/metrics", headers={"host": host})
    other = Coordinator(tmp_path / "other")
    async with other, serving(pages(lambda: other.node, lag_groups=["jobs"])) as port:
        with_lag, healthy = [
            await asyncio.to_thread(get, port, path, headers={"host": host}) for path in ("/metrics", "/healthz")
        ]
    assert (found.status, with_lag.status) == (status, status)
    assert (ordinary.status, healthy.status) == (200, 200), "they have no names of groups"


@pytest.mark.parametrize(("has_groups", "status"), [(True, 200), (False, 404)])
@async_test
async def test_option_of_serve_switches_the_page_on(tmp_path: Path, has_groups: bool, status: int) -> None:
    served = Serving()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        options = Options(metric_options=MetricOptions(has_groups=has_groups))
        with serving_health(served, listening, asyncio.get_running_loop(), options):
            async with Coordinator(tmp_path) as coordinator:
                served.node = coordinator.node
                response = await asyncio.to_thread(get, port, "/metrics/groups")
    assert response.status == status


@async_test
async def test_page_before_the_node_is_open_is_empty() -> None:
    assert await GroupPages(lambda: None, count(step=2).__next__).get("") == b""


@async_test
async def test_bad_query_is_refused_before_anything_is_read() -> None:
    with pytest.raises(BadQuery):
        await GroupPages(lambda: pytest.fail("the node was asked"), count(step=2).__next__).get("top=x")


def test_every_series_is_documented() -> None:
    document = (DOCS / "metrics.md").read_text()
    names = {name for style in STYLES.values() for name in style.rows}
    names |= {"callboard_group_series_dropped", "callboard_groups_unread"}
    assert {name for name in names if f"`{name}" not in document} == set()
