"""Train a detector or a segmentor.

    python tools/train.py configs/detection/mask-rcnn_inline-pvt-t_fpn_1x_coco.py
    python tools/train.py CONFIG --amp --auto-scale-lr --cfg-options train_dataloader.batch_size=4
    python tools/train.py CONFIG --resume                 # go on after an interruption
    python tools/train.py CONFIG --tensorboard            # then: tensorboard --logdir work_dirs
    torchrun --nproc_per_node 8 tools/train.py CONFIG --launcher pytorch

The recipes are for 16 images at a time, 8 GPUs with 2 each; with other numbers let
--auto-scale-lr adapt the learning rate. Without a GPU everything runs on the CPU. A config with
runner_type='FlexibleRunner' trains with FSDP or DeepSpeed: docs/distributed.md.
"""

import argparse
import importlib.util
import re
import sys
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import RUNNERS

import _launch
from mminline.checkpoints.reader import read_file


def parse_args() -> argparse.Namespace:
    parser = _launch.make_run_parser(__doc__)
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help='scale the learning rate with the number of images at a time',
    )
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='CHECKPOINT',
        help='go on from a checkpoint; without a name, from the last whole one in the work-dir',
    )
    parser.add_argument(
        '--tensorboard', action='store_true', help='log for TensorBoard too, into the work-dir'
    )
    return parser.parse_args()


def apply_options(config: Config, args: argparse.Namespace) -> None:
    """Put the options that only training has into the config."""
    if args.amp:
        config.optim_wrapper.type = 'AmpOptimWrapper'
        config.optim_wrapper.loss_scale = 'dynamic'
    if args.auto_scale_lr:
        if 'base_batch_size' not in config.get('auto_scale_lr', {}):
            sys.exit(
                f'--auto-scale-lr needs auto_scale_lr.base_batch_size in {args.config}: the '
                'number of images at a time that its learning rate is for.'
            )
        config.auto_scale_lr.enable = True
    if args.tensorboard:
        log_for_tensorboard(config)
    if args.resume:
        resume(config, args.resume)


def log_for_tensorboard(config: Config) -> None:
    """Add TensorBoard to what the visualizer of the config writes to."""
    if importlib.util.find_spec('tensorboard') is None:
        sys.exit('--tensorboard needs a package that is not there: pip install tensorboard')
    visualizer = config.get('visualizer') or dict(type='Visualizer')
    backends = [*(visualizer.get('vis_backends') or []), dict(type='TensorboardVisBackend')]
    config.visualizer = dict(visualizer, vis_backends=backends)


def resume(config: Config, name: str) -> None:
    """Begin with a checkpoint: 'auto' for the last whole one in the work-dir, if there is one."""
    checkpoint = find_whole_checkpoint(Path(config.work_dir)) if name == 'auto' else Path(name)
    if checkpoint is None:
        return
    if not checkpoint.exists():
        sys.exit(f'There is no checkpoint {checkpoint} to resume.')
    config.resume, config.load_from = True, str(checkpoint)
    # The checkpoint has all weights: do not fetch those of the backbone once more.
    if 'backbone' in config.model:
        config.model.backbone.init_cfg = None


def find_whole_checkpoint(work_dir: Path) -> Path | None:
    """The last checkpoint that can be read; one cut off by a crash or a full disk cannot.

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
        sys.exit(f'No checkpoint in {work_dir} is whole: start anew in another --work-dir.')
    print(f'No checkpoint in {work_dir} yet: training starts from the beginning.')
    return None


def warn_of_gaps(config: Config) -> None:
    """Say so if a crash at a bad moment would leave no checkpoint."""
    if config.get('default_hooks', {}).get('checkpoint', {}).get('max_keep_ckpts') == 1:
        print(
            'Keeping one checkpoint is risky: it is removed before the next one is written. '
            'default_hooks.checkpoint.max_keep_ckpts=2 always leaves a whole one.',
            file=sys.stderr,
        )


def main() -> None:
    args = parse_args()
    config = _launch.load_config(args)
    apply_options(config, args)
    _launch.check_data(config, 'train', 'val')
    warn_of_gaps(config)
    with _launch.readable_errors(config):
        config.setdefault('runner_type', 'Runner')
        RUNNERS.build(config).train()


if __name__ == '__main__':
    main()
