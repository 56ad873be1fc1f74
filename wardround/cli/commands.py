"""The table of all commands of `wardround`: where each one is, who uses it, and which extra it needs.

To add a command, write its function and add a row here. The row is text, and its module is imported when the command
runs. So `wardround --help` lists every command in an installation that can run only some of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True)
class Command:
    """One row of the table.

    Attributes:
        name: the words that are typed after `wardround`.
        function: `module:function`, the module relative to `wardround.cli`. Its docstring is the command's help.
        help: one line for lists of commands.
        extra: what `pip install 'wardround[extra]'` must name for the command to run.
    """

    name: str
    function: str
    help: str
    extra: str = "operator"


# The groups of commands, such as `study create` and `study start`, and the line that lists show for each.
GROUPS = {
    "data": "Freeze records, check their format, and try a study's settings on them.",
    "site": "Run `join` as a service, and print what the network has to allow.",
    "roster": "Compare and pin the hospitals of a study.",
    "policy": "Write the rules of a hospital, and agree to them.",
    "objection": "Leave out patients who objected, and write the letters.",
    "decision": "Show what people at a hospital decided, and take it back.",
    "ledger": "Check and export the ledger of a study.",
    "flower": "Check the ledger of runs of Flower.",
    "certificate": "Show, keep and check the certificate of a study's privacy.",
    "witness": "Sign a study's ledger as an auditor, and compare signed heads.",
    "study": "Create and run studies.",
    "monitor": "Watch a released model on later patients.",
    "query": "Show the questions about patients, and allow or refuse them at a hospital.",
    "key": "Create, list and revoke API keys of people.",
}

_HOSPITAL = (
    Command("data check", ".hospital.data:check", "Read records as `join` would, without a network.", "client"),
    Command(
        "try", ".researcher.trial:try_study", "Try a study on this hospital's table: the accuracy to expect.", "client"
    ),
    Command(
        "data snapshot",
        ".hospital.snapshots:take",
        "Freeze records of a database, FHIR files or a workbook.",
        "sources",
    ),
    Command("data list", ".hospital.snapshots:list_snapshots", "List the snapshots and the studies that used them."),
    Command("data columns", ".hospital.columns:data_columns", "Write a study's columns from a table.", "client"),
    Command("enrol", ".hospital.hospital:enrol", "Enrol in a study with an invitation token."),
    Command("policy template", ".lead.templates:policy_template", "Print a site policy with every entry described."),
    Command("policy agree", ".hospital.decisions:policy_agree", "Agree to the site policy, if several people have to."),
    Command("doctor", ".hospital.hospital:doctor", "Check the installation, the network, the keys and the ledger."),
    Command("roster show", ".hospital.roster:show", "Show the hospitals of a study and the number to compare."),
    Command("roster pin", ".hospital.roster:pin", "Pin the roster after its number was compared."),
    Command("join", ".hospital.hospital:join", "Take part in a study until it ends.", "client"),
    Command("site install", ".hospital.site:install", "Write a service that runs `join`.", "client"),
    Command("site network", ".hospital.site:network", "Print what a hospital's IT has to allow."),
    Command("agree", ".hospital.decisions:agree", "Agree to a study's terms, if several people have to."),
    Command("objection add", ".hospital.objections:add", "Leave a patient out who objects, and write the letter."),
    Command("objection list", ".hospital.objections:list_objections", "List the objections that are recorded here."),
    Command("objection letter", ".hospital.objections:letter", "Write the letter on a recorded objection again."),
    Command("decision list", ".hospital.decisions:list_decisions", "List what people at this hospital decided."),
    Command("decision decline", ".hospital.decisions:decline", "Decline what others have agreed to."),
    Command("decision withdraw", ".hospital.decisions:withdraw", "Take your agreement back before it takes effect."),
    Command("own-budget", ".hospital.own_budget:own_budget", "Print this hospital's own budget over all its studies."),
    Command("egress-log", ".hospital.egress:egress_log", "List everything that left this hospital."),
    Command("withdraw", ".hospital.hospital:withdraw", "Leave a study for good, from the next round on."),
    Command("rotate-key", ".hospital.hospital:rotate_key", "Replace this hospital's key in every study."),
    Command("predict", ".researcher.model:predict", "Predict the outcomes of new records with a model.", "client"),
    Command("evaluate", ".researcher.model:evaluate", "Measure a model on records with known labels.", "client"),
    Command("adapt", ".hospital.adapt:adapt", "Fit a released model to this hospital's own patients.", "client"),
    Command("export", ".researcher.model:export", "Write a model for other programs, as ONNX.", "client"),
)
_STUDY_LEAD = (
    Command("plan", ".lead.plan:plan", "Show what a study's limits allow, or find the numbers that fit them."),
    Command("simulate", ".researcher.simulate:simulate", "Simulate a study on your own records.", "client"),
    Command("audit", ".researcher.audit:audit", "Attack a study's settings on your own records.", "client"),
    Command("synth", ".researcher.synth:synth", "Make synthetic records from a study's questions, or check a file."),
    Command("study template", ".lead.templates:study_template", "Print a settings file with every entry described."),
    Command("study weights", ".lead.study:weights", "Draw a study's initial weights into a file."),
    Command("study create", ".lead.study:create", "Create a study and upload its initial model."),
    Command("study start", ".lead.study:start", "Start a study's rounds."),
    Command("study train", ".lead.study:train", "Begin training after `study start --questions-first`."),
    Command("study pause", ".lead.study:pause", "Pause a study after its current round."),
    Command("study resume", ".lead.study:resume", "Resume a paused study."),
    Command("study stop", ".lead.study:stop", "End a study permanently."),
    Command("study delete", ".lead.study:delete", "Delete a study that was never started."),
    Command("study list", ".lead.study:list_studies", "List every study of the coordinator."),
    Command("study show", ".lead.study:show", "Show a study's state and settings."),
    Command("study rounds", ".lead.study:rounds", "Show how the newest rounds ended and what they cost."),
    Command("study model", ".lead.study:model", "Write a study's model to a file after checking it."),
    Command("study track", ".lead.track:track", "Copy a study's released results to MLflow.", "mlflow"),
    Command("login", ".lead.login:login", "Log in at a coordinator's identity provider, instead of a key."),
    Command("logout", ".lead.login:logout", "End the login at a coordinator."),
    Command("invite", ".lead.study:invite", "Create a one-time token for one hospital."),
    Command("revoke", ".lead.study:revoke", "Remove a hospital from a study from the next round on."),
    Command("ask", ".lead.ask:ask", "Ask all hospitals a question about their patients."),
    Command("query template", ".lead.query:template", "Print a question file with every entry described."),
    Command("query list", ".lead.query:list_queries", "List the queries of a study."),
    Command("query show", ".lead.query:show", "Show a query and its answer."),
    Command("query columns", ".lead.typical_columns:columns", "Print columns for settings from an answer.", "client"),
    Command("query approve", ".lead.query:approve", "Allow this hospital to answer a query."),
    Command("query deny", ".lead.query:deny", "Refuse a query for this hospital."),
    Command("monitor ask", ".lead.monitor:ask", "Ask about the windows of later patients that are due."),
    Command("monitor show", ".lead.monitor:show", "Show a released model on later patients, with alarms."),
    Command("card", ".lead.card:card", "Write the card of a released model."),
)
_COORDINATOR = (
    Command("migrate", ".coordinator.coordinator:migrate", "Bring the database to this version's schema.", "server"),
    Command("serve", ".coordinator.coordinator:serve", "Run the coordinator's API.", "server"),
    Command("worker", ".coordinator.coordinator:worker", "Run the worker in its own process.", "server"),
    Command("key create", ".coordinator.keys:key_create", "Create an API key for a person.", "server"),
    Command("key list", ".coordinator.keys:key_list", "List the API keys.", "server"),
    Command("key rotate", ".coordinator.keys:key_rotate", "Replace an API key.", "server"),
    Command("key revoke", ".coordinator.keys:key_revoke", "Revoke an API key.", "server"),
)
_CHECKS = (
    Command("demo", "..demo.command:demo", "Run a whole study of four hospitals on this machine.", "demo"),
    Command("budget", ".officer.ledger:budget", "Print the budget of a study and what was spent on what."),
    Command("audit-log", ".officer.audit_log:audit_log", "Show and check who asked for which change."),
    Command("ledger verify", ".officer.verify:verify", "Check every entry of a ledger and recompute every ε."),
    Command("ledger export", ".officer.ledger:export", "Write a study's ledger to a file after checking it."),
    Command("ledger seen", ".officer.witnesses:seen", "Print the ledger's head as this hospital saw it."),
    Command("flower show", ".officer.flower:show", "Check a ledger of runs of Flower, and show what they spent."),
    Command("certificate show", ".officer.certificate:show", "Print or save the certificate of a study."),
    Command("certificate pdf", ".officer.certificate:pdf", "Render a certificate as PDF after checking its signature."),
    Command("certificate dossier", ".officer.dossier:dossier", "Write the egress dossier of a certificate."),
    Command("certificate dpia", ".officer.dossier:dpia", "Write the annex of a data-protection impact assessment."),
    Command("certificate verify", ".officer.certificate:verify", "Check a certificate without a network."),
    Command("evidence", ".officer.witnesses:evidence", "Show the stored proofs against coordinators."),
    Command("witness key", ".officer.witness:key", "Print this auditor's public key for a study's settings."),
    Command("witness sign", ".officer.witness:sign", "Check the new entries of a ledger and sign its head."),
    Command("witness export", ".officer.witness:export", "Export the newest signed head of a ledger."),
    Command("witness compare", ".officer.witness:compare", "Compare an exported head with the local ledger."),
)

# Role -> its commands. `wardround --help` shows one panel for each role, and README.md and docs/index.md have one
# section for each. A group is in the panel of its first command.
ROLES: Mapping[str, Sequence[Command]] = {
    "Take part as a hospital": _HOSPITAL,
    "Lead a study": _STUDY_LEAD,
    "Run the coordinator": _COORDINATOR,
    "Check the mathematics": _CHECKS,
}
COMMANDS = {command.name: command for command in chain(*ROLES.values())}


def command_in(words: Sequence[str]) -> Command | None:
    """Return the command that the words of a command line name, or None if they name none."""
    return COMMANDS.get(" ".join(words[:2])) or COMMANDS.get(" ".join(words[:1]))


def list_in_words() -> str:
    """Return the commands by role as plain text, for an installation without typer."""
    width = max(map(len, COMMANDS))
    blocks = ["Usage: wardround COMMAND [ARGS]..."]
    for role, commands in ROLES.items():
        blocks.append("\n".join([f"{role}:", *(f"  {line.name:<{width}}  {line.help}" for line in commands)]))
    return "\n\n".join(blocks)
