"""Pictures of what was learnt: a contact sheet, and learning curves."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import matplotlib
import mmcv
import numpy as np
from pycocotools import mask as run_lengths

from ..datasets import CLASSES, PALETTE, SEMANTIC_PALETTE
from .runs import Run

matplotlib.use('Agg')  # a picture in a file needs no screen
from matplotlib import patches, patheffects, pyplot

SCENES = 6
SCORE_THR = 0.5  # predicted figures are shown from this score on
INK, PALE = '#222222', '#888888'
COLOURS = dict(box_AP='#0072b2', mask_AP='#d55e00', mIoU='#009e73')
OUTLINE = [patheffects.withStroke(linewidth=2, foreground=INK)]


def draw_contact_sheet(runs: list[Run], data: Path, path: Path) -> None:
    """Draw the first validation scenes with truth and predictions, a block for each method."""
    names = sorted(file.name for file in (data / 'images' / 'val').iterdir())[:SCENES]
    rows = ('scene', 'truth', 'prediction')
    figure = pyplot.figure(figsize=(11, 6 * len(runs) + 0.5), layout='constrained')
    blocks = figure.subfigures(len(runs), squeeze=False, hspace=0.04)[:, 0]
    for run, block in zip(runs, blocks, strict=True):
        scores = ', '.join(f'{_words(name)} {value:.3f}' for name, value in run.scores().items())
        block.suptitle(_title(run) + f': {scores}', color=INK, weight='bold')
        draw_truth, draw_prediction = LAYERS[run.method.task](run, data)
        panels = block.subplots(len(rows), SCENES, squeeze=False)
        for row, draw in zip(range(3), (None, draw_truth, draw_prediction), strict=True):
            panels[row, 0].set_ylabel(rows[row], color=INK)
            for panel, name in zip(panels[row], names, strict=False):
                image = mmcv.imread(data / 'images' / 'val' / name, channel_order='rgb')
                panel.imshow(image)
                if draw:  # on grey, so that colours tell the class alone
                    panel.imshow(image.mean(axis=-1), cmap='gray', vmin=0, vmax=255)
                    draw(panel, name)
        for panel in panels.flat:
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
    handles = [patches.Patch(color=_unit(rgb)) for rgb in PALETTE]
    figure.legend(handles, CLASSES, loc='outside lower center', ncols=len(CLASSES), frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _instance_layers(run: Run, data: Path) -> tuple[Callable, Callable]:
    """Functions that draw the figures of the truth, and those that were predicted."""
    truth = json.loads((data / 'annotations' / 'instances_val.json').read_text())
    predictions = json.loads(run.predictions.with_suffix('.segm.json').read_text())
    sure = [figure for figure in predictions if figure['score'] >= SCORE_THR]
    ids = {image['file_name']: image['id'] for image in truth['images']}

    def layer(figures: list[dict]) -> Callable:
        by_image = defaultdict(list)
        for figure in figures:
            by_image[figure['image_id']].append(figure)
        return lambda panel, name: [_draw_figure(panel, each) for each in by_image[ids[name]]]

    return layer(truth['annotations']), layer(sure)


def _draw_figure(panel: pyplot.Axes, figure: dict) -> None:
    """Colour a figure by its class, with its box, and its score if it has one."""
    colour = _unit(PALETTE[figure['category_id'] - 1])
    mask = run_lengths.decode(figure['segmentation'])
    panel.imshow(np.append(colour, 1.0) * mask[..., None] * [1, 1, 1, 0.8])
    left, top, width, height = figure['bbox']
    panel.add_patch(
        patches.Rectangle(
            (left - 0.5, top - 0.5), width, height, fill=False, edgecolor=colour, linewidth=1.5
        )
    )
    if 'score' in figure:
        panel.text(
            left + width / 2, top + height / 2, f'{figure["score"]:.2f}', color='white',
            fontsize=7, ha='center', va='center', path_effects=OUTLINE, clip_on=True,
        )  # fmt: skip


def _semantic_layers(run: Run, data: Path) -> tuple[Callable, Callable]:
    """Functions that draw the classes of the truth, and those that were predicted."""
    palette = np.array(SEMANTIC_PALETTE, np.uint8)

    def layer(folder: Path) -> Callable:
        return lambda panel, name: panel.imshow(palette[mmcv.imread(folder / name, 'unchanged')])

    return layer(data / 'semantic' / 'val'), layer(run.predictions)


LAYERS = dict(instance=_instance_layers, semantic=_semantic_layers)


def draw_learning_curves(runs: list[Run], path: Path) -> None:
    """Draw loss and scores over the iterations, a column for each method."""
    figure, panels = pyplot.subplots(
        2, len(runs), figsize=(4.8 * len(runs), 5.6), sharex='col', squeeze=False,
        layout='constrained',
    )  # fmt: skip
    for run, (above, below) in zip(runs, panels.T, strict=True):
        above.set_title(_title(run), color=INK, weight='bold')
        above.plot(*zip(*run.losses(), strict=True), color=PALE)
        above.set_ylim(0)
        for name, points in run.validations().items():
            label = f'{_words(name)} {points[-1][1]:.3f}'
            below.plot(*zip(*points, strict=True), 'o-', color=COLOURS[name], label=label)
        below.set(ylim=(0, 1), xlabel='iteration')
        below.legend(loc='lower right', frameon=False)
        for panel in (above, below):
            panel.grid(color='#e5e5e5')
            panel.spines[['top', 'right']].set_visible(False)
    panels[0, 0].set_ylabel('training loss')
    panels[1, 0].set_ylabel('score on validation scenes')
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _title(run: Run) -> str:
    return f'{run.method.title}, {run.method.backbone}'


def _words(name: str) -> str:
    return name.replace('_', ' ')


def _unit(rgb: tuple[int, int, int]) -> np.ndarray:
    return np.array(rgb) / 255
