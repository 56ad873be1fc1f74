"""Names of test cases that every process writes alike."""

from __future__ import annotations


def plain_id(value: object) -> str:
    """Return a value as short text without a backslash, which is how odd characters would be written."""
    return ascii(value).replace("\\", "")[:60]
