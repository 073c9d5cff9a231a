"""Questions with known answers: a small log in which each problem occurs once."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from history_helpers import DAY_MS, START_MS, WrittenLog, commit, end, generation
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from callboard.actors.ports import Entry
from callboard.runtime.cli.tables import Column, Table
from callboard.runtime.common.errors import StartError
from callboard.spark import analysis, output
from callboard.spark.analysis import page, plots, report
from callboard.spark.analysis.growth import DailyRecords
from callboard.spark.commands import questions
from callboard.spark.commands import report as report_command
from callboard.spark.history import keep

SECOND_MS, HOUR_MS = 1000, 3_600_000
NOW = datetime.fromtimestamp((START_MS + 4 * HOUR_MS) / 1000, UTC)


def record_list() -> list[tuple[int, Any]]:
    """Records and their times in ms from ``START_MS``, which is the start of a minute."""
    records: list[tuple[int, Any]] = []

    def add(time_ms: int, group: str, topic: str, partition: int, offset: int, **fields: Any) -> None:
        records.append((time_ms, commit(group, topic, partition, offset, START_MS + time_ms, **fields)))

    add(-10 * DAY_MS, "old", "ghosts", 0, 7)
    records.append((-4 * DAY_MS, generation("was", 1, START_MS - 4 * DAY_MS, one=[("orders", 0)])))
    add(-3 * DAY_MS, "was", "orders", 0, 5)
    records.append((-2 * DAY_MS, generation("was", 2, START_MS - 2 * DAY_MS)))
    for number in range(61):
        add(number * 10 * SECOND_MS, "busy", "orders", 0, number * 10)
        add(number * 10 * SECOND_MS, "busy", "orders", 1, 3)
    for seconds, offset in ((0, 1), (60, 2), (3660, 100), (3700, 50)):
        add(seconds * SECOND_MS, "gappy", "orders", 0, offset)
    for seconds, number, members in ((0, 1, "a"), (10, 2, "ab"), (20, 3, "a"), (30, 4, "ab"), (7200, 5, "ab")):
        parts: Any = {name: [("orders", 0)] for name in members}
        record = generation("storm", number, **parts)
        records.append((seconds * SECOND_MS, record))
    add(0, "payer", "orders", 0, 500, producer=9)
    records.append((SECOND_MS, end(9, committed=True)))
    add(2 * SECOND_MS, "payer", "orders", 0, 400, producer=9)
    records.append((3 * SECOND_MS, end(9, committed=False)))
    return sorted(records, key=lambda record: record[0])


class AnalysedLog(NamedTuple):
    records: DataFrame
    data: Path
    table: Path


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AnalysedLog:
    """With a history, so that the records come from both. Each query plans only itself: the records have been read."""
    folder = tmp_path_factory.mktemp("made")
    written = WrittenLog(folder / "data", segment_bytes=2000)
    written.write(*((START_MS + time_ms, [Entry(0, (record,))]) for time_ms, record in record_list()))
    keep(spark, written.data, folder / "table")
    records = analysis.records(spark, written.data, folder / "table").localCheckpoint()
    return AnalysedLog(records, written.data, folder / "table")


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def at(seconds: float) -> float:
    return START_MS / 1000 + seconds


def test_records_with_and_without_history_equal_log(spark: SparkSession, analysed: AnalysedLog) -> None:
    positions = [tuple(row) for row in analysed.records.select("log_partition", "log_offset").collect()]
    assert sorted(positions) == [(0, number) for number in range(len(record_list()))]
    assert analysis.records(spark, analysed.data).count() == len(record_list())
    assert 0 < analysis.records(spark, None, analysed.table).count() < len(record_list())
    assert analysis.records(spark, analysed.data, since=NOW).count() == 0
    with pytest.raises(ValueError, match="found neither data nor history"):
        analysis.records(spark)


def test_frequent_commits(analysed: AnalysedLog) -> None:
    commits_by_group = {row["group"]: row for row in rows(analysis.frequent_commits(analysed.records))}
    assert list(commits_by_group) == ["busy", "gappy", "old", "payer", "was"]
    assert commits_by_group["busy"] == {
        "group": "busy",
        "commits": 122,
        "partitions": 2,
        "minutes": 10.0,
        "commits_a_minute": 12.2,
        "seconds_between": 10.0,
        "offsets_a_commit": 5.0,
        "idle_share": 0.5,
    }
    assert (commits_by_group["payer"]["commits"], commits_by_group["old"]["commits_a_minute"]) == (1, None)


def test_zombie_groups_and_topics(analysed: AnalysedLog) -> None:
    groups = rows(analysis.zombie_groups(analysed.records, NOW, 2))
    assert [(row["group"], row["offsets"], row["members"]) for row in groups] == [("old", 1, None), ("was", 1, 0)]
    assert groups[0]["days"] == pytest.approx(10 + 4 / 24)
    topics = rows(analysis.zombie_topics(analysed.records, NOW, 2))
    assert [(row["topic"], row["groups"], row["partitions"]) for row in topics] == [("ghosts", 1, 1)]


def test_generations_list_joins_and_leaves(analysed: AnalysedLog) -> None:
    generation_rows = rows(analysis.generations(analysed.records).where("group = 'storm'"))
    assert [(row["generation"], row["joined"], row["left"], row["seconds_since"]) for row in generation_rows] == [
        (1, ["a"], [], None),
        (2, ["b"], [], 10.0),
        (3, [], ["b"], 10.0),
        (4, ["b"], [], 10.0),
        (5, [], [], 7170.0),
    ]


def test_storms_counts_generations_per_window(analysed: AnalysedLog) -> None:
    [storm] = rows(analysis.storms(analysed.records))
    assert storm.pop("since").timestamp() == at(0)
    assert storm == {
        "group": "storm",
        "generations": 4,
        "a_minute": 4.0,
        "joined": 3,
        "left": 1,
        "members_min": 1,
        "members_max": 2,
        "restless": "b",
    }
    assert rows(analysis.storms(analysed.records, at_least=5)) == []
    assert [row["generations"] for row in rows(analysis.storms(analysed.records, 24 * 60, 5))] == [5]


def test_gaps_and_rewinds(analysed: AnalysedLog) -> None:
    [gap] = rows(analysis.gaps(analysed.records))
    assert (gap["group"], gap["minutes"], gap["moved"]) == ("gappy", 60.0, 98)
    assert (gap["since"].timestamp(), gap["until"].timestamp()) == (at(60), at(3660))
    [rewind] = rows(analysis.rewinds(analysed.records))
    assert (rewind["group"], rewind["before"], rewind["after"], rewind["moved"]) == ("gappy", 100, 50, -50)


def test_skew(analysed: AnalysedLog) -> None:
    [row] = rows(analysis.skew(analysed.records))
    assert (row["group"], row["topic"], row["partitions"]) == ("busy", "orders", 2)
    assert (row["slowest"], row["slowest_moved"], row["fastest"], row["fastest_moved"]) == (1, 0, 0, 600)
    assert row["ratio"] == 2.0
    partition_0 = analysed.records.where("group = 'busy' and partition = 0")
    two_partitions = partition_0.unionByName(partition_0.withColumn("partition", F.lit(7)))
    assert rows(analysis.skew(two_partitions)) == []


def test_expiring_returns_time_and_reason(analysed: AnalysedLog) -> None:
    expiring_rows = rows(analysis.expiring(analysed.records, NOW, 5.5))
    assert [(row["group"], row["why"]) for row in expiring_rows] == [("old", "simple"), ("was", "empty")]
    assert [round(row["days_left"], 3) for row in expiring_rows] == [round(-3 - 4 / 24, 3), round(5 - 4 / 24, 3)]
    assert rows(analysis.expiring(analysed.records, NOW, 1, retention_minutes=60 * 24 * 365)) == []
    expiring_groups = {row["group"] for row in rows(analysis.expiring(analysed.records, NOW, 7))}
    assert expiring_groups == {"old", "was", "busy", "gappy", "payer"}


def test_growth(analysed: AnalysedLog) -> None:
    growth_by_day = {row["day"]: row for row in rows(analysis.growth(analysed.records))}
    assert list(growth_by_day) == [date(2025, 11, day) for day in (11, 17, 18, 19, 21)]
    today = growth_by_day[date(2025, 11, 21)]
    assert (today["commits"], today["group_records"], today["new_groups"], today["new_keys"]) == (128, 5, 4, 4)
    assert today["records_so_far"] == len(record_list())


# The forecast, without Spark -----------------------------------------------------------------------------------------


def days(*counts: int) -> list[Any]:
    return [
        DailyRecords(date(2025, 11, 1) + timedelta(days=index), count, 0, 0, False)
        for index, count in enumerate(counts)
    ]


def test_forecast_continues_straight_line(analysed: AnalysedLog) -> None:
    """The first day and the incomplete last one are not used."""
    now = datetime(2025, 11, 6, 12, tzinfo=UTC)
    forecast_days = analysis.forecast(days(1, 20, 30, 40, 50, 3), now, ahead=2)
    assert [(day.day.day, round(day.records), day.is_forecast) for day in forecast_days[5:]] == [
        (6, 3, False),
        (7, 70, True),
        (8, 80, True),
    ]


def test_forecast_of_points_on_a_line_is_not_certain() -> None:
    now = datetime(2025, 11, 6, 12, tzinfo=UTC)
    [day] = analysis.forecast(days(1, 20, 30, 40, 50, 3), now, ahead=1)[6:]
    assert 0 < day.low < day.records - 10 and day.records + 10 < day.high < 200


def test_forecast_begins_after_today_and_counts_days_since_last_record() -> None:
    now = datetime(2025, 11, 20, 12, tzinfo=UTC)
    forecast_days = analysis.forecast(days(100, 100, 100, 100, 100), now, ahead=3)[5:]
    assert [day.day for day in forecast_days] == [date(2025, 11, day) for day in (21, 22, 23)]
    assert forecast_days[0].records < 50


def test_forecast_interval_grows_with_noise_and_is_never_negative() -> None:
    now = datetime(2025, 11, 8, tzinfo=UTC)
    [day] = analysis.forecast(days(0, 90, 10, 95, 5, 80, 0), now, ahead=1)[7:]
    assert day.low == 0 and day.high > 95 and day.low < day.records < day.high


def test_forecast_counts_empty_days_and_needs_three_days() -> None:
    now = datetime(2025, 11, 4, tzinfo=UTC)
    day_records = days(10, 10, 10)
    assert analysis.forecast(day_records, now) == [DailyRecords(day.day, 10, 10, 10, False) for day in day_records]
    assert analysis.forecast([], now) == []
    now = datetime(2025, 12, 20, tzinfo=UTC)
    sparse = [day_records[0], day_records[1]._replace(day=date(2025, 11, 9))]
    assert analysis.forecast(sparse, now, ahead=1)[-1].records < 10


def test_forecast_ends_with_the_last_day_that_a_date_has() -> None:
    now = datetime(9999, 12, 30, tzinfo=UTC)
    forecast_days = analysis.forecast(days(1, 20, 30, 40, 50), now, ahead=4_000_000)
    assert [day.day for day in forecast_days if day.is_forecast] == [date(9999, 12, 31)]


# Commands ------------------------------------------------------------------------------------------------------------


def callboard(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    try:
        code: Any = questions.main([str(argument) for argument in arguments])
    except StartError as error:
        return 2, capsys.readouterr().out, str(error)
    except SystemExit as exit:
        code = exit.code
    return int(code or 0), *capsys.readouterr()


def test_analyse_prints_table_json_csv_and_writes_parquet(
    spark: SparkSession, analysed: AnalysedLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parse_query_input = ("gaps", "--data", analysed.data, "--table", analysed.table)
    code, out, _ = callboard(capsys, *parse_query_input)
    assert code == 0 and out.splitlines()[0].split()[:2] == ["group", "topic"]
    [row] = json.loads(callboard(capsys, *parse_query_input, "--json")[1])
    assert (row["since"], row["moved"]) == ("2025-11-21T04:41:00.000Z", 98)
    assert callboard(capsys, *parse_query_input, "-o", tmp_path / "gaps.csv")[0] == 0
    with (tmp_path / "gaps.csv").open() as file:
        assert [line["group"] for line in csv.DictReader(file)] == ["gappy"]
    assert callboard(capsys, *parse_query_input, "-o", tmp_path / "gaps.parquet")[0] == 0
    assert spark.read.parquet(str(tmp_path / "gaps.parquet")).count() == 1
    assert callboard(capsys, *parse_query_input, "--minutes", "90")[1:] == ("", "callboard: there was no gap\n")


def test_output_keeps_all_digits_of_integers(capsys: pytest.CaptureFixture[str]) -> None:
    """Medians and forecasts are floating-point numbers, but often integral and large."""
    numbers = [12345678.0, 12345678.5, 0.123456789, 1234.56789, 0.0, -98765432.0, float("nan"), float("inf")]
    numbers_table = pa.table({"n": numbers})
    expected = [12345678.0, 12345678.0, 0.123457, 1234.57, 0.0, -98765432.0, None, None]
    output.output_table(numbers_table, True, False, None, "")
    assert [row["n"] for row in json.loads(capsys.readouterr().out)] == expected
    output.output_table(numbers_table, False, False, None, "")
    expected_cells = ["12345678", "12345678", "0.123457", "1234.57", "0", "-98765432", "-", "-"]
    assert capsys.readouterr().out.split() == ["n", *expected_cells]


@pytest.mark.parametrize("name", [question.name for question in questions.QUESTIONS])
def test_every_question_has_analyse_command(
    analysed: AnalysedLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The records have been read: the reports and the other tests of commands read them."""
    monkeypatch.setattr(questions.QueryInput, "records", lambda *_: analysed.records)
    code, out, err = callboard(capsys, name, "--data", analysed.data, "--now", NOW.isoformat(), "--json")
    assert (code, err) == (0, "") and json.loads(out)


