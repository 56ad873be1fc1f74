"""The site policy's rules about questions, all over their text: a rule that looked at records would tell of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from client_sdk.errors import PolicyRefused
from client_sdk.guard.columns import denied, not_allowed
from client_sdk.guard.policy import QueryRules, SitePolicy
from client_sdk.guard.rule import PolicyRule
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.queries import QueryDocument


def require_answerable(
    policy: SitePolicy, document: QueryDocument, data_version: str, cells: int | None = None
) -> None:
    """Whether this hospital answers such a query, if a person here approves it where one is asked.

    cells: how many numbers it may have, where that is more than it has.

    Raises:
        PolicyRefused: the first rule that says no. Its text names the entry of the policy.
    """
    for rule in query_rules(policy, document, data_version, cells):
        if not rule.is_met:
            raise PolicyRefused(rule.code, f"{policy.in_words} says no: {rule.text}")


def require_schedule(policy: SitePolicy, settings: AnySettings, data_version: str) -> None:
    """Whether this hospital answers the questions that the study asks by itself, about these very records.

    Raises:
        PolicyRefused: as `require_answerable`.
    """
    document = None if settings.evaluation is None else settings.evaluation.document(1)
    monitoring = settings.monitoring
    if monitoring is not None:
        versions = [monitoring.data_version(number) for number in range(1, monitoring.windows + 1)]
        require_answerable(policy, monitoring.document(1, 1), versions[0])
        # Evaluations of training are over once records of later patients are named so.
        document = None if data_version in versions else document
    if document is not None:
        require_answerable(policy, document, data_version)
    if settings.synthesis is not None:
        synthesis = settings.synthesis
        require_answerable(policy, synthesis.least_noised_question(), data_version, synthesis.most_cells())


def column_rules(rules: QueryRules, names: Collection[str]) -> Iterator[PolicyRule]:
    """Whether anything may read columns of these names, however they are written."""
    said_no = denied(rules, names)
    yield PolicyRule(not said_no, "policy-columns", f"[statistics] denied_columns names {', '.join(said_no)}")
    forbidden = not_allowed(rules, names)
    yield PolicyRule(
        not forbidden, "policy-columns", f"[statistics] allowed_columns does not name {', '.join(forbidden)}"
    )


def query_rules(
    policy: SitePolicy, document: QueryDocument, data_version: str, cells: int | None = None
) -> Iterator[PolicyRule]:
    """Every rule that concerns such a query. data_version: what people here call the records as they are now."""
    rules, question = policy.statistics, document.question
    count = question.cells if cells is None else cells
    in_steps = f" in one of its {question.sums} steps" if question.sums > 1 else ""
    yield PolicyRule(
        rules.queries != "refuse", "policy-queries", '[statistics] queries = "refuse": no question is answered'
    )
    yield PolicyRule(
        not question.is_by_hospital or rules.by_hospital != "refuse",
        "policy-by-hospital",
        '[statistics] by_hospital = "refuse": no question by hospital is answered',
    )
    yield PolicyRule(
        document.data_version == data_version,
        "policy-data-version",
        f'the question is about data version "{document.data_version}", and these records are "{data_version}": ask '
        "again with that version (join --data-version says it)",
    )
    yield from column_rules(rules, question.columns)
    yield PolicyRule(
        question.least_noise >= rules.least_noise_multiplier,
        "policy-noise",
        f"[statistics] least_noise_multiplier = {rules.least_noise_multiplier:g}, and the question has "
        f"{question.least_noise:g}{in_steps}: ask with more noise, or lower the entry",
    )
    yield PolicyRule(
        rules.most_cells is None or count <= rules.most_cells,
        "policy-cells",
        f"[statistics] most_cells = {rules.most_cells}, and the question has {count}: ask for fewer, or raise "
        "the entry",
    )
    yield PolicyRule(
        policy.limits.client is None,
        "policy-limits",
        "[limits.client] is set, and a question bounds what patients lose, not hospitals: remove it",
    )
