"""Questions with known answers: a small log in which each problem occurs once."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from history_helpers import DAY_MS, START_MS, WrittenLog, commit, end, generation, spark_session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from callboard.actors.ports import Entry
from callboard.runtime.cli.groups.tables import Column, Table
from callboard.runtime.common.errors import StartError
from callboard.spark import analysis, output
from callboard.spark.analysis import page, plots, questions, report
from callboard.spark.analysis.growth import DailyRecords
from callboard.spark.history import keep

SECOND_MS, HOUR_MS = 1000, 3_600_000
NOW = datetime.fromtimestamp((START_MS + 4 * HOUR_MS) / 1000, UTC)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def story() -> list[tuple[int, Any]]:
    """Records and their times in ms from ``START_MS``, which is the start of a minute."""
    made: list[tuple[int, Any]] = []

    def add(time_ms: int, group: str, topic: str, partition: int, offset: int, **more: Any) -> None:
        made.append((time_ms, commit(group, topic, partition, offset, START_MS + time_ms, **more)))

    add(-10 * DAY_MS, "old", "ghosts", 0, 7)
    made.append((-4 * DAY_MS, generation("was", 1, START_MS - 4 * DAY_MS, one=[("orders", 0)])))
    add(-3 * DAY_MS, "was", "orders", 0, 5)
    made.append((-2 * DAY_MS, generation("was", 2, START_MS - 2 * DAY_MS)))
    for number in range(61):
        add(number * 10 * SECOND_MS, "busy", "orders", 0, number * 10)
        add(number * 10 * SECOND_MS, "busy", "orders", 1, 3)
    for seconds, offset in ((0, 1), (60, 2), (3660, 100), (3700, 50)):
        add(seconds * SECOND_MS, "gappy", "orders", 0, offset)
    for seconds, number, members in ((0, 1, "a"), (10, 2, "ab"), (20, 3, "a"), (30, 4, "ab"), (7200, 5, "ab")):
        parts: Any = {name: [("orders", 0)] for name in members}
        record = generation("storm", number, **parts)
        made.append((seconds * SECOND_MS, record))
    add(0, "payer", "orders", 0, 500, producer=9)
    made.append((SECOND_MS, end(9, committed=True)))
    add(2 * SECOND_MS, "payer", "orders", 0, 400, producer=9)
    made.append((3 * SECOND_MS, end(9, committed=False)))
    return sorted(made, key=lambda one: one[0])


class Made(NamedTuple):
    records: DataFrame
    data: Path
    table: Path


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """With a history, so that the records come from both."""
    folder = tmp_path_factory.mktemp("made")
    written = WrittenLog(folder / "data", segment_bytes=2000)
    written.write(*((START_MS + time_ms, [Entry(0, (record,))]) for time_ms, record in story()))
    keep(spark, written.data, folder / "table")
    return Made(analysis.records(spark, written.data, folder / "table").cache(), written.data, folder / "table")


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def at(seconds: float) -> float:
    return START_MS / 1000 + seconds


def test_records_with_and_without_history_equal_log(spark: SparkSession, made: Made) -> None:
    places = [tuple(row) for row in made.records.select("log_partition", "log_offset").collect()]
    assert sorted(places) == [(0, number) for number in range(len(story()))]
    assert analysis.records(spark, made.data).count() == len(story())
    assert 0 < analysis.records(spark, None, made.table).count() < len(story())
    assert analysis.records(spark, made.data, since=NOW).count() == 0
    with pytest.raises(ValueError, match="neither data nor history"):
        analysis.records(spark)


def test_frequent_commits(made: Made) -> None:
    found = {row["group"]: row for row in rows(analysis.frequent_commits(made.records))}
    assert list(found) == ["busy", "gappy", "old", "payer", "was"]
    assert found["busy"] == {
        "group": "busy",
        "commits": 122,
        "partitions": 2,
        "minutes": 10.0,
        "commits_a_minute": 12.2,
        "seconds_between": 10.0,
        "offsets_a_commit": 5.0,
        "idle_share": 0.5,
    }
    assert (found["payer"]["commits"], found["old"]["commits_a_minute"]) == (1, None)


def test_zombie_groups_and_topics(made: Made) -> None:
    groups = rows(analysis.zombie_groups(made.records, NOW, 2))
    assert [(row["group"], row["offsets"], row["members"]) for row in groups] == [("old", 1, None), ("was", 1, 0)]
    assert groups[0]["days"] == pytest.approx(10 + 4 / 24)
    topics = rows(analysis.zombie_topics(made.records, NOW, 2))
    assert [(row["topic"], row["groups"], row["partitions"]) for row in topics] == [("ghosts", 1, 1)]


def test_generations_list_joins_and_leaves(made: Made) -> None:
    found = rows(analysis.generations(made.records).where("group = 'storm'"))
    assert [(row["generation"], row["came"], row["went"], row["seconds_since"]) for row in found] == [
        (1, ["a"], [], None),
        (2, ["b"], [], 10.0),
        (3, [], ["b"], 10.0),
        (4, ["b"], [], 10.0),
        (5, [], [], 7170.0),
    ]


def test_storms_counts_generations_per_window(made: Made) -> None:
    [storm] = rows(analysis.storms(made.records))
    assert storm.pop("since").timestamp() == at(0)
    assert storm == {
        "group": "storm",
        "generations": 4,
        "a_minute": 4.0,
        "came": 3,
        "went": 1,
        "members_min": 1,
        "members_max": 2,
        "restless": "b",
    }
    assert rows(analysis.storms(made.records, at_least=5)) == []
    assert [row["generations"] for row in rows(analysis.storms(made.records, 24 * 60, 5))] == [5]


def test_gaps_and_rewinds(made: Made) -> None:
    [gap] = rows(analysis.gaps(made.records))
    assert (gap["group"], gap["minutes"], gap["moved"]) == ("gappy", 60.0, 98)
    assert (gap["since"].timestamp(), gap["until"].timestamp()) == (at(60), at(3660))
    [rewind] = rows(analysis.rewinds(made.records))
    assert (rewind["group"], rewind["before"], rewind["after"], rewind["moved"]) == ("gappy", 100, 50, -50)


def test_skew(made: Made) -> None:
    [row] = rows(analysis.skew(made.records))
    assert (row["group"], row["topic"], row["partitions"]) == ("busy", "orders", 2)
    assert (row["slowest"], row["slowest_moved"], row["fastest"], row["fastest_moved"]) == (1, 0, 0, 600)
    assert row["ratio"] == 2.0
    even = made.records.where("group = 'busy' and partition = 0")
    both = even.unionByName(even.withColumn("partition", F.lit(7)))
    assert rows(analysis.skew(both)) == []


def test_expiring_returns_time_and_reason(made: Made) -> None:
    found = rows(analysis.expiring(made.records, NOW, 5.5))
    assert [(row["group"], row["why"]) for row in found] == [("old", "simple"), ("was", "empty")]
    assert [round(row["days_left"], 3) for row in found] == [round(-3 - 4 / 24, 3), round(5 - 4 / 24, 3)]
    assert rows(analysis.expiring(made.records, NOW, 1, retention_minutes=60 * 24 * 365)) == []
    everybody = {row["group"] for row in rows(analysis.expiring(made.records, NOW, 7))}
    assert everybody == {"old", "was", "busy", "gappy", "payer"}


def test_growth(made: Made) -> None:
    found = {row["day"]: row for row in rows(analysis.growth(made.records))}
    assert list(found) == [date(2025, 11, day) for day in (11, 17, 18, 19, 21)]
    today = found[date(2025, 11, 21)]
    assert (today["commits"], today["group_records"], today["new_groups"], today["new_keys"]) == (128, 5, 4, 4)
    assert today["records_so_far"] == len(story())


# The forecast, without Spark -----------------------------------------------------------------------------------------


def days(*counts: int) -> list[Any]:
    return [
        DailyRecords(date(2025, 11, 1) + timedelta(days=index), count, 0, 0, False)
        for index, count in enumerate(counts)
    ]


def test_forecast_continues_straight_line(made: Made) -> None:
    """The first day and the incomplete last one are not used."""
    now = datetime(2025, 11, 6, 12, tzinfo=UTC)
    found = analysis.forecast(days(1, 20, 30, 40, 50, 3), now, ahead=2)
    assert [(one.day.day, round(one.records), one.is_forecast) for one in found[5:]] == [
        (6, 3, False),
        (7, 70, True),
        (8, 80, True),
    ]
    assert [round(bound) for bound in (found[6].low, found[6].high)] == [70, 70]


def test_forecast_interval_grows_with_noise_and_is_never_negative() -> None:
    now = datetime(2025, 11, 20, tzinfo=UTC)
    [day] = analysis.forecast(days(0, 90, 10, 95, 5, 80, 0), now, ahead=1)[7:]
    assert day.low == 0 and day.high > 95 and day.low < day.records < day.high


def test_forecast_counts_empty_days_and_needs_three_days() -> None:
    now = datetime(2025, 12, 20, tzinfo=UTC)
    some = days(10, 10, 10)
    assert analysis.forecast(some, now) == [DailyRecords(one.day, 10, 10, 10, False) for one in some]
    assert analysis.forecast([], now) == []
    sparse = [some[0], some[1]._replace(day=date(2025, 11, 9))]
    assert analysis.forecast(sparse, now, ahead=1)[-1].records < 10


# Commands ------------------------------------------------------------------------------------------------------------


def callboard(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    try:
        code: Any = questions.main([str(each) for each in arguments])
    except StartError as error:
        return 2, capsys.readouterr().out, str(error)
    except SystemExit as exit:
        code = exit.code
    return int(code or 0), *capsys.readouterr()


def test_analyse_prints_table_json_csv_and_writes_parquet(
    spark: SparkSession, made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parse_query_input = ("storms", "--data", made.data, "--history", made.table)
    code, out, _ = callboard(capsys, *parse_query_input)
    assert code == 0 and out.splitlines()[0].split()[:2] == ["group", "since"]
    [row] = json.loads(callboard(capsys, *parse_query_input, "--json")[1])
    assert (row["since"], row["generations"]) == ("2025-11-21T04:40:00.000Z", 4)
    assert callboard(capsys, *parse_query_input, "-o", tmp_path / "storms.csv")[0] == 0
    with (tmp_path / "storms.csv").open() as file:
        assert [line["restless"] for line in csv.DictReader(file)] == ["b"]
    assert callboard(capsys, *parse_query_input, "-o", tmp_path / "storms.parquet")[0] == 0
    assert spark.read.parquet(str(tmp_path / "storms.parquet")).count() == 1
    assert callboard(capsys, *parse_query_input, "--at-least", "9")[1:] == ("", "callboard: there was no storm\n")


def test_output_keeps_all_digits_of_integers(capsys: pytest.CaptureFixture[str]) -> None:
    """Medians and forecasts are floating-point numbers, but often integral and large."""
    numbers = [12345678.0, 12345678.5, 0.123456789, 1234.56789, 0.0, -98765432.0, float("nan"), float("inf")]
    found = pa.table({"n": numbers})
    expected = [12345678.0, 12345678.0, 0.123457, 1234.57, 0.0, -98765432.0, None, None]
    output.output_table(found, True, False, None, "")
    assert [row["n"] for row in json.loads(capsys.readouterr().out)] == expected
    output.output_table(found, False, False, None, "")
    shown = ["12345678", "12345678", "0.123457", "1234.57", "0", "-98765432", "-", "-"]
    assert capsys.readouterr().out.split() == ["n", *shown]


@pytest.mark.parametrize("name", [question.name for question in questions.QUESTIONS])
def test_every_question_has_analyse_command(made: Made, capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = callboard(capsys, name, "--data", made.data, "--now", NOW.isoformat(), "--json")
    assert (code, err) == (0, "") and json.loads(out)


def test_report_is_self_contained_page(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is well-formed, has a section for each question with plots, and loads nothing."""
    given = ("-o", str(tmp_path / "x.html"), "--pictures", str(tmp_path), "--now", NOW.isoformat())
    with pytest.raises(SystemExit) as ended:
        report.main(["--data", str(made.data), "--history", str(made.table), *given])
    assert not ended.value.code and "x.html: " in capsys.readouterr().out
    text = (tmp_path / "x.html").read_text()
    assert [text.count(f'<h2 id="{part.question}">') for part in report.SECTIONS] == [1] * len(report.SECTIONS)
    assert f"{len(story())} records" in text and "<td>restless" not in text
    assert text.count("<svg") == len(list(tmp_path.glob("*.png"))) >= 5
    assert re.findall(r"<(?:script|link|img|iframe)|(?:src|href)=.(?!#)|url\((?!#)|@import", text) == []
    ids = re.findall(r'<g id="figure|clipPath id="([^"]+)"', text)
    assert len([one for one in ids if one]) == len({one for one in ids if one})


