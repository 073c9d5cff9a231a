"""One campaign of a kind, from the start of its servers to their end."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .campaign import Outage, Unserved
from .kinds import KINDS

Tell = Callable[[int, Outage], None]


def faults_of(kind: str, cycles: int, tell: Tell | None = None) -> tuple[Sequence[Outage], Sequence[str]]:
    """Its outages, and what was lost, or read though it was old.

    It ends with the first client that nobody serves for ``campaign.WAIT_S``, which is an outage, and a violation. Then
    the logs of the servers are kept.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"callboard-{kind}-"))
    outages, violations = asyncio.run(_run(kind, cycles, folder, tell))
    if violations:
        print(f"{kind}: the logs of the servers are in {folder}", file=sys.stderr, flush=True)
    else:
        shutil.rmtree(folder)
    return outages, violations


async def _run(kind: str, cycles: int, folder: Path, tell: Tell | None) -> tuple[Sequence[Outage], Sequence[str]]:
    async with KINDS[kind](folder) as (campaign, fault):
        for number in range(cycles):
            try:
                outage = await campaign.cycle(fault, number)
            except Unserved as error:
                campaign.note_unserved(f"fault {number}: {error}")
                break
            if tell is not None:
                tell(number, outage)
    return campaign.outages, campaign.violations
