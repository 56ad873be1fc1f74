"""A study's settings in plain sentences: whom it protects, how far, and who sees what.

They are the same for a hospital before it joins, for the dashboard and for documents, so that all read one text.
"""

from __future__ import annotations

from collections.abc import Iterable

from study_protocol.secure_sum.promises import sums
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.bounds import guaranteed_noise_multiplier
from study_protocol.study.evaluation import EvaluationSettings
from study_protocol.study.limits import Limit
from study_protocol.study.monitoring import MonitoringSettings
from study_protocol.study.noise_schedule import schedule_in_words
from study_protocol.study.privacy import Privacy
from study_protocol.study.settings import StudySettings
from study_protocol.study.slots import planned_slot
from study_protocol.study.statistics import Statistics
from study_protocol.study.synthesis import STAGES, Synthesis
from study_protocol.study.training import ALL, Training, rank_of
from study_protocol.study.who_sees_what import PROTECTED_UNITS, disclosures
from study_protocol.wire.rounded import at_least


def in_words(settings: AnySettings, *, mine: bool, hospitals: int | None = None) -> list[tuple[str, str]]:
    """Return (subject, sentence), in the order in which a person should read them.

    Args:
        mine: whether the reader is a hospital that takes part.
        hospitals: of a round, as far as is known.

    Raises:
        PlanError, InvalidArgument: settings that no budget can be kept for.
    """
    privacy = settings.privacy
    protected = {limit.level for limit in privacy.limits}
    rows = [
        ("protects", f"{level}: {PROTECTED_UNITS[level] if level in protected else 'not protected'}")
        for level in PROTECTED_UNITS
    ]
    rows += [(f"limit, {limit.level} {limit.definition}", limit_with_rule(limit)) for limit in privacy.limits]
    if isinstance(settings, StudySettings):
        rows += _of_training(settings)
    rows += _on("cohort", [] if settings.cohort is None else settings.cohort.in_words())
    rows += _of_questions(settings)
    if isinstance(settings, StudySettings) and settings.audit_in_words is not None:
        rows.append(("audit", settings.audit_in_words))
    rows += _on("waiting", [_waiting(settings)])
    rows += _on("who sees what", disclosures(settings, mine=mine))
    rows += _on("under masks", sums(privacy.masking, hospitals))
    if settings.beyond_bounds:
        rows.append(("beware", "its lead asked for limits or noise beyond the usual bounds (--i-know)"))
    return rows


def limit_with_rule(limit: Limit) -> str:
    """Return ε, δ and the rule that keeps them, such as "epsilon 3 at delta 1e-05, enforcement fixed-plan"."""
    rule = "" if limit.enforcement is None else f", enforcement {limit.enforcement}"
    return f"epsilon {limit.epsilon:g} at delta {limit.delta:g}{rule}"


def share_in_words(statistics: Statistics) -> str:
    """Return the share of the limit that is for questions. Empty where the settings name none."""
    return "" if statistics.share is None else f", with a share of {statistics.share:g} of the limit"


def _on(subject: str, sentences: Iterable[str]) -> list[tuple[str, str]]:
    return [(subject, sentence) for sentence in sentences]


def _of_training(settings: StudySettings) -> list[tuple[str, str]]:
    sure = at_least(guaranteed_noise_multiplier(settings))
    stages = settings.privacy.noise_stages
    by_round = "" if stages is None else f": {schedule_in_words(stages)}"
    return [
        ("noise", f"multiplier {sure} that is sure, at clip norm {clip_norm_in_words(settings.privacy)}{by_round}"),
        ("steps", f"at most {settings.privacy.max_steps} with noise, in {settings.rounds} rounds"),
        ("training", _training(settings)),
        ("drawn", _sampling(settings)),
    ]


def _of_questions(settings: AnySettings) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if settings.statistics is not None:
        rows += _on("queries", _of_queries(settings.statistics))
    if isinstance(settings, StudySettings) and settings.evaluation is not None:
        rows += _on("evaluation", _of_evaluation(settings, settings.evaluation))
    if isinstance(settings, StudySettings) and settings.monitoring is not None:
        rows += _on("monitoring", _of_monitoring(settings.monitoring))
    if settings.synthesis is not None:
        rows += _on("synthesis", _of_synthesis(settings.synthesis, settings.statistics))
    return rows


def _of_queries(statistics: Statistics) -> list[str]:
    hidden = statistics.suppress_below
    return [
        f"at most {statistics.max_queries} questions about the patients, of at most {statistics.max_cells} numbers"
        f"{share_in_words(statistics)}",
        "each is asked of the hospitals first, states its noise, and is charged to the same limits",
        *([f"published counts below {hidden}, noise included, are not shown"] if hidden else []),
    ]


