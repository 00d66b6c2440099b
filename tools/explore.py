"""Click a pixel of an image and see where the attention of a model looks from there.

    python tools/explore.py CONFIG CHECKPOINT photos/
    python tools/explore.py CONFIG CHECKPOINT street.jpg --name InLine \\
        --also softmax=OTHER_CONFIG,OTHER_CHECKPOINT
    python tools/explore.py --demo work_dirs/demo      # as make explore does

opens a page at http://127.0.0.1:7860, which other machines cannot reach: choose or upload an image,
see the prediction of each model, and click. The weights of that query are drawn over the image, for
the layer and head of your choice: attention, local residual and their sum. Figure and numbers can
be downloaded. Uploads are in a temporary folder and removed at the end. Ctrl-C ends the program.

Needs Gradio: pip install "mminline[explore]". docs/explore.md has pictures.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mmengine.logging import MMLogger

from mminline.analysis.reports import ModelSource, list_images, model_source, read_sources
from mminline.demo.runs import list_trained
from mminline.engine.options import make_parser
from mminline.explore import ExplorableModel, Explorer

SCENES = Path('data/shapes/images/val')


# fmt: off
def parse_args() -> argparse.Namespace:
    parser = make_parser(__doc__, optional_config=True)
    add = parser.add_argument
    add('checkpoint', nargs='?', help='file or web address of its weights')
    add('images', nargs='?', type=Path, help='an image, or a folder of images, to choose from')
    add('--name', help='what the page calls the model (default: name of the config)')
    add('--also', action='append', default=[], type=model_source, metavar='NAME=CONFIG,CHECKPOINT',
        help='a model to show beside it; may be given several times')
    add('--demo', type=Path, metavar='FOLDER',
        help=f'instead of CONFIG: models that make demo has trained there, and {SCENES}')
    add('--port', type=int, default=7860, help='port of the page (default: %(default)s)')
    add('--share', action='store_true',
        help='let everybody who knows its address see the page, by a tunnel of Gradio')
    args = parser.parse_args()
    if args.demo and (args.config or args.name):
        parser.error('--demo names the models and images: leave CONFIG and --name out')
    if not args.demo and not (args.config and args.checkpoint):
        parser.error('CONFIG and CHECKPOINT are needed, or --demo FOLDER')
    return args
# fmt: on


def choose_models(args: argparse.Namespace) -> list[ModelSource]:
    """List the models that were asked for."""
    if not args.demo:
        name = args.name or Path(args.config).stem
        return [ModelSource(name, args.config, args.checkpoint), *args.also]
    trained = list_trained(args.demo)
    if not trained:
        raise ValueError(f'there are no trained models in {args.demo}: run make demo first')
    return [
        *(ModelSource(run.method.title, run.config, run.checkpoint) for run in trained),
        *args.also,
    ]


def choose_images(args: argparse.Namespace) -> Sequence[Path]:
    """List the images that were asked for; none is fine, they can be uploaded."""
    if args.demo:
        return list_images(SCENES) if SCENES.is_dir() else []
    return list_images(args.images) if args.images else []


def main() -> None:
    args = parse_args()
    # What mmengine says of every parameter that it initialises is not for here.
    MMLogger.get_current_instance().setLevel('WARNING')
    for ending in (signal.SIGTERM, signal.SIGHUP):  # so that temporary files are removed
        signal.signal(ending, lambda *_: sys.exit(0))
    try:
        from mminline.explore.server import running_page

        images = choose_images(args)
        sources = read_sources(choose_models(args), args.cfg_options)
        explorer = Explorer([ExplorableModel(each.name, each.load()) for each in sources], images)
        with running_page(explorer, args.port, args.share) as address:
            print(f'Open {address} in a browser; Ctrl-C ends it.', flush=True)
            signal.pause()
    except ModuleNotFoundError as error:
        if error.name != 'gradio':
            raise
        sys.exit('explore: Gradio is missing: pip install "mminline[explore]", or make setup.')
    except (OSError, ValueError) as error:
        sys.exit(f'explore: {error}')
    except KeyboardInterrupt:
        print()


if __name__ == '__main__':
    main()
