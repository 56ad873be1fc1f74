"""The site policy's rules, one by one: what each compares, and what to say where it says no.

A refusal names the entry of policy.toml, its value, the study's, and the way out. A refusal of a round takes it to
the coordinator: names of other studies or data sets are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from client_sdk.errors import PolicyRefused
from client_sdk.guard.columns import denied, trained_columns
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.query_rules import query_rules
from client_sdk.guard.rule import PolicyRule
from study_protocol.secure_sum.messages import min_survivors_of, min_threshold
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.bounds import guaranteed_noise_multiplier, largest_classical
from study_protocol.study.plan_of import hides_attendance
from study_protocol.study.settings import StudySettings

_OTHER_STUDY = "or take part in another study only"


def require_allowed(
    policy: SitePolicy,
    study: str,
    dataset: str,
    settings: AnySettings,
    *,
    roster_pinned: bool,
    expected: int | None = None,
) -> None:
    """Whether this hospital takes part. expected: as of `rules`.

    Raises:
        PolicyRefused: the first rule that says no. Its text names the entry of the policy.
    """
    for rule in rules(policy, study, dataset, settings, roster_pinned=roster_pinned, expected=expected):
        _require(policy, rule)


def rules(
    policy: SitePolicy,
    study: str,
    dataset: str,
    settings: AnySettings,
    *,
    roster_pinned: bool,
    expected: int | None = None,
) -> Iterator[PolicyRule]:
    """Every rule that concerns such a study.

    expected  how many hospitals its rounds are expected to have. None: the sums' sizes are not looked at
    """
    yield PolicyRule(
        policy.studies is None or study in policy.studies,
        "policy-study",
        f'studies does not list this study: add "{study}" if this hospital shall take part',
    )
    yield PolicyRule(
        policy.datasets is None or dataset in policy.datasets,
        "policy-dataset",
        f'datasets does not list the data set "{dataset}": name one of them (join --dataset), or add it',
    )
    if isinstance(settings, StudySettings):
        yield _program(policy, settings)
        yield _trained_columns(policy, settings)
        yield from _noise(policy, settings)
        yield from _disclosure(policy, settings)
        yield from _scheduled(policy, settings)
    elif policy.statistics.queries == "refuse":
        refused = '[statistics] queries = "refuse", and the study has queries alone: change the entry'
        yield PolicyRule(False, "policy-queries", f"{refused}, {_OTHER_STUDY}")
    yield from _witnesses(policy, settings, roster_pinned=roster_pinned, expected=expected)
    yield from _limits(policy, settings)
    yield from _masks(policy, settings, roster_pinned=roster_pinned, expected=expected)


def require_program_allowed(policy: SitePolicy, settings: AnySettings) -> None:
    """Before anything reads the program that a study runs on the records.

    Raises:
        PolicyRefused: the site policy does not list its digest.
    """
    if isinstance(settings, StudySettings):
        _require(policy, _program(policy, settings))


def _require(policy: SitePolicy, rule: PolicyRule) -> None:
    if not rule.is_met:
        raise PolicyRefused(rule.code, f"{policy.in_words} says no: {rule.text}")


def _program(policy: SitePolicy, settings: StudySettings) -> PolicyRule:
    sha256 = settings.training.program_sha256
    return PolicyRule(
        sha256 is None or sha256 in policy.backbone_programs,
        "policy-program",
        f"backbone_programs does not list the program {sha256}, which this study runs on the records: find out where "
        f"it comes from and add its SHA-256, {_OTHER_STUDY}",
    )


def _trained_columns(policy: SitePolicy, settings: StudySettings) -> PolicyRule:
    said_no = denied(policy.statistics, trained_columns(settings.training))
    return PolicyRule(
        not said_no,
        "policy-columns",
        f"[statistics] denied_columns names {', '.join(said_no)}, which the study's task reads: remove the entry, "
        f"{_OTHER_STUDY}",
    )


def _noise(policy: SitePolicy, settings: StudySettings) -> Iterator[PolicyRule]:
    rules, noise = settings.privacy.rules, guaranteed_noise_multiplier(settings)
    yield PolicyRule(
        not rules.central or policy.unnoised_updates,
        "policy-unnoised",
        f"unnoised_updates = false, and in this study (scheme {rules.display_name}) updates would leave without noise: "
        f"set it to true if the coordinator may see them, {_OTHER_STUDY}",
    )
    uncounted = (
        "and an update without noise (scheme client) has no finite cost at this level"
        if rules.central
        else f"and the noise of scheme {rules.display_name} is counted for whole hospitals, not for single patients"
    )
    code = "policy-unnoised" if rules.central else "policy-limits"
    for entry, is_set in (("limits.instance", policy.limits.instance), ("individual", policy.individual)):
        yield PolicyRule(
            not rules.clips_updates or is_set is None, code, f"[{entry}] is set, {uncounted}: remove it, {_OTHER_STUDY}"
        )
    yield PolicyRule(
        noise >= policy.least_noise_multiplier,
        "policy-noise",
        f"least_noise_multiplier = {policy.least_noise_multiplier:g}, and the study is sure of {noise:.3g}: ask its "
        "lead for a study with more noise (privacy.noise_multiplier), or lower the entry",
    )


def _scheduled(policy: SitePolicy, settings: StudySettings) -> Iterator[PolicyRule]:
    """A hospital that takes part agrees to the scheduled evaluations, so that no person is asked later."""
    document = None if settings.evaluation is None else settings.evaluation.document(1)
    if document is None:
        return
    for rule in query_rules(policy, document, document.data_version):
        text = f"the study evaluates its models on a schedule (evaluation.question): {rule.text}, {_OTHER_STUDY}"
        yield rule._replace(text=text)


def _witnesses(
    policy: SitePolicy, settings: AnySettings, *, roster_pinned: bool, expected: int | None
) -> Iterator[PolicyRule]:
    outside, entry = len(settings.schedule.witnesses), f"min_witnesses = {policy.min_witnesses}, and"
    yield PolicyRule(
        policy.min_witnesses <= outside or not hides_attendance(settings),
        "policy-witnesses",
        f"{entry} the study shows no hospital's signature before its end: it hides who takes part. Ask its lead "
        f"for outside witnesses (schedule.witnesses), {_OTHER_STUDY}",
    )
    yield PolicyRule(
        policy.min_witnesses <= outside or roster_pinned,
        "policy-witnesses",
        f"{entry} only signatures of keys that were compared count: pin the roster (wardround roster pin)",
    )
    if expected is not None:
        peers = expected - 1 + outside
        yield PolicyRule(
            policy.min_witnesses <= peers,
            "policy-witnesses",
            f"{entry} beside this hospital no more than {peers} may sign (hospitals: {expected - 1}, auditors: "
            f"{outside}): ask the study's lead for a study with more auditors (schedule.witnesses), or lower the entry",
        )


def _limits(policy: SitePolicy, settings: AnySettings) -> Iterator[PolicyRule]:
    privacy, (epsilon, delta) = settings.privacy, largest_classical(settings)
    ask = "ask its lead for a study with a smaller one (privacy.limits), or raise the entry"
    # Each written so that NaN says no.
    yield PolicyRule(
        epsilon <= policy.largest_epsilon,
        "policy-epsilon",
        f"largest_epsilon = {policy.largest_epsilon:g}, and the study's classical limit is epsilon {epsilon:g}: {ask}",
    )
    yield PolicyRule(
        delta <= policy.largest_delta,
        "policy-delta",
        f"largest_delta = {policy.largest_delta:g}, and the study's classical limit has delta {delta:g}: {ask}",
    )
    yield PolicyRule(
        privacy.rules.clips_updates or policy.limits.client is None,
        "policy-limits",
        "[limits.client] is set, and this hospital's own ledger counts whole hospitals in scheme client alone, while "
        f"the study has scheme {privacy.rules.display_name}: remove it, {_OTHER_STUDY}",
    )


def _disclosure(policy: SitePolicy, settings: StudySettings) -> Iterator[PolicyRule]:
    privacy = settings.privacy
    discloses = privacy.disclosure == "plain" and privacy.bayesian is not None
    yield PolicyRule(
        not discloses or policy.plain_disclosure,
        "policy-disclosure",
        "plain_disclosure = false, and the study shows log-moments as they are (privacy.disclosure plain): set it to "
        f"true if they may be seen, {_OTHER_STUDY}",
    )
    yield PolicyRule(
        policy.individual is None or privacy.histogram_noise is None,
        "individual-limit",
        "[individual] is set, and patients' own limits cannot remove a patient from a noised histogram "
        f"(privacy.histogram_noise): remove it, {_OTHER_STUDY}",
    )


def _masks(
    policy: SitePolicy, settings: AnySettings, *, roster_pinned: bool, expected: int | None
) -> Iterator[PolicyRule]:
    masking, floors = settings.privacy.masking, policy.floors()
    yield PolicyRule(
        not policy.needs_masking or (masking is not None and masking.mask_updates),
        "policy-masking",
        "needs_masking = true, and the study does not mask updates (privacy.masking): set it to false if the "
        f"coordinator may see this hospital's noised update, {_OTHER_STUDY}",
    )
    yield PolicyRule(
        roster_pinned or not policy.needs_pin(settings),
        "policy-roster",
        f'unpinned_roster = "{policy.unpinned_roster}", and the roster is not pinned: compare it with the other '
        "hospitals (wardround roster show), pin it (wardround roster pin) and join again",
    )
    if masking is None:
        return
    yield PolicyRule(
        masking.colluders >= floors.colluders,
        "policy-masking",
        f"least_colluders = {floors.colluders}, and the study's sums bear {masking.colluders} "
        "(privacy.masking.colluders): ask its lead for a study that bears more, or lower the entry",
    )
    if expected is None or expected < 3:
        return
    more = "Enrol one more hospital, or use"
    yield PolicyRule(
        expected > 3 or floors.allow_three,
        "policy-three",
        f"allow_three = false, and the study has {expected} hospitals, so that its sums are of three. {more} "
        "allow_three = true, if two honest hospitals in a sum are enough",
    )
    threshold = min_threshold(masking.neighbours_among(expected) + 1, masking.colluders)
    fewest = max(masking.min_survivors, min_survivors_of(expected, masking.colluders, threshold))
    yield PolicyRule(
        fewest >= floors.min_survivors,
        "policy-survivors",
        f"least_survivors = {floors.min_survivors}, and with {expected} hospitals sums of {fewest} are opened "
        f"(privacy.masking.min_survivors). {more} a smaller entry, if a sum of so few may be opened",
    )
