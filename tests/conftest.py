"""Strict tests: no silent promotion of ranks or dtypes, and shapes in annotations are checked."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What a user's shell asks of JAX, of Python's warnings or of colours and screens must not decide a test.
_ASKED = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
_ASKED += ("PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONDONTWRITEBYTECODE")
for _name in [n for n in os.environ if n in _ASKED or (n.startswith("JAX_") and n != "JAX_PLATFORMS")]:
    del os.environ[_name]
# A fresh environment has no bytecode: every child would compile all of JAX for itself, which takes seconds.
sys.dont_write_bytecode = False
# On some machines XLA's log complains of every program that comes from a cache (jax-ml/jax#38445).
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax  # noqa: E402 - it reads its variables once
import optax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# The tests compile much and compute little: without these XLA takes four times as long over each program.
# (An unknown flag is fatal to XLA, hence the version.)
jax.config.update("jax_disable_most_optimizations", True)
if jax.__version__.startswith("0.10."):
    _quickly = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", _quickly)

# JAX makes many objects and little garbage: Python need not look for it after every seven hundred of them.
gc.set_threshold(100_000, 50, 50)

# Wherever arrays meet mathematics. The hook must come before the first import of each module.
_CHECKED = ("nn", "methods", "backbones", "data.memory", "data.replay", "training.agent", "training.evaluate")
install_import_hook([f"apportion.{module}" for module in _CHECKED], "checking.beartype")

# The same examples in every run. Their time is no matter: the first one compiles, and machines are busy.
settings.register_profile(
    "apportion", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("apportion")


def pytest_configure(config: pytest.Config) -> None:
    """Let JAX read what a neighbour is still writing: it then compiles by itself. The whole-program tests
    share a store of compiled programs, which stays for all that runs after them in the same process."""
    config.addinivalue_line("filterwarnings", "ignore:Error reading persistent compilation cache")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where nobody asks for slow tests, files of nothing else are not imported: PyTorch takes seconds."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text() or None


_before = [0]  # bytes that this process had when programs were forgotten last


@pytest.fixture(autouse=True, scope="module")
def room() -> Iterator[None]:
    """Programs that JAX has compiled are of no use to the tests of other files, and fill many gigabytes. To
    forget them takes seconds, so it is done when they fill an eighth of the machine's memory."""
    yield
    renew_dictionary()
    if sys.platform != "linux":
        return
    page = os.sysconf("SC_PAGE_SIZE")
    if _resident() * page > _before[0] + os.sysconf("SC_PHYS_PAGES") * page // 8:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _before[0] = _resident() * page


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ran in this process has named the folder it was given in: not that of the next."""
    monkeypatch.delenv(FOLDER, raising=False)


def _resident() -> int:
    """Pages of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1])


from apportion.core.registry import FOLDER  # noqa: E402
from apportion.nn import optimise  # noqa: E402 - after the hook
from compiling import compiled_once, renew_dictionary, share_dictionaries  # noqa: E402, F401 - a fixture

if jax.__version__.startswith("0.10."):  # where it is known to do no harm
    share_dictionaries()

_adam = optimise._adam


def _adam_as_it_is(momentum: float) -> optax.GradientTransformation:
    """optax raises a float to an integer count, which strict promotion forbids: let that one place be."""
    plain = _adam(momentum)

    def update(*arguments: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return plain.update(*arguments)

    return optax.GradientTransformation(plain.init, update)


optimise._adam = _adam_as_it_is
