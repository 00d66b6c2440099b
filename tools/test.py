"""Evaluate a trained detector or segmentor.

    python tools/test.py CONFIG work_dirs/CONFIG/epoch_12.pth
    python tools/test.py CONFIG CHECKPOINT --cfg-options test_evaluator.outfile_prefix=results
    python tools/test.py CONFIG CHECKPOINT --precision bfloat16
    torchrun --nproc_per_node 8 tools/test.py CONFIG CHECKPOINT --launcher pytorch

The scores are printed, and saved as JSON in the work-dir.
"""

from mminline.engine.config import load_run_config
from mminline.engine.errors import exit_on_bad_input, readable_errors
from mminline.engine.options import add_precision, make_run_parser
from mminline.engine.runs import evaluate, prepare_test


def main() -> None:
    parser = make_run_parser(__doc__)
    parser.add_argument('checkpoint', help='file or web address of the trained weights')
    add_precision(parser)
    args = parser.parse_args()
    with exit_on_bad_input():
        config = load_run_config(
            args.config,
            args.cfg_options,
            work_dir=args.work_dir,
            launcher=args.launcher,
            local_rank=args.local_rank,
        )
        prepare_test(config, args.checkpoint, args.precision)
    with readable_errors(config.work_dir):
        evaluate(config, args.precision)


if __name__ == '__main__':
    main()
