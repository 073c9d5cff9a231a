"""What can be seen of the file system under a shared folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .finding import Finding, Level

MOUNTS = Path("/proc/self/mounts")
NFS_OPTIONS = ("noac", "lookupcache=none")


async def check(url: str, is_single: bool) -> list[Finding]:
    """The options of an NFS mount. The disk below it cannot be seen."""
    folder = Path(unquote(urlsplit(url).path)).resolve()
    try:
        found = mount_findings(folder, MOUNTS.read_text().splitlines())
    except OSError:
        found = [Finding(Level.UNKNOWN, "how the folder is mounted: this system does not say")]
    return [*found, Finding(Level.UNKNOWN, "whether its disk keeps what it has synced, and has a second copy")]


def mount_findings(folder: Path, lines: Iterable[str]) -> list[Finding]:
    """``lines``: those of /proc/self/mounts. The last mount above the folder decides."""
    mounts = [(Path(point), kind, options) for _, point, kind, options, *_ in map(str.split, lines)]
    above = [mount for mount in mounts if folder.is_relative_to(mount[0])]
    if not above:
        return [Finding(Level.UNKNOWN, "how the folder is mounted")]
    point, kind, options = max(reversed(above), key=lambda mount: len(mount[0].parts))
    if not kind.startswith("nfs"):
        return [Finding(Level.OK, f"a folder on {kind}, mounted at {point}: only this machine's nodes may share it")]
    missing = [option for option in NFS_OPTIONS if option not in options.split(",")]
    if missing:
        return [
            Finding(
                Level.ERROR,
                f"NFS at {point} is mounted without {','.join(missing)}, so nodes see the files of others late; mount "
                f"it with {','.join(NFS_OPTIONS)}",
            )
        ]
    return [Finding(Level.OK, f"NFS at {point} is mounted with {','.join(NFS_OPTIONS)}")]
