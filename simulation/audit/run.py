"""An audit of a study's settings: its parts, one after the other, each a section of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from client_sdk.errors import ConfigurationError, WardroundError
from private_learning.records import Records
from private_learning.tasks import Task, TaskDataset
from simulation.audit.attack import CHANCE, FEWEST, OneRun, attack
from simulation.audit.laws import LawResult
from simulation.audit.membership import membership
from simulation.audit.page import AuditReport, AuditSection, bars
from simulation.audit.pictures import membership_section, reconstruction_section
from simulation.audit.reconstruction import reconstruction
from simulation.audit.releases import AttackedStudy, audited
from simulation.audit.step_laws import STEPS, check_steps
from simulation.population import Population
from study_protocol.study.settings import StudySettings
from study_protocol.wire.rounded import significant

_MEANINGS = {
    "noise": "the noise has the charged size",
    "clipping": "a record counts at most the clip norm",
    "batches": "every record is drawn by a coin of its own",
    "same batches": "batches are drawn anew",
    "same noise": "noise is drawn anew",
}


@dataclass(frozen=True)
class AuditInputs:
    """What the parts of an audit need.

    records     of one table, or of one file
    population  the same records, dealt out to the hospitals, without those of the test
    test        records of other patients, for membership inference
    studies     shadow studies of it. None: as many as take about two minutes
    pictures    show records that are images, and what is made of them
    """

    settings: StudySettings
    task: Task
    records: Records
    population: Population
    test: TaskDataset | None
    canaries: int
    seed: int
    studies: int | None = None
    pictures: bool = False

    @property
    def delta(self) -> float:
        """The δ of the patients' classical limit. Raises ConfigurationError: there is none."""
        for limit in self.settings.privacy.limits:
            if (limit.level, limit.definition) == ("instance", "classical"):
                return limit.delta
        raise ConfigurationError(
            "the study has no classical limit of level instance: the audit attacks patients, and compares with its ε"
        )

    @property
    def study(self) -> AttackedStudy:
        """The study with one step a round, seen where its certificate counts. Raises ConfigurationError: `audited`."""
        settings = audited(self.settings)
        return AttackedStudy(settings, self.task, self.population, self.settings.privacy.honest_adders)

    def require_enough(self) -> None:
        """Raise ConfigurationError: there are too few patients, or hospitals."""
        patients, watched = len(self.population.dataset), self.settings.privacy.honest_adders
        if patients < FEWEST:
            raise ConfigurationError(f"{patients} patients are too few for an audit: give records of {FEWEST} or more")
        if watched > len(self.population):
            raise ConfigurationError(
                f"the certificate counts the noise of {watched} hospitals, and there are {len(self.population)}: "
                "name more with --clients"
            )


def one_run_section(result: OneRun) -> AuditSection:
    """Return the section of the guesses."""
    certified, proven = significant(result.certified, 3), significant(result.proven, 3, round_down=True)
    heights = {
        "by the account": float(certified),
        "proven by this run": float(proven),
        "expected of a sound run": result.expected,
        f"most that {result.canaries:,} canaries can prove": result.most,
    }
    lines = [
        f"{result.canaries:,} made-up records (canaries) in the study's own columns each took part by a coin. From the "
        f"{result.steps:,} noised sums an attacker who knows all other records guessed {result.guesses:,} of the "
        f"coins, {result.right:,} of them rightly. This proves ε ≥ {proven} of steps of this kind at δ = "
        f"{result.delta:g}, with confidence {1 - CHANCE:.1%} (Mahloujifar, Melis and Chaudhuri 2025). Their account "
        f"states {certified}. The certificate may state more: the limit, where a filter keeps it.",
        f"A model with {result.dimension:,} parameters holds no more canaries apart than that. So many can prove ε = "
        f"{result.most:.3g} at most, even without any noise. A small number here is no praise of the study.",
    ]
    alarms = ["the guesses refute the account"] if result.refuted else []
    return AuditSection(
        "one_run", "One run with canaries", asdict(result), lines, chart=bars(heights, unit="ε"), alarms=alarms
    )


