"""Shapes on disk: COCO instances for mmdet, index images for mmseg."""

import json
import os
import shutil
from pathlib import Path

import numpy as np

from .figures import CLASSES
from .scenes import SPLITS, Scene, check_scene_settings, draw_scene

# Raised whenever the same settings give other files, so that an old data set is not taken for a
# new one.
VERSION = 1
PARTS = ('images', 'semantic', 'annotations')


def write_shapes(
    root: str | Path,
    train: int = 1000,
    val: int = 100,
    size: int | tuple[int, int] = 128,
    seed: int = 0,
    level: str = 'plain',
    force: bool = False,
) -> bool:
    """Write the data set, unless it is there already.

    ``dataset.json`` holds the settings and is put in place last: without it a data set is taken
    for interrupted and drawn from the start.

    Args:
        root: Folder of the data set; empty, or with a data set of ours in it.
        train: Number of scenes to train on.
        val: Number of scenes to validate on.
        size: Height and width of a scene in pixels; or the least and the greatest, between which
            both are drawn for each scene.
        seed: Scenes of another seed are other scenes.
        level: One of ``LEVELS``.
        force: Replace a data set that is there.

    Returns:
        Whether scenes were drawn; False if a data set of the same settings was there.
    """
    check_scene_settings(size, seed, level)
    for name, count in dict(train=train, val=val).items():
        if count < 1:
            raise ValueError(f'{name} has to be at least 1, got {name}={count}')
    size = size if isinstance(size, int) else list(size)  # as JSON has it
    settings = dict(train=train, val=val, size=size, seed=seed, level=level)
    record = dict(dataset='shapes', version=VERSION, **settings)
    root = Path(root)
    if not _needs_drawing(root, record, force):
        return False
    _start_over(root, record)
    for split in SPLITS:
        _write_split(root, split, settings)
    os.replace(root / 'dataset.json.part', root / 'dataset.json')
    return True


def _needs_drawing(root: Path, record: dict, force: bool) -> bool:
    """Whether scenes are wanted; an error if that would spoil what lies in the folder."""
    if root.exists() and not root.is_dir():
        raise ValueError(f'root has to be a folder, got root={str(root)!r}')
    if not root.exists() or not any(root.iterdir()):
        return True
    found = _read_record(root / 'dataset.json')
    if found is None and _read_record(root / 'dataset.json.part') is None:
        raise ValueError(f'root has to be empty or hold a Shapes data set, got root={str(root)!r}')
    if found is None or force:
        return True
    changes = [
        f'{key} is {found.get(key)!r} there, {value!r} was asked for'
        for key, value in record.items()
        if found.get(key) != value
    ]
    if changes:
        raise ValueError(
            f'root has to hold a data set of the same settings, got root={str(root)!r} '
            f'({"; ".join(changes)}); --force replaces it'
        )
    return False


def _read_record(path: Path) -> dict | None:
    """Read a ``dataset.json``; return None if there is none of ours."""
    try:
        record = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get('dataset') == 'shapes' else None


def _start_over(root: Path, record: dict) -> None:
    """Make room, and mark the folder as ours and unfinished before the first file."""
    root.mkdir(parents=True, exist_ok=True)
    (root / 'dataset.json.part').write_text(json.dumps(record, indent=2) + '\n')
    (root / 'dataset.json').unlink(missing_ok=True)
    # mmseg reads all files of a folder: one left over would be part of the new data set.
    for part in PARTS:
        if (root / part).exists():
            shutil.rmtree(root / part)


def _write_split(root: Path, split: str, settings: dict) -> None:
    # Only writing needs the stack: scenes can be drawn with NumPy alone.
    import mmcv
    from mmengine.utils import track_iter_progress

    images, annotations = [], []
    scene_settings = {key: settings[key] for key in ('seed', 'size', 'level')}
    print(f'Drawing {settings[split]} {split} scenes to {root}')
    for index in track_iter_progress(range(settings[split])):
        scene = draw_scene(index, split, **scene_settings)
        name = f'{index:06d}.png'
        mmcv.imwrite(mmcv.rgb2bgr(scene.image_HWC), str(root / 'images' / split / name))
        mmcv.imwrite(scene.semantic_HW, str(root / 'semantic' / split / name))
        height, width = scene.instances_HW.shape
        images.append(dict(id=index, file_name=name, height=height, width=width))
        annotations += _coco_annotations(scene, index, first_id=len(annotations) + 1)
    print()
    categories = [dict(id=number, name=name) for number, name in enumerate(CLASSES, start=1)]
    coco = dict(info={}, images=images, annotations=annotations, categories=categories)
    path = root / 'annotations' / f'instances_{split}.json'
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(coco))


def _coco_annotations(scene: Scene, image_id: int, first_id: int) -> list[dict]:
    """One entry a figure; run lengths, because polygons cannot follow pixels exactly."""
    from pycocotools import mask

    figures = np.arange(1, len(scene.labels) + 1)
    runs = mask.encode(np.asfortranarray(scene.instances_HW[..., None] == figures, np.uint8))
    boxes, areas = mask.toBbox(runs).tolist(), mask.area(runs).tolist()
    return [
        dict(
            id=first_id + number,
            image_id=image_id,
            category_id=label + 1,
            segmentation=dict(size=runs[number]['size'], counts=runs[number]['counts'].decode()),
            bbox=boxes[number],
            area=areas[number],
            iscrowd=0,
        )
        for number, label in enumerate(scene.labels)
    ]
