"""Run folders: what a training writes down, and how it is read back."""
