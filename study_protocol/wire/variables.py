"""Variables `WARDROUND_…` of the environment, as the coordinator and a hospital's programs read them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path

PREFIX = "WARDROUND_"
COORDINATOR_NAMES = (
    *("HOME", "DATABASE_URL", "DATABASE_PASSWORD", "ORIGIN", "HOST", "PORT", "WORKER", "LEASE_SECONDS", "LOG_LEVEL"),
    *("BIND_MODELS", "BODY_LIMIT_BYTES", "MODEL_LIMIT_BYTES", "BODY_IDLE_SECONDS", "BODY_LEAST_RATE"),
    *("WATCH_SECONDS", "LONG_POLL_SECONDS", "EVENT_STREAM_SECONDS"),
    *("BLOBS", "BLOBS_ENDPOINT", "BLOBS_REGION", "BLOBS_ACCESS_KEY_ID", "BLOBS_SECRET_ACCESS_KEY"),
    *("BLOBS_CACHE", "BLOBS_CACHE_BYTES", "SIGNING_KEY_PATH", "METRICS_HOST", "METRICS_PORT", "TRACES"),
    *("SSO_ISSUER", "SSO_CLIENT_ID", "SSO_CLIENT_SECRET", "SSO_DEVICE_CLIENT_ID", "SSO_SCOPES", "SSO_GROUPS_CLAIM"),
    *("SSO_CLOCK_SKEW_SECONDS", "SSO_GRANTS", "SSO_SESSION_MINUTES"),
)
CLIENT_NAMES = ("SERVER", "API_KEY", "CLIENT_HOME", "CA_FILE", "ALLOW_HTTP")
# One machine may run several parts of Wardround, so each reader accepts the names of the others.
KNOWN_NAMES = frozenset(
    {PREFIX + name + suffix for name in COORDINATOR_NAMES for suffix in ("", "_FILE")}
    | {PREFIX + name for name in (*CLIENT_NAMES, "API_KEY_FILE", "DATA", "FAILPOINT", "FAILPOINT_LOG")}
)


class SecretUnreadable(ValueError):
    """A secret's file cannot be read or is empty. The text names the file."""


def read_variables(
    environment: Mapping[str, str], fields: Collection[str], from_files: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the values of the fields that are set, and every problem. An empty value counts as not set.

    A mistyped name is a problem, because a setting that is silently ignored is a setting that lies.

    Args:
        fields: The lower-case names of the settings.
        from_files: The fields that WARDROUND_…_FILE may give instead.
    """
    names, file_names = _by_name(fields, ""), _by_name(from_files, "_FILE")
    field_by_name = file_names | names
    values: dict[str, str] = {}
    problems: list[str] = []
    for name in sorted(environment.keys() - (KNOWN_NAMES - field_by_name.keys())):
        field, text = field_by_name.get(name), environment[name]
        if field is None:
            if name.startswith(PREFIX):
                # No cutoff: the nearest name helps more than none.
                nearest = difflib.get_close_matches(name, field_by_name, n=1, cutoff=0.0)[0]
                problems.append(f"{name} is unknown: did you mean {nearest}?")
        elif text and field in values:
            problems.append(f"{name} and {PREFIX}{field.upper()} are both set: keep one")
        elif text:
            try:
                values[field] = read_secret(Path(text)) if name in file_names else text
            except SecretUnreadable as error:
                problems.append(f"{name}: {error}")
    return values, problems


def _by_name(fields: Collection[str], ending: str) -> dict[str, str]:
    return {f"{PREFIX}{field.upper()}{ending}": field for field in fields}


def read_secret(path: Path) -> str:
    """Return the one line of a secret's file.

    Raises:
        SecretUnreadable: it cannot be read or is empty.
    """
    try:
        secret = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SecretUnreadable(f"the file {path} cannot be read: {reason}") from error
    if not secret:
        raise SecretUnreadable(f"the file {path} is empty")
    return secret
