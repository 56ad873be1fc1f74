"""A statement of what runs have spent: a document from which each of its numbers can be computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from accounting.budget.ledger import Entry, LedgerError, verify_chain
from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger_chain import LedgerChain
from wardround.flower.run_limit import LIMIT, epsilon_of, head_of, limit_in, steps_in

_FORMAT = "wardround-run-ledger/1"
_RELATION = {
    "client": "one hospital, whose update is 0 in all rounds or is there",
    "instance": "one record, which is there or not",
}
_ASSUMES = {
    "gaussian": "each release had the noise that its entry names. Noise, number and end of the releases may depend on "
    "those before",
    "renyi": "each release had the noise and the Poisson sampling that its entry names. Noise, sampling, number and "
    "end of the releases may depend on those before",
}
_NOT_SHOWN = (
    "that the noise was drawn, that every release was charged, and who wrote this. Keep the head: a later ledger must "
    "contain it"
)


def statement_of(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the statement of a ledger of runs, with its entries.

    Raises:
        LedgerDamaged: an entry is none of such a ledger.
    """
    limit, runs = limit_in(entries), dict[str, dict[str, int]]()
    for entry in entries:
        run = runs.setdefault(entry.body["study"], {"releases": 0, "steps": 0, "settled": 0})
        if entry.kind == "reserved":
            run["releases"] += 1
            run["steps"] += Charge.from_body(entry.body).steps
        run["settled"] += entry.kind == "settled"
    sequence, sha256 = head_of(entries)
    steps = steps_in(entries, limit)
    return {
        "format": _FORMAT,
        "limit": asdict(limit),
        "epsilon": epsilon_of(steps, limit),
        "steps": sum(steps.values()),
        "runs": {name: run for name, run in runs.items() if name != LIMIT},
        "unit": _RELATION[limit.level],
        "assumes": _ASSUMES[limit.rule],
        "not_shown": _NOT_SHOWN,
        "head": {"sequence": sequence, "sha256": sha256},
        "entries": [entry.to_dict() for entry in entries],
    }


def checked_statement(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a statement after computing every number of it again, on this machine.

    Raises:
        LedgerDamaged: a number, an entry or the chain is not what it should be.
    """
    if document.get("format") != _FORMAT or not isinstance(document.get("entries"), list):
        raise LedgerDamaged("this is no statement of a ledger of runs")
    try:
        entries = [Entry.from_dict(value) for value in cast("list[Any]", document["entries"])]
        verify_chain(entries)
        recomputed = statement_of(entries)
    # The others: a run's name or a number that has another type.
    except (LedgerError, KeyError, TypeError) as error:
        raise LedgerDamaged(f"the statement's ledger is not what was written: {error}") from error
    # The last bits of a logarithm differ between machines.
    stated = document.get("epsilon")
    if not _is_near(stated, recomputed["epsilon"]):
        raise LedgerDamaged(f"the statement says ε = {stated!r}, and its entries give {recomputed['epsilon']!r}")
    if wrong := [name for name in recomputed if name != "epsilon" and document.get(name) != recomputed[name]]:
        raise LedgerDamaged(f"the statement's {', '.join(wrong)} does not follow from its entries")
    return recomputed


def _is_near(stated: object, epsilon: float) -> bool:
    return isinstance(stated, int | float) and abs(stated - epsilon) <= 1e-9 * max(1.0, epsilon)


def read_statement(path: Path) -> dict[str, Any]:
    """Return the checked statement of a ledger of runs, or of a file that `wardround flower show --out` wrote.

    Raises:
        ConfigurationError: there is no such file, or it cannot be read.
        LedgerDamaged: it is neither, or was changed.
        LedgerNotWritten: the ledger cannot be read.
    """
    try:
        with path.open("rb") as file:
            is_text = file.read(1) == b"{"
        document = json.loads(path.read_text(encoding="utf-8")) if is_text else None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise LedgerDamaged(f"{path} is no JSON") from error
    # A ledger is SQLite, and begins with other bytes than JSON.
    if document is not None:
        return checked_statement(document)
    with LedgerChain.open(path, read_only=True) as chain:
        return statement_of(chain.entries)
