"""Runs beside each other: which there are and what they are called (reading.py), where they are compared and
with which numbers (results.py), a figure (figure.py)."""
