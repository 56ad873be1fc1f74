"""The commands `wardround predict`, `evaluate` and `export`: use a released model."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from study_protocol.files.durable import write_durably
from wardround.cli.hospital.backbone import Program, Weights, backbone_file
from wardround.cli.hospital.hospital import Dates, Decimal, Encoding, Separator
from wardround.cli.hospital.mapping import ColumnsFile, apply_mapping, warn_of_unmapped
from wardround.cli.hospital.table_format import FormatOptions, read_records
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import AsJson, KeyFile, Server, operator, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from client_sdk.released import ReleasedModel
    from client_sdk.released.export import Exported
    from client_sdk.released.scores import Scores
    from private_learning.records import Records
    from private_learning.tasks.backbone_file import BackboneFile
    from private_learning.tasks.segmentation import Segmentation
    from study_protocol.study.settings import StudySettings

_OWN_RECORDS = (
    "note: these numbers are computed from the records in the file. They reveal information about its patients, and no "
    "privacy budget counts that. Do not pass them on if the patients took part in the study or must not be disclosed."
)
_ADAPTED = (
    "note: this model is adapted to a hospital's own patients without noise. The file and what is made of it must not "
    "leave the hospital."
)
_DECLARED = (
    "note: every reader of the study will see these numbers. The patients of this set are outside its guarantee. Use "
    "public records, or records without private data."
)
ModelFile = Annotated[Path, typer.Argument(help="file of a released model, from `wardround study model`")]
NewRecords = Annotated[Path, typer.Option("--data", help="records: a .csv, .parquet or .npz file. Labels are optional")]
IdColumn = Annotated[str | None, typer.Option(help="column with the patient, copied into the output")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="new file to write. Default: standard output")]


def predict(
    model: ModelFile,
    data: NewRecords,
    output: Output = None,
    id_column: IdColumn = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    columns: ColumnsFile = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="probability of an interval around each prediction, such as 0.9 (task bayesian-logistic-regression)"
        ),
    ] = None,
    backbone: Weights = None,
    backbone_program: Program = None,
    as_json: AsJson = False,
) -> None:
    """Predict the labels of new records, as CSV with one line for each. Masks of images are arrays (.npz)."""
    with plain_errors():
        require_writable(output)
        from client_sdk.released import load_model
        from private_learning.tasks.segmentation import Segmentation

        released = load_model(model, backbone=backbone_file(backbone, backbone_program))
        _warn_of_adapted(released)
        read = _new_records(data, id_column, FormatOptions(separator, encoding, decimal, dates))
        records, mapping_counts = apply_mapping(read, columns, id_column)
        warn_of_unmapped(mapping_counts)
        _warn_of_lacking(released, records)
        if isinstance(released.task, Segmentation):
            _write_masks(released, released.task, records, output)
            return
        rows = list(_predictions(released, records, id_column, interval))
        if as_json:
            print_json(rows)
        if output is not None:
            # Predictions are about patients: only the user of this command may read the file.
            write_durably(output, _csv(rows).encode(), mode=0o600)
            say(f"{output}: {len(rows)} records", err=as_json)
        elif not as_json:
            _print(_csv(rows))


def _warn_of_adapted(released: ReleasedModel) -> None:
    if released.metadata is not None and released.metadata.adapted_from is not None:
        say(_ADAPTED, err=True)


def _warn_of_lacking(released: ReleasedModel, records: Records) -> None:
    from client_sdk.study.lacking import lacking_columns

    for column in lacking_columns(released.task, records):
        say(f"warning: {column.in_words}", err=True)


def _new_records(path: Path, id_column: str | None, options: FormatOptions) -> Records:
    from client_sdk.released.records import new_records
    from private_learning.records import text_tables

    if path.exists() and text_tables(path):
        return read_records(path, options, patient_column=id_column)
    return new_records(path, id_column, options.declared(path))


def evaluate(
    model: Annotated[str, typer.Argument(help="file of a released model. With --watch: name of a study")],
    data: Annotated[Path, typer.Option("--data", help="records with labels")],
    patient_column: Annotated[str | None, typer.Option(help="column with the patient of each row")] = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    columns: ColumnsFile = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="measure every released model of a study until it ends, and publish the numbers in the study",
        ),
    ] = False,
    name: Annotated[str, typer.Option(help="with --watch: name of this set of records in the study")] = "",
    every: Annotated[float, typer.Option(help="with --watch: seconds between two requests", min=0.05)] = 5.0,
    backbone: Weights = None,
    backbone_program: Program = None,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model on records with known labels."""
    with plain_errors():
        options = FormatOptions(separator, encoding, decimal, dates)
        read = partial(read_records, data, options, patient_column=patient_column, mapping=columns)
        if watch:
            _watch(model, read, name, every, server, key_file, backbone_file(backbone, backbone_program))
            return
        from client_sdk.released import load_model
        from client_sdk.released.evaluation import evaluated

        if not Path(model).exists():
            raise FileNotFoundError(
                f"{model}: there is no such model file. To follow a study of this name, add --watch"
            )
        released = load_model(model, backbone=backbone_file(backbone, backbone_program))
        _warn_of_adapted(released)
        records = read()
        _warn_of_lacking(released, records)
        scores = evaluated(released, records)
        say(_OWN_RECORDS, err=True)
        _show(f"{model} on {data}", scores, released, as_json)


