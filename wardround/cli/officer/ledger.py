"""The command `wardround budget` and the group `ledger`: the spent budget, and the checked ledger of a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.files.durable import write_durably
from study_protocol.study.limit_words import SHARE, limit_in_words, running_in_words
from study_protocol.study.reasons import TAKES_QUESTIONS, ending
from wardround.cli.officer.charges import read_charges, show_charges
from wardround.cli.officer.verify import fetch, trust
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    number,
    plain_errors,
    print_json,
    reader,
    say,
    table,
)

if TYPE_CHECKING:
    from study_protocol.study.messages import BudgetStatement, LimitStatement

Everything = Annotated[bool, typer.Option("--all", help="show every charge, not only the newest")]
Out = Annotated[Path, typer.Option("--out", help="file to write, with one JSON entry on each line")]


def budget(
    study: StudyName,
    everything: Everything = False,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Print the budget of a study: the enforced numbers and their meaning, and the cost of each round and query."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        statement = client.budget(study)
        charges = read_charges(client, study, statement, everything=everything)
    if as_json:
        print_json(statement.model_dump(mode="json") | {"charges": [charge.as_json() for charge in charges]})
    else:
        show(statement)
        show_charges(charges, everything=everything, rounds=statement.round)


def show(statement: BudgetStatement) -> None:
    """Print the table of limits, and one sentence for each certificate."""
    reason = ending(statement.stop_reason or "no further round fits")
    goes_on = TAKES_QUESTIONS if statement.takes_questions else "may continue"
    state = goes_on if statement.can_continue else f"ended: {reason}"
    if statement.pause_reason is not None:
        state = f"paused: {statement.pause_reason.detail}"
    columns = ["level", "definition", "guaranteed", "reserved", "remaining", "limit", "delta", "state", "enforced by"]
    table(f"{statement.study}, round {statement.round}: {state}", columns, [_row(limit) for limit in statement.limits])
    for limit in statement.limits:
        name = f"{limit.level} {limit.definition}"
        if limit.counted is not None:
            say(f"{name}: {limit_in_words(limit)}")
        if limit.certificate is not None:
            say(f"{name}: {limit.certificate['assumption']}")
        if (running := running_in_words(limit)) is not None:
            say(f"{name}: {running}")
    say(f"ledger: {statement.ledger.entries} entries. The newest stands for all of them: {statement.ledger.head}")


def _row(limit: LimitStatement) -> list[str]:
    if limit.state == "unbounded":
        return [limit.level, limit.definition, "unbounded", "", "", "", "", limit.state, "no limit protects this level"]
    return [
        limit.level,
        limit.definition,
        number(limit.spent),
        number(limit.reserved),
        number(limit.remaining, round_down=True) if limit.counted is None else _remaining_share(limit),
        number(limit.epsilon),
        "" if limit.delta is None else f"{limit.delta:g}",
        limit.state,
        limit.enforced_by or "",
    ]


def _remaining_share(limit: LimitStatement) -> str:
    """Return what is left of the planned steps, and of the share for questions or of μ²."""
    progress = limit.counted
    steps, squares = (None, None) if progress is None else (progress.steps, progress.squares)
    lost_steps, questions = (0, "μ²") if steps is None else (steps.abandoned, f"the {SHARE}")
    return ", ".join(
        f"{number(100 * max(0.0, 1 - (part.used + lost) / part.allowed), 1, round_down=True)} % of {unit}"
        for unit, part, lost in (("the steps", steps, lost_steps), (questions, squares, 0))
        if part is not None and part.allowed > 0
    )


def export(study: StudyName, out: Out, server: Server = None, key_file: KeyFile = None, home: Home = None) -> None:
    """Check the whole ledger and write it to a file. The last line holds the head and its signers."""
    from client_sdk.study.audit import require_signed

    with plain_errors():
        require_writable(out, replaces=True)
    with plain_errors(), reader(study, server, key_file, home) as client:
        entries, page = fetch(client, study)
        key = trust(client, study, None, key_file, home, "records").key
        require_signed(key, study, page.head, entries)
        signed = {
            "head": page.head.model_dump(mode="json"),
            "coordinator_key": key,
            "roster": client.roster(study).model_dump(mode="json"),
            "witnesses": [witness.model_dump(mode="json") for witness in page.witnesses],
        }
        lines_of_export = [*(entry.to_dict() for entry in entries), signed]
        lines = [json.dumps(line, sort_keys=True, ensure_ascii=False) for line in lines_of_export]
        write_durably(out, "".join(f"{line}\n" for line in lines).encode())
    say(f"{len(entries)} entries. The newest stands for all of them: sha256:{entries[-1].sha256}")
