"""Options of ``tools/infer.py`` that cannot work together, or not with a model."""

import argparse

import torch
from mmengine.config import Config

from ..engine.data import check_checkpoint
from ..engine.launch import check_launcher
from ..large.writers import WRITERS, check_output
from ..predictions import check_folder
from .videos import is_video


def check_options(config: Config, args: argparse.Namespace) -> None:
    """Raise an error that names an option which cannot work, before anything is built."""
    check_checkpoint(args.checkpoint)
    if args.large and not args.full_size:
        raise ValueError('--large is for images that keep their resolution: add --full-size.')
    if args.full_size and args.precision != 'float32':
        raise ValueError('--full-size runs in float32: leave --precision out.')
    if config.default_scope == 'mmseg' and args.score_thr is not None:
        raise ValueError('--score-thr is for detectors: a segmentor gives every pixel a class.')
    _check_sharing(args)
    _check_out(config, args)
    _check_device(args.device)


def writes_class_map(args: argparse.Namespace) -> bool:
    """Whether --out is a file for the class map of one image."""
    return args.full_size and args.out.suffix.lower() in WRITERS


def _check_sharing(args: argparse.Namespace) -> None:
    if args.launcher == 'none':
        return
    check_launcher(args.launcher)
    if args.large != 'on':
        raise ValueError('--launcher is for images in parts: add --full-size --large on.')
    if not args.source.is_file() or is_video(args.source):
        raise ValueError(f'--launcher is for a single image, and {args.source} is none.')


def _check_out(config: Config, args: argparse.Namespace) -> None:
    out = args.out
    if not writes_class_map(args):
        if out.is_file():
            raise ValueError(f'--out has to be a folder, and {out} is a file.')
        if out.suffix.lower() in WRITERS and not out.is_dir():
            raise ValueError(f'--out {out} is a file for a class map, which needs --full-size.')
        check_folder(out)
        return
    if config.default_scope != 'mmseg':
        raise ValueError(f'--out {out} is for class maps: name a folder for a detector.')
    if not args.source.is_file():
        raise ValueError(f'--out {out} is for a single image: name a folder for {args.source}.')
    if args.large == 'off':
        raise ValueError(f'--out {out} is written in parts: leave --large off out.')
    check_output(out)


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f'--device {device} cannot be used: {reason}') from None
