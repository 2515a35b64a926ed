"""Messages arrive as they were sent."""

import io

import numpy as np
import pytest

from apportion.envs.wire import receive, send

ARRAYS = {
    "a number": np.asarray(3.5, np.float32),
    "a count": np.asarray(7, np.int32),
    "yes or no": np.asarray(True),
    "flags": np.array([True, False, True]),
    "nothing": np.zeros(0, np.float32),
    "no rows": np.zeros((0, 3), np.float32),
    "not finite": np.array([np.nan, np.inf, -np.inf]),
    "large": np.arange(24, dtype=np.int64).reshape(2, 3, 4) << 40,
    "bytes": np.arange(5, dtype=np.uint8),
    "a column": np.arange(12.0).reshape(3, 4)[:, 1],
    "transposed": np.arange(12.0).reshape(3, 4).T,
}


def test_arrays_survive_the_wire() -> None:
    stream = io.BytesIO()
    send(stream, {"want": "chunk", "noise": None, "dims": [1, 2], "name": "τ"}, ARRAYS)
    send(stream, {"second": True})
    stream.seek(0)
    head, arrays = receive(stream)
    assert head == {"want": "chunk", "noise": None, "dims": [1, 2], "name": "τ"}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)
    assert receive(stream) == ({"second": True}, {})


@pytest.mark.parametrize("kept", [0, 5, 20, -1])
def test_a_message_cut_short_is_an_end_of_file(kept: int) -> None:
    stream = io.BytesIO()
    send(stream, {"want": "chunk"}, {"x": np.zeros(3)})
    with pytest.raises(EOFError):
        receive(io.BytesIO(stream.getvalue()[:kept]))
