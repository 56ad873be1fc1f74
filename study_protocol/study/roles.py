"""The callers of each operation of the coordinator's API. Pure.

A person holds grants: a role in one study, or in all. A hospital signs its requests. The table names every operation of
the API once, and the API refuses a caller before it reads the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

Role = Literal["administrator", "lead", "asker", "auditor", "viewer"]
# member: any hospital of the study. itself: the hospital that the address names. anyone: without a key or a signature.
Caller = Literal[Role, "member", "itself", "anyone"]
# The strongest first: where several roles of a person allow an operation, this order says which one acts.
ROLES: tuple[Role, ...] = get_args(Role)
ROLE_TEXTS: Mapping[Role, str] = MappingProxyType(
    {
        "administrator": "runs the coordinator: creates studies, and may do everything in all of them",
        "lead": "leads one study: invites, starts, pauses, stops, asks, and gives keys for it",
        "asker": "asks questions, and reads budget, ledger and answers. No models",
        "auditor": "reads everything of one study, the audit log included",
        "viewer": "reads a study without the names of the hospitals in a round",
    }
)
_LEADS: frozenset[Caller] = frozenset({"administrator", "lead"})
_ASKERS: frozenset[Caller] = frozenset({"administrator", "lead", "asker"})
_AUDITORS: frozenset[Caller] = frozenset({"administrator", "lead", "auditor"})
_READERS: frozenset[Caller] = frozenset(ROLES)
_STUDY_READERS: frozenset[Caller] = frozenset({*ROLES, "member"})
_MODEL_READERS: frozenset[Caller] = _STUDY_READERS - {"asker"}
_MEMBER: frozenset[Caller] = frozenset({"member"})
_ITSELF: frozenset[Caller] = frozenset({"itself"})
_ANYONE: frozenset[Caller] = frozenset({"anyone"})

OPERATIONS: Mapping[str, frozenset[Caller]] = MappingProxyType(
    {
        "create_study": _LEADS,
        **dict.fromkeys(("start_study", "train_study", "pause_study", "resume_study", "stop_study"), _LEADS),
        **dict.fromkeys(("delete_study", "invite", "revoke", "put_initial_model", "put_metrics"), _LEADS),
        **dict.fromkeys(("create_key", "list_keys", "revoke_key"), _LEADS),
        "ask_query": _ASKERS,
        "read_audit_log": _AUDITORS,
        **dict.fromkeys(("read_coordinator_audit_log", "list_sessions", "end_session"), frozenset({"administrator"})),
        **dict.fromkeys(("show_person", "log_out"), _READERS),
        **dict.fromkeys(("list_studies", "all_studies_json"), _READERS),
        **dict.fromkeys(
            ("show_study", "show_roster", "list_versions", "list_lacking_columns", "list_rounds", "show_round"),
            _STUDY_READERS,
        ),
        **dict.fromkeys(("read_budget", "read_certificate", "read_ledger", "stream_events"), _STUDY_READERS),
        **dict.fromkeys(("forecast_query", "list_queries", "show_query", "put_outside_witness"), _STUDY_READERS),
        **dict.fromkeys(("study_page_json", "study_terms_json", "ledger_text"), _STUDY_READERS),
        **dict.fromkeys(("queries_json", "query_json", "synthesis_json", "synthesis_shares_json"), _STUDY_READERS),
        "get_model": _MODEL_READERS,
        **dict.fromkeys(("next_assignment", "session", "get_keys", "get_survivors", "get_consistency"), _MEMBER),
        "get_result": _MEMBER,
        **dict.fromkeys(("put_update", "put_refusal", "put_keys", "put_shares", "get_shares", "put_masked"), _ITSELF),
        **dict.fromkeys(("put_consistency", "put_unmask", "put_left", "rotate_key", "withdraw"), _ITSELF),
        **dict.fromkeys(("put_lacking_columns", "put_consent", "put_witness"), _ITSELF),
        # An invitation's token admits, and the new key proves itself. The identity provider says who logs in.
        **dict.fromkeys(("enrol", "begin_login", "poll_login", "log_in", "finish_login"), _ANYONE),
        **dict.fromkeys(("show_version", "livez", "readyz", "docs"), _ANYONE),
        # Pages without any fact. Their scripts ask for the facts with a key.
        **dict.fromkeys(("all_studies", "study_page", "reasons", "charts"), _ANYONE),
    }
)


# They are shown which hospitals took part in a round.
SEE_CLIENTS: frozenset[Role] = frozenset({"administrator", "lead", "auditor"})
# Messages of hospitals in a round, and heads that they sign. Each is kept with its sender and its signature. The audit
# log leaves them out, or it would show who took part in a round. To ask what a question would cost changes nothing.
LOGGED_WITH_ITS_ROUND = frozenset(
    {"put_update", "put_refusal", "put_keys", "put_shares", "put_masked", "put_consistency", "put_unmask", "put_left"}
    | {"put_witness", "forecast_query"}
)


@dataclass(frozen=True)
class Grant:
    """A role of a person. study: None in all studies."""

    role: Role
    study: str | None = None

    def __str__(self) -> str:
        return f"{self.role} of {'all studies' if self.study is None else self.study}"


def roles_in(grants: Iterable[Grant], study: str | None) -> frozenset[Role]:
    """Return the roles that these grants give in a study. study: None for operations that belong to no study."""
    return frozenset(grant.role for grant in grants if study is None or grant.study in (None, study))


def acting_role(grants: Iterable[Grant], operation: str, study: str | None) -> Role | None:
    """Return the strongest role of a person that may call the operation, or None."""
    own_roles, admitted_roles = roles_in(grants, study), OPERATIONS[operation]
    return next((role for role in ROLES if role in own_roles and role in admitted_roles), None)


def may_give(grants: Iterable[Grant], added: Grant) -> bool:
    """Return whether a person with these grants may give another one, or take it away.

    A lead gives roles in its own study, and never that of an administrator.
    """
    own_roles = frozenset(grants)
    if any(grant.role == "administrator" and grant.study is None for grant in own_roles):
        return True
    leads = {grant.study for grant in own_roles if grant.role == "lead"}
    return added.role != "administrator" and (None in leads or (added.study is not None and added.study in leads))
