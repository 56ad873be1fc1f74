"""The commands of operators and hospitals: everything that goes through the API."""

from __future__ import annotations

import typer

from wardround.cli.hospital import data, hospital
from wardround.cli.lead import ask, card, plan, query, study, templates
from wardround.cli.officer import certificate, ledger, witness, witnesses
from wardround.cli.researcher import model


def register(app: typer.Typer) -> None:
    """Add them to `wardround`. The network and torch are imported when a command runs."""
    app.add_typer(study.app, name="study")
    app.command("plan")(plan.plan)
    study.app.command("list")(study.list_studies)
    study.app.command("rounds")(study.rounds)
    study.app.command("model")(study.model)
    study.app.command("template")(templates.study_template)
    app.add_typer(templates.policy_app, name="policy")
    app.command("predict")(model.predict)
    app.command("evaluate")(model.evaluate)
    app.command("export")(model.export)
    app.command("invite")(study.invite)
    app.command("revoke")(study.revoke)
    app.command("enrol")(hospital.enrol)
    app.add_typer(data.app, name="data")
    app.command("join")(hospital.join)
    app.command("rotate-key")(hospital.rotate_key)
    app.command("withdraw")(hospital.withdraw)
    app.command("egress-log")(hospital.egress_log)
    app.command("evidence")(witnesses.evidence)
    app.command("own-budget")(hospital.own_budget)
    app.command("budget")(ledger.budget)
    ledger.app.command("seen")(witnesses.seen)
    app.add_typer(ledger.app, name="ledger")
    app.add_typer(certificate.app, name="certificate")
    app.add_typer(witness.app, name="witness")
    app.command("ask")(ask.ask)
    app.add_typer(query.app, name="query")
    app.command("card")(card.card)
    app.add_typer(hospital.roster_app, name="roster")
    app.command("doctor")(hospital.doctor)
