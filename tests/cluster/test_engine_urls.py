"""``open_store`` finds the engine of a URL, and says what is wrong with one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from callboard.runtime.cluster import engines
from callboard.runtime.cluster.engines import ENGINES, StoreEngine, open_store, without_password
from callboard.runtime.cluster.engines.folder import FolderStore
from callboard.runtime.common.errors import StartError


def test_scheme_chooses_the_engine(tmp_path: Path) -> None:
    assert isinstance(open_store(tmp_path.as_uri(), "n1"), FolderStore)


@pytest.mark.parametrize("url", ["", "/shared", "etcd://host/1", "FILE:///shared", "mysql://me:secret@host/db"])
def test_unknown_scheme_is_refused_with_examples(url: str) -> None:
    with pytest.raises(StartError, match=r"no store has a URL like .*file:///shared/callboard") as caught:
        open_store(url, "n1")
    assert "secret" not in str(caught.value)


def test_path_without_scheme_is_refused_with_its_url() -> None:
    with pytest.raises(StartError, match=r"; a folder is file:///shared/callboard;"):
        open_store("/shared/callboard", "n1")


@pytest.mark.parametrize("url", ["file://", "file:///", "file://shared/callboard", "file:///shared?x=1", "file:///a#b"])
def test_url_of_no_folder_is_refused(url: str) -> None:
    with pytest.raises(StartError, match="names no folder; expected the absolute path"):
        open_store(url, "n1")


def test_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme, engine in ENGINES.items():
        if engine.library:
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, engine.library, None)
                for module in [name for name in sys.modules if name.startswith(f"{engines.__name__}.")]:
                    patch.delitem(sys.modules, module)
                with pytest.raises(StartError, match=rf"pip install 'callboard\[{engine.extra}\]'"):
                    open_store(f"{scheme}://name", "n1")


def test_bug_in_an_engine_is_not_taken_for_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "x", StoreEngine("no_such_module", "x://", "library", "extra"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        open_store("x://y", "n1")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me:se@cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
