"""Where the project's files are, for tests in any folder below ``tests``."""

from __future__ import annotations

from pathlib import Path

TESTS_FOLDER = Path(__file__).resolve().parent
ROOT = TESTS_FOLDER.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
