"""The state that a hospital keeps of one round's secure sum: written and synced before anything is sent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

from pydantic import Field, ValidationError

from client_sdk.outbox import Outbox
from client_sdk.secure_sum.refusals import StateRefused
from study_protocol.files.durable import erase, unfinished_files, write_durably
from study_protocol.files.lock import FileInUse, FileLock
from study_protocol.files.origin import origin_of
from study_protocol.files.private import make_private_folder
from study_protocol.secure_sum.messages import (
    ConsistencyMessage,
    Digest,
    Key,
    KeysMessage,
    Manifest,
    Octets,
    ParameterFault,
    SessionParameters,
    SharesMessage,
    UnmaskMessage,
)
from study_protocol.secure_sum.vectors import VectorName
from study_protocol.wire.values import Message, Name

_LOG = logging.getLogger(__name__)


class Secrets(Message):
    """The secrets that are erased after unmasking, abort or expiry. `shares`: by owner, of its seed and of its mask
    key."""

    share_private: Key = Field(repr=False)
    mask_private: Key = Field(repr=False)
    seed: Key = Field(repr=False)
    shares: dict[Name, Octets] = Field(default_factory=dict, repr=False)


class SessionRecord(Message):
    """One attempt at the round: each field is set by the step that it is named after and never changes again.

    identities   of the cohort, by name: the raw Ed25519 keys that its masking keys were checked with
    """

    parameters: Octets
    secrets: Secrets | None
    keys: KeysMessage
    cohort: tuple[KeysMessage, ...] = ()
    identities: dict[Name, Key] = Field(default_factory=dict)
    shares: SharesMessage | None = None
    sharers: tuple[Name, ...] = ()
    manifest: Manifest | None = None
    survivors: tuple[Manifest, ...] = ()
    consistency: ConsistencyMessage | None = None
    unmask: UnmaskMessage | None = None


class Opened(Message):
    """Of a sum that this hospital helped to open: its round, cohort (U1), survivors (U3), and the model at its start or
    the query that was asked.

    Kept twice, so that no step reads what all rounds have left: as the newest one, and under the model.
    """

    round: int
    cohort: tuple[Name, ...]
    survivors: tuple[Name, ...]
    model: str


class RoundRecord(Message):
    """All attempts at one round. `released` and `sessions` are kept for ever.

    sessions   identities of every session joined
    words      SHA-256 of the words before masking: a retry sends the same ones. None once the result was checked, since
               a digest of few possible values is as good as the values
    released   this hospital opened shares for the round and never does so again
    """

    study: Name
    round: int
    sessions: tuple[Key, ...] = ()
    words: dict[VectorName, Digest] | None = None
    released: bool = False
    session: SessionRecord | None = None

    @property
    def needs_words(self) -> bool:
        """Whether the round's finished words may still have to be sent: its session is neither checked nor over."""
        return self.session is not None and (self.session.secrets is not None or self.session.unmask is not None)

    @property
    def waits_for_its_end(self) -> bool:
        """Whether digests of the words are kept although the sum was opened: until its result is checked."""
        return self.released and self.words is not None

    @property
    def checked(self) -> RoundRecord:
        """The same once the result was checked: what is kept for ever."""
        return self.model_copy(update={"session": None, "words": None})

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
            StateRefused: the file is damaged.
        """
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise StateRefused("unreadable-state", "the stored state of this round is damaged") from error

    def to_bytes(self) -> bytes:
        return self.model_dump_json().encode()


class Store(Protocol):
    """A store of the records, each under a round's number or, of what was opened, a name.

    `save` returns once the bytes survive a power cut.
    """

    def load(self, study: str, key: int | str) -> bytes | None: ...

    def save(self, study: str, key: int | str, record: bytes) -> None: ...


def record_of(store: Store, study: str, round_number: int) -> RoundRecord:
    """Return the record of the round, or an empty one where none is stored.

    Raises:
        StateRefused: the record is damaged.
    """
    raw = store.load(study, round_number)
    return RoundRecord(study=study, round=round_number) if raw is None else RoundRecord.from_bytes(raw)


_NEWEST = "opened"


def newest_opened(store: Store, study: str) -> Opened | None:
    """Return what this hospital opened last in `study`. Raises StateRefused: the record is damaged."""
    return _opened(store, study, _NEWEST)


def opened_from(store: Store, study: str, model: str) -> Opened | None:
    """The sum of updates from this very model (SHA-256, hex) that this hospital opened last.

    Raises:
        StateRefused: the record is damaged.
    """
    return _opened(store, study, f"{_NEWEST}-{model}")


def keep_opened(store: Store, study: str, opened: Opened) -> None:
    """Durably. Before the shares leave: what may have been opened counts as opened."""
    for key in (f"{_NEWEST}-{opened.model}", _NEWEST):
        store.save(study, key, opened.model_dump_json().encode())


def _opened(store: Store, study: str, key: str) -> Opened | None:
    raw = store.load(study, key)
    try:
        return None if raw is None else Opened.model_validate_json(raw)
    except ValidationError as error:
        raise StateRefused("unreadable-state", "what is stored of the sums that were opened is damaged") from error


def erase_expired(folder: Path, now: int) -> None:
    """Erase as `FileStore.erase_expired`, and every unmasked vector of `folder`'s parent, the study's outbox, that is
    needed no more. If another process holds the folder, that process does it.
    """
    try:
        store = FileStore(folder)
    except StateRefused:
        return
    try:
        store.erase_expired(now)
        study = folder.parent.name
        # A checkpoint belongs to a round whose session goes on.
        Outbox(folder.parent).keep(lambda round: store.needs_words(study, round), checkpoint=store.holds_secrets)
    finally:
        store.close()


def _unless_expired(record: RoundRecord, now: int) -> RoundRecord:
    session = record.session
    if session is None and record.released:
        # Of a version that kept the digests.
        return record if record.words is None else record.checked
    if session is None or now <= SessionParameters.from_bytes(session.parameters).expires:
        return record
    if session.secrets is None:
        # Nobody came back to check the result, and no retry is taken any more.
        return record.model_copy(update={"words": None}) if record.waits_for_its_end else record
    return record.model_copy(update={"session": session.model_copy(update={"secrets": None})})


class FileStore:
    """One file per round, and one per model whose sum was opened, of mode 0600, in a directory of one process at a
    time.

    moved  the files were copied here from somewhere else, or put back: what was sent since then is not in them. It
           shows by the origin of the lock's file. A snapshot of the whole disk keeps it.

    Replacing the file frees the old blocks but does not overwrite them. A reader of the raw disk may find secrets of
    ended sessions, so the directory belongs on an encrypted volume.
    """

    def __init__(self, directory: Path) -> None:
        """Raises StateRefused when another process holds the directory, or its disk keeps no locks."""
        make_private_folder(directory)
        self._directory = directory
        # Records that may hold secrets. None before somebody has looked.
        # Whether secrets are in it, by round. Nothing was looked at yet.
        self._holding: dict[tuple[str, int], bool] | None = None
        try:
            self._lock = FileLock(directory / "lock")
        except FileInUse as error:
            raise StateRefused("state-in-use", "another process uses this hospital's secure-sum state") from error
        except OSError as error:
            raise StateRefused("state-in-use", f"the secure-sum state cannot be locked: {error.strerror}") from error
        try:
            stayed = (directory / "place").read_bytes() == self._place().encode()
        except FileNotFoundError:
            stayed = False
        # An empty directory cannot be an older state.
        erase(unfinished_files(directory))
        self.moved = not stayed and any(directory.glob("*.json"))
        if not stayed and not self.moved:
            self.settle()

    def settle(self) -> None:
        """Count the state as written here from now on. Everything that may have been sent without it is given up."""
        write_durably(self._directory / "place", self._place().encode())
        self.moved = False

    def rounds(self, study: str) -> list[int]:
        """Rounds of `study` that have a record."""
        # No name of a study holds a dot.
        keys = (path.name.split(".")[-2] for path in self._directory.glob(f"{study}.*.json"))
        return sorted(int(key) for key in keys if key.isdigit())

    def erase_expired(self, now: int) -> None:
        """Erase the secrets of every session that has expired, of any study. `now` is in seconds since the epoch."""
        if self._holding is None:
            self._holding = dict.fromkeys(self._stored_rounds(), True)
        for study, number in sorted(self._holding):
            try:
                record = record_of(self, study, number)
                unexpired = _unless_expired(record, now)
            except (StateRefused, ParameterFault):
                # Said aloud by whoever takes part in that round. Nothing here can tell when it expires.
                _LOG.warning("the secure-sum state of round %d of %s is damaged: delete it", number, study)
                continue
            if unexpired is not record:
                self.save(study, number, unexpired.to_bytes())
            secret = unexpired.session is not None and unexpired.session.secrets is not None
            self._holding[study, number] = secret
            if not secret and not unexpired.waits_for_its_end:
                del self._holding[study, number]

    def _stored_rounds(self) -> Iterator[tuple[str, int]]:
        for path in self._directory.glob("*.*.json"):
            study, key, _ = path.name.rsplit(".", 2)
            if key.isdigit():
                yield study, int(key)

    @property
    def holds_secrets(self) -> bool:
        """Whether a session here may go on, as `erase_expired` saw it last."""
        return self._holding is None or any(self._holding.values())

    def needs_words(self, study: str, round_number: int) -> bool:
        """Return `RoundRecord.needs_words` of the stored record, and True for a record that cannot be read."""
        try:
            return record_of(self, study, round_number).needs_words
        except StateRefused:
            return True

    def has_secrets(self, study: str, round_number: int) -> bool:
        """Whether a session of the round was joined and not yet left, unmasked or erased."""
        session = record_of(self, study, round_number).session
        return session is not None and session.secrets is not None

    def close(self) -> None:
        """Let another process take over."""
        self._lock.release()

    def load(self, study: str, key: int | str) -> bytes | None:
        try:
            return self._path(study, key).read_bytes()
        except FileNotFoundError:
            return None

    def save(self, study: str, key: int | str, record: bytes) -> None:
        # Under other keys there are no secrets.
        if self._holding is not None and isinstance(key, int):
            self._holding[study, key] = True
        write_durably(self._path(study, key), record)

    def _place(self) -> str:
        return origin_of(self._lock.descriptor)

    def _path(self, study: str, key: int | str) -> Path:
        return self._directory / f"{study}.{key}.json"
