"""`import apportion` is light, and offers what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

import apportion


def _alone(script: str) -> None:
    """Run some Python in a process of its own."""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_importing_registers_the_environments_and_loads_no_jax() -> None:
    _alone(
        "import sys, apportion, gymnasium\n"
        "assert 'apportion/Greenhouse-v0' in gymnasium.registry\n"
        "assert not {'jax', 'scipy', 'mujoco'} & set(sys.modules)"
    )


def test_the_graph_of_logged_episodes_needs_no_jax() -> None:
    _alone(
        "import sys, apportion, numpy as np\n"
        "rng = np.random.default_rng(0)\n"
        "seen = [rng.normal(size=(11, 2)) for _ in range(40)]\n"
        "done = [rng.normal(size=(10, 1)) for _ in range(40)]\n"
        "found = apportion.identify(seen, done, [s[:-1, 0].sum() for s in seen])\n"
        "assert found.graph.state_to_reward.tolist() == [True, False]\n"
        "assert isinstance(found.graph, apportion.Graph)\n"
        "assert 'jax' not in sys.modules"
    )


def test_what_is_wrong_with_a_file_is_said_before_jax_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("episode,s_0,outcome\n1,2,yes\n2,3,perhaps\n")
    _alone(
        "import sys\n"
        "from apportion.cli import main\n"
        "for verb in ('identify', 'fit'):\n"
        "    try:\n"
        f"        main([verb, {str(tmp_path / 'log.csv')!r}, '--outcome', 'outcome', '--out', 'run'])\n"
        "    except SystemExit as left:\n"
        "        assert left.code == 1\n"
        "assert 'jax' not in sys.modules"
    )


@pytest.mark.parametrize("name", apportion.__all__)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(apportion, name) is not None
    assert name in dir(apportion)


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'apportion' has no attribute 'trian'"):
        apportion.trian  # noqa: B018 - looking is what is tested
