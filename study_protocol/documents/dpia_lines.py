"""Lines of a data-protection impact assessment and of a record of processing, as the GDPR asks for them.

The assessment follows Article 35 and the criteria in Annex 2 of the guidelines WP 248 rev.01, which the EDPB endorsed.
The record follows Article 30(1). WP 248 has no grades: what the Regulation itself asks for is mandatory here.
"""

from __future__ import annotations

from study_protocol.documents.asked_lines import AskedLine, LineAnswer, always, bound, file, released, rounds, yours
from study_protocol.study.certificate import Certificate
from study_protocol.wire.rounded import at_least, exact, percent


def _nature(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"{stated.members.active} hospitals train a model together in study {stated.study}, without collecting their "
        f"records ({rounds(stated)}). {stated.mechanism.title}; noise by: {stated.mechanism.noise_by}.",
        "the context, the number of your patients and why the study is done.",
    )


def _recipients(stated: Certificate) -> LineAnswer:
    sees = " ".join(f"{line[:1].upper()}{line[1:]}." for line in (*stated.who_sees_what, *stated.under_masks))
    return LineAnswer(sees, "the categories of data in your records, and how long you keep them.")


def _function(stated: Certificate) -> LineAnswer:
    levels = "; ".join(
        f"{level.level} level: clip norm {exact(level.clip_norm)}{' in the first round' if level.adaptive else ''}, "
        f"noise multiplier at least {at_least(level.noise_multiplier)}, sampling rate credited "
        f"{exact(level.sampling_rate)}"
        for level in stated.mechanism.levels
    )
    return LineAnswer(
        "Each hospital computes gradients on its own records, clips what one record can add, and noise is added. "
        f"{levels}. {stated.rounds.steps} of at most {stated.mechanism.max_steps} noised steps are charged."
    )


def _minimised(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"Records are not transferred. Readers get: {released(stated)}.",
        "why each column that the study reads is needed, and which columns your site policy denies.",
    )


def _access(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"Somebody reads a patient's data off the models and answers. {bound(stated)} The chance is for an attacker "
        "who knows all other records.",
        "likelihood and severity for access to your own machine and records.",
    )


def _measures(stated: Certificate) -> LineAnswer:
    masked = "The coordinator sees sums only. " if stated.mechanism.masked else ""
    return LineAnswer(
        f"A limit that stops the study by itself. {masked}Every round is charged before it is computed, and every ε "
        f"can be computed again from {stated.ledger.entries} ledger entries. Patients who object are left out from the "
        "next round on.",
        "the measures on your own machine, network and staff.",
    )


def _demonstrate(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"This certificate, signed on {stated.issued_at:%Y-%m-%d}, with the ledger {stated.ledger.sha256} and the "
        "checks that it names."
    )


def _residual(stated: Certificate) -> LineAnswer:
    # A Bayesian number is for typical patients, and a hospital's limit is for no single one: both say too little here.
    patient = [limit for limit in stated.limits if limit.level == "instance" and limit.definition == "classical"]
    chances = [limit.attack_success for limit in patient if limit.epsilon is not None]
    chance = (
        f"An attacker's chance of a right guess about a patient is at most {percent(max(filter(None, chances)))}, "
        "where 50 % is chance alone."
        if chances and None not in chances
        else "The study's noise does not protect a single patient by itself. The limit is one for each hospital."
    )
    return LineAnswer(
        f"{chance} What is true of groups of patients can be learnt, also about a patient who took no part.",
        "whether this residual risk is acceptable. If it is high, consult the supervisory authority (Article 36).",
    )