def _of_synthesis(synthesis: Synthesis, statistics: Statistics | None) -> list[str]:
    names = ", ".join(variable.column for variable in synthesis.columns)
    noise = " and ".join(f"{synthesis.noise_multiplier(share):g}" for share in synthesis.shares)
    hours = 0.0 if statistics is None else statistics.decision_seconds / 3600
    return [
        f"by its rule up to {STAGES} questions on {names}, crossed with {synthesis.outcome}, with {noise} times the "
        f"noise of one patient. Joining agrees to them, for data version "
        f'"{synthesis.data_version}". {synthesis.rows:,} synthetic records follow from the noised answers alone',
        f"each is computed again here from the signed answers, and any other is refused. The cost of all is kept "
        f"from the first one on, for {hours:g} h at each",
    ]


def _of_evaluation(settings: StudySettings, evaluation: EvaluationSettings) -> list[str]:
    question, count = evaluation.question, evaluation.plan().due_by(settings.rounds)
    aside = f"about {100 * evaluation.share:g} % of the patients, by a secret coin of each, are never trained on"
    models = "released model" if evaluation.every == 1 else f"{evaluation.every} released models"
    if question is None:
        return [f"{aside}; questions about models are asked one by one"]
    return [
        aside,
        f"after every {models} and the last one, at most {count} times, without asking a person again: "
        f"{question.in_words()}",
        f"each with noise of {question.noise_multiplier:g} times what one patient can change, about data version "
        f'"{evaluation.data_version}"',
    ]


def _of_monitoring(monitoring: MonitoringSettings) -> list[str]:
    question, last = monitoring.question, monitoring.window(monitoring.windows)
    return [
        f"patients whose first record ({monitoring.column}) is from {monitoring.first_day} on are never trained on",
        f"the released model is evaluated on them in {monitoring.windows} windows of {monitoring.every_days} days, up "
        f"to {last.end}, each once, without asking a person again, on records of that data version",
        f"each with noise of {question.noise_multiplier:g} times what one patient can change",
    ]


def _training(settings: StudySettings) -> str:
    training = settings.training
    part = "" if training.trainable == ALL else f", of its model only {_part(training.trainable)}"
    if training.program_sha256 is not None:
        part += (
            ", on what a program makes of every record: an ONNX file from elsewhere that runs on this machine, with "
            f"SHA-256 {training.program_sha256}"
        )
    elif training.backbone is not None:
        part += f", on the public weights with SHA-256 {training.backbone.sha256}"
    return f"task {training.task}{part}, {_steps(training)}"


def _steps(training: Training) -> str:
    """Return how the model moves: by the hospitals' own steps, if there are any, and by the coordinator's."""
    server, schedule = training.optimiser, training.learning_rate_schedule
    by = "" if server.name == "plain" else f" with {server.name}"
    if training.algorithm == "fedsgd":
        # A gradient is sent as it is: the coordinator's learning rate is then the only one.
        return f"one gradient a round, learning rate {server.learning_rate:g} at the coordinator{by}"
    rate = f"learning rate {training.learning_rate:g}{'' if schedule.name == 'constant' else ' at the start'}"
    moved = f"the coordinator moves the model by {server.learning_rate:g} times the mean update{by}"
    steps = "one local step" if training.local_steps == 1 else f"{training.local_steps} local steps"
    steps += "" if training.local_optimiser.name == "plain" else f" of {training.local_optimiser.name}"
    if training.proximal:
        rate += f", each step drawn back to the received weights by {training.proximal:g} times their distance"
    return f"{steps} a round with {rate}; {moved}"


def _part(trainable: str | tuple[str, ...]) -> str:
    if (rank := rank_of(trainable)) is not None:
        return f"its head and matrices of rank {rank} beside its layers"
    return f"its {trainable}" if isinstance(trainable, str) else f"what is called {' or '.join(trainable)}"


def _sampling(settings: StudySettings) -> str:
    privacy = settings.privacy
    clients = (
        "every hospital"
        if privacy.client_sampling_rate == 1
        else f"a hospital with probability {privacy.client_sampling_rate:g}"
    )
    records = "every patient" if privacy.sampling_rate == 1 else f"a patient with probability {privacy.sampling_rate:g}"
    return f"{clients} in each round, {records} in each step"


def _waiting(settings: AnySettings) -> str:
    schedule = settings.schedule
    answers = (
        "" if not schedule.slots else f"; a hospital answers at multiples of its slot, {planned_slot(settings):g} s"
    )
    waits = f"a round waits {schedule.round_deadline_seconds:g} s at most, and needs {schedule.min_clients} hospitals"
    return f"{waits}{answers}"


def clip_norm_in_words(privacy: Privacy) -> str:
    """Return the clip norm of a study that trains."""
    if privacy.adaptive_clip is not None:
        return f"adaptive, starting at {privacy.clip_norm:g}"
    whole = "" if privacy.client_clip_norm is None else f" (whole hospital: {privacy.client_clip_norm:g})"
    return f"{privacy.clip_norm:g}{whole}"
