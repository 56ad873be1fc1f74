"""How many clients a secure sum needs: plain arithmetic that settings, coordinator and hospital share.

n clients are planned, c of them may collude with the coordinator, t shares rebuild a secret.
"""

from __future__ import annotations

MOST_CLIENTS = 1_000


def least_threshold(clients: int, colluders: int) -> int:
    """t = floor((n + c) / 2) + 1. 2t > n + c: nobody ever holds t of both kinds of shares of one client."""
    return (clients + colluders) // 2 + 1


def least_survivors(clients: int, colluders: int, threshold: int) -> int:
    """max(t, c + 3): at least three honest values in every sum. Among three clients nobody may be missing."""
    return 3 if clients == 3 else max(threshold, colluders + 3)


def least_promise(colluders: int, *, allow_three: bool) -> int:
    """The least `min_survivors` that some session of a study can have; any number of clients from it on is sound.

    c + 3. A sum of three is of three clients and bears one colluder, so allowing it helps no study with more of them.
    """
    return 3 if allow_three and colluders <= 1 else colluders + 3
