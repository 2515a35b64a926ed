"""What a compiled loop launches is read off its text."""

import jax
import jax.numpy as jnp
import pytest
from apportion.bench import hlo, trace

PROGRAM = """HloModule jit_f, is_scheduled=true

%fused_tanh (p: f32[4,4]) -> f32[4,4] {
  %p = f32[4,4]{1,0} parameter(0)
  ROOT %tanh = f32[4,4]{1,0} tanh(%p)
}

%inner_body (q: (s32[], f32[4,4])) -> (s32[], f32[4,4]) {
  %q = (s32[], f32[4,4]{1,0}) parameter(0)
  %x.1 = f32[4,4]{1,0} get-tuple-element(%q), index=1
  ROOT %both = (s32[], /*index=1*/f32[4,4]{1,0}) fusion(%x.1), kind=kLoop, calls=%fused_tanh
}

%body (p: (s32[], f32[4,4])) -> (s32[], f32[4,4]) {
  %p.1 = (s32[], f32[4,4]{1,0}) parameter(0)
  %x = f32[4,4]{1,0} get-tuple-element(%p.1), index=1
  %gemm.1 = (f32[4,4]{1,0}, s8[8]{0}) custom-call(%x, %x), custom_call_target="__cublas$gemm"
  %y = f32[4,4]{1,0} get-tuple-element(%gemm.1), index=0
  %tanh_fusion = f32[4,4]{1,0} fusion(%y), kind=kLoop, calls=%fused_tanh
  %buffer = f32[4,4]{1,0} call(%tanh_fusion), to_apply=%command_buffer
  %loop = (s32[], f32[4,4]{1,0}) while(%p.1), body=%inner_body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %out = (s32[], f32[4,4]{1,0}) tuple(%i, %buffer)
}

%command_buffer (z: f32[4,4]) -> f32[4,4] {
  %z = f32[4,4]{1,0} parameter(0)
  %copy.1 = f32[4,4]{1,0} copy(%z)
  ROOT %copy.2 = f32[4,4]{1,0} copy(%copy.1)
}

ENTRY %main (a: f32[4,4]) -> f32[4,4] {
  %a = f32[4,4]{1,0} parameter(0)
  %while.1 = (s32[], f32[4,4]{1,0}) while(%t), condition=%cond, body=%body
  ROOT %r = f32[4,4]{1,0} get-tuple-element(%while.1), index=1
}
"""


def test_the_largest_loop_is_counted_with_what_it_calls() -> None:
    found = hlo.launches(PROGRAM)
    assert found["kinds"] == {"fusion": 1 + 3, "copy": 2, "custom-call __cublas$gemm": 1}
    assert (found["total"], found["turns"]) == (7, None)


def test_a_program_without_loops_launches_nothing_in_them() -> None:
    assert hlo.launches("HloModule nothing\n") == {"total": 0, "turns": None, "kinds": {}}


def ten_products(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda x, _: (jnp.tanh(x @ x), None), x, None, length=10)[0]


def test_a_real_program_has_a_loop_with_something_in_it() -> None:
    compiled = jax.jit(ten_products).lower(jnp.zeros((64, 64))).compile()
    found = hlo.launches(compiled.as_text())
    assert found["turns"] == 10
    assert 10 <= found["total"] <= 200


def test_the_profiler_sees_the_products() -> None:
    program, x = jax.jit(ten_products), jnp.zeros((256, 256))
    program(x).block_until_ready()
    events = trace.events(lambda: program(x).block_until_ready())
    share = trace.share_of_products(trace.by_kind(events))
    assert share is not None
    assert 0 < share <= 1
    if jax.default_backend() == "cpu":
        assert trace.kernels(events) is None


def on_a_gpu() -> list[trace.Event]:
    """A product and a sum in one CUDA graph, a copy outside of it, and the host that waits."""

    def event(pid: int, name: str, start: float, length: float, operation: str | None) -> trace.Event:
        args = {} if operation is None else {"hlo_op": operation}
        return {"ph": "X", "pid": pid, "tid": 1, "name": name, "ts": start, "dur": length, "args": args}

    return [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}},
        event(1, "gemm_fusion_dot_4", 100.0, 6.0, "command_buffer_2"),
        event(1, "loop_add_fusion", 108.0, 1.0, "command_buffer_2"),
        event(1, "MemcpyD2D", 110.0, 2.0, "copy.203"),
        event(7, "block_until_ready", 90.0, 40.0, None),
    ]


def test_kernels_of_a_graph_go_by_their_own_names() -> None:
    found = trace.by_kind(on_a_gpu())
    assert found == pytest.approx({"gemm_fusion_dot": 6e-6, "copy": 2e-6, "loop_add_fusion": 1e-6})
    assert trace.share_of_products(found) == pytest.approx(6 / 9)


def test_what_an_accelerator_runs_is_told_from_what_the_host_does() -> None:
    assert trace.kernels(on_a_gpu()) == pytest.approx((3, 2e-6, 9e-6, 12e-6))


def test_nothing_seen_is_not_nothing_done() -> None:
    assert trace.share_of_products({}) is None
