"""Measure every model of the metafiles, and list them in configs/README.md.

    python tools/model_zoo.py            # measure and write: takes minutes
    python tools/model_zoo.py --check    # measure, and fail if a file says something else

Scores come from the metafiles as they stand there; what is measured is the cost.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from mminline.analysis.config_complexity import measure_config

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / 'configs' / 'README.md'
METAFILES = [ROOT / 'configs' / task / 'metafile.yml' for task in ('detection', 'segmentation')]
BEGIN, END = '<!-- model zoo, made by tools/model_zoo.py -->', '<!-- end of the model zoo -->'


def measured(text: str) -> str:
    """Return a metafile with the present cost of its models."""
    content = yaml.safe_load(text)
    for model in content['Models']:
        cost, _ = measure_config(ROOT / model['Config'])
        print(f'{model["Name"]}: {cost.usual_macs / 1e9:.1f} GMACs', flush=True)
        model['Metadata'].update(
            {'FLOPs': cost.usual_macs, 'FLOPs Executed': cost.macs, 'Parameters': cost.parameters}
        )
    return yaml.safe_dump(content, sort_keys=False, width=1000)


def listed(readme: str, metafiles: list[str]) -> str:
    """Return the README with a table for each metafile between its two marks."""
    before, after = readme.split(BEGIN)[0], readme.split(END)[1]
    tables = [_table(yaml.safe_load(text)['Models']) for text in metafiles]
    return '\n\n'.join([before + BEGIN, *tables, END]) + after


def _table(models: list[dict]) -> str:
    scores = 'box / mask AP' if models[0]['Metadata']['Training Data'] == 'COCO' else 'mIoU / mAcc'
    return '\n'.join(
        [
            f'| config | parameters (M) | GMACs | executed | {scores}, paper |',
            '|---|--:|--:|--:|---|',
            *map(_row, models),
        ]
    )


def _row(model: dict) -> str:
    cost = model['Metadata']
    return ' | '.join(
        [
            f'| [{model["Name"]}]({Path(model["Config"]).relative_to("configs")})',
            f'{cost["Parameters"] / 1e6:.1f}',
            f'{cost["FLOPs"] / 1e9:.1f}',
            f'{cost["FLOPs Executed"] / 1e9:.1f}',
            f'{_scores(model)} |',
        ]
    )


def _scores(model: dict) -> str:
    metrics = {
        name: score
        for result in model.get('Results', [])
        for name, score in result['Metrics'].items()
    }
    # Papers give AP with one digit, mIoU and mAcc with two.
    scores = [f'{score:.{1 if "AP" in name else 2}f}' for name, score in metrics.items()]
    note = ' (second-hand)' if any('second-hand' in name for name in metrics) else ''
    return ' / '.join(scores) + note


def new_texts() -> Iterator[tuple[Path, str]]:
    """List each file with the text that it should have."""
    metafiles = [measured(path.read_text()) for path in METAFILES]
    yield from zip(METAFILES, metafiles, strict=True)
    yield README, listed(README.read_text(), metafiles)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--check', action='store_true', help='write nothing')
    args = parser.parse_args()
    stale = [(path, text) for path, text in new_texts() if text != path.read_text()]
    if args.check and stale:
        names = ', '.join(str(path.relative_to(ROOT)) for path, _ in stale)
        sys.exit(f'Out of date: {names}. Run tools/model_zoo.py.')
    for path, text in stale:
        path.write_text(text)


if __name__ == '__main__':
    main()
