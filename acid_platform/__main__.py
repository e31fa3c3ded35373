"""`python -m acid_platform` is the command line `acid`."""

import gc
import os
import sys
from pathlib import Path

from acid_platform.cli.console import Failed
from acid_platform.cli.main import main
from acid_platform.cli.project import enter_project
from acid_platform.errors import AcidError


def run() -> None:
    """The entry point: adds the project's settings to the environment, then runs the command.

    What is imported stays, so looking for garbage among it, so often and once more at the end, only
    costs a short command.
    """
    gc.set_threshold(50_000)
    gc.freeze()
    try:
        enter_project(Path.cwd(), os.environ)
    except AcidError as error:
        Failed(str(error)).show()
        sys.exit(1)
    main(prog_name="acid")


if __name__ == "__main__":
    run()
