"""Lines on exports from a secure environment: SATRE 2 on outputs, and TEHDAS2 on the European Health Data Space.

SATRE: specification 2.0.1, capability 3.3 "Output Management", with the grades of the specification. TEHDAS2: milestone
M7.4, draft for public consultation of 12 September 2025, section 4.4. There every requirement says MUST or MAY.
"""

from __future__ import annotations

from study_protocol.documents.asked_lines import AskedLine, LineAnswer, always, bound, file, released, rounds, yours
from study_protocol.study.certificate import Certificate


def _classes(stated: Certificate) -> LineAnswer:
    return LineAnswer(f"Two kinds of output are released to readers: {released(stated)}. ε counts the noise of each.")


def _minimum(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"Readers get models and answers, and no record: {released(stated)}. People use one file: {file(stated)}. What "
        "other parties see stands under Who sees what."
    )


def _intended(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"Frozen before the first round: settings {stated.settings_sha256}, at most {stated.rounds.most} rounds and "
        f"{stated.mechanism.max_steps} noised steps."
    )


def _process(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"The study charges every output before it is computed, and stops by itself at its limit. {bound(stated)}",
        "name your written process of disclosure control, and where this dossier is filed in it.",
    )


def _unchecked(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"Weights of a model cannot be read by a person. The technical control is noise, fixed before training and "
        f"counted for all outputs together. {bound(stated)} It bounds what weights can hold of any one record. "
        f"Exported: {file(stated)}.",
        "state in your policy whether models may be exported, the largest ε that you accept, and who approves.",
    )


def _semi_automated(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        "`wardround certificate verify certificate.json --ledger ledger.jsonl --model model.safetensors` checks the "
        f"signature, the file and every ε without a network, and from {stated.ledger.entries} ledger entries. Exit "
        "code 0: all good. 4: a check failed. 1: one is not known. A person decides."
    )


def _machine_readable(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"The certificate is JSON and is attached to this dossier's PDF. It names the output ({file(stated)}) and "
        f"the settings by {stated.settings_sha256}.",
        "keep it with the exported file for as long as your rules of retention ask.",
    )


# What a line asks is put in our own words. Its number and grade are those of the specification.
SATRE: tuple[AskedLine, ...] = (
    AskedLine("3.3.01", "a system that helps to classify outputs", "recommended", _classes),
    AskedLine("3.3.02", "outputs are the minimum that is needed to share results", "recommended", _minimum),
    AskedLine("3.3.03", "intended outputs are established at the outset", "recommended", _intended),
    # Process, responsibility and policy are acts of an organisation: software cannot have them.
    AskedLine("3.3.04", "a documented process for disclosure control of outputs", "mandatory", _process),
    AskedLine(
        "3.3.05",
        "a process that assigns the responsibility for output checking",
        "mandatory",
        yours("name the output checkers of this study, and who assigns them."),
    ),
    AskedLine(
        "3.3.06",
        "a statistical basis that guides the decisions of an output checker",
        "recommended",
        lambda stated: LineAnswer(f"Differential privacy. {bound(stated)}"),
    ),
    # The line on weights of models, which no person can check by reading.
    AskedLine(
        "3.3.07",
        "a documented policy for outputs that cannot be checked by hand. For models: whether they may be exported, and "
        "the technical controls before egress is approved",
        "mandatory",
        _unchecked,
    ),
    AskedLine("3.3.08", "a semi-automated system for checks of common outputs", "optional", _semi_automated),
    AskedLine(
        "3.3.09",
        "a machine-readable record of the criteria applied to each set of released outputs",
        "optional",
        _machine_readable,
    ),
)


def _environment(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"Records stay at their hospital and are read there. {stated.members.active} hospitals take part at the time "
        "of issue, and none of them sees records of another.",
        "say which machine at your hospital reads the records, and whether it is a secure processing environment.",
    )


def _minimised(stated: Certificate) -> LineAnswer:
    masked = "The coordinator sees sums of updates only. " if stated.mechanism.masked else ""
    sees = " ".join(f"{line[:1].upper()}{line[1:]}." for line in stated.who_sees_what)
    return LineAnswer(
        f"No person outside a hospital gets access to its records. {masked}{sees}",
        "describe the technical and organisational measures of your own machine and network.",
    )


def _logs(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"The study's ledger has {stated.ledger.entries} entries in a hash chain, with the signed head "
        f"{stated.ledger.sha256}. Each hospital has a ledger and an egress log of its own (`wardround egress-log`).",
        "logs of access to the machine and to the records.",
    )


def _non_personal(stated: Certificate) -> LineAnswer:
    # Whether a bound makes an output anonymous is for the law and a reviewer. No number settles it.
    return LineAnswer(
        f"Exported: {released(stated)}. {bound(stated)}",
        "whether this makes the output anonymous is a judgement of the reviewer. ε is a ground for it, no verdict.",
    )


def _reviewed(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"The reviewer can compute every ε again, check that the file is the named one, and count what left: "
        f"{rounds(stated)}.",
        "name the reviewer and the date of the review.",
    )


# The same for every study, so that no number of the certificate is in them.
_ACTOR = (
    "The coordinator's audit log names the person, role and time of every change. A hospital's ledger of decisions "
    "names who agreed to what."
)
_ENTRIES_KEPT = "The program deletes no entry of the ledger, of the audit log or of an egress log."
# Requirements 9 to 11 and 14 to 18 are about the environment and the health data access body alone.
EHDSR: tuple[AskedLine, ...] = (
    AskedLine(
        "EHDSR-1", "access is granted with a data permit", "mandatory", yours("number and date of the data permit.")
    ),
    AskedLine("EHDSR-2", "data are accessed in a secure processing environment", "mandatory", _environment),
    # The only MAY among them.
    AskedLine(
        "EHDSR-3",
        "persons listed in the permit may access the data",
        "optional",
        yours("the persons whom the permit lists at your hospital. The study gives nobody else access to records."),
    ),
    AskedLine("EHDSR-4", "measures minimise the risk of unauthorised access", "mandatory", _minimised),
    AskedLine(
        "EHDSR-5",
        "authorised users are strongly identified",
        "mandatory",
        always(
            "Hospitals sign every request with a key that was exchanged at enrolment.",
            "how people log in at the coordinator and at your machine.",
        ),
    ),
    AskedLine("EHDSR-6", "logs of access and operation are available for audits", "mandatory", _logs),
    AskedLine(
        "EHDSR-7",
        "logs identify the actor",
        "mandatory",
        always(_ACTOR, "that the accounts on your machine belong to one person each."),
    ),
    AskedLine(
        "EHDSR-8",
        "logs are kept for at least one year",
        "mandatory",
        always(_ENTRIES_KEPT, "backups and the time for which you keep them."),
    ),
    # From here on about what is taken out.
    AskedLine("EHDSR-12", "only non-personal data may be downloaded", "mandatory", _non_personal),
    AskedLine("EHDSR-13", "a review ensures that no personal data is taken out", "mandatory", _reviewed),
)
