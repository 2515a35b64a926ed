"""The experiments of the GRD paper (Zhang et al., NeurIPS 2023), one name each.

What they are stands in experiments.py as data; scales.py says how much of them is run, planning.py makes the
jobs of a sweep of them. When these are done, one presenter for each kind (scores.py, swimmer.py,
robustness.py, structure.py, rewards.py) makes its table and figures, and writing.py puts all into the folder.
"""
