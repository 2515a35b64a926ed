"""`python -m apportion` is the `apportion` command."""

from apportion.cli import main

main()
