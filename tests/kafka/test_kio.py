"""kio is imported without hypothesis."""

from __future__ import annotations

import subprocess
import sys


def loaded_after(statements: str) -> set[str]:
    code = f"import sys; {statements}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return set(done.stdout.split())


def test_kio_does_not_import_hypothesis() -> None:
    loaded = loaded_after("from callboard.runtime.kafka.codec.schemas import schema; schema('heartbeat', 4)")
    assert "kio.serial" in loaded
    assert "hypothesis" not in loaded


def test_hypothesis_can_be_imported_after_kio() -> None:
    statements = "from callboard.runtime.kafka.codec.kio import kio; kio('serial'); import hypothesis.strategies"
    assert "hypothesis.strategies" in loaded_after(statements)


def test_hypothesis_imported_before_kio_stays() -> None:
    statements = "import hypothesis; from callboard.runtime.kafka.codec.kio import kio; kio('serial'); hypothesis.given"
    assert "hypothesis" in loaded_after(statements)
