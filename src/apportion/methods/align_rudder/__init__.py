"""Align-RUDDER (Patil et al., ICML 2022): reward for coming along the way that demonstrations went.

What demonstrations have in common, in its order, is found by aligning them as biologists align sequences; a
step earns by what it adds to the score of an episode against that profile.
"""

from apportion.methods.align_rudder.method import Config, make

__all__ = ["Config", "make"]
