"""The front door: what `import apportion` offers, and the command line calls."""
