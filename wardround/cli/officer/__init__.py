"""Commands of a hospital's IT and privacy officer: ledgers, certificates, witnesses."""
