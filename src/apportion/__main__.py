"""`python -m apportion` is the `apportion` command."""

import os
import sys

# Python puts the current folder first: a file of a stranger's folder must not stand for a package.
if not sys.flags.safe_path and sys.path and os.path.abspath(sys.path[0] or ".") == os.getcwd():
    del sys.path[0]

from apportion.cli import main

main()
