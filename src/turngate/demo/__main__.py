"""`python -m turngate.demo`: the same as `turngate demo`."""

import sys

from turngate.cli import main

if __name__ == "__main__":
    main(["demo", *sys.argv[1:]])
