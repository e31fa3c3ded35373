"""`python -m acid_platform` is the command line `acid`."""

from acid_platform.cli import main

main(prog_name="acid")
