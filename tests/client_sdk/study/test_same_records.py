"""Records that were replaced are noticed, and what is only written otherwise is not."""

from __future__ import annotations

import io
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from client_sdk.errors import LedgerNotWritten, RecordsChanged
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.ledger_views import RecordsOrigin
from client_sdk.study.same_records import checked, mark_of
from private_learning.records import Examples, Table, TableMapping, load
from private_learning.records.lazy import stored_bytes
from tests.factories.hospitals import coordinator, hospital, plain_policy
from tests.factories.hospitals import records as made_up
from tests.factories.participations import besides_decisions, join, ledger_of
from tests.private_learning.records.test_imaging import dicom
from tests.private_learning.records.test_nifti import write as nifti

KEY = bytes(32)


def table(ages: list[Any], who: list[str] | None = None) -> Table:
    patients = who or [f"p{number}" for number in range(len(ages))]
    return Table.of({"age": ages, "patient": patients}, patient_column="patient")


def test_order_and_spelling_are_no_change(tmp_path: Path) -> None:
    before = mark_of(table([1.5, 2, 3]), KEY)
    assert mark_of(table([1.5, 2, 3]).take([2, 0, 1]), KEY) == before
    path = tmp_path / "records.csv"
    path.write_text("patient,age\np2,3.0\np0,1.50\np1,2\n")
    assert mark_of(load(path, patient_column="patient"), KEY) == before


def test_a_digest_cannot_be_guessed_without_the_key() -> None:
    assert mark_of(table([1]), KEY).content != mark_of(table([1]), bytes(31) + b"1").content
    assert mark_of(table([1]), KEY).people != mark_of(table([1]), bytes(31) + b"1").people


@pytest.mark.parametrize("labels", [[0, 1, 0], [[0.5], [1.0], [0.0]], ["a", "b", "a"]])
def test_arrays_have_a_mark_of_their_rows(labels: list[Any]) -> None:
    inputs = np.arange(12.0).reshape(3, 4)
    examples = Examples.of(inputs, labels, ["a", "b", "c"])
    assert mark_of(examples.take([1, 2, 0]), KEY) == mark_of(examples, KEY)
    assert mark_of(Examples.of(inputs.astype(np.float32), labels, ["a", "b", "c"]), KEY) == mark_of(examples, KEY)
    for other in (Examples.of(inputs + 1, labels, ["a", "b", "c"]), Examples.of(inputs[::-1], labels, ["a", "b", "c"])):
        assert not mark_of(other, KEY).matches(mark_of(examples, KEY))