def test_report_of_damaged_log_counts_damage(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(made.data, data)
    file = next(data.glob("__consumer_offsets-*/*0.log"))
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    wanted = questions.QueryInput(data, None, None, None, NOW)
    found = wanted.records(spark)
    facts = report._facts(found, wanted)
    assert facts[-1] == "Not counted: 1 damaged place of the log."
    assert facts[1].startswith(f"{found.where('timestamp is not null').count():,} records, ")
    assert "Not counted" not in str(report._facts(made.records, wanted))


def test_report_escapes_names() -> None:
    columns = (Column("group", "<b>"), Column("n", "n", is_number=True))
    shown = page.page("<t>", ["a < b"], [("x", "&")], page.table(Table(columns, [("<script>", 1234)]), "<rest>"))
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "1,234" in shown and "<rest>" not in shown
    rows: Any = [{"group": "$a_b$", "commits": 3, "idle_share": None}]
    drawn = plots.commits(rows)
    assert drawn is not None and plots.svg("x", *drawn).startswith("<svg")


def test_report_escapes_control_characters() -> None:
    """Most of them are not allowed in XML; others change the text direction."""
    name = "a\x00\x1b[31m\x9b\u202e$"
    cells = page.table(Table((Column("group", "group"),), [(name,)]), "")
    rows: Any = [{"group": name, "commits": 3, "idle_share": None}]
    drawn = plots.commits(rows)
    assert drawn is not None
    for text in (cells, plots.svg("x", *drawn)):
        assert sorted({one for one in text if not (one.isprintable() or one == "\n")}) == []
    assert r"a\x00\x1b[31m\x9b\u202e$" in cells


def test_report_without_matplotlib_is_refused_before_spark_starts(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(StartError, match="need matplotlib"):
        report.main(["--data", str(made.data)])
    with pytest.raises(StartError, match="bad --output: found no folder"):
        monkeypatch.setattr(plots, "find_spec", lambda name: name)
        report.main(["--data", str(made.data), "-o", str(made.data / "absent" / "x.html")])
    with pytest.raises(StartError, match="found a folder, expected the name of a file"):
        report.main(["--data", str(made.data), "-o", str(made.data)])


@pytest.mark.parametrize("command", ["history", "analyse", "report"])
def test_analyse_without_extra_names_extra_to_install(command: str) -> None:
    program = f"import sys; sys.modules['pyspark'] = None; sys.argv[1:] = ['{command}', '--help']"
    program += "; from callboard.runtime.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "pyspark is missing" in done.stderr and "pip install 'callboard[spark]'" in done.stderr


def test_analyse_with_invalid_arguments_is_refused(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = [callboard(capsys, "gaps", *more) for more in ((), ("--data", tmp_path), ("--history", tmp_path))]
    assert [code for code, _, _ in refused] == [2, 2, 2]
    assert "expected --data DIR" in refused[0][2] and "found neither callboard.json" in refused[1][2]
    assert "found no history" in refused[2][2]
    (tmp_path / "x.csv").mkdir()
    assert "found a folder" in callboard(capsys, "gaps", "--data", made.data, "-o", tmp_path / "x.csv")[2]
    assert "bad --now 'noon'" in callboard(capsys, "gaps", "--data", made.data, "--now", "noon")[2]
