"""The file with the patients whom a hospital leaves out: where it is, and how an entry is added to it."""

from __future__ import annotations

import codecs
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from client_sdk.errors import ConfigurationError
from client_sdk.guard.exclusion import ExclusionEntry, encoding_of, entry_identity, exclusion_entries
from study_protocol.cells.identity import objection_key
from study_protocol.files.durable import replacing
from study_protocol.files.lock import FileInUse, FileLock

# Read without being named in the policy, so that an objection needs no change of the policy.
OBJECTIONS_FILE = "objections.txt"
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.05


@dataclass(frozen=True)
class ExclusionFile:
    """The file of a policy. is_named: in the policy. Else it is the usual one, which need not be there."""

    path: Path
    is_named: bool

    @property
    def subject(self) -> str:
        """The file, as messages name it."""
        if self.is_named:
            return f"the list {self.path} that excluded_patients_file names in the site policy"
        return f"the list of objections {self.path}"

    def read(self) -> bytes:
        """Return the bytes of the file, none of a file that is not there and need not be.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        try:
            return self.path.read_bytes()
        except FileNotFoundError as error:
            if not self.is_named:
                return b""
            raise self._unreadable(error) from error
        except OSError as error:
            raise self._unreadable(error) from error

    def entries(self, data: bytes) -> tuple[ExclusionEntry, ...]:
        """Return the entries in bytes of the file. Raises ConfigurationError: a line is not one identifier."""
        return exclusion_entries(data, self.path.name, self.subject)

    def add(self, identities: Iterable[str]) -> None:
        """Add patients who are not on the list. It is durable when this returns, and whole at any moment.

        Lines that are there keep their bytes. The encoding, the ends of lines, the mode and a link are kept, too.

        Raises:
            ConfigurationError: the file holds a wrong line, or cannot be read. It is unchanged.
            OSError: it cannot be written, or another process keeps it too long. It is unchanged.
        """
        # A link stays one: the file that it leads to is replaced.
        path = self.path.resolve()
        with _locked(path):
            # Read again under the lock: another process may have added meanwhile.
            data = self.read()
            listed_keys = {objection_key(entry.identity) for entry in self.entries(data)}
            new: dict[str, str] = {}
            for identity in identities:
                if (key := objection_key(identity)) not in listed_keys:
                    new.setdefault(key, identity)
            # An unchanged list keeps its time, by which people and backups see changes.
            if not new:
                return
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
            with replacing(path, mode=mode) as file:
                file.write(data + _lines(data, list(new.values())))

    def _unreadable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(f"{self.subject} cannot be read: {error.strerror or 'an error of the disk'}")


def identity_of(text: str) -> str:
    """Return the identity that a person's text means, as a line of the list would.

    Raises:
        ConfigurationError: the text is no identifier. It is not repeated.
    """
    try:
        identity = entry_identity(text)
    except ValueError as error:
        raise ConfigurationError(f"the identifier {error}") from None
    if not identity:
        raise ConfigurationError("the identifier is empty")
    return identity


def _lines(data: bytes, identities: list[str]) -> bytes:
    """Return the bytes that add these lines to a list."""
    encoding = encoding_of(data)
    if encoding == "utf-16":
        # Without the mark, which stands at the beginning only.
        encoding = "utf-16-le" if data.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
        text = data[2:].decode(encoding)
    else:
        text, encoding = data.decode(encoding), "utf-8"
    end = "\r\n" if "\r\n" in text else "\n"
    # The last line may have no end, and a splitter of lines knows more ends than these two.
    gap = end if text and text.splitlines()[-1] == text.splitlines(keepends=True)[-1] else ""
    return (gap + "".join(identity + end for identity in identities)).encode(encoding)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Keep other processes of this program from adding meanwhile."""
    lock, limit = None, time.monotonic() + _PATIENCE_SECONDS
    while lock is None:
        try:
            lock = FileLock(path.with_name(f".{path.name}.lock"))
        except FileInUse as error:
            if time.monotonic() >= limit:
                raise OSError(f"another process is changing {path}: try again") from error
            time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        lock.remove()