def test_arrays_that_are_read_on_demand_are_the_same_records(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", train_images=np.arange(12.0).reshape(3, 4), train_labels=[0, 1, 0])
    in_memory, on_demand = (mark_of(load(tmp_path / "x.npz", lazy=lazy), KEY) for lazy in (False, True))
    assert in_memory.matches(on_demand)
    assert (in_memory.inputs[:7], on_demand.inputs[:7]) == ("values:", "stored:")


def written_arrays(folder: Path, inputs: np.ndarray) -> Path:
    np.savez(folder / "x.npz", train_images=inputs, train_labels=[0, 1])
    return folder / "x.npz"


def written_shard(folder: Path, inputs: np.ndarray) -> Path:
    with tarfile.open(folder / "x.tar", "w") as shard:
        for place, image in enumerate(inputs):
            stored = io.BytesIO()
            np.save(stored, image)
            for ending, body in (("npy", stored.getvalue()), ("cls", b"%d" % place)):
                member = tarfile.TarInfo(f"{place}.{ending}")
                member.size = len(body)
                shard.addfile(member, io.BytesIO(body))
    return folder / "x.tar"


def written_images(folder: Path, inputs: np.ndarray) -> Path:
    for place, image in enumerate(inputs):
        (folder / str(place)).mkdir(exist_ok=True)
        Image.fromarray(image.astype(np.uint8)).save(folder / str(place) / "x.tif")
    return folder


def written_masks(folder: Path, inputs: np.ndarray) -> Path:
    for part, pixels in (("images", inputs), ("masks", inputs > 100)):
        (folder / part).mkdir(exist_ok=True)
        for place, image in enumerate(pixels):
            Image.fromarray(image.astype(np.uint8)).save(folder / part / f"{place}.tif")
    return folder


def written_volumes(folder: Path, inputs: np.ndarray) -> Path:
    for place, image in enumerate(inputs):
        nifti(folder / str(place) / "x.nii", image[..., None].astype("<i4"))
    return folder


def written_scans(folder: Path, inputs: np.ndarray) -> Path:
    for place, image in enumerate(inputs):
        path = folder / str(place) / "x.dcm"
        # The same header in both.
        previous = path.read_bytes() if path.exists() else b""
        dicom(path, image)
        if previous:
            pixels = image.astype("<u2").tobytes()
            path.write_bytes(previous[: -len(pixels)] + pixels)
    return folder


@pytest.mark.parametrize(
    "write", [written_arrays, written_shard, written_images, written_masks, written_volumes, written_scans]
)
def test_an_input_that_changed_in_its_middle_alone_is_noticed(write: Any, tmp_path: Path) -> None:
    """Of equal size, with the same ends, as of a picture whose border is black."""
    inputs = np.zeros((2, 128, 128))
    before = mark_of(load(write(tmp_path, inputs), lazy=True), KEY)
    assert mark_of(load(write(tmp_path, inputs), lazy=True), KEY) == before
    inputs[0, 64] = 99
    after = mark_of(load(write(tmp_path, inputs), lazy=True), KEY)
    assert (after.content, after.people) == (before.content, before.people)
    assert not after.matches(before)


def test_a_large_file_is_known_again_by_blocks_of_all_of_it(tmp_path: Path) -> None:
    whole = bytearray(3 << 20)
    (tmp_path / "x").write_bytes(whole)
    before = stored_bytes(tmp_path / "x")
    assert len(before) < 1 << 17
    # Whatever fills a fifteenth of the file is seen.
    for start in range(0, len(whole), 100_000):
        changed = whole.copy()
        changed[start : start + len(whole) // 15] = b"x" * len(whole[start : start + len(whole) // 15])
        (tmp_path / "x").write_bytes(changed)
        assert stored_bytes(tmp_path / "x") != before
    (tmp_path / "x").write_bytes(whole + b"\0")
    assert stored_bytes(tmp_path / "x") != before


@pytest.mark.parametrize("change", ["pixels", "swapped", "moved"])
def test_images_are_known_again_without_decoding_them(change: str, tmp_path: Path) -> None:
    for label, name, grey in (("0", "a", 10), ("0", "b", 20), ("1", "c", 30)):
        (tmp_path / label).mkdir(exist_ok=True)
        Image.new("L", (8, 8), grey).save(tmp_path / label / f"{name}.png")
    before = mark_of(load(tmp_path, lazy=True), KEY)
    if change == "pixels":
        Image.new("L", (8, 8), 11).save(tmp_path / "0" / "a.png")
    elif change == "swapped":
        (tmp_path / "0" / "a.png").rename(tmp_path / "kept")
        (tmp_path / "1" / "c.png").rename(tmp_path / "0" / "a.png")
        (tmp_path / "kept").rename(tmp_path / "1" / "c.png")
    else:
        (tmp_path / "0" / "a.png").rename(tmp_path / "0" / "z.png")
    assert mark_of(load(tmp_path, lazy=True), KEY).matches(before) == (change == "moved")


CHANGES = [
    (made_up(30), "40 → 30 patients"),
    (made_up(40, seed=1), "the same 40 patients and 40 rows, with other values, columns or files"),
    (made_up(41).take(range(1, 41)), "40 patients as before, and not the same ones"),
    (made_up(40).take([*range(40), 0]), "the same 40 patients, 40 → 41 rows"),
]


@pytest.mark.quick(
    "other1-the same 40 patients and 40 rows, with other values, columns or files",
    "other3-the same 40 patients, 40 _ 41 rows",
)
@pytest.mark.parametrize(("other", "said"), CHANGES)
def test_other_records_stop_an_unattended_hospital(other: Table, said: str, tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here)
    charged = ledger_of(tmp_path).entries
    with pytest.raises(RecordsChanged, match=said):
        here.join("sepsis", None, other, policy=plain_policy(), dataset="icu")
    assert ledger_of(tmp_path).entries == charged


def test_the_same_records_are_no_further_entry(tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here)
    entries = ledger_of(tmp_path).entries
    here.join("sepsis", None, made_up().take(range(39, -1, -1)), policy=plain_policy(), dataset="icu")
    assert ledger_of(tmp_path).entries == entries


def test_an_accepted_change_is_written_down_once(tmp_path: Path) -> None:
    here, asked = hospital(coordinator(), tmp_path), list[str]()
    join(here)
    other = made_up(30)

    def accepts(difference: str) -> bool:
        asked.append(difference)
        return True

    for _ in range(2):
        here.join("sepsis", None, other, policy=plain_policy(), dataset="icu", accepts_records=accepts)
    (difference,) = asked
    assert difference.endswith("40 → 30 patients")
    marks = [entry.body for entry in ledger_of(tmp_path).entries if entry.body["study"] == "/records"]
    assert [(mark["accepted"], mark["patients"]) for mark in marks] == [(False, 40), (True, 30)]
    assert all(mark["at"] for mark in marks)


def test_a_policy_accepts_growing_records(tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here)
    here.join("sepsis", None, made_up(50), policy=plain_policy(changed_records="accept"), dataset="icu")


def test_a_folder_of_an_earlier_version_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = hospital(coordinator(), tmp_path)
    with monkeypatch.context() as earlier:
        earlier.setattr("client_sdk.guard.ledger.HospitalLedger._append_mark", lambda *_: None)
        join(here)
    assert ledger_of(tmp_path).records_marks() == []
    here.join("sepsis", None, made_up(30), policy=plain_policy(), dataset="icu")
    (mark,) = ledger_of(tmp_path).records_marks()
    assert mark.patients == 30


def test_nothing_of_the_digest_is_in_a_request(tmp_path: Path) -> None:
    other, bodies = coordinator(), list[bytes]()
    other.meddle = lambda request: bodies.append(request.read() + repr((request.url, request.headers.raw)).encode())
    join(hospital(other, tmp_path), origin=FIRST)
    (mark,) = ledger_of(tmp_path).records_marks()
    sent = repr((other.requests, other.updates, other.entries, bodies))
    assert sum(map(len, bodies)) > 1000
    for secret in (mark.content, mark.people, *asdict(FIRST).values()):
        assert secret not in sent
        assert repr(secret.encode())[2:-1] not in sent


FIRST = RecordsOrigin("icu-1", "a" * 64, "b" * 64, "c" * 64)
STEPS = [
    (FIRST, ""),
    (replace(FIRST, snapshot="icu-2", sha256="0" * 64), ""),
    (replace(FIRST, query_sha256="0" * 64), "the same 40 patients, rows and values; another query; the same mapping"),
    (replace(FIRST, mapping_sha256="0" * 64), "the same 40 patients, rows and values; the same query; another mapping"),
    (replace(FIRST, mapping_sha256=""), "; the same query; no mapping, where there was one"),
    # Records that are no snapshot have no query to compare.
    (RecordsOrigin(mapping_sha256=FIRST.mapping_sha256), ""),
    (None, ""),
]


@pytest.mark.quick("origin0-", "origin3-the same 40 patients, rows and values; the same query; another mapping")
@pytest.mark.parametrize(("origin", "said"), STEPS)
def test_a_query_or_mapping_that_gives_the_same_records_is_noticed(
    origin: RecordsOrigin | None, said: str, tmp_path: Path
) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here, origin=FIRST)
    if not said:
        join(here, origin=origin)
        return
    with pytest.raises(RecordsChanged, match=said):
        join(here, origin=origin)
    asked = list[str]()
    for _ in range(2):
        join(here, origin=origin, accepts_records=lambda difference: asked.append(difference) or True)
    assert len(asked) == 1
    assert ledger_of(tmp_path).records_marks("sepsis")[0].origin == origin


def test_other_patients_are_said_with_the_steps_that_changed(tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here, origin=FIRST)
    other = replace(FIRST, query_sha256="0" * 64)
    with pytest.raises(RecordsChanged, match="40 → 30 patients; another query; the same mapping"):
        here.join("sepsis", None, made_up(30), policy=plain_policy(), dataset="icu", origin=other)


def test_an_entry_of_an_earlier_version_knows_no_origin(tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here)
    assert all("origin" not in entry.body for entry in ledger_of(tmp_path).entries)
    join(here, origin=FIRST)
    assert [mark.origin for mark in ledger_of(tmp_path).records_marks()] == [FIRST]


def test_studies_on_one_data_set_keep_each_its_file(tmp_path: Path) -> None:
    one, other = coordinator(), made_up(40, seed=1)
    here = hospital(one, tmp_path)
    join(here)
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        first, asked = mark_of(made_up(), ledger.records_key()), list[str]()

        def accepts(difference: str) -> bool:
            asked.append(difference)
            return True

        with pytest.raises(RecordsChanged):
            checked(ledger, "later", other, None)
        accepted = checked(ledger, "later", other, accepts)
        assert (accepted.accepted, len(asked)) == (True, 1)
        ledger.declare_records("later", accepted)
        entries = ledger.entries
        # Each goes on with its own, and a third may begin with any of them.
        for study, records in (("sepsis", made_up()), ("later", other), ("third", made_up()), ("third", other)):
            mark = checked(ledger, study, records, None)
            if study != "third":
                ledger.declare_records(study, mark)
        assert ledger.entries == entries
        with pytest.raises(RecordsChanged):
            checked(ledger, "sepsis", other, None)
        assert ledger.records_marks("sepsis")[0].matches(first)


def test_a_study_that_was_not_joined_leaves_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = hospital(coordinator(), tmp_path)

    def refuses(*_: object) -> None:
        raise LedgerNotWritten("full")

    with monkeypatch.context() as full:
        full.setattr("client_sdk.guard.ledger.HospitalLedger._append_mark", refuses)
        with pytest.raises(LedgerNotWritten):
            here.join("sepsis", None, made_up(30), policy=plain_policy(), dataset="icu")
    assert besides_decisions(ledger_of(tmp_path)) == []
    join(here)


@pytest.mark.quick("[columns]_age = { add = 1 }-with other values, columns or files; another mapping")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        # No cell has the further code: the records are equal.
        ('[columns]\nage = { missing = ["none"] }', "the same 40 patients, rows and values; another mapping"),
        ("[columns]\nage = { add = 1 }", "with other values, columns or files; another mapping"),
    ],
)
def test_a_changed_mapping_is_noticed_at_the_next_join(text: str, said: str, tmp_path: Path) -> None:
    here, local = hospital(coordinator(), tmp_path), made_up()
    (tmp_path / "columns.toml").write_text("[columns]\nage = { add = 0 }")
    (tmp_path / "other.toml").write_text(text)
    first, other = (TableMapping.read(tmp_path / name).applied(local) for name in ("columns.toml", "other.toml"))
    for _ in range(2):
        here.join("sepsis", None, first, policy=plain_policy(), dataset="icu")
    with pytest.raises(RecordsChanged, match=said):
        here.join("sepsis", None, other, policy=plain_policy(), dataset="icu")
    (mark,) = ledger_of(tmp_path).records_marks()
    assert isinstance(first, Table)
    assert mark.origin == RecordsOrigin(mapping_sha256=first.mapping_sha256)
