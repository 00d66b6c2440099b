"""Set-up in steps: finished ones are not repeated, interrupted ones never taken for finished."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import errors
import processes
import virtual_environment
from virtual_environment import Environment, Step
from virtual_environment import set_up as run_steps

ENVIRONMENT = Path(__file__).parents[2] / 'environment'


@pytest.fixture
def set_up(tmp_path):
    """A function that sets a .venv up with steps that only write their names down."""

    def run(**marks) -> list[str]:
        done = []

        def step(name):
            def action(environment, options):
                done.append(name)
                environment.folder.mkdir(exist_ok=True)
                with environment.writing():
                    if options == f'fail in {name}':
                        raise RuntimeError(options)
                if options == f'fail after {name}':
                    raise RuntimeError(options)

            return action

        fail = marks.pop('fail', None)
        marks = {'venv': '1', 'torch': '1', 'project': '1', **marks}
        steps = [Step(name, step(name), mark) for name, mark in marks.items()]
        try:
            run_steps(Environment(tmp_path / '.venv'), steps, fail)
        except RuntimeError:
            done.append('failed')
        return done

    return run


def test_a_finished_set_up_is_not_done_again(set_up):
    assert set_up() == ['venv', 'torch', 'project']
    assert set_up() == []


def test_changed_sources_rebuild_the_project_alone(set_up):
    set_up()

    assert set_up(project='2') == ['project']


def test_changed_pins_make_the_environment_anew(set_up, tmp_path):
    set_up()
    (tmp_path / '.venv' / 'stale').touch()

    assert set_up(torch='2') == ['venv', 'torch', 'project']
    assert not (tmp_path / '.venv' / 'stale').exists()


def test_a_step_that_broke_while_writing_makes_the_environment_anew(set_up, tmp_path):
    assert set_up(fail='fail in torch') == ['venv', 'torch', 'failed']
    (tmp_path / '.venv' / 'half-written').touch()

    assert set_up() == ['venv', 'torch', 'project']
    assert not (tmp_path / '.venv' / 'half-written').exists()


def test_a_step_that_broke_after_writing_is_repeated_even_for_the_old_sources(set_up):
    set_up()

    assert set_up(project='2', fail='fail after project') == ['project', 'failed']
    assert set_up(project='1') == ['project']


@pytest.mark.parametrize(
    ('trouble', 'calls', 'message'),
    [
        ('ResolutionImpossible', 2, None),
        ('ReadTimeout, for ever', 2, 'check the network'),
        ('ResolutionImpossible, for ever', 2, 'fit together(?s:.*)ResolutionImpossible, for ever'),
        ('No space left on device', 1, 'free some space'),
    ],
)
def test_an_index_that_fails_is_asked_once_more(tmp_path, monkeypatch, trouble, calls, message):
    monkeypatch.setattr(virtual_environment, 'PAUSE', 0)
    environment = Environment(tmp_path / '.venv')
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text(
        f'#!/bin/sh\necho x >> {tmp_path}/calls\n'
        f'if [ "$(wc -l < {tmp_path}/calls)" = 1 ] || echo "{trouble}" | grep -q ever; then\n'
        f'    echo "{trouble}"; wc -l < {tmp_path}/calls; exit 1\nfi\n'
    )
    environment.python.chmod(0o755)

    if message is None:
        environment.pip_install('x')
    else:
        with pytest.raises(errors.UserError, match=message):
            environment.pip_install('x')

    assert len((tmp_path / 'calls').read_text().splitlines()) == calls
    logs = sorted(path.name for path in environment.folder.glob('*.log'))
    assert logs == ['setup.first.log', 'setup.log'][2 - calls :]
    assert (environment.folder / logs[0]).read_text() == f'{trouble}\n1\n'


def test_an_environment_of_the_user_is_never_touched(tmp_path):
    (tmp_path / '.venv' / 'bin').mkdir(parents=True)

    with pytest.raises(errors.UserError, match='not made by make setup'):
        Environment(tmp_path / '.venv')


def test_a_killed_set_up_is_finished_by_the_next_run(set_up, tmp_path):
    code = (
        f'import os, pathlib, signal, sys; sys.path.insert(0, {str(ENVIRONMENT)!r})\n'
        'from virtual_environment import Environment\n'
        f'environment = Environment(pathlib.Path({str(tmp_path / ".venv")!r}))\n'
        'environment.folder.mkdir()\n'
        'with environment.writing(): pass\n'
        'environment.save(venv="1")\n'
        'with environment.writing(): os.kill(os.getpid(), signal.SIGKILL)'
    )
    assert subprocess.run([sys.executable, '-c', code]).returncode == -signal.SIGKILL
    assert json.loads((tmp_path / '.venv' / 'setup.json').read_text())['writing']

    assert set_up() == ['venv', 'torch', 'project']
    assert set_up() == []


def test_a_removal_that_was_killed_is_completed(set_up, tmp_path):
    set_up()
    (tmp_path / '.venv.old' / 'lib').mkdir(parents=True)

    assert set_up(venv='2') == ['venv', 'torch', 'project']
    assert not (tmp_path / '.venv.old').exists()


def test_a_program_that_outlives_the_set_up_still_holds_its_lock(tmp_path):
    with processes.lock(tmp_path / 'lock', '') as descriptor:
        orphan = subprocess.Popen(['sleep', '60'], pass_fds=(descriptor,))
    try:
        code = (
            f'import sys; sys.path.insert(0, {str(ENVIRONMENT)!r})\n'
            'import pathlib, processes\n'
            f'with processes.lock(pathlib.Path({str(tmp_path / "lock")!r}), "waiting"): pass'
        )
        waiter = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
        assert waiter.stdout.readline() == 'waiting\n'
        assert waiter.poll() is None
    finally:
        orphan.kill()
        orphan.wait()
    assert waiter.wait(timeout=60) == 0


@pytest.mark.parametrize('ending', [signal.SIGINT, signal.SIGTERM])
def test_a_set_up_that_is_ended_takes_its_programs_along(tmp_path, ending):
    log = tmp_path / 'log'
    code = (
        f'import os, pathlib, sys; sys.path.insert(0, {str(ENVIRONMENT)!r})\n'
        'import errors, processes\n'
        'command = ["sh", "-c", "echo $$; exec sleep 60"]\n'
        'with errors.user_errors("setup"):\n'
        f'    processes.run_logged(command, pathlib.Path({str(log)!r}), dict(os.environ), print)'
    )
    program = subprocess.Popen(
        [sys.executable, '-u', '-c', code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    started = int(program.stdout.readline())
    program.send_signal(ending)

    assert 'setup: interrupted' in program.communicate(timeout=60)[1]
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)
