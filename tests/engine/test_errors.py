"""Errors that end a program with a sentence, and those that keep their traceback."""

import os
import signal

import pytest

from mminline.apis import IncompleteCheckpointError
from mminline.checkpoints import UnsafeCheckpointError
from mminline.engine.errors import exit_on_bad_input, exit_on_sigterm, readable_errors


@pytest.mark.parametrize(
    ('error', 'message'),
    [
        (ConnectionError('no checkpoint from there'), 'from there. To train from random weights'),
        (FileNotFoundError('there is none at x.pth'), '^there is none at x.pth$'),
        (IncompleteCheckpointError('x.pth has to hold'), '^x.pth has to hold$'),
        (UnsafeCheckpointError('x.pth', 'it calls'), '^x.pth is refused, .*: it calls'),
    ],
)
def test_what_a_user_can_act_on_ends_with_a_sentence(error, message):
    with pytest.raises(SystemExit, match=message), readable_errors('here'):
        raise error


def test_an_interruption_says_where_the_results_are(capsys):
    with pytest.raises(SystemExit) as end, readable_errors('here'):
        raise KeyboardInterrupt

    assert end.value.code == 130
    assert 'What was saved is in here.' in capsys.readouterr().err


@pytest.mark.parametrize('error', [ValueError, RuntimeError, KeyError])
def test_errors_of_a_run_keep_their_traceback(error):
    with pytest.raises(error), readable_errors('here'):
        raise error('a bug')


def test_bad_input_ends_with_a_sentence_and_bugs_do_not():
    with pytest.raises(SystemExit, match='^has to be odd$'), exit_on_bad_input():
        raise ValueError('has to be odd')
    with pytest.raises(TypeError), exit_on_bad_input():
        raise TypeError('a bug')


def test_sigterm_ends_the_program_through_its_finally():
    before, cleaned = signal.getsignal(signal.SIGTERM), []

    with pytest.raises(SystemExit, match='143'), exit_on_sigterm():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            cleaned.append(True)

    assert cleaned
    assert signal.getsignal(signal.SIGTERM) is before
