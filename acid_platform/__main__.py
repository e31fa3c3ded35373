"""`python -m acid_platform` is the command line `acid`."""

import atexit
import gc
import os
import sys
from pathlib import Path


def run() -> None:
    """The entry point: adds the project's settings to the environment, then runs the command.

    What is imported stays, so looking for garbage among it so often, and giving it back piece by
    piece at the end, only costs a short command.
    """
    gc.set_threshold(50_000)
    status: list[int] = []
    atexit.register(_leave, status)  # before all others, so it is called after them
    from acid_platform.cli.console import Failed
    from acid_platform.cli.main import main
    from acid_platform.cli.project import enter_project
    from acid_platform.errors import AcidError

    gc.freeze()
    try:
        enter_project(Path.cwd(), os.environ)
        main(prog_name="acid")
    except (AcidError, OSError) as error:  # of the machine, such as a full disk
        if isinstance(error, ConnectionError):
            raise
        Failed(str(error)).show()
        sys.exit(1)
    except SystemExit as end:
        status.extend([end.code] if isinstance(end.code, int) else [])
        raise


def _leave(status: list[int]) -> None:
    """Ends the process with this status if it has one, and all that was printed is out."""
    if status:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # Python says so, and ends with another status
        os._exit(status[0])


if __name__ == "__main__":
    run()
