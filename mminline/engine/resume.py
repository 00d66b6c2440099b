"""Go on with a training that was interrupted."""

import re
import sys
from pathlib import Path

from mmengine.config import Config

from ..apis.config import drop_pretrained
from ..checkpoints.reader import read_file


def resume(config: Config, checkpoint: str | Path = 'auto') -> None:
    """Let a training begin with a checkpoint.

    Args:
        config: The config of the training.
        checkpoint: A file; 'auto' for the last whole one in the work-dir, if there is one.
    """
    if checkpoint == 'auto':
        checkpoint = find_whole_checkpoint(Path(config.work_dir))
        if checkpoint is None:
            return
    if not Path(checkpoint).exists():
        raise FileNotFoundError(f'There is no checkpoint {checkpoint} to resume.')
    config.resume, config.load_from = True, str(checkpoint)
    # The checkpoint has all weights: do not fetch those of the backbone once more.
    config.model = drop_pretrained(config.model)


def find_whole_checkpoint(work_dir: Path) -> Path | None:
    """Find the last checkpoint that can be read; one cut off by a crash or a full disk cannot.

    DeepSpeed makes a folder of each, which counts once mmengine has noted that it was written.
    """
    note = work_dir / 'last_checkpoint'
    noted = Path(note.read_text().strip()).name if note.is_file() else None
    numbered = {
        int(match[1]): path
        for path in work_dir.glob('*.pth')
        if (match := re.fullmatch(r'(?:epoch|iter)_(\d+)\.pth', path.name))
    }
    for _, path in sorted(numbered.items(), reverse=True):
        try:
            if path.is_file():
                read_file(path)
            elif path.name != noted:
                raise ValueError(f'mmengine has not noted that all of {path} was written')
        except ValueError as error:
            print(f'Passed over: {error}', file=sys.stderr)
        else:
            return path
    if numbered:
        raise ValueError(f'No checkpoint in {work_dir} is whole: start anew in another --work-dir.')
    print(f'No checkpoint in {work_dir} yet: training starts from the beginning.')
    return None


def warn_of_single_checkpoint(config: Config) -> None:
    """Say so if a crash at a bad moment would leave no checkpoint."""
    if config.get('default_hooks', {}).get('checkpoint', {}).get('max_keep_ckpts') == 1:
        print(
            'Keeping one checkpoint is risky: it is removed before the next one is written. '
            'default_hooks.checkpoint.max_keep_ckpts=2 always leaves a whole one.',
            file=sys.stderr,
        )
