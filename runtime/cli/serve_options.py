"""The options of ``callboard serve``. None means that the configuration file or the default decides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ListenOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: a free one.  [default: 127.0.0.1:9092]"),
]
AdvertisedOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The address for clients, if they cannot use the one of --listen."),
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
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        envvar="CALLBOARD_CONFIG",
        help="A file with the keys listen, advertised, data, sync, metrics, metrics_lag, dynamic_settings, "
        "unsafe_settings, ignore_saved_settings, file_mode, log_level, log_format, [topics], [settings]. Command-line "
        "options override it.",
    ),
]
DynamicSettingsOption = Annotated[
    str | None,
    typer.Option(
        metavar="local|all|none",
        help="Who may change settings with IncrementalAlterConfigs: clients on this machine, all clients, nobody.  "
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
