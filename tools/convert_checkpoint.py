"""Convert a published InLine checkpoint to a backbone checkpoint of mminline.

Also takes one of mminline, and a whole detector or segmentor, of which it keeps the backbone.
Backbones load published files as they are: this is for a look into a file, and for weights to
pass on.
"""

import argparse
import os
import re
import sys
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from mminline import __version__
from mminline.checkpoints import find_backbone, read_checkpoint, unwrap
from mminline.checkpoints.convert import CLASSIFIER, Source, backbone_kinds, listed, translate
from mminline.checkpoints.download import published_name


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('src', help='a file, a web address, or a name such as inline://pvt-tiny')
    parser.add_argument('dst', type=Path, help='the file to write')
    parser.add_argument('--dry-run', action='store_true', help='print the report, write nothing')
    return parser.parse_args()


def read_source(src: str) -> Source:
    """Read the one backbone of a checkpoint, be it the whole or a part."""
    weights = unwrap(read_checkpoint(src))
    prefixes = backbone_kinds(weights)
    if len(prefixes) > 1:
        raise ValueError(f'SRC has to hold one backbone, got several: {listed(prefixes)}')
    return find_backbone(weights, *prefixes)


def group(key: str) -> str:
    """Name a key's layer, numbers left open."""
    return re.sub(r'\d+', '*', re.sub(r'\.(weight|bias)$', '', key))


def count_fates(source: Source) -> Counter[tuple[str, str]]:
    """Count the tensors of each group of keys and what becomes of it."""
    names = (
        translate(source.weights) if source.is_official else {key: key for key in source.weights}
    )
    fates = Counter()
    for key, name in names.items():
        if name is None or name.startswith(CLASSIFIER):
            fate = 'dropped'
        else:
            fate = re.sub(r'\.attn\.(q|kv)$', '.attn.qkv (joined)', group(name))
        fates[group(key), fate] += 1
    return fates


def print_report(src: str, source: Source, weights: dict[str, Tensor]) -> None:
    fates = count_fates(source)
    width = max(len(official) for official, _ in fates)
    size = sum(value.numel() for value in weights.values())
    print(f'source      {src}')
    print(f'kind        {source.kind}' + (f' under {source.prefix!r}' if source.prefix else ''))
    print(f'model       {published_name(weights) or "none of the published sizes"}')
    for (official, fate), count in fates.items():
        print(f'{count:>9}   {official:<{width}}   {fate if fate != official else "as it is"}')
    print(f'read        {len(source.weights)} tensors')
    print(f'written     {len(weights)} tensors, {size:,} parameters, none resized')


def write(weights: dict[str, Tensor], dst: Path, meta: dict) -> None:
    """Write under another name first, so that DST is whole whenever it is there."""
    partial = dst.with_name(f'{dst.name}.{os.getpid()}.partial')
    try:
        torch.save({'state_dict': weights, 'meta': meta}, partial)
        os.replace(partial, dst)
    finally:
        partial.unlink(missing_ok=True)


def convert(args: argparse.Namespace) -> None:
    if args.dst.exists() and os.path.exists(args.src) and args.dst.samefile(args.src):
        raise ValueError(f'DST has to be another file than SRC, got {args.dst} for both')
    if not args.dst.parent.is_dir():
        raise ValueError(f'DST has to be in a folder that exists, got {args.dst}')
    source = read_source(args.src)
    weights = source.converted()
    print_report(args.src, source, weights)
    if args.dry_run:
        print(f'dry run: {args.dst} is not written')
        return
    meta = {
        'mminline_version': __version__,
        'source': Path(args.src).name,
        'kind': source.kind,
        'model': published_name(weights),
    }
    write(weights, args.dst, meta)
    print(f'wrote {args.dst}')


if __name__ == '__main__':
    try:
        convert(parse_args())
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f'convert_checkpoint: {error}')