# What was released does not change, so that no line may promise that it does.
_OBJECTION = (
    "`wardround objection add` leaves a patient out from the next round on. Its letter names the rounds in which the "
    "patient may have been, and the bound. What was released before does not change."
)
_MANIPULATED = (
    "The ledger is a hash chain with a signed head, and each hospital compares it before each round. A hospital that "
    "falsifies its part can make a model wrong."
)
# In the order of Annex 2. Beside each criterion is the article that it stands for.
ASSESSMENT: tuple[AskedLine, ...] = (
    # A systematic description of the processing.
    AskedLine("35(7)(a)", "nature, scope, context and purposes of the processing", "mandatory", _nature),
    AskedLine("35(7)(a)", "personal data, recipients and period of storage", "mandatory", _recipients),
    AskedLine("35(7)(a)", "a functional description of the operations", "mandatory", _function),
    AskedLine(
        "35(7)(a)",
        "the assets on which the data rely",
        "mandatory",
        yours("your machine, network, staff and the source of the records."),
    ),
    AskedLine(
        "35(7)(a)",
        "the legitimate interest of the controller, where it applies",
        "mandatory",
        yours("the interest, or that the processing rests on another ground."),
    ),
    AskedLine("35(8)", "compliance with approved codes of conduct", "mandatory", yours("the codes, or none.")),
    # Necessity and proportionality: first of the processing, then the rights of the patients.
    AskedLine(
        "35(7)(b)",
        "specified, explicit and legitimate purposes (5(1)(b))",
        "mandatory",
        yours("the purposes, as your ethics board approved them."),
    ),
    AskedLine(
        "35(7)(b)",
        "lawfulness of the processing (6, and 9 for health data)",
        "mandatory",
        yours("the legal ground, and the condition of Article 9(2)."),
    ),
    AskedLine("35(7)(b)", "adequate, relevant and limited to what is necessary (5(1)(c))", "mandatory", _minimised),
    AskedLine(
        "35(7)(b)",
        "limited storage (5(1)(e))",
        "mandatory",
        always(
            "No record is stored outside of its hospital. Models and answers are kept by whoever has them.",
            "how long you keep the records and the hospital's directory.",
        ),
    ),
    AskedLine(
        "35(7)(b)", "information for patients (12, 13, 14)", "mandatory", yours("how patients are told of the study.")
    ),
    AskedLine(
        "35(7)(b)",
        "access and portability (15, 20)",
        "mandatory",
        yours("how patients get their data. Models and answers hold no record that could be handed out."),
    ),
    AskedLine(
        "35(7)(b)",
        "rectification and erasure (16, 17, 19)",
        "mandatory",
        yours("how your records are corrected and erased. A model that was released does not change with them."),
    ),
    AskedLine(
        "35(7)(b)",
        "objection and restriction (18, 19, 21)",
        "mandatory",
        always(_OBJECTION, "how patients reach you, and who decides on an objection."),
    ),
    AskedLine(
        "35(7)(b)",
        "relations with processors (28)",
        "mandatory",
        yours("the contract with whoever runs the coordinator and your machine."),
    ),
    AskedLine(
        "35(7)(b)",
        "transfers to third countries (chapter V)",
        "mandatory",
        yours("the countries of the coordinator and of the readers of the study."),
    ),
    # The three risks of Annex 2, as the patients see them.
    AskedLine("35(7)(c)", "risk of illegitimate access to data", "mandatory", _access),
    AskedLine(
        "35(7)(c)",
        "risk of undesired change of data",
        "mandatory",
        always(_MANIPULATED, "the risk for your own records, which the study reads and never writes."),
    ),
    AskedLine(
        "35(7)(c)",
        "risk of disappearance of data",
        "mandatory",
        always("The study keeps no record of a patient. A lost ledger is charged at its worst.", "your backups."),
    ),
    # Measures, what remains, and the people who are heard.
    AskedLine("35(7)(d)", "measures, safeguards and mechanisms against the risks", "mandatory", _measures),
    AskedLine("35(7)(d)", "how compliance is demonstrated", "mandatory", _demonstrate),
    AskedLine("36(1)", "the risk that remains, and prior consultation", "mandatory", _residual),
    AskedLine("35(2)", "the advice of the data-protection officer", "mandatory", yours("the advice and its date.")),
    AskedLine(
        "35(9)",
        "the views of data subjects or their representatives, where appropriate",
        "mandatory",
        yours("their views, or why they were not sought."),
    ),
    AskedLine(
        "35(11)",
        "review when the risk changes",
        "mandatory",
        lambda stated: LineAnswer(
            f"The numbers are those up to round {stated.round}. A newer certificate has newer ones, and the settings "
            f"{stated.settings_sha256} cannot change.",
            "who reviews the assessment, and when.",
        ),
    ),
)


def _subjects(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"Patients of {stated.members.active} hospitals.", "the categories of your patients and of the columns used."
    )


def _recipient_categories(stated: Certificate) -> LineAnswer:
    return LineAnswer(
        f"Readers of study {stated.study}: {file(stated)}. The coordinator and the other hospitals, as listed above.",
        "the organisations behind these roles.",
    )


def _security(stated: Certificate) -> LineAnswer:
    masked = ", sums under masks" if stated.mechanism.masked else ""
    return LineAnswer(
        f"Differential privacy ({bound(stated)}), signed requests{masked}, keys and ledgers of a hospital that only "
        "its own account can read.",
        "the measures on your own machine and network.",
    )


# All seven letters of the paragraph. Names and contacts never stand in a certificate.
RECORD: tuple[AskedLine, ...] = (
    AskedLine(
        "30(1)(a)",
        "name and contact of the controller, of joint controllers and of the data-protection officer",
        "mandatory",
        yours("names and contacts. The certificate does not say who takes part."),
    ),
    AskedLine("30(1)(b)", "purposes of the processing", "mandatory", yours("the purposes.")),
    AskedLine("30(1)(c)", "categories of data subjects and of personal data", "mandatory", _subjects),
    AskedLine("30(1)(d)", "categories of recipients", "mandatory", _recipient_categories),
    AskedLine(
        "30(1)(e)",
        "transfers to third countries, and their safeguards",
        "mandatory",
        yours("the countries of the recipients, or none. Records are not transferred."),
    ),
    AskedLine(
        "30(1)(f)",
        "time limits for erasure, where possible",
        "mandatory",
        yours("the limits for your records. Released models and answers have none."),
    ),
    AskedLine("30(1)(g)", "technical and organisational security measures, in general", "mandatory", _security),
)
