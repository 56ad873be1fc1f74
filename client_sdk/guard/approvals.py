"""What people at this hospital decided about questions: a file each, named after the question's digest."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from client_sdk.durable import write_durably


class Approvals:
    """What a person at this hospital decided, by the digest of a question. directory: of the study's files here."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "queries"

    def has(self, sha256: str) -> bool:
        """Whether somebody said yes."""
        return self._decision(sha256) is True

    def denied(self, sha256: str) -> bool:
        """Whether somebody said no."""
        return self._decision(sha256) is False

    def decide(self, sha256: str, *, approved: bool, words: str) -> None:
        """Keep a person's decision, durably, with the words that it was about."""
        self._folder.mkdir(parents=True, exist_ok=True)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        body = json.dumps({"approved": approved, "question": words, "at": at}, indent=1)
        write_durably(self._folder / f"{sha256}.json", body.encode())

    def _decision(self, sha256: str) -> bool | None:
        try:
            found = json.loads((self._folder / f"{sha256}.json").read_text())["approved"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if isinstance(found, bool) else None
