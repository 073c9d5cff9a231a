"""Prometheus' own promtool reads the alert rules: each fires when it should, with its texts, and not otherwise."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from callboard.runtime.cli.monitoring import alerts

PROMTOOL = shutil.which("promtool")
A = 'instance="a"'
TARGET = 'job="callboard",instance="a"'
GROUP = f'{A},consumergroup="orders"'

Series = Mapping[str, str]
"""By name, the values of a metric, one each minute: "1+2x3" is 1, 3, 5, 7."""


class Case(NamedTuple):
    """``fires``: series for which the alert fires at ``minute``; ``calm``: others, for which it does not.

    ``labels``: of the alert, besides instance and severity. ``value``: as in its texts.
    """

    minute: int
    fires: Series
    calm: Series
    labels: Mapping[str, str] = {}
    value: str = ""


def buckets(name: str, labels: str, **counts: str) -> Series:
    return {f'{name}_bucket{{{labels},le="{bound}"}}': values for bound, values in counts.items()}


CASES: Mapping[str, Case] = {
    "CallboardDown": Case(
        30,
        {f"up{{{TARGET}}}": "1+0x10 0+0x30", f"callboard_ready{{{TARGET}}}": "1+0x10 _x30"},
        {
            'up{job="node",instance="a"}': "0+0x60",
            f"up{{{TARGET}}}": "1+0x60",
            f"callboard_ready{{{TARGET}}}": "1+0x60",
        },
        {"job": "callboard"},
    ),
    "CallboardNotReady": Case(20, {f"callboard_ready{{{A}}}": "0+0x60"}, {f"callboard_ready{{{A}}}": "0+0x8 1+0x60"}),
    "CommitsRefused": Case(
        5,
        {f"callboard_log_failed{{{A}}}": "0+0x60", f"callboard_log_full{{{A}}}": "1+0x60"},
        {f"callboard_log_failed{{{A}}}": "0+0x60", f"callboard_log_full{{{A}}}": "0+0x60"},
    ),
    "CommitsSlow": Case(
        20,
        buckets("callboard_log_sync_seconds", A, **{"0.05": "0+0x60", "0.5": "0+60x60", "+Inf": "0+60x60"}),
        buckets("callboard_log_sync_seconds", A, **{"0.05": "0+60x60", "0.5": "0+60x60", "+Inf": "0+60x60"}),
        value="495.5ms",
    ),
    "LogDamaged": Case(
        5,
        {f"callboard_log_damages{{{A}}}": "0+0x60", f"callboard_quarantined_groups{{{A}}}": "1+0x60"},
        {f"callboard_log_damages{{{A}}}": "0+0x60", f"callboard_failed_partitions{{{A}}}": "0+0x60"},
    ),
    "LogNotCompacted": Case(
        420,
        {f"callboard_log_dirty_bytes{{{A}}}": "1900000000+0x500", f"callboard_log_bytes{{{A}}}": "2000000000+0x500"},
        {f"callboard_log_dirty_bytes{{{A}}}": "1900+0x500", f"callboard_log_bytes{{{A}}}": "2000+0x500"},
    ),
    "RebalanceStorm": Case(
        30,
        {
            f'callboard_rebalances_total{{{A},cause="member_left"}}': "0+2x60",
            f'callboard_groups{{{A},type="classic",state="Stable"}}': "0+0x60",
        },
        {
            f'callboard_rebalances_total{{{A},cause="member_left"}}': "0+2x60",
            f'callboard_groups{{{A},type="classic",state="Stable"}}': "10+0x60",
        },
    ),
    "RebalanceSlow": Case(
        30,
        buckets(
            "callboard_rebalance_seconds", f'{A},phase="join"', **{"30": "0+0x60", "120": "0+1x60", "+Inf": "0+1x60"}
        ),
        buckets(
            "callboard_rebalance_seconds", f'{A},phase="join"', **{"30": "0+1x60", "120": "0+1x60", "+Inf": "0+1x60"}
        ),
        value="1m 55s",
    ),
    "GroupStuck": Case(
        60,
        {
            f'callboard_groups{{{A},type="classic",state="PreparingRebalance"}}': "1+0x90",
            f'callboard_rebalance_seconds_count{{{A},phase="join"}}': "5+0x90",
        },
        {
            f'callboard_groups{{{A},type="classic",state="PreparingRebalance"}}': "1+0x90",
            f'callboard_rebalance_seconds_count{{{A},phase="join"}}': "5+1x90",
        },
    ),
    "SessionsExpire": Case(
        40,
        {f"callboard_expired_sessions_total{{{A}}}": "0+30x60"},
        {f"callboard_expired_sessions_total{{{A}}}": "0+6x60"},
    ),
    "MailboxesFull": Case(
        10,
        {f"callboard_mailbox_messages{{{A}}}": "2000000+0x60"},
        {f"callboard_mailbox_messages{{{A}}}": "900+0x60"},
        value="2000000",
    ),
    "MemoryLimitReached": Case(
        12,
        {f"callboard_memory_refusals_total{{{A}}}": "0+0x9 5+0x30"},
        {f"callboard_memory_refusals_total{{{A}}}": "5+0x60"},
    ),
    "ActorsRestart": Case(
        30,
        {f"callboard_actor_restarts_total{{{A}}}": "0+0x9 1+0x30"},
        {f"callboard_actor_restarts_total{{{A}}}": "1+0x60"},
    ),
    "AuthenticationFails": Case(
        20,
        {f'callboard_authentications_total{{{A},mechanism="PLAIN",result="credentials"}}': "0+120x60"},
        {f'callboard_authentications_total{{{A},mechanism="PLAIN",result="accepted"}}': "0+120x60"},
    ),
    "CertificateEnds": Case(
        5,
        {f'callboard_certificate_expires_seconds{{{A},listener="EXTERNAL"}}': "864000+0x60"},
        {f'callboard_certificate_expires_seconds{{{A},listener="EXTERNAL"}}': "8640000+0x60"},
        {"listener": "EXTERNAL"},
        "10d 0h 0m 0s",
    ),
    "AuditTrailFailed": Case(
        10, {f"callboard_audit_failed{{{A}}}": "1+0x60"}, {f"callboard_audit_failed{{{A}}}": "0+0x60"}
    ),
    "LagGrows": Case(
        90,
        {f'kafka_consumergroup_lag_sum{{{GROUP},topic="jobs"}}': "20000+618x120"},
        {f'kafka_consumergroup_lag_sum{{{GROUP},topic="jobs"}}': "20000+0x120"},
        {"consumergroup": "orders", "topic": "jobs"},
        "10.3",
    ),
    "LagWithoutMembers": Case(
        30,
        {
            f'kafka_consumergroup_lag_sum{{{GROUP},topic="jobs"}}': "4000000+0x60",
            f'kafka_consumergroup_lag_sum{{{GROUP},topic="mails"}}': "1+0x60",
            f"kafka_consumergroup_members{{{GROUP}}}": "0+0x60",
        },
        {
            f'kafka_consumergroup_lag_sum{{{GROUP},topic="jobs"}}': "4000000+0x60",
            f"kafka_consumergroup_members{{{GROUP}}}": "1+0x60",
        },
        {"consumergroup": "orders"},
        "4000001",
    ),
    "GroupsNotShown": Case(
        45, {f"callboard_groups_unread{{{A}}}": "3+0x60"}, {f"callboard_groups_unread{{{A}}}": "0+0x60"}, value="3"
    ),
}


def rules() -> dict[str, Any]:
    return {
        rule["alert"]: rule for group in yaml.safe_load(alerts.RULES.read_text())["groups"] for rule in group["rules"]
    }


def test_each_rule_has_a_case() -> None:
    assert CASES.keys() == rules().keys()


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt-get install prometheus")
@pytest.mark.parametrize("name", CASES)
def test_alert_fires_when_it_should(tmp_path: Path, name: str) -> None:
    case, rule = CASES[name], rules()[name]
    labels = {"instance": "a", **case.labels}
    texts = {key: expanded(text, labels, case.value) for key, text in rule["annotations"].items()}
    fired = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": texts}
    tests = [unit_test(name, case.minute, case.fires, [fired]), unit_test(name, case.minute, case.calm, [])]
    document = {"rule_files": [str(alerts.RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(json.dumps(document))
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def expanded(text: str, labels: Mapping[str, str], value: str) -> str:
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match[1]], text)
    return re.sub(r"\{\{ \$value [^}]*\}\}", value, text)


def unit_test(name: str, minute: int, series: Series, expected: list[Any]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": expected}],
    }
