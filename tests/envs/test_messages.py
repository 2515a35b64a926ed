"""Messages arrive as they were sent."""

import io

import numpy as np
import pytest

from apportion.envs.messages import receive, send

ARRAYS = {
    "a number": np.asarray(3.5, np.float32),
    "a count": np.asarray(7, np.int32),
    "yes or no": np.asarray(True),
    "flags": np.array([True, False, True]),
    "no rows": np.zeros((0, 3), np.float32),
    "not finite": np.array([np.nan, np.inf, -np.inf]),
    "large": np.arange(24, dtype=np.int64).reshape(2, 3, 4) << 40,
    "a column": np.arange(12.0).reshape(3, 4)[:, 1],
    "transposed": np.arange(12.0).reshape(3, 4).T,
}


def test_messages_arrive_as_they_were_sent() -> None:
    stream = io.BytesIO()
    send(stream, {"want": "steps", "noise": None, "dims": [1, 2], "name": "τ"}, ARRAYS)
    send(stream, {"second": True})
    stream.seek(0)
    head, arrays = receive(stream)
    assert head == {"want": "steps", "noise": None, "dims": [1, 2], "name": "τ"}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)
    assert receive(stream) == ({"second": True}, {})


@pytest.mark.parametrize("kept", [0, 5, 20, -1])
def test_a_message_cut_short_is_an_end_of_file(kept: int) -> None:
    stream = io.BytesIO()
    send(stream, {"want": "steps"}, {"x": np.zeros(3)})
    with pytest.raises(EOFError):
        receive(io.BytesIO(stream.getvalue()[:kept]))


@pytest.mark.parametrize(
    "bytes_", [b"hello, world, this is not for you", bytes(16), b"\x02" + bytes(15) + b"[]"]
)
def test_what_is_no_message_is_told(bytes_: bytes) -> None:
    with pytest.raises(ValueError, match=r"no message|Expecting"):
        receive(io.BytesIO(bytes_))