def export(
    model: ModelFile,
    onnx: Annotated[Path | None, typer.Option(help="ONNX file to write")] = None,
    torch: Annotated[Path | None, typer.Option(help="file to write (.pt2) for torch.export.load")] = None,
    curves: Annotated[Path | None, typer.Option(help="picture (.svg) of an additive model's curves")] = None,
    interpret: Annotated[
        Path | None, typer.Option(help="an additive model as JSON of InterpretML's boosting machines")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="the study's settings (.toml or .json), for bands around the curves")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="example records for a task without examples. They are not written")
    ] = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    backbone: Weights = None,
    backbone_program: Program = None,
) -> None:
    """Write a model for other programs, from encoded inputs to probabilities, after checking its predictions."""
    with plain_errors():
        if (onnx, torch, curves, interpret) == (None,) * 4:
            raise typer.BadParameter("give --onnx FILE, --torch, --curves or --interpret")
        _require_svg(curves)
        for path in (onnx, torch, curves, interpret):
            require_writable(path)
        from client_sdk.released import load_model
        from client_sdk.released.export import to_onnx, to_torch

        released = load_model(model, backbone=backbone_file(backbone, backbone_program))
        _warn_of_adapted(released)
        options = FormatOptions(separator, encoding, decimal, dates)
        examples = None if data is None else released.inputs(_new_records(data, None, options))
        mode = _mode_of(released)
        for path, make in ((onnx, to_onnx), (torch, to_torch)):
            if path is not None:
                _written(path, make(released, examples), mode)
        _write_curves(released, (curves, interpret), settings, mode)


def _require_svg(picture: Path | None) -> None:
    if picture is not None and picture.suffix.lower() != ".svg":
        raise typer.BadParameter("the picture is SVG: name a file that ends with .svg", param_hint="--curves")


def _mode_of(model: ReleasedModel) -> int:
    """Return who may read what is made of a model: its owner alone if it is fitted to patients without noise."""
    return 0o666 if model.metadata is None or model.metadata.adapted_from is None else 0o600


def _write_curves(
    model: ReleasedModel, paths: tuple[Path | None, Path | None], settings: Path | None, mode: int
) -> None:
    if paths == (None, None):
        return
    from client_sdk.released.curves import curves_of
    from client_sdk.released.curves_svg import to_svg
    from client_sdk.released.interpret import to_interpret

    curves = curves_of(model, None if settings is None else _settings_of(model, settings))
    for path, make in zip(paths, (to_svg, to_interpret), strict=True):
        if path is not None:
            write_durably(path, make(curves).encode(), mode=mode)
            say(f"{path}: {len(curves.curves)} curves")


def _settings_of(model: ReleasedModel, path: Path) -> StudySettings:
    """Return the settings in a file as the model's study has them: `study create` fills in what they leave out.

    Those of another study are returned as they are.
    """
    from study_protocol.study.slots import with_slots
    from wardround.cli.lead.enforcement import for_creation
    from wardround.cli.shared.settings_file import read_settings

    written = read_settings(path)
    filled = cast("StudySettings", with_slots(written))
    frozen = for_creation(filled)[0]
    beyond = frozen.model_copy(update={"beyond_bounds": True})
    stated = None if model.metadata is None else model.metadata.settings_sha256
    return next((each for each in (written, filled, frozen, beyond) if each.digest() == stated), written)


def _written(path: Path, exported: Exported, mode: int) -> None:
    write_durably(path, exported.data, mode=mode)
    say(
        f"{path}: {len(exported.data)} bytes. Its predictions differ by at most {exported.difference:.1g} from those "
        "of the model"
    )


