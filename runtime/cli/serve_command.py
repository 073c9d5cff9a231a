"""``callboard serve``: parses the arguments, runs a server until a signal, and returns the exit code.

Arguments and settings are checked before the port is bound. A refused start prints one line and exits with code 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..common.errors import StartError
from ..settings.http_options import GivenWeb
from ..settings.load import load
from ..settings.metric_options import MetricOptions
from .main import SERVICE_CONTEXT, make_app
from .serve_options import (
    AdvertisedOption,
    ClusterOption,
    ConfigOption,
    DataOption,
    DynamicSettingsOption,
    FileModeOption,
    GroupMetricsOption,
    IgnoreSavedSettingsOption,
    InsecureOption,
    InterBrokerOption,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    MetricsLagOption,
    MetricsOption,
    NodeNameOption,
    ProtocolMapOption,
    RequestMetricsOption,
    SetOption,
    SyncOption,
    TopicOption,
    UnsafeSettingsOption,
    WebOption,
    WebTrustOption,
    WorkerPortsOption,
    WorkersOption,
)
from .workers_folder import has_workers

app = make_app()


@app.command("serve", context_settings=SERVICE_CONTEXT)
def serve(
    listen: ListenOption = None,
    advertised: AdvertisedOption = None,
    listener_security_protocol_map: ProtocolMapOption = None,
    inter_broker_listener_name: InterBrokerOption = None,
    data: DataOption = None,
    sync: SyncOption = None,
    topic: TopicOption = None,
    set_: SetOption = None,
    metrics: MetricsOption = None,
    metrics_lag: MetricsLagOption = None,
    group_metrics: GroupMetricsOption = False,
    request_metrics: RequestMetricsOption = False,
    web: WebOption = None,
    web_trust: WebTrustOption = None,
    file_mode: FileModeOption = None,
    config_file: ConfigOption = None,
    dynamic_settings: DynamicSettingsOption = None,
    unsafe_settings: UnsafeSettingsOption = False,
    ignore_saved_settings: IgnoreSavedSettingsOption = False,
    insecure: InsecureOption = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    cluster: ClusterOption = None,
    node_name: NodeNameOption = None,
    workers: WorkersOption = None,
    worker_ports: WorkerPortsOption = None,
) -> None:
    """Serve Kafka clients: groups, offsets, and small topics in memory.

    Prints one line on standard output when it listens, and one when it has loaded its log, if there is one. Until then
    requests for groups that are not loaded are refused. Log lines go to standard error. SIGTERM and Ctrl-C stop it
    cleanly; SIGUSR1 prints statistics of its actors.
    """
    from .serve import run_server  # imports asyncio, which the help does not need

    settings, options = load(
        *(listen, advertised, data, sync, topic or (), set_ or (), config_file, metrics),
        dynamic_settings=dynamic_settings,
        unsafe_settings=unsafe_settings,
        ignore_saved_settings=ignore_saved_settings,
        insecure=insecure,
        file_mode=file_mode,
        log_level=log_level,
        log_format=log_format,
        shown=MetricOptions(tuple(metrics_lag or ()), group_metrics, request_metrics),
        web=GivenWeb(web, web_trust),
        cluster=cluster,
        node_name=node_name,
        workers=workers,
        worker_ports=worker_ports,
        listener_security_protocol_map=listener_security_protocol_map,
        inter_broker_listener_name=inter_broker_listener_name,
    )
    if options.cluster.workers > 1 or has_workers(options.data):
        if options.http.web is not None:
            address = options.http.web.address
            raise StartError(
                f"bad web '{address}': expected it without workers, each of which has a part of the groups"
            )
        from .serve_workers import run_workers

        run_workers(settings, options)
    else:
        run_server(settings, options)


def main(argv: Sequence[str]) -> int:
    app(list(argv), prog_name="callboard serve")
    return 0
