import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from study_protocol.wire import tensors
from study_protocol.wire.tensor_files import TensorFile, gather_tensors, read
from study_protocol.wire.tensors import TensorError

ARRAYS = st.dictionaries(
    st.text("abcdefgh._/", min_size=1, max_size=12),
    st.sampled_from(["float32", "float64"]).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
            elements=st.floats(-1e6, 1e6, width=32),
        )
    ),
    min_size=1,
    max_size=5,
)


def read_file(path, spec):
    with path.open("rb") as file:
        found = TensorFile(file.fileno(), spec)
        return gather_tensors(spec, read(found, 3))


@given(ARRAYS)
def test_what_is_encoded_comes_back_and_fits_the_size_limit(tmp_path_factory, arrays):
    body, spec = tensors.encode(arrays), tensors.spec_of(arrays)
    assert len(body) <= tensors.encoded_size_limit(spec)
    path = tmp_path_factory.mktemp("body") / "x"
    path.write_bytes(body)
    for found in (tensors.decode(body, spec), read_file(path, spec)):
        assert set(found) == set(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


@given(ARRAYS)
def test_a_spec_survives_json(arrays):
    spec = tensors.spec_of(arrays)
    assert tensors.spec_from_json(tensors.spec_to_json(spec)) == spec


MODEL = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}


def changed(**arrays):
    return tensors.encode({**MODEL, **arrays})


def with_value(value):
    from safetensors.numpy import save

    return save({**MODEL, "b": np.array([0, value, 0], np.float32)})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed"),
        (b"\x00" * 40, "malformed"),
        (tensors.encode(MODEL)[:-1], "malformed"),
        (tensors.encode(MODEL) + b"\x00", "malformed"),
        (tensors.encode({"w": MODEL["w"]}), "wrong-names"),
        (changed(extra=np.ones(1, np.float32)), "wrong-names"),
        (changed(b=np.zeros(4, np.float32)), "wrong-shape"),
        (changed(w=np.ones((3, 2), np.float32)), "wrong-shape"),
        (changed(b=np.zeros(3, np.float64)), "wrong-dtype"),
        (with_value(np.nan), "not-finite"),
        (with_value(np.inf), "not-finite"),
        (changed(extra=np.ones(100_000, np.float32)), "too-large"),
    ],
    ids=[
        "empty",
        "zeros",
        "cut short",
        "one byte more",
        "tensor missing",
        "another tensor",
        "longer",
        "transposed",
        "float64",
        "NaN",
        "infinity",
        "too large",
    ],
)
def test_anything_else_is_refused_by_name(tmp_path, body, code):
    spec = tensors.spec_of(MODEL)
    with pytest.raises(TensorError) as refused:
        tensors.decode(body, spec)
    assert refused.value.code == code
    path = tmp_path / "body"
    path.write_bytes(body)
    with pytest.raises(TensorError) as refused:
        read_file(path, spec)
    assert refused.value.code == code


def test_nan_never_leaves():
    with pytest.raises(TensorError, match="w holds NaN"):
        tensors.encode({"w": np.array([np.nan], np.float32)})


def test_half_precision_is_refused():
    with pytest.raises(TensorError, match="float16"):
        tensors.encode({"w": np.ones(1, np.float16)})
