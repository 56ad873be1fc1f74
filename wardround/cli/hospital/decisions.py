"""Commands by which people at a hospital decide: `agree`, `policy agree`, and the group `decision`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client_sdk.api.config import load as load_settings
from wardround.cli.hospital import agreement
from wardround.cli.hospital.hospital import Dataset, PolicyFile, policy_in_force
from wardround.cli.shared.person_options import PersonOptions, with_person
from wardround.cli.shared.shared import AsJson, Home, StudyName, hospital, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from client_sdk.guard.decision import Decision, Verdict
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.guard.standing import SubjectStanding

Yes = Annotated[bool, typer.Option("--yes", help="agree without a question, if there is no terminal. Needs --digest")]
Digest = Annotated[str | None, typer.Option(help="digest of what you read: all 64 digits, as this command prints it")]
Number = Annotated[int, typer.Argument(help="number of a decision, as `decision list` shows it", min=1)]
_SHORT = 12


@with_person
def agree(
    study: StudyName,
    dataset: Dataset = "records",
    policy: PolicyFile = None,
    digest: Digest = None,
    home: Home = None,
    yes: Yes = False,
    *,
    person: PersonOptions,
) -> None:
    """Agree to a study's terms, if several people have to. A waiting `wardround join` then goes on."""
    with plain_errors():
        deciding_hospital = hospital(home)
        rules = policy_in_force(policy, deciding_hospital.directory)
        proposal = deciding_hospital.proposal(study, dataset, rules)
        table(f"Study {study}", ["", ""], [["data set", dataset], *agreement.terms(proposal)])
        if proposal.joined:
            say(f"this hospital takes part in {study} already. No decision was written")
            return
        require_read("these terms", proposal.terms.sha256, digest, yes=yes, question="Take part under these terms?")
        show_standing(deciding_hospital.decide(proposal.terms, "agree", person.acting(), rules), f"terms of {study}")


@with_person
def policy_agree(
    policy: PolicyFile = None, digest: Digest = None, home: Home = None, yes: Yes = False, *, person: PersonOptions
) -> None:
    """Agree to the site policy, if several people have to. Until they have, `join` waits."""
    from client_sdk.guard.decision import Subject
    from client_sdk.guard.decisions import decide

    with plain_errors():
        directory = home or load_settings().client_home
        rules = policy_in_force(policy, directory)
        subject = Subject.of_policy(rules)
        table("Site policy", ["", ""], [*_entries(rules), ["digest", subject.sha256]])
        require_read("this site policy", subject.sha256, digest, yes=yes, question="Agree to this site policy?")
        show_standing(decide(directory, subject, "agree", person.acting(), rules.approval), "site policy")


def list_decisions(home: Home = None, as_json: AsJson = False) -> None:
    """List what people here decided, after checking the ledger that holds it. Works without a network."""
    from client_sdk.guard.decisions import decisions_in
    from client_sdk.guard.standing import rule_in_force, standing_of
    from client_sdk.study.agreements import require_all_seen

    with plain_errors():
        directory = home or load_settings().client_home
        decisions = decisions_in(directory)
        rule = policy_in_force(None, directory).approval.stricter(rule_in_force(decisions))
        newest = {(each.subject.kind, each.subject.study, each.subject.sha256): each for each in decisions}
        state = {id(each): standing_of(decisions, each.subject, rule) for each in newest.values()}
        if as_json:
            print_json([_as_json(each, state.get(id(each))) for each in decisions])
        elif decisions:
            rows = [_row(each, state.get(id(each))) for each in decisions]
            table("Decisions", ["number", "UTC", "person", "decision", "about", "digest", "reason", "state"], rows)
        require_all_seen(directory, decisions)
        if not decisions and not as_json:
            say("no person has decided anything here yet")


@with_person
def decline(number: Number, home: Home = None, *, person: PersonOptions) -> None:
    """Decline what decision NUMBER is about. Then all people have to agree anew."""
    _decide(number, home, person, "decline")


@with_person
def withdraw(number: Number, home: Home = None, *, person: PersonOptions) -> None:
    """Take your agreement NUMBER back before enough people have agreed."""
    _decide(number, home, person, "withdraw")


def require_read(subject: str, digest: str, read: str | None, *, yes: bool, question: str) -> None:
    """Require that a person has read what this digest is of: at the terminal, or before.

    read: digest of what the person read. None: what is shown now.

    Raises:
        NotAgreed: it is another one, or the person says no.
        ConfigurationError: there is no terminal to ask at.
    """
    from client_sdk.errors import ConfigurationError, NotAgreed

    require_digest(read, yes=yes)
    if read is not None and digest != read:
        raise NotAgreed(
            f"{subject} is another one than the one that you read: the digest is {digest}. No decision was written or "
            "sent"
        )
    if not yes and not agreement.at_a_terminal():
        raise ConfigurationError(
            f"there is no terminal to confirm at. Read {subject}, then add --yes and --digest {digest}"
        )
    if not yes and not typer.confirm(question, default=False, err=True):
        raise NotAgreed("not approved: no decision was written or sent")


def require_digest(digest: str | None, *, yes: bool) -> None:
    """Require a whole digest.

    Raises:
        ConfigurationError: it is no digest, or it is missing although no person sees what is agreed to.
    """
    from client_sdk.errors import ConfigurationError

    if digest is None and yes:
        raise ConfigurationError("--yes agrees without a question. Name what you read with --digest, as it was printed")
    # An attacker can make two texts with digests that begin alike.
    if digest is not None and re.fullmatch("[0-9a-f]{64}", digest) is None:
        raise ConfigurationError("--digest takes all 64 digits 0 to 9 and a to f, as they were printed")


def show_standing(standing: SubjectStanding, subject: str) -> None:
    """Print how a subject stands after a decision."""
    say(f"{subject}: {standing.in_words}")


def _decide(number: int, home: Path | None, person: PersonOptions, verdict: Verdict) -> None:
    from client_sdk.guard.decisions import decide, decision_numbered, decisions_in

    with plain_errors():
        directory = home or load_settings().client_home
        subject = decision_numbered(decisions_in(directory), number).subject
        rule = policy_in_force(None, directory).approval
        show_standing(decide(directory, subject, verdict, person.acting(), rule), str(subject))


def _entries(rules: SitePolicy) -> list[list[str]]:
    """Return the written entries, with a count in the place of patients."""
    written: dict[str, Any] = rules.model_dump(mode="json", exclude_unset=True)
    excluded = written.pop("excluded_patients", [])
    return [[name, str(value)] for name, value in written.items()] + [["excluded patients", str(len(excluded))]]


def _as_json(decision: Decision, standing: SubjectStanding | None) -> dict[str, Any]:
    subject = decision.subject
    return {
        "number": decision.number,
        "at": decision.at,
        "person": None if decision.person is None else decision.person.to_dict(),
        "decision": decision.verdict,
        "about": subject.kind,
        "study": subject.study,
        "sha256": subject.sha256,
        "words": subject.words,
        "entry_sha256": decision.sha256,
        "state": None if standing is None else standing.in_words,
    }


def _row(decision: Decision, standing: SubjectStanding | None) -> list[str]:
    return [
        str(decision.number),
        decision.at[:16].replace("T", " "),
        decision.person_in_words,
        decision.verdict,
        str(decision.subject),
        decision.subject.sha256[:_SHORT],
        "" if decision.person is None else decision.person.reason,
        "" if standing is None else standing.in_words,
    ]
