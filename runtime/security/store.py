"""SecurityStore: the stored users, ACLs and quotas, and who is told when they change.

A single node keeps them in ``security.json`` in its data folder, with permissions for its owner only. The file is
written with the first change. In a cluster they are in its store, and the file is a copy of what this node read last:
a node that cannot read the store goes on with that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from ...actors.steps import Steps
from ..common.errors import StartError
from ..common.json_files import parse_json
from ..common.logs import get_logger
from ..disk.checksum import CANONICAL, FIELD, checksum_of_parts, verify_checksum
from ..disk.disk import Disk, read_file, replace_file
from ..disk.file_work import FileWork, InlineFileWork
from ..disk.group_commit import GroupCommit
from ..disk.json_parts import json_parts
from .document import Section, SecurityDocument, document_of

FILE_NAME = "security.json"
VERSION = 1
PLAIN = json.JSONEncoder()

Change = Callable[[Section], Section | Steps[Section]]
"""Makes the new value of a section, in steps if it is large. Raises CoordinatorError to refuse. It may be called again.
"""

Done = Callable[[Exception | None], None]
"""Called with None when the change is durable and visible; else with the CoordinatorError, or OSError of the write."""

Callback = Callable[[Section], Steps[None] | None]
"""Gets the new value of a section; works in steps if it takes long."""

DocumentChange = Callable[[SecurityDocument], Steps[SecurityDocument]]
Submit = Callable[[DocumentChange, Done], None]

log = get_logger("callboard.runtime")


class SecurityDraft:
    """The document after several changes that share one write of the file."""

    def __init__(self, document: SecurityDocument) -> None:
        self.document = document


class SecurityStore:
    """``document``: what is visible. ``is_known``: whether it was read; in a cluster, from its store.

    For use on the loop's thread only.
    """

    def __init__(self, folder: Path, disk: Disk, new_secret: Callable[[], bytes]) -> None:
        """``new_secret`` returns random bytes. It is called if there are none, and stored with the first change."""
        self.document = SecurityDocument()
        self.is_known = True
        self._new_secret = new_secret
        self._path = folder / FILE_NAME
        self._disk = disk
        self._callbacks: list[tuple[str, Callback]] = []
        self._file: GroupCommit[SecurityDraft] = GroupCommit(self, InlineFileWork())
        self._submit: Submit = self._submit_to_file
        self._is_shared = False

    @property
    def version(self) -> int:
        """A number that grows with each change."""
        return self.document.number

    @property
    def secret(self) -> bytes:
        """Random bytes that only the servers of this cluster know. Once there is a user they never change."""
        if not self.document.secret:
            self.document = self.document._replace(secret=self._new_secret())
        return self.document.secret

    def get(self, section: str) -> Section:
        """The value of a section; empty if it was never changed."""
        return self.document.section(section)

    def change(self, section: str, change: Change, done: Done) -> None:
        """Change a section. ``done`` is called when the change is durable and visible, or with the error."""

        def apply(document: SecurityDocument) -> Steps[SecurityDocument]:
            before = document.section(section)
            made = change(before)
            after = made if isinstance(made, Mapping) else (yield from made)
            if after == before:
                return document
            secret = document.secret or self.secret
            return document._replace(secret=secret).with_section(section, after)

        self._submit(apply, done)

    def on_change(self, section: str, callback: Callback) -> None:
        """Call back with the new value of a section after each change, before its ``done``."""
        self._callbacks.append((section, callback))

    # The file --------------------------------------------------------------------------------------------------------

    def run_on(self, files: FileWork) -> None:
        """Write the file with ``files`` from now on. Before, it is written on the caller's thread."""
        self._file.files = files

    def load(self) -> bool:
        """Read the file. False if there is none. Raises StartError if it is damaged or too new."""
        try:
            self.document = decode_security(read_file(self._disk, self._path))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StartError(
                f"cannot read the users and ACLs '{self._path}': {error.strerror}; expected a file that this "
                "process's user owns"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise StartError(
                f"the users and ACLs '{self._path}' are invalid: {error}; restore the file from a backup, or remove it "
                "to start without users, ACLs and quotas"
            ) from None  # the cause may show secrets
        return True

    def _submit_to_file(self, change: DocumentChange, done: Done) -> None:
        def apply(draft: SecurityDraft) -> Steps[bool]:
            before = draft.document
            draft.document = yield from change(before)
            return draft.document is not before

        self._file.submit(apply, done)

    def draft(self) -> SecurityDraft:
        """See ``group_commit.ReplacedFile``, also for the next three methods."""
        return SecurityDraft(self.document)

    def write(self, draft: SecurityDraft) -> None:
        replace_file(self._disk, self._path, encode_security(draft.document), is_private=True)

    def publish(self, draft: SecurityDraft) -> Steps[None]:
        """In a cluster the file is a copy: a newer version may be visible when it is written."""
        if not self._is_shared:
            yield from self._show(draft.document)

    def _show(self, document: SecurityDocument) -> Steps[None]:
        before, self.document = self.document, document
        for section, callback in self._callbacks:
            value = document.section(section)
            if value != before.section(section):
                steps = callback(value)
                if steps is not None:
                    yield from steps

    def discard(self, draft: SecurityDraft) -> None:
        pass

    # In a cluster ----------------------------------------------------------------------------------------------------

    def share(self, submit: Submit) -> None:
        """Make changes with ``submit`` from now on, which makes them in the cluster's store; see ``adopt``."""
        self._submit, self._is_shared = submit, True
        self.is_known = self.document.number > 0

    def adopt(self, document: SecurityDocument | None, done: Done) -> None:
        """Use what the cluster's store has: None if nothing was ever changed there.

        ``done`` is called when it is in effect, or with the error. Only then the next version may be adopted.
        """
        self._file.files.run_in_slices(self._adopt(document, done))

    def _adopt(self, document: SecurityDocument | None, done: Done) -> Steps[None]:
        try:
            if document is None:
                yield from self._show(SecurityDocument(self.document.secret))
            elif document != self.document:
                yield from self._show(document)
                self._file.submit(lambda draft: True, self._copied)
        except Exception as error:
            done(error)
            return
        self.is_known = True
        done(None)

    def _copied(self, failure: Exception | None) -> None:
        if failure is not None:
            log.warning("the copy of the users and ACLs was not written", file=str(self._path), reason=str(failure))


def encode_security(document: SecurityDocument) -> bytes:
    """The content of the file. Other threads can run in between."""
    fields = {"version": VERSION, **document.fields()}
    fields[FIELD] = checksum_of_parts(json_parts(fields, CANONICAL))
    return "".join(json_parts(fields, PLAIN)).encode() + b"\n"


def decode_security(data: bytes) -> SecurityDocument:
    """Raises ValueError, KeyError or TypeError if it is damaged or too new."""
    content = parse_json(data)
    if not isinstance(content, dict):
        raise ValueError("expected an object")
    version = content["version"]
    if type(version) is not int or not 1 <= version <= VERSION:
        raise ValueError(f"version {version!r}: expected at most {VERSION}; a later Callboard wrote it, use that one")
    verify_checksum(content, VERSION)
    return document_of(content)
