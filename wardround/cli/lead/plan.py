"""`wardround plan`: how a study will go, and which numbers would suit it, before anybody trains.

It needs a settings file, or public numbers for `--suggest`, and nothing else: no data, no network, no torch.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.shared.output import require_writable
from wardround.cli.shared.settings_file import changed_settings, read_settings, write_settings
from wardround.cli.shared.shared import AsJson, number, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from accounting.budget.forecast import Forecast, LimitForecast
    from accounting.plan.plan import Plan
    from accounting.plan.signal import SignalToNoise
    from accounting.units import Definition
    from study_protocol.study.settings import StudySettings
    from study_protocol.study.training import Training
    from wardround.cli.lead.suggest import Suggested


class Solve(StrEnum):
    """What is looked for; the other numbers stay."""

    NOISE = "noise"
    ROUNDS = "rounds"
    EPSILON = "epsilon"
    ORDER = "order"


class By(StrEnum):
    """Whose limits must keep what was found, at their worst."""

    ALL = "all"
    CLASSICAL = "classical"
    BAYESIAN = "bayesian"


SIZES = (100, 300, 1_000, 3_000, 10_000)
SettingsFile = Annotated[
    Path | None, typer.Argument(help="the study's settings, TOML or JSON; with --suggest it may be left out")
]
SolveFor = Annotated[
    Solve | None,
    typer.Option(
        "--solve",
        help="noise: the least for all steps of max_steps; rounds: the most at this noise; epsilon: the least for all "
        "steps at this noise; order: the best for these settings. All of them choose the best orders, too",
    ),
]
Whose = Annotated[By, typer.Option("--by", help="with --solve: whose limits must let all rounds begin, at their worst")]
RecordCounts = Annotated[
    list[int] | None, typer.Option("--records", help="records of a hospital, for noise against signal; may be repeated")
]
ParameterCount = Annotated[
    int | None, typer.Option("--parameters", help="of the model, for noise against signal as norms", min=1)
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="write the settings with what was found; a file that exists stays as it is"),
]
Suggest = Annotated[
    bool,
    typer.Option(
        "--suggest",
        help="settings from public numbers: those of a settings file, or --patients, --hospitals, --columns, --epsilon "
        "and --delta; with what accuracy to expect",
    ),
]
Patients = Annotated[
    list[int] | None,
    typer.Option("--patients", help="with --suggest: of a hospital; once for all, or once for each", min=1),
]
Hospitals = Annotated[int | None, typer.Option(help="with --suggest: how many take part", min=2)]
Columns = Annotated[
    int | None,
    typer.Option(help="with --suggest: inputs of the model: columns; a category counts once for each value", min=1),
]
Classes = Annotated[int, typer.Option(help="with --suggest: values of the label", min=2)]
Epsilon = Annotated[float | None, typer.Option(help="with --suggest: the classical limit of a patient")]
Delta = Annotated[float | None, typer.Option(help="with --suggest: of the limit")]
SchemeChoice = Annotated[str, typer.Option("--scheme", help="with --suggest: parallel or sequential")]
Masked = Annotated[bool, typer.Option("--masked", help="with --suggest: the coordinator sees sums only")]
Rounds = Annotated[int | None, typer.Option(help="with --suggest: fewer rounds than 100, where each takes long", min=5)]
Commonest = Annotated[
    float | None,
    typer.Option(help="share of the commonest class, where it is known from elsewhere: 0.9", min=0.0, max=1.0),
]


def plan(
    settings: SettingsFile = None,
    solve: SolveFor = None,
    by: Whose = By.ALL,
    records: RecordCounts = None,
    parameters: ParameterCount = None,
    output: Output = None,
    suggest: Suggest = False,
    patients: Patients = None,
    hospitals: Hospitals = None,
    columns: Columns = None,
    classes: Classes = 2,
    epsilon: Epsilon = None,
    delta: Delta = None,
    scheme: SchemeChoice = "parallel",
    masked: Masked = False,
    rounds: Rounds = None,
    commonest: Commonest = None,
    as_json: AsJson = False,
) -> None:
    """Show how many rounds a study's limits allow, what they cost, and how large the noise is; or solve for numbers.

    With --suggest: whole settings from public numbers, and what accuracy to expect.
    """
    from accounting.budget.forecast import forecast
    from study_protocol.study.plan_of import plan_of

    if suggest:
        if solve is not None:
            raise typer.BadParameter("--suggest finds the noise itself: leave --solve out")
        if output is not None and output.suffix == ".json":
            raise typer.BadParameter("--suggest writes TOML: name a .toml file")
        numbers = (hospitals, columns, epsilon, delta)
        with plain_errors():
            require_writable(output)
            found = _suggested(settings, patients or [], numbers, classes, scheme, masked, rounds, commonest)
            _show_suggested(found, output, as_json)
        return
    if settings is None:
        raise typer.BadParameter("name the settings file; or take --suggest, which needs public numbers alone")
    if output is not None and solve is None:
        raise typer.BadParameter("-o writes what --solve finds: say what to solve for")
    sizes = tuple(records or SIZES)
    if min(sizes) < 1:
        raise typer.BadParameter("a hospital has at least one record", param_hint="--records")
    with plain_errors():
        require_writable(output)
        chosen = read_settings(settings)
        replaced: dict[str, Any] = {}
        if solve is not None:
            solved = _solved(plan_of(chosen), solve, by)
            chosen, replaced = changed_settings(chosen, solved)
        sample = chosen.privacy.accounting_sample
        found = forecast(plan_of(chosen), records=None if sample is None else sample.records)
        sizes_shown = _signals(chosen, found, sizes)
        if output is not None:
            write_settings(settings, output, chosen, replaced)
    if as_json:
        beside = [one.to_dict() for one in sizes_shown]
        print_json({**found.to_dict(), "noise_against_signal": beside, "settings": replaced})
    else:
        _show(found)
        _show_signals(sizes_shown, parameters, chosen, found)
        _show_replaced(replaced, output)
    _notes(chosen, found)
    _accuracy(chosen, commonest, found.rounds)
    if found.rounds == 0:
        say(f"no round can begin: {_why_none(found)}", err=True)
        raise typer.Exit(1)


def _suggested(
    settings: Path | None,
    patients: list[int],
    numbers: tuple[int | None, int | None, float | None, float | None],
    classes: int,
    scheme: str,
    masked: bool,
    rounds: int | None,
    commonest: float | None,
) -> Suggested:
    """From the file, or from the numbers. Raises ConfigurationError: too few of them."""
    from client_sdk.errors import ConfigurationError
    from wardround.cli.lead.suggest import begun, suggested

    if settings is not None:
        if any(number is not None for number in numbers) or classes != 2 or masked or scheme != "parallel":
            raise ConfigurationError("the settings file says these numbers: name it with --patients alone, or leave it")
        return suggested(read_settings(settings).as_json(), patients=patients, rounds=rounds, commonest=commonest)
    hospitals, columns, epsilon, delta = numbers
    if not patients or hospitals is None or columns is None or epsilon is None or delta is None:
        raise ConfigurationError(
            "--suggest needs a settings file, or --patients, --hospitals, --columns, --epsilon and --delta"
        )
    values = begun(
        patients=patients,
        hospitals=hospitals,
        columns=columns,
        classes=classes,
        epsilon=epsilon,
        delta=delta,
        scheme=scheme,
        masked=masked,
    )
    return suggested(values, patients=patients, rounds=rounds, commonest=commonest)


def _show_suggested(found: Suggested, output: Path | None, as_json: bool) -> None:
    from wardround.cli.lead.suggest import as_json as as_values
    from wardround.cli.lead.suggest import in_words, loose_delta, warnings
    from wardround.cli.lead.templates import hand_out, study_text

    if as_json:
        print_json(as_values(found))
    if output is not None or not as_json:
        hand_out(study_text(found.settings.as_json()), output)
    for line in (*loose_delta(found.settings), *in_words(found.forecast), *warnings(found.forecast)):
        say(line, err=True)
    _note_bounds(found.settings)


def _accuracy(settings: StudySettings, commonest: float | None, rounds: int) -> None:
    """What to expect of the settings as they are, where that is known."""
    from wardround.cli.lead.suggest import expected, in_words, loose_delta, warnings

    for line in loose_delta(settings):
        say(line, err=True)
    known = expected(settings, commonest, rounds)
    if known is not None:
        for line in (*in_words(known[0]), *(f"warning: {one}" for one in known[1]), *warnings(known[0])):
            say(line, err=True)


def _solved(before: Plan, solve: Solve, by: By) -> Plan:
    from accounting.budget import solve as search
    from accounting.units import Definition
    from client_sdk.errors import ConfigurationError

    present = {limit.definition for limit in before.limits}
    wanted: set[Definition] = present if by is By.ALL else {Definition(by.value)}
    if not wanted <= present:
        raise ConfigurationError(f"--by {by}: the settings have no {by} limit")
    match solve:
        case Solve.NOISE:
            return search.least_noise(before, wanted)
        case Solve.ROUNDS:
            return search.most_rounds(before, wanted)
        case Solve.EPSILON:
            return search.least_epsilon(before, wanted)
        case Solve.ORDER:
            return search.best_orders(before)


def _signals(settings: StudySettings, found: Forecast, sizes: tuple[int, ...]) -> list[SignalToNoise]:
    from accounting.plan.signal import signal_to_noise

    privacy = settings.privacy
    # Of hospitals that are sampled, as many as the study expects; one row says all where their size does not matter.
    expected = privacy.expected_clients
    return [
        signal_to_noise(found.plan, size, hospitals=expected, rounds=found.rounds, sum_radius=settings.sum_radius)
        for size in (sizes[:1] if privacy.rules.clips_updates else sizes)
    ]


def _show(found: Forecast) -> None:
    plan = found.plan
    ends = {
        "max-steps-reached": "all steps of max_steps have been taken",
        "budget-exhausted": f"the next round could pass {_named(found)}",
    }
    data = "certain" if found.rounds == found.at_most_rounds else f"at least; at most {found.at_most_rounds}"
    noise = f"multiplier {plan.noise_multiplier:g} at clip norm {plan.clip_norm:g}"
    together = "in shares of" if plan.rules.divides_noise else "of"
    rows = [
        ["rounds", f"{found.rounds} of {plan.rounds} within max_steps ({data})"],
        ["noised steps", f"{found.rounds * plan.steps_per_round}, {plan.steps_per_round} in a round"],
        ["then", ends[found.reason]],
        [
            "noise",
            noise if plan.honest_survivors == 1 else f"{noise}, {together} {plan.honest_survivors} honest hospitals",
        ],
    ]
    table("Before anybody trains: if no round is abandoned", ["", ""], rows)
    columns = ["limit", "after these rounds", "rounds by itself", "first round", "each further one", "order"]
    table("Privacy loss ε, at the worst", columns, [row for one in found.limits for row in _rows(one)])


def _rows(one: LimitForecast) -> list[list[str]]:
    from study_protocol.wire.rounded import percent

    limit = one.limit
    bayesian = limit.definition == "bayesian"
    name = f"{limit.level} {limit.definition}: ε ≤ {limit.epsilon:g} at δ = {limit.delta:g}"
    worst = f"{number(one.enforced)}{' at most' if bayesian else ''}"
    first = f"{number(one.first_round)} (fixed {number(one.fixed_term)})"
    order = f"{one.order:g} (at least {one.least_order:g})"
    rows = [[name, worst, str(one.rounds), first, number(one.further_round), order]]
    rows += [[f"  {name}", number(stated.epsilon), "", "", "", ""] for name, stated in one.reports]
    if one.guess is not None:
        rows.append(["  an attacker's right guess, on average", f"{percent(one.guess)} at most", "", "", "", ""])
    if one.evaluated is not None:
        rows.append(["  patients set aside, all evaluations", number(one.evaluated), "", "", "", ""])
    if one.least is not None:
        rows.append(["  whatever the data", f"{number(one.least, round_down=True)} at least", "", "", "", ""])
    return rows


def _show_signals(sizes: list[SignalToNoise], parameters: int | None, settings: StudySettings, found: Forecast) -> None:
    columns = ["records", "batch", "signal at most", "noise", "signal / noise", "study's signal / noise"]
    columns.append("equal at parameters" if parameters is None else f"over {parameters} parameters")
    rows: list[list[str]] = []
    for one in sizes:
        size = "any" if one.records is None else f"{one.records:,}"
        batch = "" if one.expected_batch is None else f"{one.expected_batch:g}"
        last = _counted(one.parameters) if parameters is None else _against(one, parameters)
        rows.append([size, batch, f"{one.signal:g}", f"{one.noise:g}", f"{one.alone:.3g}", f"{one.together:.3g}", last])
    hospitals, steps = settings.privacy.expected_clients, found.rounds * found.plan.steps_per_round
    table("Noise against signal", columns, rows)
    say(
        "Signal: norm of a hospital's clipped sum in one step, at most, on average. Noise: standard deviation in every "
        f"coordinate. The study: {hospitals:g} such hospitals that all agree, over {steps} steps."
    )


def _against(one: SignalToNoise, parameters: int) -> str:
    ratio = one.together / parameters**0.5
    return f"{ratio:.3g}{'' if ratio >= 1 else ', the noise is larger'}"


def _counted(parameters: float) -> str:
    return f"{parameters:.3g}" if parameters < 1e4 else f"{parameters:.2e}"


def _show_replaced(replaced: dict[str, Any], output: Path | None) -> None:
    if replaced:
        say("\nSettings to copy:" if output is None else f"\n{output}: written, with")
        for name, value in replaced.items():
            say(f"{name} = {value!r}")


def _notes(settings: StudySettings, found: Forecast) -> None:
    from study_protocol.study.slots import notes_on_slots

    if any(one.limit.definition == "bayesian" for one in found.limits):
        say(
            "note: Bayesian numbers are worst cases at the clip norm; the real ones depend on the data, and the study "
            "then goes on for as long as they allow",
            err=True,
        )
    for one in found.limits:
        # Within what is shown.
        if one.least is not None and one.least > one.epsilon * (1 - 1e-3):
            say(
                f"note: the Bayesian limit at level {one.limit.level} gains nothing: no accounting sample of this size "
                "can show less than the worst case. Take a larger sample, or a classical limit alone",
                err=True,
            )
    expected, least = settings.privacy.expected_clients, settings.schedule.min_clients
    if least > expected:
        say(
            f"note: schedule.min_clients is {least}, but privacy.expected_clients says that {expected:g} hospitals are "
            "asked in a round on average: rounds will be abandoned, or updates are divided by too little",
            err=True,
        )
    for line in notes_on_slots(settings, found.rounds):
        say(f"note: {line}", err=True)
    wrong = _wrong_task(settings.training)
    if wrong is not None:
        say(f"note: {wrong}", err=True)
    _note_bounds(settings)


def _note_bounds(settings: StudySettings) -> None:
    """What a coordinator refuses to open: the guarantee says next to nothing."""
    from study_protocol.study.bounds import beyond_bounds

    beyond = [] if settings.beyond_bounds else beyond_bounds(settings)
    if beyond:
        reasons = "; ".join(beyond)
        say(f"note: `study create` refuses these settings without --i-know: {reasons}", err=True)


def _wrong_task(training: Training) -> str | None:
    """Why the task cannot be loaded here. A note only: hospitals may have a package that the planner lacks."""
    from private_learning import tasks

    try:
        tasks.load(training.task, training.task_parameters)
    except tasks.TaskError as error:
        return str(error)
    return None


def _named(found: Forecast) -> str:
    return " and ".join(f"the {one.definition} limit at level {one.level}" for one in found.stopped_by)


def _why_none(found: Forecast) -> str:
    from accounting.budget.budget import Budget
    from accounting.errors import AccountingError

    try:
        Budget.open(found.plan)
    except AccountingError as error:
        return str(error)
    return f"{_named(found)} would be passed"
