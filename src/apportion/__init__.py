"""apportion: who earned the reward?

Learn dense, interpretable rewards from delayed ones, and policies from them.
Importing the package registers its environments with Gymnasium and stays light: no JAX.
"""

from apportion.envs import register

__version__ = "0.1.0"

register()
