"""`python -m flashstate`."""

from flashstate.cli import main

main()