def steps_section(result: LawResult) -> AuditSection:
    """Return the section of the tests of single steps."""
    alarms = result.alarms(CHANCE)
    lines = [
        f"{result.steps} steps ran with a model that stands still. Most records were copies of one whose gradient is "
        f"{result.longest:.3g} times the clip norm. Every step was compared with 499 draws of the law that the "
        f"certificate counts on. A sound study raises an alarm here with a chance of {CHANCE:.1%}, over all tests.",
    ]
    if result.longest <= 1:
        lines.append("No gradient was longer than the clip norm, so that clipping could not be tested.")
    rows = [
        [_MEANINGS[name], f"{value:.2g}", "ALARM" if name in alarms else "no alarm"]
        for name, value in result.p_values.items()
    ]
    return AuditSection(
        "steps",
        "The law of single steps",
        asdict(result),
        lines,
        ("test", "p-value", "result"),
        rows,
        alarms=[f"not so: {_MEANINGS[name]}" for name in alarms],
    )


def _one_run(inputs: AuditInputs) -> AuditSection:
    result = attack(inputs.study, inputs.records, canaries=inputs.canaries, delta=inputs.delta, seed=inputs.seed)
    return one_run_section(result)


def _steps(inputs: AuditInputs) -> AuditSection:
    return steps_section(check_steps(inputs.study, inputs.seed, STEPS))


def _membership(inputs: AuditInputs) -> AuditSection:
    if inputs.test is None:
        raise ConfigurationError("no records were held out")
    report = membership(
        inputs.settings, inputs.task, inputs.population, inputs.test, studies=inputs.studies, seed=inputs.seed
    )
    return membership_section(report)


def _reconstruction(inputs: AuditInputs) -> AuditSection:
    report = reconstruction(inputs.settings, inputs.task, inputs.population, seed=inputs.seed)
    return reconstruction_section(report if inputs.pictures else report.model_copy(update={"picture": None}))


@dataclass(frozen=True, repr=False)
class AuditPart:
    """One attack. run: returns its section, of this key and title, or raises WardroundError where it does not go."""

    key: str
    title: str
    run: Callable[[AuditInputs], AuditSection]

    def refused(self, reason: WardroundError) -> AuditSection:
        """Return the section that says why there was no attack."""
        return AuditSection(
            self.key, self.title, {"not_attacked": str(reason)}, [f"Not attacked: {reason}."], attacked=False
        )


# The parts of the page, in order.
PARTS: Sequence[AuditPart] = (
    AuditPart("one_run", "One run with canaries", _one_run),
    AuditPart("steps", "The law of single steps", _steps),
    AuditPart("membership", "Membership inference", _membership),
    AuditPart("reconstruction", "Reconstruction", _reconstruction),
)


def audit(inputs: AuditInputs, on_part: Callable[[int], object] = lambda _: None) -> AuditReport:
    """Run all parts. One that does not go with the settings says so on the page.

    Args:
        on_part: is told how many parts are done.

    Raises:
        ConfigurationError: too few records or hospitals.
        WardroundError: no part goes with the settings.
        DataError: as `Engine.run`.
    """
    inputs.require_enough()
    sections: list[AuditSection] = []
    refusals: list[WardroundError] = []
    for part in PARTS:
        try:
            sections.append(part.run(inputs))
        except WardroundError as refusal:
            refusals.append(refusal)
            sections.append(part.refused(refusal))
        on_part(len(sections))
    if len(refusals) == len(PARTS):
        raise refusals[0]
    facts: dict[str, str | int] = {
        "hospitals": len(inputs.population),
        "patients": sum(map(len, inputs.population.rows)),
        "seed": inputs.seed,
    }
    # The settings may name this page: its digest cannot stand on it.
    unnamed = inputs.settings.model_copy(update={"audit_sha256": None})
    return AuditReport(unnamed.digest(), facts, sections)
