"""A hospital's own ledger and site policy, for runs of Flower. The ledger is the one that its studies use."""

from __future__ import annotations

from pathlib import Path

from client_sdk.errors import Refused
from client_sdk.guard.charges import Charge, OwnLimit
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.limit_terms import LedgerTerms
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.policy_limits import LimitSection
from study_protocol.wire.failpoints import failpoint, register
from wardround.flower.round_terms import PatientTraining, RoundTerms

register("hospital-mod.after-charge", "hospital-mod.after-ready")


class HospitalCharges:
    """The charges of one data set.

    Args:
        home: the hospital's directory.
        dataset: name of the records.
        study: name by which the site policy knows the runs.
    """

    def __init__(self, home: Path, dataset: str, study: str) -> None:
        self._path, self._dataset, self._study = ledger_path(home, dataset), dataset, study
        self._policy = SitePolicy.in_force(home)

    def pay(self, run: str, terms: RoundTerms, training: PatientTraining | None, model_sha256: str) -> int:
        """Charge one round of a run, before anything is computed, and return the charge's number within the run.

        Raises:
            Refused: the site policy does not allow the round. OwnBudgetExceeded: a limit would be passed.
            ConfigurationError, LedgerInUse, LedgerDamaged, LedgerNotWritten: no charge was made.
        """
        charge = self._allowed_charge(terms, training)
        study = self._name_of(run)
        with HospitalLedger.wait_for(self._path) as ledger:
            ledger.fix_terms(self._policy.limits)
            limits = ledger.own_limits(self._policy) if self._has_limit(charge) else (self._floor(charge),)
            if ledger.opened(study) is None:
                ledger.open_study(study, {"framework": "flower", "run": run})
            number = max(ledger.rounds_known(study), default=0) + 1
            ledger.charge(study, number, charge, limits, model_sha256)
        # Once the charge is durable: a letter on an objection names the rounds that were charged before it.
        if self._policy.current() is not self._policy:
            raise Refused(
                "rule-not-kept", "a patient has objected since the round began, and the app leaves nobody out"
            )
        failpoint("hospital-mod.after-charge")
        return number

    def ready(self, run: str, number: int, sha256: str, size: int, head: str) -> None:
        """Note an update before its first byte leaves, and the head of the server's ledger that came with its round."""
        with HospitalLedger.wait_for(self._path) as ledger:
            reported = {"server_ledger": head} if head else None
            ledger.finish_update(self._name_of(run), number, sha256=sha256, size=size, sums=None, reported=reported)
        failpoint("hospital-mod.after-ready")

    def _name_of(self, run: str) -> str:
        return f"{self._study}:{run}"

    def _has_limit(self, charge: Charge) -> bool:
        return charge.level in self._policy.limits.by_level()

    def _floor(self, charge: Charge) -> OwnLimit:
        """Return the limit of a policy that names none: the largest that it allows a study, over all runs."""
        section = LimitSection(epsilon=self._policy.largest_epsilon, delta=self._policy.largest_delta)
        return section.at(charge.level, self._policy.limits.terms(LedgerTerms(), is_new=True))

    def _allowed_charge(self, terms: RoundTerms, training: PatientTraining | None) -> Charge:
        """Return the charge of a round that the site policy allows."""
        policy = self._policy
        if policy.datasets is not None and self._dataset not in policy.datasets:
            raise Refused("dataset-not-allowed", f"{policy.in_words} does not allow data set {self._dataset}")
        if policy.studies is not None and self._study not in policy.studies:
            raise Refused("study-not-allowed", f"{policy.in_words} does not allow study {self._study}")
        if rules := [name for name, is_set in unkept_rules(policy).items() if is_set]:
            raise Refused(
                "rule-not-kept", f"{policy.in_words} has rules that no run of Flower keeps: {', '.join(rules)}"
            )
        charge = terms.sent() if terms.unit == "hospital" else _of_patients(terms, training)
        if charge.noise_multiplier < policy.least_noise_multiplier:
            raise Refused(
                "too-little-noise",
                f"{policy.in_words} demands a noise multiplier of {policy.least_noise_multiplier:g}, and the round has "
                f"{charge.noise_multiplier:g}",
            )
        return charge


def _of_patients(terms: RoundTerms, training: PatientTraining | None) -> Charge:
    if training is None:
        raise Refused("no-private-training", "the round protects patients, and HospitalMod names no private training")
    if not terms.allows(training):
        raise Refused("other-training", "the training here costs patients more than the round's terms say")
    return training.charge()


def unkept_rules(policy: SitePolicy) -> dict[str, bool]:
    """Return the rules that this modifier cannot keep, and whether the policy sets them."""
    # The app reads the records by itself, and there is no roster, no witness and no document to agree to.
    return {
        "needs_masking": policy.needs_masking,
        "min_witnesses": policy.min_witnesses > 0,
        "unpinned_roster": policy.unpinned_roster == "refused",
        "approval": policy.approval.people > 1,
        "individual": policy.individual is not None,
        "excluded_patients": bool(policy.excluded_patients),
        "allowed_columns": policy.statistics.allowed_columns is not None,
        "denied_columns": bool(policy.statistics.denied_columns),
    }
