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

from mmengine.config import Config

from mminline.engine.config import load_run_config, log_to_tensorboard, scale_learning_rate
from mminline.engine.errors import exit_on_bad_input, readable_errors
from mminline.engine.options import make_run_parser
from mminline.engine.resume import resume
from mminline.engine.runs import prepare_training, train


def parse_args() -> argparse.Namespace:
    parser = make_run_parser(__doc__)
    parser.add_argument(
        '--amp', action='store_true', help='mixed precision: float16 on a GPU, bfloat16 on a CPU'
    )
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


def load_config(args: argparse.Namespace) -> Config:
    """Read the config and put the options into it."""
    config = load_run_config(
        args.config,
        args.cfg_options,
        work_dir=args.work_dir,
        launcher=args.launcher,
        local_rank=args.local_rank,
    )
    if args.auto_scale_lr:
        scale_learning_rate(config)
    if args.tensorboard:
        log_to_tensorboard(config)
    if args.resume:
        resume(config, args.resume)
    prepare_training(config, args.amp)
    return config


def main() -> None:
    args = parse_args()
    with exit_on_bad_input():
        config = load_config(args)
    with readable_errors(config.work_dir):
        train(config)


if __name__ == '__main__':
    main()
