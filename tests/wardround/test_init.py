"""The names that users import: a change here is a change of the public interface."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import wardround
from tests.accounting.test_exports import PINNED as ACCOUNTING
from wardround.installation import version

PINNED = {
    "wardround": """
ApiError AsyncClient BayesianAccountant ClassicalAccountant Client ConfigurationError Connection ConnectionFailed
DataError Examples Finding Guarantee Hospital InvitationCreate NotTrusted ApiKey Outcome Records Refused
ReleasedModel RoundEvent SitePolicy StudyCreate StudySettings Table TableFormat Task TaskDataset TaskError
TrainingStopped Unreachable WardroundError accounting average_models calibrate_noise examine learning load_model
load_records load_task plan_of propose_format queries read_study_settings records_of
""",
    "wardround.accounting": ACCOUNTING,
    "wardround.learning": """
Classification ClippedSum ColumnForms DataError Examples Histories LazyExamples LazyTable NoisySum NonFiniteError
PerRecordGradients PosteriorFit PosteriorPlan ProgramFile Proposal Purpose Reader Records SecureRandomness
SecureSource SeededRandomness Slots Table TableFormat Task TaskDataset TaskError UnsupportedLayer add_noise
draw_posterior fit_posterior gradient_norms list_dicom list_nifti list_table load_records load_task one_per_patient
poisson_batch posterior_probabilities propose_format read_csv read_heart_disease read_histories read_idx read_images
read_npz read_parquet records_of task_names
""",
    "wardround.queries": "Answered QueryDocument QueryFailed QueryNotAnswered",
}
SPACES = {
    "wardround": wardround,
    "wardround.accounting": wardround.accounting,
    "wardround.learning": wardround.learning,
    "wardround.queries": wardround.queries,
}
EXPORTS = [(space, name) for space, names in PINNED.items() for name in names.split()]
OTHER_NAMES = {
    "load_records": "load",
    "load_task": "load",
    "task_names": "names",
    "read_study_settings": "read_settings",
}


def _run(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("space", PINNED)
def test_exports_are_pinned(space: str) -> None:
    assert SPACES[space].__all__ == sorted(PINNED[space].split()) == dir(SPACES[space])


def test_the_first_import_has_few_names() -> None:
    assert len(wardround.__all__) <= 45


@pytest.mark.parametrize(("space", "name"), EXPORTS)
def test_every_export_is_there_under_its_name(space: str, name: str) -> None:
    value = getattr(SPACES[space], name)
    assert getattr(value, "__name__", name).removeprefix("wardround.") == OTHER_NAMES.get(name, name)
    assert getattr(SPACES[space], name) is value


def test_a_name_in_two_places_is_one_object() -> None:
    for space in ("accounting", "learning", "queries"):
        for name in set(PINNED["wardround"].split()) & set(PINNED[f"wardround.{space}"].split()):
            assert getattr(wardround, name) is getattr(getattr(wardround, space), name)


@pytest.mark.parametrize("space", PINNED)
def test_a_name_that_is_not_exported_is_not_there(space: str) -> None:
    assert not hasattr(SPACES[space], "hospital_that_is_not_there")
    assert not hasattr(SPACES[space], "participation")


@pytest.mark.parametrize("space", PINNED)
def test_the_docstring_tells_every_name(space: str) -> None:
    assert set(PINNED[space].split()) <= set(re.findall(r"\w+", SPACES[space].__doc__ or ""))


def test_importing_it_loads_no_code_of_ours_and_no_library_of_weight() -> None:
    program = "import sys; before = set(sys.modules); import wardround; print(sorted(set(sys.modules) - before))"
    loaded = _run(program)
    assert "'wardround'" in loaded
    assert not re.search(r"accounting|client_sdk|server|numpy|torch|pydantic|scipy", loaded), loaded


def test_the_namespaces_load_with_the_package_and_without_their_libraries() -> None:
    program = """
import sys, wardround
print(wardround.accounting.__name__, wardround.learning.__name__, wardround.queries.__name__)
print(sorted({"torch", "numpy", "scipy", "pydantic", "httpx", "pandas"} & set(sys.modules)))
"""
    assert _run(program).splitlines() == ["wardround.accounting wardround.learning wardround.queries", "[]"]


def test_errors_can_be_caught_without_loading_torch() -> None:
    assert _run("import sys; from wardround import Refused, SitePolicy; print('torch' in sys.modules)") == "False"


def test_a_missing_part_is_named_with_its_extra() -> None:
    program = """
import sys
sys.modules["torch"] = None
import wardround
try:
    wardround.learning.PerRecordGradients
except ModuleNotFoundError as error:
    print(error, error.name)
"""
    assert _run(program) == (
        "wardround.learning.PerRecordGradients needs torch: pip install 'wardround[learning]' torch"
    )


def test_the_version_is_that_of_the_installation() -> None:
    assert wardround.__version__ == version()
