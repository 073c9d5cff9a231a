"""Creates a file at a URL only if there is none, in one step. The commits of a table at a URL rely on this alone.

Amazon S3, Google Cloud Storage and Azure do it for a conditional PUT, which obstore sends; pyarrow cannot. Other file
systems are those of fsspec: with ``mode="create"`` they refuse a file that exists. In a local folder a complete file
gets its name by a hard link. Services show only what is durable; a folder needs a sync.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from ...runtime.cluster.engines import without_password
from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk

Create = Callable[[str, bytes], bool]
"""Creates a file by its path in the file system. False if there is one, whose content stays. Raises OSError."""

SERVICES = {"s3": "S3Store", "gs": "GCSStore", "gcs": "GCSStore", "abfs": "AzureStore", "abfss": "AzureStore"}
"""The classes of obstore, by the scheme of the URL. pyarrow opens these URLs itself."""

_CREATING = threading.Lock()
"""The memory of fsspec, which one process uses, looks for a file and creates it in two steps."""


def creator_of(url: str, filesystem: Any, root: Path) -> Create:
    """How to create files of the table at a URL. ``filesystem_of`` has opened it, and found the table at ``root``.

    Raises StartError for a file system that cannot create a file in one step, and for a package that is missing.
    """
    from pyarrow.fs import LocalFileSystem, PyFileSystem

    scheme = url.partition("://")[0]
    if scheme in SERVICES and not isinstance(filesystem, PyFileSystem):
        return _by_obstore(url, scheme, filesystem)
    if isinstance(filesystem, LocalFileSystem):
        return _by_link(root)
    if isinstance(filesystem, PyFileSystem):
        return _by_fsspec(url, filesystem.handler.fs)
    raise _cannot_create(url)


def _cannot_create(url: str) -> StartError:
    return StartError(
        f"{without_password(url)}: found a file system that cannot create a file only if there is none, expected a"
        " folder, or a URL of S3, Google Cloud Storage, Azure, or a file system of fsspec that can; a copy of a table"
        " there can be read"
    )


def make_durable(path: Path, root: Path) -> None:
    """Sync a file of the table at ``root``, and the folders that lead to it. Raises OSError."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    for folder in path.parents:
        Disk().sync_folder(folder)
        if folder == root.parent:
            break


def _by_link(root: Path) -> Create:
    def create(path: str, data: bytes) -> bool:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid4().hex}")
        try:
            draft.write_bytes(data)
            make_durable(draft, root)
            os.link(draft, target)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        Disk().sync_folder(target.parent)
        return True

    return create


def _by_fsspec(url: str, filesystem: Any) -> Create:
    def create(path: str, data: bytes) -> bool:
        try:
            with suppress(FileExistsError):
                filesystem.makedirs(str(Path(path).parent), exist_ok=True)
            with _CREATING:
                filesystem.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except (NotImplementedError, TypeError):  # read-only, or without the parameter ``mode``
            raise _cannot_create(url) from None
        return True

    return create


def _by_obstore(url: str, scheme: str, filesystem: Any) -> Create:
    try:
        import obstore
        from obstore import store as stores
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        from ...runtime.cluster.engines.objects import ERRORS, translated
    except ModuleNotFoundError:
        raise StartError(
            f"{without_password(url)}: writing to a table there needs the package obstore, which is not installed:"
            " pip install 'callboard[spark,objects]'"
        ) from None
    bucket, settings = _settings(url, filesystem)
    try:
        store = getattr(stores, SERVICES[scheme])(bucket, **settings)
    except BaseError as error:
        raise StartError(f"{without_password(url)}: {error}") from None

    def create(path: str, data: bytes) -> bool:
        try:
            obstore.put(store, path.partition("/")[2], data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except ERRORS as error:
            raise OSError(str(translated(error, without_password(url), bucket))) from None
        return True

    return create


def _settings(url: str, filesystem: Any) -> tuple[str, dict[str, Any]]:
    """The bucket, and obstore's settings for what pyarrow knows by the URL. All else is in the environment."""
    parts = urlsplit(url)
    credentials, _, bucket = parts.netloc.rpartition("@")
    if parts.scheme.startswith("abfs"):  # abfs://container@account.dfs.core.windows.net/path
        container, _, account = parts.netloc.partition("@")
        return container, {"account_name": account.partition(".")[0]} if account else {}
    if parts.scheme != "s3":
        return bucket, {}
    query = dict(parse_qsl(parts.query))
    settings: dict[str, Any] = {"region": filesystem.region}
    if credentials:
        user, _, secret = credentials.partition(":")
        settings |= {"access_key_id": unquote(user), "secret_access_key": unquote(secret)}
    if endpoint := query.get("endpoint_override"):
        scheme = query.get("scheme", "https")
        settings["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        settings["client_options"] = {"allow_http": settings["endpoint"].startswith("http://")}
    return bucket, settings
