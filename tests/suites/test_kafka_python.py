"""kafka-python's integration tests of groups, offsets and administration against this server.

They are unpacked from its source distribution when the test runs. The suite skips tests silently if the variables of
``suite_environment`` are missing, so the number of outcomes is checked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from peers.server import TEST_SETTINGS, ServerProcess
from source_archive import SourceUnavailable

from .table import BROKER_VERSION, FAILED_BECAUSE, FILES, KAFKA_PYTHON, LEFT_OUT, NOT_APPLICABLE_BECAUSE, TESTS

HERE = Path(__file__).resolve().parent
PLUGINS = ("-p", f"{__package__}.kafka_python_plugin", "-p", "kafka_python_fast_metadata")
RUN_DEADLINE_S = 900
TEST_DEADLINE_S = 60
SHOWN_CHARS = 6000

REASONS = {
    test: f"{word} because {reason}"
    for word, table in (("failed", FAILED_BECAUSE), ("not applicable", NOT_APPLICABLE_BECAUSE))
    for reason, tests in table.items()
    for test in tests
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """The folder with the tests. If the download fails, the test is skipped; in CI it fails."""
    try:
        return KAFKA_PYTHON.unpack(tmp_path, "test")
    except SourceUnavailable as unavailable:
        if os.environ.get("CI"):
            pytest.fail(f"in CI kafka-python's tests are not optional: {unavailable}")
        pytest.skip(str(unavailable))


def suite_environment(bootstrap: str, suite: Path) -> dict[str, str]:
    """The environment variables of the run, with the broker's address."""
    variables = {
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": BROKER_VERSION,
        "KAFKA_ROOT": str(suite),  # must be a folder; its content is not used
        "PYTHONPATH": str(HERE.parent),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | variables


def run(suite: Path, bootstrap: str) -> dict[str, str]:
    """The outcome of each test: "passed", or the first line of the failure."""
    report = suite / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]
    command += ["-p", "pytest_timeout", f"--timeout={TEST_DEADLINE_S}", *PLUGINS]
    command += ["-k", f"not ({' or '.join(LEFT_OUT)})", *(f"test/integration/{file}" for file in FILES)]
    result = subprocess.run(
        command,
        cwd=suite,
        env=suite_environment(bootstrap, suite),
        capture_output=True,
        text=True,
        timeout=RUN_DEADLINE_S,
        check=False,
    )
    print(result.stdout[-SHOWN_CHARS:], result.stderr[-SHOWN_CHARS:])
    assert report.exists(), "the suite did not run"
    return dict(outcome_of_case(case) for case in ET.parse(report).iter("testcase"))


def outcome_of_case(case: ET.Element) -> tuple[str, str]:
    name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
    faults = [(fault.tag, fault.get("message") or "") for fault in case if fault.tag in ("failure", "error", "skipped")]
    return name, "; ".join(f"{tag}: {message.partition(chr(10))[0]}" for tag, message in faults) or "passed"


def test_digest_matches_the_pinned_version() -> None:
    """The pinned version is that of the digest."""
    pins = (HERE.parent.parent / "constraints.txt").read_text().splitlines()
    assert f"kafka-python=={KAFKA_PYTHON.version}" in pins
    assert re.fullmatch("[0-9a-f]{64}", KAFKA_PYTHON.sha256)


def test_kafka_pythons_integration_tests_pass(suite: Path, tmp_path: Path) -> None:
    """Tests in the table must still fail, all others must pass."""
    settings = {**TEST_SETTINGS, "num_partitions": 4}
    with ServerProcess(tmp_path, settings=settings) as server:
        outcomes = run(suite, server.bootstrap)
    failed = {test: outcome for test, outcome in outcomes.items() if outcome != "passed"}
    assert {test: outcome for test, outcome in failed.items() if test not in REASONS} == {}
    assert [test for test in REASONS if test not in failed] == [], "these pass: remove them from the table"
    assert len(outcomes) == TESTS
