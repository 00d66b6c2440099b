"""Virtual environment that is set up step by step, with a record of the finished steps.

A step counts as done when its record, a hash of all that it depends on, was written after it
ended; so an interrupted set-up is finished by the next run, and a finished one costs the time
of hashing a few files.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from errors import INDEX_TROUBLE, NO_SOLUTION, UserError
from processes import clean_environment, run_logged

# Seconds until an index is asked again: mirrors may lack a page of theirs for a moment.
PAUSE = 20


class Environment:
    """Virtual environment and the record of what was finished in it."""

    def __init__(self, folder: Path, inherit: tuple[int, ...] = ()) -> None:
        self.folder = folder
        self.python = folder / 'bin' / 'python'
        self.record_file = folder / 'setup.json'
        self.log = folder / 'setup.log'
        self.inherit = inherit
        self.record = {}
        if self.record_file.exists():
            self.record = json.loads(self.record_file.read_text())
        elif folder.exists() and any(path.name != 'setup.new' for path in folder.iterdir()):
            raise UserError(
                f'{folder} was not made by make setup: move it away or remove it, and run again.'
            )

    @property
    def packages(self) -> Path:
        (folder,) = self.folder.glob('lib/python*/site-packages')
        return folder

    def save(self, **changes) -> None:
        """Change the record in one stroke, so that a kill leaves the old or the new one."""
        self.record.update(changes)
        new_file = self.record_file.with_suffix('.new')
        new_file.write_text(json.dumps(self.record, indent=2))
        new_file.replace(self.record_file)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Mark that packages are being written; a mark left over means a half-written folder."""
        self.save(writing=True)
        yield
        self.save(writing=False)

    def discard(self) -> None:
        """Remove the folder, out of the way first: half of it must not pass for an environment."""
        doomed = self.folder.with_name(f'{self.folder.name}.old')
        shutil.rmtree(doomed, ignore_errors=True)
        if self.folder.exists():
            self.folder.rename(doomed)
            shutil.rmtree(doomed)
        self.record = {}

    def run(self, *command) -> None:
        run_logged([*map(str, command)], self.log, clean_environment(), inherit=self.inherit)

    def pip_install(self, *arguments) -> None:
        # Python compiles a module when it is first imported; most of them never are.
        command = [self.python, '-I', '-m', 'pip', 'install', '--no-compile', *arguments]
        with self.writing():
            try:
                self.run(*command)
            except UserError as error:
                if not any(trouble in str(error) for trouble in (INDEX_TROUBLE, NO_SOLUTION)):
                    raise
                first_log = self.log.replace(self.log.with_name('setup.first.log'))
                print(f'pip failed, see {first_log}: once more in {PAUSE} s.', flush=True)
                time.sleep(PAUSE)
                self.run(*command)


class Step(NamedTuple):
    """Part of the set-up.

    Args:
        name: Title and key in the record.
        run: Does the step; called with the environment and the options of the command line.
        mark: Hash of all that the step depends on, the steps before it included.
    """

    name: str
    run: Callable[..., None]
    mark: str


def set_up(environment: Environment, steps: list[Step], options) -> None:
    """Do the steps that are not done; start anew where an old one stands in the way."""
    folder = environment.folder.name
    *pinned_steps, _ = steps
    record = environment.record
    if record.get('writing') or any(
        record.get(step.name, step.mark) != step.mark for step in pinned_steps
    ):
        print(f'setup: {folder} is half-written or of other versions, it is made anew.')
        environment.discard()
    start = time.perf_counter()
    for number, step in enumerate(steps, 1):
        if environment.record.get(step.name) != step.mark:
            began = time.perf_counter()
            print(f'[{number}/{len(steps)}] {step.name}', flush=True)
            environment.record.pop(step.name, None)  # true no more from the first change on
            step.run(environment, options)
            environment.save(**{step.name: step.mark})
            print(f'[{number}/{len(steps)}] {step.name}: {time.perf_counter() - began:.0f} s')
    print(f'setup: {folder} is complete ({time.perf_counter() - start:.0f} s).')
