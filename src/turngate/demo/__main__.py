"""`python -m turngate.demo`: the same as `turngate demo`."""

import sys

from turngate.cli import main

main(["demo", *sys.argv[1:]])
