"""Look into the attention of trained detectors and segmentors.

    confusion   how often two clearly different queries get nearly the same weights
    locality    the share of the attention on the 3x3 neighbourhood, layer by layer
    map         the weights of single queries, drawn over the image
    mask        the score with tokens hidden from the attention, near ones or random ones

    python tools/analyze_attention.py confusion CONFIG CHECKPOINT --images FOLDER --limit 50
    python tools/analyze_attention.py locality CONFIG CHECKPOINT --images FOLDER --name InLine \\
        --also softmax=OTHER_CONFIG,OTHER_CHECKPOINT --also linear=THIRD_CONFIG,THIRD_CHECKPOINT
    python tools/analyze_attention.py map CONFIG CHECKPOINT --images street.jpg --point 320 240
    python tools/analyze_attention.py mask CONFIG CHECKPOINT

Each writes a figure, and the numbers behind it as CSV and JSON, to --out. Without a CHECKPOINT the
weights are those that training starts from. Every kind of attention of mminline can be looked
into, and that of mmdet's and mmseg's PVT, Swin and SegFormer backbones.
docs/analysis.md has the definitions.
"""

import argparse
import inspect
import sys
from pathlib import Path

from mmengine.config import DictAction
from mmengine.logging import MMLogger

from mminline.analysis import reports
from mminline.analysis.confusion import MAX_PAIRS, QUERY_DIFFERENCE, WEIGHT_DIFFERENCE
from mminline.analysis.locality import MAX_QUERIES


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'has to be a whole number from 1 on, got {text!r}')
    return int(text)


def odd(text: str) -> int:
    if positive(text) % 2 == 0:
        raise argparse.ArgumentTypeError(f'has to be odd, so that it has a middle, got {text!r}')
    return int(text)


def share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f'has to be between 0 and 1, got {text!r}')
    return value


# fmt: off
def add_model_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('config', help='config file, of a detector or a segmentor')
    add('checkpoint', nargs='?', help='file or web address of its weights')
    add('--name', help='what figures call the model (default: name of the config)')
    add('--also', action='append', default=[], type=reports.model_source,
        metavar='NAME=CONFIG[,CHECKPOINT]',
        help='a model to compare with; may be given several times')
    add('--out', default='work_dirs/analysis', type=Path, metavar='DIR',
        help='folder for figures and numbers (default: work_dirs/analysis)')
    add('--cfg-options', nargs='+', action=DictAction, default={}, metavar='KEY=VALUE',
        help='change settings of all configs, such as val_dataloader.dataset.indices=20')


def add_image_options(parser: argparse.ArgumentParser, limit: int | None = None) -> None:
    add = parser.add_argument
    add('--images', required=True, metavar='FOLDER', help='folder of images, or one image')
    add('--limit', type=positive, default=limit, metavar='N',
        help=f'take the first N images of the folder (default: {limit or "all"})')


def add_confusion_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--seed', type=int, default=0, help='of what is random (default: 0)')
    add('--query-difference', type=share, default=QUERY_DIFFERENCE, metavar='A',
        help='queries p, q are clearly different from |p - q| / (|p| + |q|) = A on, 1/3 for q and '
        f'2q (default: {QUERY_DIFFERENCE})')
    add('--weight-difference', type=share, default=WEIGHT_DIFFERENCE, metavar='B',
        help='their weights v, w are nearly the same up to |v - w| / (|v| + |w|) = B, sums of '
        'absolute values: the share of attention that lies elsewhere '
        f'(default: {WEIGHT_DIFFERENCE})')
    add('--centred', action='store_true',
        help='compare weights less the uniform one, so that attention is not called confused for '
        'being flat')
    add('--pairs', dest='max_pairs', type=positive, default=MAX_PAIRS, metavar='P',
        help='a layer with at most P pairs of tokens is counted completely; of others P random '
        f'pairs are taken (default: {MAX_PAIRS})')


def add_locality_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--seed', type=int, default=0, help='of what is random (default: 0)')
    add('--queries', dest='max_queries', type=positive, default=MAX_QUERIES, metavar='Q',
        help='of a map or window with more than Q tokens, Q random ones are looked at '
        f'(default: {MAX_QUERIES})')


def add_map_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--point', dest='points', nargs=2, type=float, action='append', metavar=('X', 'Y'),
        help='a query, in pixels of the image file; may be given several times')
    add('--grid', nargs=2, type=positive, default=(2, 2), metavar=('ROWS', 'COLUMNS'),
        help='without --point: queries evenly over the image (default: 2 2)')
    add('--layer', metavar='STAGE.BLOCK',
        help='layer to draw, such as 3.1 (default: the last of the second stage, or of the first '
        'if there is one only)')
    add('--heads', choices=['mean', 'each'], default='mean',
        help='draw the mean over heads, or each of them (default: mean)')


def add_mask_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--seed', type=int, default=0, help='of what is random (default: 0)')
    add('--sides', nargs='+', type=odd, default=[3, 5, 7], metavar='S',
        help='sides of the square of tokens around each query that is hidden (default: 3 5 7)')
    add('--layers', nargs='+', metavar='STAGE.BLOCK',
        help='layers in which tokens are hidden, such as 1.1 1.2 (default: all). The last stages '
        'of a pyramid have so few tokens that a square hides all of them')
    add('--metric', help='score of val_evaluator to draw (default: mIoU, or AP of masks or of '
        'boxes)')
# fmt: on


COMMANDS = {
    'confusion': (reports.report_confusion, add_confusion_options),
    'locality': (reports.report_locality, add_locality_options),
    'map': (reports.report_maps, add_map_options),
    'mask': (reports.report_masking, add_mask_options),
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', required=True, metavar='COMMAND')
    for name, (report, add_options) in COMMANDS.items():
        description = inspect.getdoc(report).partition('\n\nArgs:')[0]
        command = commands.add_parser(
            name,
            help=description.splitlines()[0],
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_model_options(command)
        if name != 'mask':
            add_image_options(command, limit=3 if name == 'map' else None)
        add_options(command)
    return parser.parse_args()


def read_models(options: dict) -> list[reports.ModelSource]:
    """Take what names the models out of the options, and read their configs."""
    config = options.pop('config')
    name = options.pop('name') or Path(config).stem
    first = reports.ModelSource(name, config, options.pop('checkpoint'))
    return reports.read_sources([first, *options.pop('also')], options.pop('cfg_options'))


def run_report(options: dict) -> None:
    """Write the report of a command; what is left of the options are arguments of the report."""
    report, _ = COMMANDS[options.pop('command')]
    models = read_models(options)
    if 'images' in options:
        options['images'] = reports.list_images(options['images'], options.pop('limit'))
    options['out'].mkdir(parents=True, exist_ok=True)
    report(models, **options)


def main() -> None:
    args = parse_args()
    # What mmengine says of every parameter that it initialises is not for here.
    MMLogger.get_current_instance().setLevel('WARNING')
    try:
        run_report(vars(args))
    except (OSError, ValueError) as error:
        sys.exit(f'analyze_attention: {error}')
    except KeyboardInterrupt:
        sys.exit('\nanalyze_attention: interrupted.')


if __name__ == '__main__':
    main()
