"""An S3-compatible object store of one's own, which speaks real HTTP: moto's server in a process."""

from __future__ import annotations

import secrets
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from server.db.object_blobs import open_store
from wardround.demo.processes import Process, Processes, ProcessFailed, environment, free_port, until

READY_SECONDS = 60.0
KEY_ID, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # AWS's own example


@dataclass
class ObjectStore:
    """Its objects are in its memory and gone with it."""

    log: Path
    processes: Processes
    port: int = field(default_factory=free_port)
    process: Process | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Start it and wait until it answers. Raises ProcessFailed."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = self.processes.start("object store", command, env=environment(), log=self.log)
        if not until(self._answers, seconds=READY_SECONDS, check=self.process.check):
            raise ProcessFailed("object store", None, self.log)

    def bucket(self) -> str:
        """The address of a new bucket."""
        name = f"wardround-{secrets.token_hex(6)}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT", headers=_SIGNED_LIKE)
        urllib.request.urlopen(request, timeout=30).close()
        return f"s3://{name}/trial"

    def settings(self, address: str) -> dict[str, str]:
        """Of a coordinator that keeps its blobs here."""
        return {
            "blobs": address,
            "blobs_endpoint": self.endpoint,
            "blobs_region": "us-east-1",
            "blobs_access_key_id": KEY_ID,
            "blobs_secret_access_key": SECRET,
        }

    def store(self, address: str, **options: Any) -> S3Store:
        configuration = {"endpoint": self.endpoint, "region": "us-east-1", "key_id": KEY_ID, "secret": SECRET}
        return open_store(address, **configuration | options)

    def put(self, address: str, key: str, data: bytes) -> None:
        obstore.put(self.store(address), key, data)

    def delete(self, address: str, keys: list[str]) -> None:
        obstore.delete(self.store(address), keys)

    def keys(self, address: str) -> list[str]:
        return [entry["path"] for page in obstore.list(self.store(address)) for entry in page]

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=5).close()
        except OSError:
            return False
        return True


# Not checked by moto; it tells one service from another by the header's scope.
_SIGNED_LIKE = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20260101/us-east-1/s3/aws4_request"}
