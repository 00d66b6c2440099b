"""Evaluate a trained detector or segmentor.

    python tools/test.py CONFIG work_dirs/CONFIG/epoch_12.pth
    python tools/test.py CONFIG CHECKPOINT --cfg-options test_evaluator.outfile_prefix=results
    torchrun --nproc_per_node 8 tools/test.py CONFIG CHECKPOINT --launcher pytorch

The scores are printed, and saved as JSON in the work-dir.
"""

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

import _launch
from mminline.checkpoints import unwrap


class WholeModel(Hook):
    """Refuses a checkpoint that leaves parts of the model at random, such as a bare backbone."""

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        _launch.check_whole(model, unwrap(checkpoint), runner.cfg.load_from)


def main() -> None:
    parser = _launch.make_run_parser(__doc__)
    parser.add_argument('checkpoint', help='file or web address of the trained weights')
    args = parser.parse_args()
    config = _launch.load_config(args)
    _launch.check_checkpoint(args.checkpoint)
    config.load_from = args.checkpoint
    if args.amp:
        config.test_cfg.fp16 = True
    _launch.check_data(config, 'test')
    with _launch.readable_errors(config):
        runner = Runner.from_cfg(config)
        runner.register_hook(WholeModel())
        runner.test()


if __name__ == '__main__':
    main()
