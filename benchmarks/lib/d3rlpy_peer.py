"""A policy of d3rlpy's, with our learners' settings, from a file of episodes; run by an interpreter that has
d3rlpy, which pins a Gymnasium of its own:

    PYTHON benchmarks/lib/d3rlpy_peer.py LOG.h5 iql|rebrac UPDATES SEED

Once it has learned it writes one byte, and then an action [A] for each observation [S] that it reads, in
float32.
"""

import os
import sys

import d3rlpy
import numpy as np
from d3rlpy.models import VectorEncoderFactory
from d3rlpy.preprocessing import (
    MinMaxActionScaler,
    StandardObservationScaler,
    StandardRewardScaler,
)

NETWORK = VectorEncoderFactory([256, 256])
NORMED = VectorEncoderFactory([256, 256], use_layer_norm=True)
RATE = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "batch_size": 256}


def learner(name: str) -> d3rlpy.algos.QLearningAlgoBase:
    scalers = {
        "observation_scaler": StandardObservationScaler(),
        "action_scaler": MinMaxActionScaler(),
        "reward_scaler": StandardRewardScaler(),
    }
    if name == "iql":
        return d3rlpy.algos.IQLConfig(**scalers, **RATE).create(device=False)
    nets = {"actor_encoder_factory": NETWORK, "critic_encoder_factory": NORMED}
    held = {"actor_beta": 0.1, "critic_beta": 0.05}
    return d3rlpy.algos.ReBRACConfig(**scalers, **RATE, **nets, **held).create(device=False)


def main(log: str, name: str, updates: int, seed: int) -> None:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what d3rlpy prints is not an answer
    d3rlpy.seed(seed)
    with open(log, "rb") as file:
        episodes = d3rlpy.dataset.ReplayBuffer.load(file, d3rlpy.dataset.InfiniteBuffer())
    size = episodes.episodes[0].observations.shape[1]
    policy = learner(name)
    quiet = {"logger_adapter": d3rlpy.logging.NoopAdapterFactory(), "show_progress": False}
    policy.fit(episodes, n_steps=updates, n_steps_per_epoch=updates, **quiet)
    answers.write(b"!")
    while seen := sys.stdin.buffer.read(4 * size):
        answers.write(policy.predict(np.frombuffer(seen, np.float32)[None])[0].astype(np.float32).tobytes())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