def test_report_is_self_contained_page(
    analysed: AnalysedLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is well-formed, has a section for each question with plots, and loads no other resources."""
    arguments = ("-o", str(tmp_path / "x.html"), "--pictures", str(tmp_path), "--now", NOW.isoformat())
    with pytest.raises(SystemExit) as exit_info:
        report_command.main(["--data", str(analysed.data), "--table", str(analysed.table), *arguments])
    assert not exit_info.value.code and "x.html: " in capsys.readouterr().out
    text = (tmp_path / "x.html").read_text()
    assert [text.count(f'<h2 id="{part.question}">') for part in report.SECTIONS] == [1] * len(report.SECTIONS)
    assert f"{len(record_list())} records" in text and "<td>restless" not in text
    assert text.count("<svg") == len(list(tmp_path.glob("*.png"))) >= 5
    assert re.findall(r"<(?:script|link|img|iframe)|(?:src|href)=.(?!#)|url\((?!#)|@import", text) == []
    ids = re.findall(r'<g id="figure|clipPath id="([^"]+)"', text)
    assert len([element_id for element_id in ids if element_id]) == len(
        {element_id for element_id in ids if element_id}
    )


def test_question_that_fails_is_a_line_of_the_report(
    spark: SparkSession,
    analysed: AnalysedLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spark reports an overflow as an error of its own; a value that Python cannot show raises ValueError."""

    def overflow(records: DataFrame) -> DataFrame:
        return records.select((F.lit(2**63 - 1) + F.coalesce("offset", F.lit(1)) + 1).alias("sum"))

    def unshowable(records: DataFrame) -> DataFrame:
        raise ValueError("year 300000 is out of range")

    failing = {"skew": overflow, "rewinds": unshowable}
    names = (*failing, "commits")  # the report of all questions has a test of its own
    monkeypatch.setattr(report, "SECTIONS", [part for part in report.SECTIONS if part.question in names])
    changed = [each._replace(answer=failing.get(each.name, each.answer)) for each in questions.QUESTIONS]
    monkeypatch.setattr(report, "QUESTIONS", changed)
    with pytest.raises(SystemExit) as exit_info:
        report_command.main(["--data", str(analysed.data), "-o", str(tmp_path / "x.html"), "--now", NOW.isoformat()])
    assert exit_info.value.code == 1
    errors = capsys.readouterr().err
    assert "skew: [ARITHMETIC_OVERFLOW" in errors and "rewinds: year 300000 is out of range" in errors
    text = (tmp_path / "x.html").read_text()
    assert [text.count(f'<h2 id="{part.question}">') for part in report.SECTIONS] == [1] * len(report.SECTIONS)
    assert text.count("This question could not be answered: ") == 2 and "<svg" in text


def test_differences_and_sums_of_offsets_stop_at_64_bits(spark: SparkSession, tmp_path: Path) -> None:
    last = 2**63 - 1
    commits = [(0, 0), (0, last), (0, -1), (0, last), (1, 0), (1, 5)]
    written = WrittenLog(tmp_path / "data", segment_bytes=2000)
    written.write(*((START_MS, [Entry(0, (commit("g", "t", *each, START_MS),))]) for each in commits))
    records = analysis.records(spark, written.data)
    [row] = rows(analysis.skew(records))
    assert (row["fastest_moved"], row["slowest_moved"]) == (last, 5)
    assert [row["moved"] for row in rows(analysis.rewinds(records))] == [-(2**63)]


def test_report_shortens_members() -> None:
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(8)]
    names = [f"consumer-{uuid}" for uuid in uuids]
    assert report.short_members(names) == "consumer-00000000, consumer-00000001, consumer-00000002 and 5 more"
    assert report.short_members(names[:1]) == report.short_members(names[0]) == "consumer-00000000"
    assert report.short_members([]) == "" and report.short_members(None) is None
    table = pa.table({"joined": [names], "left": [[]], "leader": names[:1], "group": uuids[:1]})
    html = report._table(table, is_last_first=False)
    assert len(max(re.findall(r"<td>([^<]*)", html), key=len)) < 80
    assert uuids[0] in html, "a group's name is not shortened"
    counts = report._table(pa.table({"joined": [3], "left": [1]}), is_last_first=False)
    assert '<td class="number">3</td>' in counts


