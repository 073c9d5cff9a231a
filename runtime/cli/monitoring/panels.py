"""The panels of the Grafana dashboard, as a table. ``dashboard.py`` makes its JSON."""

from __future__ import annotations

from typing import NamedTuple

SHORT, SECONDS, BYTES, RATIO = "short", "s", "bytes", "percentunit"
PER_SECOND, PER_MINUTE = "ops", "opm"
"""Units of Grafana."""


class Query(NamedTuple):
    """``expr``: ``{I}``, or ``{I,...}``, stands for a filter by the chosen servers. ``legend``: a template."""

    expr: str
    legend: str


class Panel(NamedTuple):
    title: str
    unit: str
    queries: tuple[Query, ...]
    is_number: bool = False
    """Whether it shows the last values only."""


class Row(NamedTuple):
    """``is_open``: whether its panels are shown at first."""

    title: str
    panels: tuple[Panel, ...]
    is_open: bool = True


GROUPS = Row(
    "Groups",
    (
        Panel("Groups by state", SHORT, (Query("sum by (state) (callboard_groups{I})", "{{state}}"),)),
        Panel(
            "Rebalances by cause",
            PER_MINUTE,
            (Query("60 * sum by (cause) (rate(callboard_rebalances_total{I}[5m])) > 0", "{{cause}}"),),
        ),
        Panel(
            "Phases of rebalances, p95",
            SECONDS,
            (
                Query(
                    "histogram_quantile(0.95, sum by (le, phase) (rate(callboard_rebalance_seconds_bucket{I}[15m])))",
                    "{{phase}}",
                ),
            ),
        ),
        Panel(
            "Members that join and expire",
            PER_MINUTE,
            (
                Query("60 * sum(rate(callboard_joins_total{I}[5m]))", "joined"),
                Query("60 * sum(rate(callboard_expired_sessions_total{I}[5m]))", "expired"),
            ),
        ),
    ),
)

COMMITS = Row(
    "Commits",
    (
        Panel(
            "Commits", PER_SECOND, (Query("sum by (instance) (rate(callboard_commits_total{I}[1m]))", "{{instance}}"),)
        ),
        Panel(
            "Syncs of the journal",
            SECONDS,
            tuple(
                Query(
                    f"histogram_quantile({quantile}, sum by (le) (rate(callboard_log_sync_seconds_bucket{{I}}[5m])))",
                    f"p{quantile * 100:.0f}",
                )
                for quantile in (0.5, 0.99)
            ),
        ),
        Panel(
            "Refused",
            SHORT,
            (
                Query("sum(increase(callboard_log_refused_rounds_total{I}[5m]))", "rounds in 5 min"),
                Query("max(callboard_log_failed{I})", "disk has failed"),
                Query("max(callboard_log_full{I})", "disk is full"),
            ),
        ),
        Panel(
            "Offsets that expire",
            PER_MINUTE,
            (Query("60 * sum(rate(callboard_expired_offsets_total{I}[5m]))", "offsets"),),
        ),
    ),
)

LOOP = Row(
    "Event loop and actors",
    (
        Panel("Turns", SECONDS, (Query('callboard_turn_seconds{I,quantile!="1"}', "{{instance}} {{quantile}}"),)),
        Panel(
            "Waiting messages",
            SHORT,
            (
                Query("callboard_mailbox_messages{I}", "{{instance}} all"),
                Query("callboard_mailbox_messages_max{I}", "{{instance}} fullest mailbox"),
            ),
        ),
        Panel("Actors", SHORT, (Query("sum by (class) (callboard_actors{I})", "{{class}}"),)),
        Panel(
            "Restarts and dead letters in 1 h",
            SHORT,
            (
                Query("sum(increase(callboard_actor_restarts_total{I}[1h]))", "restarts"),
                Query("sum(increase(callboard_dead_letters_total{I}[1h]))", "dead letters"),
            ),
        ),
    ),
)

LOG = Row(
    "Log",
    (
        Panel(
            "Size",
            BYTES,
            (
                Query("callboard_log_bytes{I}", "{{instance}} log"),
                Query("callboard_log_dirty_bytes{I}", "{{instance}} not compacted"),
                Query("callboard_journal_bytes{I}", "{{instance}} journal"),
            ),
        ),
        Panel(
            "Part that is not compacted",
            RATIO,
            (Query("callboard_log_dirty_bytes{I} / callboard_log_bytes{I}", "{{instance}}"),),
        ),
        Panel(
            "Not served",
            SHORT,
            (
                Query("sum(callboard_loading_partitions{I})", "loading partitions"),
                Query("sum(callboard_failed_partitions{I})", "failed partitions"),
                Query("sum(callboard_quarantined_groups{I})", "quarantined groups"),
                Query("sum(callboard_log_damages{I})", "damages"),
            ),
        ),
        Panel(
            "Compactions and checkpoints in 1 h",
            SHORT,
            (
                Query("sum(increase(callboard_compactions_total{I}[1h]))", "compactions"),
                Query("sum(increase(callboard_log_checkpoints_total{I}[1h]))", "checkpoints"),
            ),
        ),
    ),
)

