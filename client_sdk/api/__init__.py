"""The coordinator's API over HTTP: requests, attempts, transport, credentials."""
