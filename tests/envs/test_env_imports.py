"""Workers import the environments: that must stay light."""

import subprocess
import sys


def test_environments_do_not_import_jax() -> None:
    script = (
        "import sys, apportion.envs.make, apportion.envs.greenhouse, apportion.envs.factored;"
        "heavy = {'jax', 'mujoco', 'scipy', 'equinox'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "ours = {name for name in sys.modules if name.startswith('apportion.')};"
        "assert all(name.startswith(('apportion.envs', 'apportion.core')) for name in ours), ours"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
