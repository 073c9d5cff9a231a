"""``callboard cluster``: the command line.

Exit codes: 0 done; 1 the store or the disk cannot be used, or the command cannot be done; 2 the command line is
invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ...common.printing import print_error, print_json, print_line
from ...settings.table import BY_NAME
from ..main import make_app
from ..server_options import REFUSED_EXIT_CODE, AsJson, TimeoutS
from ..tables import print_facts, print_table
from .errors import CommandFailed

ClusterUrl = Annotated[
    str,
    typer.Option("--cluster", metavar="URL", envvar="CALLBOARD_CLUSTER", help="The store of the cluster."),
]

Node = Annotated[str, typer.Argument(metavar="NODE", help="The name of a node, or of its session.")]

app = make_app("Show, check and change a cluster, through its store: its nodes may run or not.")


@app.command("status")
def status(cluster: ClusterUrl = "", as_json: AsJson = False, timeout: TimeoutS = 30.0) -> None:
    """Show the nodes with their partitions and signs of life, and what is in the store.

    Takes up to one session timeout, to see which nodes live.
    """
    from .runs import run_status

    found = run_status(cluster, timeout)
    if as_json:
        print_json(found.as_json())
        return
    print_facts(found.facts())
    print_line()
    print_table(found.node_table())


@app.command("check")
def check(
    cluster: ClusterUrl = "",
    single: Annotated[bool, typer.Option("--single", help="Do not warn that the data is on one machine only.")] = False,
    as_json: AsJson = False,
    timeout: TimeoutS = 120.0,
) -> None:
    """Check the store: let several writers create the same keys, measure latencies, and look at its settings.

    The exit code is 1 if the store cannot be used. The keys are deleted afterwards, so it may run at any time.
    """
    from .runs import run_check

    report = run_check(cluster, timeout, is_single=single)
    if as_json:
        print_json(report.as_json())
    else:
        for finding in report.findings:
            print_line(f"{finding.level:8} {finding.text}")
        if report.latencies:
            print_line()
            print_table(report.latency_table())
    if not report.is_usable:
        raise typer.Exit(REFUSED_EXIT_CODE)


@app.command("drain")
def drain(
    node: Node,
    cluster: ClusterUrl = "",
    undo: Annotated[bool, typer.Option("--undo", help="Let the node take partitions again.")] = False,
    timeout: TimeoutS = 30.0,
) -> None:
    """Let a node give its partitions to the others. It takes none until --undo, or until it is started again.

    Ends when the others serve them. Clients wait for a fraction of a second; their groups do not rebalance.
    """
    from .runs import run_drain

    print_line(run_drain(cluster, timeout, node, undoes=undo))


@app.command("seal")
def seal(
    node: Node,
    cluster: ClusterUrl = "",
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without it, only show what would happen.")] = False,
    timeout: TimeoutS = 30.0,
) -> None:
    """End the session of a node by force. It can acknowledge nothing any more, and the others take its partitions.

    For a node that cannot be stopped, such as one that clients cannot reach. Nothing acknowledged is lost.
    """
    from .runs import run_seal

    plan = run_seal(cluster, timeout, node, executes=execute)
    for line in plan.describe(is_done=execute):
        print_line(line)
    if not execute:
        print_line("nothing was changed; --execute does it")


@app.command("import")
def import_(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data folder of a single node that has stopped.")],
    cluster: ClusterUrl = "",
    session_timeout: Annotated[
        int,
        typer.Option(
            "--cluster-session-timeout-ms",
            metavar="MS",
            min=1,
            help="The session timeout of the cluster. It cannot be changed later.",
        ),
    ] = int(BY_NAME["cluster_session_timeout_ms"].default),
    timeout: TimeoutS = 3600.0,
) -> None:
    """Make a cluster of a single node's data folder, in an empty store. The folder is not changed.

    Groups, offsets, transactions, producer ids, topics. Start nodes afterwards, with the same numbers of partitions.
    """
    from .runs import run_import

    result = run_import(cluster, timeout, data, session_timeout)
    print_facts([("partitions", str(result.partitions)), *result.content.describe()])
    if result.settings:
        print_line(
            f"start each node with the changed settings: {' '.join(f'--set {each}' for each in result.settings)}"
        )


@app.command("export")
def export(
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The folder to create.")],
    cluster: ClusterUrl = "",
    timeout: TimeoutS = 3600.0,
) -> None:
    """Write the state of the cluster to a data folder for callboard serve --data, also while nodes serve.

    Has everything that was acknowledged before the command began, and each transaction as a whole or not at all.
    """
    from ..new_folder import check_destination
    from .runs import run_export

    check_destination(destination, "DEST")
    result = run_export(cluster, timeout, destination)
    print_facts(result.content.describe())
    print_line(f"{destination}: consistent, as of register version {result.register_version}")


@app.command("accept-loss")
def accept_loss(
    cluster: ClusterUrl = "",
    execute: Annotated[bool, typer.Option("--execute", help="Accept it; without it, only show it.")] = False,
    timeout: TimeoutS = 30.0,
) -> None:
    """Let nodes start again after one of them found that the store lacks commits that it had acknowledged.

    Use it only if the newest copy of the store is lost for ever: what it had is lost, too.
    """
    from .runs import run_accept_loss

    damage = run_accept_loss(cluster, timeout, execute=execute)
    if not damage:
        print_line("no node has found a loss: nothing to do")
    elif execute:
        print_line(f"accepted: {damage}")
    else:
        print_line(f"{damage}\nnothing was changed; give --execute to accept it")


def main(argv: Sequence[str]) -> int:
    try:
        app(list(argv), prog_name="callboard cluster")
    except CommandFailed as error:
        print_error(error)
        return REFUSED_EXIT_CODE
    except OSError as error:
        from ...disk.disk import describe_failure  # not for the help

        print_error(describe_failure(error))
        return REFUSED_EXIT_CODE
    return 0
