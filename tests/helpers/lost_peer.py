"""A process that is killed, and how long the others take to notice."""

import os
import signal
import time
from pathlib import Path


def end_here(folder: str) -> None:
    """Kill this process."""
    (Path(folder) / 'end').write_text(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)


def seconds_since_end(folder: str) -> float:
    """Seconds since another process killed itself."""
    return time.time() - float((Path(folder) / 'end').read_text())
