"""The outages that campaigns have measured: a small JSON file beside the progress of the long proofs, and its table."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from .campaign import Outage
from .kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "soak" / "progress_outages.json"


def faults_of(
    kind: str, cycles: int, tell: Callable[[int, Outage], None] | None = None
) -> tuple[Sequence[Outage], Sequence[str]]:
    """One campaign: its outages, and what was lost, or read though it was old."""

    async def run(folder: Path) -> tuple[Sequence[Outage], Sequence[str]]:
        async with KINDS[kind](folder) as (campaign, fault):
            for number in range(cycles):
                outage = await campaign.cycle(fault, number)
                if tell is not None:
                    tell(number, outage)
        return campaign.outages, campaign.violations

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder)))


def add_outages(kind: str, outages: Sequence[Outage], file: Path = FILE) -> None:
    content = load(file)
    content.setdefault(kind, []).extend(outages)
    lines = [f" {json.dumps(name)}: {json.dumps(rows)}" for name, rows in content.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def load(file: Path = FILE) -> dict[str, list[Outage]]:
    content = json.loads(file.read_text()) if file.exists() else {}
    return {kind: [Outage(*row) for row in rows] for kind, rows in content.items()}


def summary(kind: str, outages: Sequence[Outage]) -> str:
    """p99 is the second worst of a hundred."""
    seconds = sorted(outage.seconds for outage in outages)
    p99 = seconds[-1 - len(seconds) // 100]
    load_average = median(outage.load for outage in outages)
    return (
        f"{kind}: {len(seconds)} faults, p50 {median(seconds):.2f} s, p99 {p99:.2f} s, worst {seconds[-1]:.2f} s; "
        f"load average {load_average:.1f}"
    )
