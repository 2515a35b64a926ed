"""Measurements of the program itself: how fast it is beside others, and how well it finds known graphs."""
