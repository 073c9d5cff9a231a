"""The options of ``callboard serve``. None means that the configuration file or the default decides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ListenOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME://]HOST:PORT",
        help="Address to listen on; port 0: a free one. Several listeners have names, as in Kafka: may be repeated, or "
        "with commas.  [default: PLAINTEXT://127.0.0.1:9092]",
    ),
]
AdvertisedOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME://]HOST:PORT",
        help="The address for clients of a listener, if they cannot use the one of --listen; may be repeated.",
    ),
]
ProtocolMapOption = Annotated[
    str | None,
    typer.Option(
        "--listener-security-protocol-map",
        metavar="NAME:PROTOCOL,...",
        help="The protocols of listeners whose names are no protocols; known are PLAINTEXT, SSL, SASL_PLAINTEXT and "
        "SASL_SSL.",
    ),
]
InterBrokerOption = Annotated[
    str | None,
    typer.Option(
        "--inter-broker-listener-name",
        metavar="NAME",
        help="The listener by which the nodes of a cluster connect to each other.  [default: PLAINTEXT, or the first]",
    ),
]
DataOption = Annotated[
    str | None, typer.Option(metavar="DIR", help="The data folder; created if missing.  [default: ./data]")
]
SyncOption = Annotated[
    str | None,
    typer.Option(
        metavar="always|interval|none",
        help="Answer a commit after its sync; after its write, synced every log_flush_interval_ms; or never sync.  "
        "[default: always]",
    ),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME:PARTITIONS", help="A topic to create at the start if missing; may be repeated."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        envvar="CALLBOARD_SET",
        help="A setting (see `callboard settings`); may be repeated.",
    ),
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="The address for /metrics, /healthz and /readyz over HTTP.  [default: none]"
    ),
]
MetricsLagOption = Annotated[
    list[str] | None,
    typer.Option(metavar="GROUP", help="A group whose lag is in /metrics; may be repeated, for up to 100 groups."),
]
GroupMetricsOption = Annotated[
    bool,
    typer.Option("--group-metrics", help="Serve /metrics/groups, which has lag and members of single groups."),
]
RequestMetricsOption = Annotated[
    bool,
    typer.Option(
        "--request-metrics",
        help="Count and time requests by API in /metrics, which takes two or three microseconds of each.",
    ),
]
WebOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The address of the HTTP API and the web page.  [default: none]"),
]
WebTrustOption = Annotated[
    str | None,
    typer.Option(
        metavar="HEADER",
        help="The header in which an authenticating proxy in front of --web names the user. Nobody else may reach it.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The store of a cluster, as in postgresql://user@host/database, s3://bucket/prefix or "
        "file:///shared/folder: the server shares the partitions with the other nodes there.  [default: none]",
    ),
]
NodeNameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The name of this node in the cluster, which it keeps.  [default: made of host and port]"
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Processes that serve, for machines with several processors.  [default: 1]"),
]
WorkerPortsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FIRST-LAST", help="The ports of the workers; clients are sent to them.  [default: free ones]"
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        envvar="CALLBOARD_CONFIG",
        help="A file with the keys listen, advertised, listener_security_protocol_map, inter_broker_listener_name, "
        "data, sync, metrics, metrics_lag, group_metrics, request_metrics, web, web_trust, dynamic_settings, "
        "unsafe_settings, ignore_saved_settings, insecure, file_mode, log_level, log_format, cluster, node_name, "
        "workers, worker_ports, [topics], [settings]. Command-line options override it.",
    ),
]
DynamicSettingsOption = Annotated[
    str | None,
    typer.Option(
        metavar="local|all|none",
        help="Who may change settings and users of the running server: clients on this machine, all, or nobody.  "
        "[default: local]",
    ),
]
FileModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="Octal permissions of new files in the data folder; 0640 lets the group read them, e.g. for Spark."
        "  [default: 0600]",
    ),
]
UnsafeSettingsOption = Annotated[
    bool,
    typer.Option(
        "--unsafe-settings", help="Allow values that delete offsets early or keep the server busy, for tests."
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow other machines to reach a PLAINTEXT listener, which neither encrypts nor authenticates; for tests.",
    ),
]
IgnoreSavedSettingsOption = Annotated[
    bool,
    typer.Option("--ignore-saved-settings", help="Ignore the changed settings that are saved in the data folder."),
]

LogLevelOption = Annotated[
    str | None,
    typer.Option(
        "--log-level", metavar="debug|info|warning|error", help="The least important lines to log.  [default: info]"
    ),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format", metavar="text|json", help="The format of log lines.  [default: text on a terminal, else json]"
    ),
]
