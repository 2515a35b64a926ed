"""Runs beside each other: which there are (reading.py), what they are called (labels.py), what random actions
earn (references.py), where they are compared (comparing.py), numbers (results.py), a figure (figure.py)."""
