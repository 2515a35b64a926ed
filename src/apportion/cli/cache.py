"""Keep what XLA compiles between runs: the next start of the same training saves most of its first minute."""

import os
import platform
from pathlib import Path

import jax


def remember_compilations() -> None:
    """Use the user's cache folder, unless JAX's own variable names one. One folder per machine, since
    compiled code need not run on another."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = root / "apportion" / f"{platform.machine()}-{platform.node()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a home without room for a cache is no reason not to train
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