def test_report_of_damaged_log_counts_damage(spark: SparkSession, analysed: AnalysedLog, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(analysed.data, data)
    file = next(data.glob("__consumer_offsets-*/*0.log"))
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    query_input = questions.QueryInput(data, None, None, None, NOW)
    records = query_input.records(spark)
    facts = report._facts(records, query_input)
    assert facts[-1] == "Not counted: records in 1 damaged place of the log."
    assert facts[1].startswith(f"{records.where('timestamp is not null').count():,} records, ")
    assert "Not counted" not in str(report._facts(analysed.records, query_input))


def test_report_escapes_names() -> None:
    columns = (Column("group", "<b>"), Column("n", "n", is_number=True))
    html = page.page("<t>", ["a < b"], [("x", "&")], page.table(Table(columns, [("<script>", 1234)]), "<rest>"))
    assert "<script>" not in html and "&lt;script&gt;" in html and "1,234" in html and "<rest>" not in html
    rows: Any = [{"group": "$a_b$", "commits": 3, "idle_share": None}]
    svg = plots.commits(rows)
    assert svg is not None and plots.svg("x", *svg).startswith("<svg")


def test_report_escapes_control_characters() -> None:
    """Most of them are not allowed in XML; others change the text direction."""
    name = "a\x00\x1b[31m\x9b\u202e$"
    cells = page.table(Table((Column("group", "group"),), [(name,)]), "")
    rows: Any = [{"group": name, "commits": 3, "idle_share": None}]
    svg = plots.commits(rows)
    assert svg is not None
    for text in (cells, plots.svg("x", *svg)):
        assert sorted({character for character in text if not (character.isprintable() or character == "\n")}) == []
    assert r"a\x00\x1b[31m\x9b\u202e$" in cells


def test_report_without_matplotlib_is_refused_before_spark_starts(
    analysed: AnalysedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(StartError, match="need matplotlib"):
        report_command.main(["--data", str(analysed.data)])
    with pytest.raises(StartError, match="bad --output: found no folder"):
        monkeypatch.setattr(plots, "find_spec", lambda name: name)
        report_command.main(["--data", str(analysed.data), "-o", str(analysed.data / "absent" / "x.html")])
    with pytest.raises(StartError, match="found a folder, expected the name of a file"):
        report_command.main(["--data", str(analysed.data), "-o", str(analysed.data)])


@pytest.mark.parametrize("command", ["history off", "analyse gaps", "report"])
def test_analyse_without_extra_names_extra_to_install(command: str) -> None:
    program = f"import sys; sys.modules['pyspark'] = None; sys.argv[1:] = '{command} --data x'.split()"
    program += "; from callboard.runtime.cli.main import main; main()"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert completed.returncode == 2 and completed.stderr.count("\n") == 1
    assert (
        "needs pyspark, which is not installed" in completed.stderr
        and "pip install 'callboard[spark]'" in completed.stderr
    )


def test_analyse_with_invalid_arguments_is_refused(
    analysed: AnalysedLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = [
        callboard(capsys, "gaps", *extra_arguments)
        for extra_arguments in ((), ("--data", tmp_path), ("--table", tmp_path))
    ]
    assert [code for code, _, _ in refused] == [2, 2, 2]
    assert "expected --data DIR" in refused[0][2] and "found neither callboard.json" in refused[1][2]
    assert "found no history" in refused[2][2]
    (tmp_path / "x.csv").mkdir()
    assert "found a folder" in callboard(capsys, "gaps", "--data", analysed.data, "-o", tmp_path / "x.csv")[2]
    assert "bad --now 'noon'" in callboard(capsys, "gaps", "--data", analysed.data, "--now", "noon")[2]
