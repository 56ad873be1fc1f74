"""The site policy's rules about questions, all over their text: a rule that looked at records would tell of them."""

from __future__ import annotations

from collections.abc import Iterator

from client_sdk.errors import PolicyRefused
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.rules import Rule
from client_sdk.protocol.study.queries import QueryDocument


def require_answerable(policy: SitePolicy, document: QueryDocument, data_version: str) -> None:
    """Whether this hospital answers such a query, if a person here approves it where one is asked.

    Raises:
        PolicyRefused: the first rule that says no; its text names the entry of the policy.
    """
    for rule in query_rules(policy, document, data_version):
        if not rule.allowed:
            raise PolicyRefused(rule.code, f"the site policy (policy.toml) says no: {rule.text}")


def approval_of(policy: SitePolicy, approvals: Approvals, document: QueryDocument) -> bool | None:
    """What a person here has decided, or the policy for all questions; None: a person has to decide first."""
    digest = document.digest()
    if approvals.denied(digest):
        return False
    return True if policy.statistics.queries == "allow" or approvals.has(digest) else None


def query_rules(policy: SitePolicy, document: QueryDocument, data_version: str) -> Iterator[Rule]:
    """Every rule that concerns such a query. data_version: what people here call the records as they are now."""
    rules, question = policy.statistics, document.question
    named = set(question.columns)
    yield Rule(rules.queries != "refuse", "policy-queries", '[statistics] queries = "refuse": no question is answered')
    yield Rule(
        document.data_version == data_version,
        "policy-data-version",
        f'the question is about data version "{document.data_version}", and these records are "{data_version}": ask '
        "again with that version (join --data-version says it)",
    )
    denied = sorted(named & rules.denied_columns)
    yield Rule(not denied, "policy-columns", f"[statistics] denied_columns names {', '.join(denied)}")
    other = [] if rules.allowed_columns is None else sorted(named - rules.allowed_columns)
    yield Rule(not other, "policy-columns", f"[statistics] allowed_columns does not name {', '.join(other)}")
    yield Rule(
        question.noise_multiplier >= rules.least_noise_multiplier,
        "policy-noise",
        f"[statistics] least_noise_multiplier = {rules.least_noise_multiplier:g}, and the question has "
        f"{question.noise_multiplier:g}: ask with more noise, or lower the entry",
    )
    yield Rule(
        rules.most_cells is None or question.cells <= rules.most_cells,
        "policy-cells",
        f"[statistics] most_cells = {rules.most_cells}, and the question has {question.cells}: ask for fewer, or raise "
        "the entry",
    )
    yield Rule(
        policy.limits.client is None,
        "policy-limits",
        "[limits.client] is set, and a question bounds what patients lose, not hospitals: remove it",
    )
