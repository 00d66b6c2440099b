"""Videos, frame by frame."""

from functools import partial
from pathlib import Path

import cv2
import mmcv
import numpy as np

from ..apis import Predictor
from .loop import infer

VIDEOS = ('.avi', '.m4v', '.mkv', '.mov', '.mp4', '.mpeg', '.mpg', '.webm')


def is_video(path: Path) -> bool:
    """Whether a file is a video, by its name."""
    return path.suffix.lower() in VIDEOS


def infer_video(path: Path, predictor: Predictor, out: Path) -> tuple[int, int]:
    """Do a video; return how many frames were done, and how many it should have."""
    video = mmcv.VideoReader(str(path))
    if not video.opened or video.frame_cnt < 1:
        raise ValueError(f'{path} cannot be read as a video.')
    name = path.name if path.suffix == '.mp4' else f'{path.name}.mp4'
    (out / 'pictures').mkdir(parents=True, exist_ok=True)
    size = (video.width, video.height)
    codec = cv2.VideoWriter_fourcc(*'mp4v')
    writer = cv2.VideoWriter(str(out / 'pictures' / name), codec, video.fps, size)
    frames = (
        (f'{path.name}/{number:06d}', partial(np.asarray, frame))
        for number, frame in enumerate(video)
    )

    def keep(_, picture_HWC):
        # The writer drops frames of another size, such as reduced pictures, without a word.
        writer.write(cv2.resize(picture_HWC, size))

    try:
        done = infer(frames, video.frame_cnt, predictor, out / 'predictions', keep)
    finally:
        writer.release()  # only then can it be played
    return done, max(done, video.frame_cnt)  # headers may promise too few
