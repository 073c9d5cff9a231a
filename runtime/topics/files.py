"""TopicFiles: the table of topics with its file, and the file of the end offsets.

Changes that wait for ``topics.json`` share its next write, see ``GroupCommit``. Files that were removed or truncated
while the server runs are written again from memory.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...actors.steps import Steps, pieces
from ..common.logs import get_logger
from ..disk.disk import Disk, file_size, replace_file
from ..disk.file_work import FileWork, InlineFileWork
from ..disk.group_commit import GroupCommit
from .draft import TopicsDraft
from .opening import UNKNOWN_SIZE, OpenedFiles
from .store import TableEncoder
from .table import TopicTable

log = get_logger("callboard.runtime")


class TopicFiles:
    """The files of a catalogue. ``table``: what is durable; ``changes``: submit changes of it here.

    All methods but ``write`` must be called on the event loop's thread.
    """

    def __init__(self, path: Path, disk: Disk, opened: OpenedFiles, table: TopicTable) -> None:
        """``path``: that of ``topics.json``. ``table``: its content."""
        self.table = table
        self.changes: GroupCommit[TopicsDraft] = GroupCommit(self, InlineFileWork())
        self._path = path
        self._disk = disk
        self._ends = opened.ends
        self._encoder = TableEncoder()
        self._saved_bytes = opened.table_bytes
        self._offsets_topic_id = opened.table.offsets_topic_id
        self._is_checking = False
        self._reported: set[tuple[str, ...]] = set()

    def run_on(self, files: FileWork) -> None:
        """Write files with ``files`` from now on; before, they are written on the caller's thread."""
        self.changes.files = files

    # Group commit ----------------------------------------------------------------------------------------------------

    def draft(self) -> TopicsDraft:
        """A copy of the table. This and the next three methods are the file protocol of ``GroupCommit``."""
        return TopicsDraft(self.table, self._offsets_topic_id)

    def write(self, draft: TopicsDraft) -> None:
        """Sync the end offsets first: the slots of a new row may still have those of a deleted topic on disk."""
        problem = self._ends.sync()
        if problem:
            raise OSError(errno.EIO, f"topics.ends is being rewritten: {problem}")
        content = self._encoder.encode(draft.content())
        self._saved_bytes = UNKNOWN_SIZE  # after a failure either content may be there
        replace_file(self._disk, self._path, content)
        self._saved_bytes = len(content)

    def publish(self, draft: TopicsDraft) -> Steps[None]:
        """The version of the table changes last, so what is derived from a part of the topics is derived again."""
        for callbacks in pieces(draft.to_publish):
            for callback in callbacks:
                callback()
            yield
        self.table = draft.table

    def discard(self, draft: TopicsDraft) -> None:
        for callback in draft.to_discard:
            callback()

    # Checks and end --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Sync the end offsets, and rewrite files that were removed or truncated. Call it regularly; does not block."""
        if self._is_checking:
            return  # the last check is still running
        self._is_checking = True
        problems: list[str] = []
        self.changes.files.submit(
            lambda: problems.extend(self._check_both_files()), lambda error: self._finish_check(problems, error)
        )

    def _check_both_files(self) -> tuple[str, str]:
        """The problems of both files; "" for a file without one. Blocks. Raises OSError."""
        return self._ends.sync(), self._table_problem()

    def _table_problem(self) -> str:
        try:
            size = file_size(self._disk, self._path)
        except FileNotFoundError:
            return "it was removed"
        expected = self._saved_bytes
        if expected == UNKNOWN_SIZE:
            return "it could not be written before"
        return "" if size == expected else f"it has {size} bytes, expected {expected}"

    def _finish_check(self, problems: Sequence[str], error: OSError | None) -> None:
        self._is_checking = False
        if error is not None:
            log.error("the topics could not be synced", reason=str(error))
            return
        ends_problem, table_problem = problems
        if not ends_problem and not table_problem:
            self._reported.clear()
        if ends_problem:
            self._rewrite_ends(ends_problem)
        if table_problem:
            self._report("topics.json is rewritten", reason=table_problem)
            self.changes.submit(lambda draft: True, partial(self._log_rewrite, "topics.json"))

    def _rewrite_ends(self, problem: str) -> None:
        self._report("topics.ends is rewritten from memory", reason=problem)
        try:
            self._ends.rewrite()
        except OSError as error:
            self._log_rewrite("topics.ends", error)
        else:
            self.changes.files.submit(self._ends.put_in_place, partial(self._log_rewrite, "topics.ends"))

    def _log_rewrite(self, name: str, failure: Exception | None) -> None:
        if failure is None:
            log.info("a file was rewritten", file=name)
        else:
            self._report("a file could not be rewritten; this will be retried", file=name, reason=str(failure))

    def _report(self, event: str, **fields: str) -> None:
        """Checks come once a second, so a problem is logged once until there is none: the disk may be full for days."""
        problem = (event, *fields.values())
        if problem not in self._reported:
            self._reported.add(problem)
            log.error(event, **fields)

    def close(self) -> None:
        """Sync and close the files. They are closed even if the sync fails, which raises OSError."""
        try:
            if self._ends.sync():
                self._ends.rewrite()
                self._ends.put_in_place()
        finally:
            self._ends.close()

    def halt(self) -> None:
        """Close the files without a sync, as at the death of the process."""
        self._ends.close()
