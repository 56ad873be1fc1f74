"""The proof against a coordinator: kept in a file, and while it lies there the hospital takes no part in the study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from client_sdk.errors import ConfigurationError, EvidenceKept, NotTrusted
from client_sdk.identity import Membership
from study_protocol.files.durable import write_durably
from study_protocol.files.private import make_private_folder
from study_protocol.study.messages import Name

# Only what the coordinator signed and showed, and others' signatures: nothing of this hospital's records.
_CALL = (
    "{nothing}. Do not settle it with the operator alone: call the privacy officers of {whom}, by numbers that you "
    "have from elsewhere, and compare entry {entry} of your ledgers (wardround ledger seen {study} --entry {entry}"
    "{dataset})"
)
_HOSPITAL = {
    "nothing": "Nothing more is sent to this study",
    "whom": "the other hospitals",
    "dataset": ", with --dataset as in join",
}
_AUDITOR = {"nothing": "Nothing more is signed for this study", "whom": "the hospitals", "dataset": ""}


class Evidence:
    """One study's file. folder: of this hospital's, or this auditor's, proofs."""

    def __init__(self, folder: Path, study: Name, *, auditor: bool = False) -> None:
        self.path, self._study, self._auditor = folder / f"{study}.json", study, auditor

    def require_none(self) -> None:
        """Raise EvidenceKept while a proof lies here. A person who moves it elsewhere has looked at it."""
        try:
            stored: Mapping[str, Any] = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise EvidenceKept(
                f"{self.path} cannot be read: it is where proofs against a coordinator are kept"
            ) from error
        stopped = "auditor stopped signing" if self._auditor else "hospital stopped taking part in"
        command = "sign" if self._auditor else "join"
        raise EvidenceKept(
            f"this {stopped} {self._study} on {stored.get('at')}: {stored.get('said')}. The proof is "
            f"in {self.path}. When the hospitals have settled what happened, move that file elsewhere and "
            f"{command} again"
        )

    def keep(self, error: NotTrusted, membership: Membership, entry: int) -> None:
        """Write down what proves the error, if anything does, and say in it whom to call.

        entry  the newest that was seen
        """
        if error.proof is None:
            return
        message = str(error)
        document = {"study": self._study, "client": membership.client, "coordinator_key": membership.coordinator_key}
        document |= {"at": datetime.now(UTC).isoformat(timespec="seconds"), "code": error.code, "said": message}
        # The first one stays: what follows from it proves less.
        if not self.path.exists():
            make_private_folder(self.path.parent)
            write_durably(self.path, json.dumps({**document, **error.proof}, indent=1).encode())
        call = _CALL.format(entry=entry, study=self._study, **(_AUDITOR if self._auditor else _HOSPITAL))
        place = f"The proof is in {self.path} (wardround evidence {self._study})"
        error.args = (f"{message}. {place}. {call}",)


def proofs_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Every proof that is kept in a hospital's folder of them, by study.

    Raises:
        ConfigurationError: a file there is none.
    """
    proofs: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            stored = json.loads(path.read_bytes())
            proofs[path.stem] = stored | {name: str(stored[name]) for name in ("at", "code", "said")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} cannot be read as a proof: look at it with an editor") from error
    return proofs
