"""Methods that the demo trains, and how to read the folder that a run leaves."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The name of a score in results.json, what mmdet and mmseg call it, and its unit there.
SCORES = {
    'instance': {'box_AP': ('coco/bbox_mAP', 1), 'mask_AP': ('coco/segm_mAP', 1)},
    'semantic': {'mIoU': ('mIoU', 100)},
}


@dataclass(frozen=True)
class Method:
    """One of the methods that the project has a config of for Shapes.

    Attributes:
        key: Its folder in the work-dir, and its name in results.json.
        title: Its name for people.
        backbone: The name of its backbone for people.
        config: Its config.
        task: 'instance' or 'semantic'.
        seconds: How long training and testing take on a core, about: for the time left.
    """

    key: str
    title: str
    backbone: str
    config: str
    task: str
    seconds: tuple[int, int]

    @property
    def prediction_option(self) -> str:
        """Setting of its evaluator that keeps the predictions which are measured."""
        return 'outfile_prefix' if self.task == 'instance' else 'output_dir'


METHODS = (
    Method(
        'mask_rcnn', 'Mask R-CNN', 'InLine-PVT', 'mask-rcnn_inline-pvt-nano_fpn_shapes.py',
        'instance', (290, 22),
    ),
    Method(
        'semantic_fpn', 'SemanticFPN', 'InLine-PVT', 'semantic-fpn_inline-pvt-nano_shapes.py',
        'semantic', (310, 12),
    ),
)  # fmt: skip
MORE_METHODS = (
    Method(
        'cascade_mask_rcnn', 'Cascade Mask R-CNN', 'InLine-Swin',
        'cascade-mask-rcnn_inline-swin-nano_fpn_shapes.py', 'instance', (400, 25),
    ),
    Method(
        'upernet', 'UperNet', 'InLine-Swin', 'upernet_inline-swin-nano_shapes.py',
        'semantic', (400, 14),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A method and the folder that it was, or will be, trained in."""

    method: Method
    folder: Path

    @property
    def predictions(self) -> Path:
        """Folder or prefix of what testing predicts for the validation scenes."""
        return self.folder / 'predictions'

    @property
    def config(self) -> Path:
        """Config that it was trained with, as mmengine keeps it."""
        return self.folder / self.method.config

    @property
    def checkpoint(self) -> Path:
        """Weights at the end of training, as mmengine notes them."""
        return Path((self.folder / 'last_checkpoint').read_text())

    def scores(self) -> dict[str, float]:
        """Scores of the test, as fractions."""
        (path,) = self.folder.glob('test/*/*.json')
        return _fractions(json.loads(path.read_text()), self.method.task)

    def losses(self) -> list[tuple[int, float]]:
        """Iteration and loss, all through training."""
        return [(line['step'], line['loss']) for line in self._scalars() if 'loss' in line]

    def validations(self) -> dict[str, list[tuple[int, float]]]:
        """Iteration and value of each score, all through training."""
        points = {name: [] for name in SCORES[self.method.task]}
        for line in self._scalars():
            for name, value in _fractions(line, self.method.task).items():
                points[name].append((line['step'], value))
        return points

    def _scalars(self) -> Iterator[dict]:
        (path,) = self.folder.glob('*/vis_data/scalars.json')
        return map(json.loads, path.read_text().splitlines())


def list_trained(folder: Path) -> list[Run]:
    """List the methods that have a checkpoint in the folder of a demo."""
    runs = [Run(method, folder / method.key) for method in METHODS + MORE_METHODS]
    return [run for run in runs if (run.folder / 'last_checkpoint').is_file()]


def _fractions(values: dict, task: str) -> dict[str, float]:
    return {
        name: round(values[theirs] / unit, 4)
        for name, (theirs, unit) in SCORES[task].items()
        if theirs in values
    }