PROCESS = Row(
    "Process and connections",
    (
        Panel(
            "Memory",
            BYTES,
            (
                Query("process_resident_memory_bytes{I}", "{{instance}} resident"),
                Query("sum by (kind) (callboard_memory_bytes{I})", "{{kind}}"),
                Query("min(callboard_memory_limit_bytes{I})", "limit"),
            ),
        ),
        Panel("CPU", RATIO, (Query("rate(process_cpu_seconds_total{I}[1m])", "{{instance}}"),)),
        Panel(
            "Connections and files",
            SHORT,
            (
                Query("callboard_connections{I}", "{{instance}} connections"),
                Query("process_open_fds{I}", "{{instance}} files"),
            ),
        ),
        Panel(
            "Refused and throttled clients",
            PER_MINUTE,
            (
                Query("60 * sum by (limit) (rate(callboard_requests_over_limit_total{I}[5m])) > 0", "{{limit}}"),
                Query("60 * sum by (quota) (rate(callboard_throttled_total{I}[5m])) > 0", "{{quota}}"),
            ),
        ),
    ),
)

SECURITY = Row(
    "Security",
    (
        Panel(
            "Authentications",
            PER_MINUTE,
            (
                Query(
                    "60 * sum by (mechanism, result) (rate(callboard_authentications_total{I}[5m]))",
                    "{{mechanism}} {{result}}",
                ),
            ),
        ),
        Panel(
            "Denials by operation",
            PER_MINUTE,
            (Query("60 * sum by (operation) (rate(callboard_denied_total{I}[5m])) > 0", "{{operation}}"),),
        ),
        Panel(
            "Certificates end in",
            SECONDS,
            (Query("callboard_certificate_expires_seconds{I}", "{{instance}} {{listener}}"),),
            is_number=True,
        ),
        Panel("Audit trail has failed", SHORT, (Query("callboard_audit_failed{I}", "{{instance}}"),), is_number=True),
    ),
)

REQUESTS = Row(
    "Requests: needs --request-metrics",
    (
        Panel(
            "Requests by API",
            PER_SECOND,
            (Query("sum by (api) (rate(callboard_requests_total{I}[1m])) > 0", "{{api}}"),),
        ),
        Panel(
            "Errors by API",
            PER_MINUTE,
            (
                Query(
                    '60 * sum by (api, error) (rate(callboard_requests_total{I,error!~"|NONE"}[5m])) > 0',
                    "{{api}} {{error}}",
                ),
            ),
        ),
        Panel(
            "Commits",
            SECONDS,
            tuple(
                Query(
                    f"histogram_quantile({quantile}, sum by (le)"
                    f' (rate(callboard_request_seconds_bucket{{I,api="OffsetCommit"}}[5m])))',
                    f"p{quantile * 100:.0f}",
                )
                for quantile in (0.5, 0.99)
            ),
        ),
        Panel(
            "p99 by API",
            SECONDS,
            (
                Query(
                    "histogram_quantile(0.99, sum by (le, api) (rate(callboard_request_seconds_bucket{I}[5m])))",
                    "{{api}}",
                ),
            ),
        ),
    ),
    is_open=False,
)

SINGLE_GROUPS = Row(
    "Single groups: needs /metrics/groups with kafka_exporter's names",
    (
        Panel(
            "Largest lag",
            SHORT,
            (Query("topk(10, sum by (consumergroup) (kafka_consumergroup_lag_sum{I}))", "{{consumergroup}}"),),
        ),
        Panel(
            "Lag grows by",
            PER_SECOND,
            (
                Query(
                    "topk(10, sum by (consumergroup) (deriv(kafka_consumergroup_lag_sum{I}[15m])))",
                    "{{consumergroup}}",
                ),
            ),
        ),
        Panel("Members", SHORT, (Query("topk(10, kafka_consumergroup_members{I})", "{{consumergroup}}"),)),
        Panel(
            "Consumed records",
            PER_SECOND,
            (
                Query(
                    "topk(10, sum by (consumergroup) (deriv(kafka_consumergroup_current_offset_sum{I}[5m])))",
                    "{{consumergroup}}",
                ),
            ),
        ),
    ),
    is_open=False,
)

ROWS = (GROUPS, COMMITS, LOOP, LOG, PROCESS, SECURITY, REQUESTS, SINGLE_GROUPS)
