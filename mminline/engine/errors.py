"""Errors that a user can act on, as one sentence at the end of a program."""

import contextlib
import sys
from collections.abc import Iterator
from urllib.error import URLError

from mmengine.config import Config

from ..apis import IncompleteCheckpointError

FROM_SCRATCH = 'To train from random weights: --cfg-options model.backbone.init_cfg=None.'


@contextlib.contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """End the program with the message of an error: for steps that only check what was asked."""
    try:
        yield
    except (OSError, ValueError, ModuleNotFoundError) as error:
        sys.exit(str(error))


@contextlib.contextmanager
def readable_errors(config: Config) -> Iterator[None]:
    """End a run with a sentence where the user can act: no weights, no file, Ctrl-C.

    All other errors keep their traceback.
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f'\nInterrupted. What was saved is in {config.work_dir}.', file=sys.stderr)
        sys.exit(130)
    except URLError as error:
        weights = ', '.join(_weights(config)) or 'a file'
        sys.exit(
            f'{weights} cannot be fetched: {error.reason}. To go on, download it on any machine '
            f'and add --cfg-options model.backbone.init_cfg.checkpoint=FILE. {FROM_SCRATCH}'
        )
    except ConnectionError as error:
        sys.exit(f'{error}. {FROM_SCRATCH}')
    except (FileNotFoundError, IncompleteCheckpointError) as error:
        sys.exit(str(error))


def _weights(config: Config) -> list[str]:
    """Web addresses of weights that a run begins with."""
    initial = config.model.get('backbone', {}).get('init_cfg') or []
    initial = initial if isinstance(initial, list) else [initial]
    names = [config.get('load_from'), *(cfg.get('checkpoint') for cfg in initial)]
    return [name for name in names if name and '://' in name]
