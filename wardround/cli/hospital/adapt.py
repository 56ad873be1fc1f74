"""The command `wardround adapt`: fit a released model to this hospital's own patients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.files.durable import write_durably
from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.hospital.hospital import Dates, Decimal, Encoding, Separator
from wardround.cli.hospital.mapping import ColumnsFile
from wardround.cli.hospital.table_format import FormatOptions, read_records
from wardround.cli.shared.exit_codes import ExitCode
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import AsJson, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from client_sdk.released.adaptation import Adaptation

_STAYS = (
    "note: an adapted model is fitted to this hospital's patients without noise, and so are these numbers. No privacy "
    "budget counts them. Keep both in the building."
)
_PERFECT = {"roc_auc": "1", "brier": "0", "log_loss": "0", "calibration_slope": "1", "calibration_intercept": "0"}


def adapt(
    model: Annotated[Path, typer.Argument(help="file of a released model, from `wardround study model`")],
    data: Annotated[Path, typer.Option("--data", help="this hospital's records, with labels")],
    patient_column: Annotated[str | None, typer.Option(help="column with the patient of each row")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="new file for the adapted model. Left out: only compare")
    ] = None,
    head: Annotated[bool, typer.Option("--head", help="fit the whole last layer, drawn to the released one")] = False,
    hold_out: Annotated[float, typer.Option(help="share of the patients on whom both models are compared")] = 0.3,
    even_if_worse: Annotated[
        bool, typer.Option("--even-if-worse", help="write the adapted model even if it is worse on the hold-out")
    ] = False,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    columns: ColumnsFile = None,
    backbone: Weights = None,
    backbone_program: Program = None,
    as_json: AsJson = False,
) -> None:
    """Fit a released model to this hospital's own patients, and compare both on patients who were held out.

    No number is sent, and no ε is spent. The adapted model must stay at this hospital.
    """
    with plain_errors():
        require_writable(output)
        from client_sdk.released import adaptation

        options = FormatOptions(separator, encoding, decimal, dates)
        records = read_records(data, options, patient_column=patient_column, mapping=columns)
        model_backbone = backbone_file(backbone, backbone_program)
        result = adaptation.adapt(
            model.read_bytes(), model.name, records, head=head, hold_out=hold_out, backbone=model_backbone
        )
        say(_STAYS, err=True)
        _keep(result, output, even_if_worse=even_if_worse, as_json=as_json)


def _keep(result: Adaptation, output: Path | None, *, even_if_worse: bool, as_json: bool) -> None:
    """Show the comparison, and write the adapted model if it is better or must be written in any case."""
    # By the hold-out's loss alone: a fit always looks better on the patients it was made of.
    is_kept = result.gain > 0 or even_if_worse
    _show(result, output if is_kept else None, as_json=as_json)
    if not is_kept:
        say(
            "the adapted model is worse on the hold-out, so nothing is written: keep the released one, or add "
            "--even-if-worse",
            err=True,
        )
        raise typer.Exit(ExitCode.NOT_POSSIBLE)
    if output is not None:
        # Fitted to patients: only the user of this command may read the file.
        write_durably(output, result.data, mode=0o600)
        say(f"{output}: adapted model, for this hospital only", err=as_json)


def _show(result: Adaptation, output: Path | None, *, as_json: bool) -> None:
    fit_patients, hold_out_patients = result.patients
    if as_json:
        print_json(
            {
                "fitted": result.fitted,
                "patients": {"fit": fit_patients, "hold_out": hold_out_patients},
                "before": result.before,
                "after": result.after,
                "gain": result.gain,
                "gain_standard_error": result.gain_error,
                "notes": list(result.notes),
                "written": None if output is None else str(output),
            }
        )
        return
    for note in result.notes:
        say(f"note: {note}", err=True)
    rows = [
        [name, _number(before), _number(result.after[name]), _PERFECT.get(name, "")]
        for name, before in result.before.items()
    ]
    title = f"{result.fitted}: fitted on {fit_patients} patients, compared on {hold_out_patients} others"
    table(title, ["", "before", "after", "perfect"], rows)
    better = "better" if result.gain > 0 else "worse"
    say(f"loss by patient: {abs(result.gain):.4f} {better}, standard error {result.gain_error:.4f}")


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"
