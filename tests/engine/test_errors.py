"""Errors that end a program with a sentence, and those that keep their traceback."""

from urllib.error import URLError

import pytest
from mmengine.config import Config

from mminline.apis import IncompleteCheckpointError
from mminline.engine.errors import exit_on_bad_input, readable_errors

ADDRESS = 'https://example.org/backbone.pth'


def make_config(init_cfg: object = None) -> Config:
    return Config(dict(model=dict(backbone=dict(init_cfg=init_cfg)), work_dir='here'))


@pytest.mark.parametrize(
    ('error', 'message'),
    [
        (URLError('no route'), f'{ADDRESS} cannot be fetched: no route.*checkpoint=FILE'),
        (ConnectionError('no checkpoint from there'), 'from there. To train from random weights'),
        (FileNotFoundError('there is none at x.pth'), '^there is none at x.pth$'),
        (IncompleteCheckpointError('x.pth has to hold'), '^x.pth has to hold$'),
    ],
)
@pytest.mark.parametrize('listed', [False, True])
def test_what_a_user_can_act_on_ends_with_a_sentence(error, message, listed):
    pretrained = dict(type='Pretrained', checkpoint=ADDRESS)
    config = make_config([pretrained] if listed else pretrained)

    with pytest.raises(SystemExit, match=message), readable_errors(config):
        raise error


def test_an_interruption_says_where_the_results_are(capsys):
    with pytest.raises(SystemExit) as end, readable_errors(make_config()):
        raise KeyboardInterrupt

    assert end.value.code == 130
    assert 'What was saved is in here.' in capsys.readouterr().err


@pytest.mark.parametrize('error', [ValueError, RuntimeError, KeyError])
def test_errors_of_a_run_keep_their_traceback(error):
    with pytest.raises(error), readable_errors(make_config()):
        raise error('a bug')


def test_bad_input_ends_with_a_sentence_and_bugs_do_not():
    with pytest.raises(SystemExit, match='^has to be odd$'), exit_on_bad_input():
        raise ValueError('has to be odd')
    with pytest.raises(TypeError), exit_on_bad_input():
        raise TypeError('a bug')
