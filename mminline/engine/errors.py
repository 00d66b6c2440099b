"""Errors that a user can act on, as one sentence at the end of a program."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from ..apis import IncompleteCheckpointError
from ..checkpoints import UnsafeCheckpointError

FROM_SCRATCH = 'To train from random weights: --cfg-options model.backbone.init_cfg=None.'


@contextlib.contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """End the program with the message of an error: for steps that check and load what was asked.

    A run itself belongs under ``readable_errors``, which leaves bugs their traceback.
    """
    try:
        yield
    except (OSError, ValueError, ModuleNotFoundError) as error:
        sys.exit(str(error))


@contextlib.contextmanager
def readable_errors(folder: str | Path) -> Iterator[None]:
    """End a run with a sentence where the user can act: no weights, no file, Ctrl-C.

    Args:
        folder: Where the run leaves its results.
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f'\nInterrupted. What was saved is in {folder}.', file=sys.stderr)
        sys.exit(130)
    except ConnectionError as error:
        sys.exit(f'{error}. {FROM_SCRATCH}')
    except (FileNotFoundError, IncompleteCheckpointError, UnsafeCheckpointError) as error:
        sys.exit(str(error))


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the program as an error does, so that unfinished files are removed.

    torchrun sends it to all processes when one of them has ended. Python handles signals in its
    main thread; in others this does nothing.
    """

    def leave(*_: object) -> None:
        print('Ended by SIGTERM, which torchrun sends too, if another process has ended.',
              file=sys.stderr)  # fmt: skip
        sys.exit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        # None stands for a handler that was not set by Python.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
