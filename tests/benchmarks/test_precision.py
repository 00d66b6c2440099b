"""``benchmarks/precision.py``: scores and losses in each precision."""

import json
import sys
from pathlib import Path

import pytest
import torch

from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.apis import init_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings('ignore:This CPU has no instructions for bfloat16'),
]
BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'


@pytest.fixture
def program(shapes, tmp_path, monkeypatch):
    """Runs the program in a folder with the data in it; returns what it has written."""
    names = [path.stem for path in BENCHMARKS.glob('*.py')]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('MMINLINE_EXECUTION', 'auto')  # and back afterwards
    Path('shapes').symlink_to(shapes)
    Path('detector.py').write_text(DETECTOR)
    Path('segmentor.py').write_text(SEGMENTOR)

    def run(*arguments):
        import precision

        monkeypatch.setattr(sys, 'argv', ['precision.py', *arguments, '--out', 'out'])
        precision.main()
        return json.loads(Path('out', f'{arguments[0]}.json').read_text())['results']

    yield run
    for name in names:
        sys.modules.pop(name, None)


def test_losses_start_from_the_same_weights_and_regions(program, capsys):
    results = program('losses', 'detector.py', '--steps', '3', '--batch', '2')

    full, half = (results[word]['losses'] for word in ('float32', 'bfloat16'))
    assert len(full) == len(half) == 3
    assert full != half
    assert half[0] == pytest.approx(full[0], rel=0.05)
    assert Path('out/losses.png').read_bytes().startswith(b'\x89PNG')
    assert '| bfloat16 |' in capsys.readouterr().out


@pytest.mark.parametrize('config', ['detector.py', 'segmentor.py'])
def test_both_precisions_see_the_same_batches(program, config):
    import precision

    config = precision.load_run_config(config)
    precision.init_model(config, device='cpu')  # knows where to look for transforms
    config.train_dataloader.batch_size = 2
    dataset = config.train_dataloader.dataset
    dataset.pipeline.insert(-1, dict(type='RandomFlip', prob=0.5))
    dataset.indices = 3  # so few that they begin again
    first = [batch['inputs'] for batch in precision.make_batches(config, 4)]
    torch.rand(7)  # draws of a model do not matter
    second = [batch['inputs'] for batch in precision.make_batches(config, 4)]

    assert [len(images) for images in first] == [len(images) for images in second]
    assert len(first) == 4 and len(first[0]) == 2
    for images, others in zip(first, second, strict=True):
        assert all(torch.equal(*pair) for pair in zip(images, others, strict=True))
    assert not torch.equal(first[0][0], first[0][1])


def test_scores_are_those_of_each_form(program, capsys):
    torch.manual_seed(0)
    model = init_model('segmentor.py', device='cpu', fast=False)
    torch.save(model.state_dict(), 'model.pth')

    results = program('scores', 'segmentor.py', 'model.pth')

    scores = results['segmentor.py']
    assert list(scores) == ['float32, plain', 'float32', 'bfloat16']
    assert all(0 <= score['mIoU'] <= 100 for score in scores.values())
    assert scores['float32, plain']['mIoU'] == pytest.approx(scores['float32']['mIoU'], abs=0.1)
    assert '| segmentor, mIoU |' in capsys.readouterr().out
