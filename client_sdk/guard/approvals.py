"""The decisions of people at this hospital about questions: a file each, named after the question's digest."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from study_protocol.files.durable import write_durably


class Approvals:
    """The decisions of a person at this hospital, by the digest of a question. directory: of the study's files here."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "queries"

    def has(self, sha256: str) -> bool:
        """Return whether a person approved the question."""
        return self._decision(sha256) is True

    def denied(self, sha256: str) -> bool:
        """Return whether a person declined the question."""
        return self._decision(sha256) is False

    def decide(self, sha256: str, *, approved: bool, words: str) -> None:
        """Keep a person's decision, durably, with the words that it was about."""
        self._folder.mkdir(parents=True, exist_ok=True)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        decision = {"approved": approved, "question": words, "at": at, "id": secrets.token_hex(8)}
        body = json.dumps(decision, indent=1)
        write_durably(self._folder / f"{sha256}.json", body.encode())

    def identity(self, sha256: str) -> str | None:
        """Of the decision, which charges under it name. None: there is none, or an earlier version wrote it."""
        identity = self._read(sha256).get("id")
        return identity if isinstance(identity, str) else None

    def _decision(self, sha256: str) -> bool | None:
        decision = self._read(sha256).get("approved")
        return decision if isinstance(decision, bool) else None

    def _read(self, sha256: str) -> dict[str, Any]:
        try:
            document = json.loads((self._folder / f"{sha256}.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return cast("dict[str, Any]", document) if isinstance(document, dict) else {}
