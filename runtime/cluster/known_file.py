"""KnownFile: what a node knows to be in the store, kept in its data folder for the comparison at its next start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import StartError
from ..common.json_files import parse_json
from ..common.logs import get_logger
from ..disk.disk import Disk, read_file, replace_file
from .continuity import Known, check_known
from .patient_store import PatientStore
from .register_log import newest_register
from .single_log import refuse_log_of_single_server
from .store import Store

NAME = "cluster-known.json"

log = get_logger("callboard.cluster")


class Note(NamedTuple):
    """``accepted_losses``: of the register. An operator who accepts a loss makes the note void."""

    cluster_id: str
    accepted_losses: int
    known: Known


class KnownFile:
    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._path = folder / NAME
        self._saving: asyncio.Task[None] | None = None

    def save(self, note: Note) -> None:
        """OSError. It is written before it replaces the last one, so there is always a whole one."""
        known = note.known._replace(token=note.known.token.hex())._asdict()  # type: ignore[arg-type]
        replace_file(self._disk, self._path, json.dumps({**note._asdict(), "known": known}).encode())

    def save_in_thread(self, note: Note) -> None:
        """Nothing is done while an earlier note is being saved."""
        if self._saving is None:
            self._saving = asyncio.get_running_loop().create_task(self._save_in_thread(note))

    async def _save_in_thread(self, note: Note) -> None:
        try:
            await asyncio.to_thread(self.save, note)
        except OSError as error:
            log.warning("what is known of the store was not saved", reason=str(error))
        finally:
            self._saving = None

    def load(self) -> Note | None:
        """None if there is none. Raises StartError if it cannot be read."""
        try:
            return _decode(parse_json(read_file(self._disk, self._path)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "strerror", None) or repr(error)
            raise StartError(
                f"{self._path}: cannot be read: {reason}; remove it to start without comparing the store with it"
            ) from None

    async def compare(self, store: Store) -> None:
        """Raises StartError if this is another cluster, and StoreOlder if the store lacks what is noted.

        A folder without a note may be the one of a single server, which is refused.
        """
        note = self.load()
        patient = PatientStore(store)
        register = await newest_register(patient)
        if note is None:
            refuse_log_of_single_server(self._disk, self._path.parent, register)
            return
        if register is None or register.cluster_id != note.cluster_id:
            holds = "no cluster" if register is None else f"the cluster {register.cluster_id}"
            raise StartError(
                f"the store has {holds}, but this data folder belongs to the cluster {note.cluster_id}: restore the "
                f"store, or remove {self._path} if this node shall belong to another cluster"
            )
        if register.accepted_losses == note.accepted_losses:
            await check_known(lambda: note.known, patient)


def _decode(fields: Any) -> Note:
    """Raises ValueError, KeyError or TypeError for anything but a note."""
    known, versions = fields["known"], fields["known"]["versions"]
    epochs = known.get("epochs", {})  # a node of an earlier release has not noted them
    for name, value in (("versions", versions), ("epochs", epochs)):
        if not isinstance(value, dict):
            raise TypeError(f"{name} are {value!r}, expected an object")
    for text in (fields["cluster_id"], known["session"], known["token"], *versions.values()):
        if not isinstance(text, str):
            raise TypeError(f"{text!r}, expected a text")
    for number in (fields["accepted_losses"], known["rounds"], *epochs.values()):
        if type(number) is not int:
            raise TypeError(f"{number!r}, expected a whole number")
    token = bytes.fromhex(known["token"])
    noted = Known(known["session"], known["rounds"], token, versions, epochs)
    return Note(fields["cluster_id"], fields["accepted_losses"], noted)