def _watch(
    study: str,
    read: Callable[[], Records],
    name: str,
    every: float,
    server: str | None,
    key: Path | None,
    backbone: BackboneFile | None,
) -> None:
    from client_sdk.released.evaluation import watch

    if not name:
        raise typer.BadParameter("--watch needs --name: the name of this set beside the study's numbers")
    records = read()
    say(_DECLARED, err=True)

    def on_metrics(number: int, values: dict[str, float]) -> None:
        say(f"round {number}: " + ", ".join(f"{each} {value:.4f}" for each, value in values.items()))

    with operator(server, key) as client:
        watch(client, study, records, name, every=every, on_metrics=on_metrics, backbone=backbone)


def _show(title: str, scores: Scores | dict[str, float], model: ReleasedModel, as_json: bool) -> None:
    from client_sdk.released.scores import Scores
    from private_learning.tasks import Classification

    values: dict[str, Any] = vars(scores) if isinstance(scores, Scores) else dict(scores)
    if as_json:
        print_json(values)
        return
    rows = [[name, _score_text(value)] for name, value in values.items() if name != "confusion"]
    if isinstance(scores, Scores) and isinstance(model.task, Classification):
        rows += _confusion_rows(scores, model.task.class_names)
    table(title, ["", ""], rows)


def _confusion_rows(scores: Scores, names: Sequence[int | str]) -> list[list[str]]:
    return [
        [f"class {name} predicted as {predicted}", str(count)]
        for name, row in zip(names, scores.confusion, strict=True)
        for predicted, count in zip(names, row, strict=True)
        if count or len(names) == 2
    ]


def _score_text(value: float | None) -> str:
    return (
        "unknown: a class has no record"
        if value is None
        else f"{value:.4f}"
        if isinstance(value, float)
        else str(value)
    )


def _predictions(
    model: ReleasedModel, records: Records, id_column: str | None, interval: float | None
) -> Iterator[dict[str, Any]]:
    from private_learning.records import DataError
    from private_learning.tasks import Classification

    classes = model.task.class_names if isinstance(model.task, Classification) else None
    predictions = model(records)
    names = model.task.prediction_names(predictions.shape[1])
    # Both ends have a column each, after the predictions. Without --interval there are none.
    ends = [()] * len(records.patients) if interval is None else model.intervals(records, interval).tolist()
    each = zip(records.patients, predictions.tolist(), ends, strict=True)
    for row, (patient, outputs, interval_ends) in enumerate(each, start=1):
        # A record without a patient is named by its row in the file.
        row_values: dict[str, Any] = {id_column: patient} if id_column is not None else {"row": row}
        uncertain = dict(zip((f"{names[-1]}_low", f"{names[-1]}_high"), interval_ends, strict=False))
        computed = set(names) | (set[str]() if classes is None else {"predicted"})
        if id_column in computed | uncertain.keys():
            raise DataError(f"the output has a column {id_column!r} of its own: name another --id-column")
        row_values |= dict(zip(names, outputs, strict=True))
        yield row_values | uncertain | ({} if classes is None else {"predicted": classes[outputs.index(max(outputs))]})


def _write_masks(model: ReleasedModel, task: Segmentation, records: Records, output: Path | None) -> None:
    """Write the arrays `masks` (n, height, width), with the study's mask values, and `patients`, if they are named."""
    from private_learning.records import DataError

    if output is None or output.suffix != ".npz":
        raise DataError("the study's model predicts masks of images, which are no table: name a file (-o masks.npz)")
    import numpy as np

    masks = task.masks(model(records))
    written = io.BytesIO()
    if records.named:
        np.savez(written, masks=masks, patients=np.array(records.patients))
    else:
        np.savez(written, masks=masks)
    write_durably(output, written.getvalue(), mode=0o600)
    say(f"{output}: {len(masks)} masks")


def _csv(rows: list[dict[str, Any]]) -> str:
    from wardround.cli.hospital.spreadsheet import csv_text

    return csv_text(list(rows[0]), [list(row.values()) for row in rows])


def _print(text: str) -> None:
    """Print the text.

    Raises:
        DataError: the encoding of the output lacks a letter. An escaped identifier would be another one.
    """
    from private_learning.records import DataError

    used = sys.stdout.encoding or "utf-8"
    try:
        text.encode(used)
    except UnicodeEncodeError as error:
        raise DataError(
            f"the predictions hold letters that the encoding of this output, {used}, lacks: write a file with -o"
        ) from error
    typer.echo(text, nl=False)
