"""``docs/timm.md``, as it is written: a model is made, trained on a folder, and handed on."""

import re
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS

pytestmark = pytest.mark.slow

GUIDE = (Path(__file__).parents[2] / 'docs' / 'timm.md').read_text()
FIRST_STEPS, DRAW, TRAIN, HAND_ON = re.findall(r'```python\n(.*?)```', GUIDE, re.S)
SMALL = dict(
    embed_dims=(16, 32, 48, 64),
    depths=(1, 1, 1, 1),
    num_heads=(1, 2, 3, 4),
    mlp_ratios=(2, 2, 2, 2),
)


def test_the_first_steps_print_what_they_should(capsys):
    exec(FIRST_STEPS, {})
    shapes, names = capsys.readouterr().out.splitlines()

    assert shapes == ('torch.Size([2, 10]) [(2, 192, 25, 38), (2, 384, 13, 19), (2, 768, 7, 10)]')
    assert eval(names) == sorted(re.findall(r'^\| `(inline_\w+)`', GUIDE, re.M))


def test_training_on_a_folder_learns_and_the_weights_fit_a_backbone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(DRAW, {})
    # There are no published weights to download here: a small model learns from nothing.
    trained = {}
    exec(TRAIN.replace('pretrained=True', f'arch={SMALL}'), trained)
    log = re.findall(r'loss (\S+), val top-1 (\S+)%', capsys.readouterr().out)
    losses, scores = zip(*((float(loss), float(score)) for loss, score in log), strict=True)

    assert len(log) == trained['EPOCHS']
    assert losses[-1] < losses[0] - 0.3
    assert scores[-1] > 50  # of six classes

    settings = {}
    exec(HAND_ON, settings)
    backbone = MODELS.build({**settings['backbone'], 'arch': SMALL, 'pretrain_size': 64})
    backbone.init_weights()
    expected = trained['model'].stages.state_dict()
    torch.testing.assert_close(dict(backbone.stages.state_dict()), dict(expected))
