"""The packages and the imports that are allowed between them. A change of this table is a change of the design.

A package has folders, or files by their path without ``.py``; if two packages match a file, the longer path decides.
The table lists the lowest package first; a package may only import packages above it in the table.
"""

from __future__ import annotations

from typing import NamedTuple


class Package(NamedTuple):
    """``may_import``: names of packages, or ``path.py`` for a file where the rest of its package is not allowed.

    ``"*"``: every package above it in the table.
    """

    paths: tuple[str, ...]
    may_import: tuple[str, ...] = ()


ACTORS = ("actors/base", "actors")

PACKAGES: dict[str, Package] = {
    # The base class of actors, and the timer. Independent of Kafka.
    "actors/base": Package(
        (
            *("actors/__init__", "actors/base", "actors/callboard_error", "actors/engine_ports", "actors/steps"),
            *("actors/text", "actors/timer", "actors/turn"),
        )
    ),
    # Errors, log lines, and printed text, in which text from clients is escaped.
    "runtime/common": Package(("runtime/common",), ("actors/callboard_error.py", "actors/steps.py", "actors/text.py")),
    # The engine that runs actors. Independent of Kafka.
    "runtime/engine": Package(("runtime/__init__", "runtime/engine"), ("actors/base",)),
    "actors": Package(("actors",), ("actors/base",)),
    "runtime/disk": Package(("runtime/disk",), ("actors/steps.py", "runtime/common")),
    "runtime/settings": Package(
        ("runtime/settings",), ("actors/errors.py", "actors/text.py", "runtime/common", "runtime/disk")
    ),
    # The stored users, ACLs and quotas, and the rules of authentication and authorization. Independent of connections.
    "runtime/security": Package(
        ("runtime/security",),
        (
            *("actors/engine_ports.py", "actors/errors.py", "actors/steps.py", "actors/text.py"),
            *("runtime/common", "runtime/disk"),
        ),
    ),
    "runtime/log": Package(("runtime/log",), ("actors", "actors/steps.py", "runtime/common", "runtime/disk")),
    "runtime/log/compaction": Package(
        ("runtime/log/compaction",), ("runtime/common", "runtime/disk", "runtime/engine/clock.py", "runtime/log")
    ),
    "runtime/topics": Package(
        ("runtime/topics",),
        (
            *("actors", "actors/steps.py", "actors/text.py"),
            *("runtime/common", "runtime/disk", "runtime/log", "runtime/settings"),
        ),
    ),
    "runtime/kafka/codec": Package(
        ("runtime/kafka/codec",), ("actors", "actors/steps.py", "runtime/common", "runtime/log")
    ),
    # Uses the server only through the protocols in services.py and connection.py.
    "runtime/kafka": Package(
        ("runtime/kafka",),
        (
            *(*ACTORS, "runtime/common", "runtime/engine", "runtime/kafka/codec", "runtime/log", "runtime/settings"),
            *("runtime/security", "runtime/topics"),
        ),
    ),
    # TLS of listeners and of clients. It knows the connection above it as a protocol only.
    "runtime/tls": Package(
        ("runtime/tls",), ("runtime/common", "runtime/kafka/connections/foreign_protocols.py", "runtime/settings")
    ),
    "runtime/client": Package(
        ("runtime/client",),
        (
            *("actors", "actors/callboard_error.py", "actors/text.py", "runtime/kafka/codec", "runtime/security"),
            *("runtime/settings", "runtime/tls"),
        ),
    ),
    "runtime/loading": Package(
        ("runtime/loading",),
        (*ACTORS, "runtime/common", "runtime/disk", "runtime/log", "runtime/topics"),
    ),
    "runtime/cluster": Package(
        ("runtime/cluster",),
        (
            *("actors", "actors/callboard_error.py", "actors/steps.py", "actors/text.py", "runtime/common"),
            *("runtime/client", "runtime/disk", "runtime/engine/clock.py", "runtime/kafka/cluster_view.py"),
            *("runtime/kafka/codec/own_api.py", "runtime/kafka/peer_gate.py", "runtime/kafka/questions.py"),
            *("runtime/loading", "runtime/log", "runtime/security", "runtime/settings", "runtime/topics"),
        ),
    ),
    "runtime/cluster/engines": Package(
        ("runtime/cluster/engines",), ("actors/text.py", "runtime/cluster", "runtime/common", "runtime/disk")
    ),
    "runtime/cluster/compaction": Package(
        ("runtime/cluster/compaction",),
        (
            *("runtime/cluster", "runtime/cluster/engines", "runtime/common", "runtime/disk"),
            *("runtime/engine/clock.py", "runtime/log", "runtime/log/compaction", "runtime/settings"),
        ),
    ),
    "runtime/node": Package(
        ("runtime/node",),
        (
            *(*ACTORS, "runtime/common", "runtime/disk", "runtime/engine", "runtime/kafka", "runtime/loading"),
            *("runtime/log", "runtime/log/compaction", "runtime/security", "runtime/settings", "runtime/tls"),
            "runtime/topics",
        ),
    ),
    "runtime/member": Package(
        ("runtime/member",),
        (
            *("actors", "runtime/client", "runtime/common", "runtime/disk", "runtime/engine", "runtime/kafka"),
            *("runtime/node", "runtime/settings", "runtime/topics"),
            *("actors/callboard_error.py", "actors/text.py"),
        ),
    ),
    "runtime/embed": Package(
        ("runtime/embed",),
        (
            *("actors", "runtime/common", "runtime/disk", "runtime/engine", "runtime/kafka"),
            *("runtime/member", "runtime/node", "runtime/settings", "runtime/topics", "actors/text.py"),
            *("actors/steps.py", "runtime/security"),
            # Only for a coordinator in a cluster.
            *("runtime/client", "runtime/cluster", "runtime/cluster/compaction", "runtime/cluster/engines"),
            *("runtime/kafka/codec", "runtime/log"),
        ),
    ),
    # The public names, imported lazily; every package may read the version there.
    "runtime/front": Package(
        ("runtime/front/__init__",),
        ("actors", "actors/callboard_error.py", "runtime/common", "runtime/embed", "runtime/member"),
    ),
    # The HTTP API, imported only where it is served.
    "runtime/web": Package(
        ("runtime/web",),
        (
            *("actors", "actors/text.py", "runtime/common", "runtime/embed", "runtime/engine", "runtime/kafka"),
            *("runtime/kafka/codec", "runtime/node", "runtime/security", "runtime/settings"),
        ),
    ),
    # The web page: templates, and what they show.
    "runtime/web/page": Package(
        ("runtime/web/page",),
        (
            *("actors", "actors/text.py", "runtime/common", "runtime/embed", "runtime/front", "runtime/node"),
            "runtime/web",
        ),
    ),
    # The API and the page as one app, and its server.
    "runtime/web/serving": Package(
        ("runtime/web/application", "runtime/web/server"),
        ("runtime/embed", "runtime/node", "runtime/settings", "runtime/web", "runtime/web/page"),
    ),
    "runtime/cli": Package(
        ("runtime/cli",),
        (
            *(*ACTORS, "runtime/client", "runtime/common", "runtime/disk", "runtime/engine", "runtime/front"),
            *("runtime/log", "runtime/log/compaction", "runtime/node", "runtime/security", "runtime/settings"),
            *("runtime/topics", "runtime/cluster", "runtime/cluster/compaction", "runtime/cluster/engines"),
            *("runtime/embed/cluster_environment.py", "runtime/web/serving"),
        ),
    ),
    "runtime/testing": Package(
        ("runtime/testing",),
        (
            *(*ACTORS, "runtime/cli", "runtime/common", "runtime/disk", "runtime/embed", "runtime/engine"),
            *("runtime/kafka", "runtime/kafka/codec", "runtime/loading", "runtime/log", "runtime/log/compaction"),
            *("runtime/member", "runtime/node", "runtime/settings", "runtime/topics"),
        ),
    ),
    "runtime/front/programs": Package(("runtime/front",), ("runtime/cli", "runtime/testing", "runtime/web/serving")),
    "spark": Package(
        ("spark",),
        (
            *("actors/text.py", "runtime/client", "runtime/common", "runtime/disk", "runtime/engine/clock.py"),
            *("runtime/log", "runtime/log/compaction"),
            *("runtime/cluster", "runtime/cluster/compaction", "runtime/cluster/engines"),
            # The form of commands.
            *(
                "runtime/cli/main.py",
                "runtime/cli/options.py",
                "runtime/cli/tables.py",
                "runtime/cli/server_options.py",
                "runtime/settings/address.py",
            ),
        ),
    ),
    "bench": Package(("bench",), ("*",)),
}

EVERYWHERE = "runtime/front/__init__"
"""Any file may import this one, and so read ``callboard.__version__``."""

CIRCLES_ALLOWED: tuple[tuple[str, ...], ...] = ()
"""Sets of files that import each other although none should, each sorted. Resolved sets must be removed here."""


def package_of(file: str) -> str | None:
    """The package of a file, by its path from the root without ``.py``."""
    matches = [
        (len(path), name)
        for name, package in PACKAGES.items()
        for path in package.paths
        if file == path or file.startswith(path + "/")
    ]
    return max(matches)[1] if matches else None


def allowed(name: str) -> tuple[str, ...]:
    """The packages and files that a package may import."""
    may_import = PACKAGES[name].may_import
    names = tuple(PACKAGES)
    return names[: names.index(name)] if may_import == ("*",) else may_import


def is_allowed(importer: str, target: str) -> bool:
    """Whether a file of this project may import another."""
    own, other = package_of(importer), package_of(target)
    if own is None or other is None:
        return False
    return target == EVERYWHERE or own == other or not {other, f"{target}.py"}.isdisjoint(allowed(own))
