"""Process that measures one checkout of mminline at the request of ``compare_commits.py``."""

import argparse
import dataclasses
import importlib.util
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from benchmark import Case, Settings
from machine import describe_machine, git_revision
from memory import peak_memory
from runners import Inference, LayerInference
from timing import time_call

BENCHMARKS = ('layer', 'backbone', 'train')
# Shorter calls are repeated within a round, which reduces noise.
ROUND_SECONDS = 0.2


class Checkout:
    """The process as seen from outside.

    Args:
        folder: Folder from which the process imports mminline.
        settings: Settings of the measurement.
        quick: Whether images are tiny.
    """

    def __init__(self, folder: Path, settings: Settings, quick: bool) -> None:
        self.folder = folder.resolve()
        self.connection, other_end = Pipe()
        paths = [str(self.folder), os.environ.get('PYTHONPATH')]
        subprocess.Popen(
            [sys.executable, __file__, str(other_end.fileno())],
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths))),
            pass_fds=[other_end.fileno()],
        )
        other_end.close()
        self.description = self.ask(settings, quick)
        if self.description['source'] != str(self.folder):
            sys.exit(f'{self.folder} has no mminline, got that of {self.description["source"]}')

    def ask(self, *request) -> Any:
        """Send a request and wait for the answer."""
        try:
            self.connection.send(request)
            return self.connection.recv()
        except (EOFError, ConnectionError):
            sys.exit(f'{self.folder}: failed, see above')


def serve(connection: Connection) -> None:
    """Answer requests until the connection is closed."""
    settings, quick = connection.recv()
    torch.set_num_threads(settings.threads)
    cases = our_cases(quick)
    source = Path(importlib.util.find_spec('mminline').origin).parents[1]
    description = dict(source=str(source), revision=git_revision(source))
    shapes = {case.title: case.shape for case in cases}
    connection.send(dict(description, machine=describe_machine('cpu'), cases=shapes))
    # Affects only processes that start later, those that measure memory. By default glibc adapts
    # the size from which on it returns memory at once, and the peak varies by 15 % between runs.
    os.environ['MALLOC_MMAP_THRESHOLD_'] = '131072'
    inputs = [case.inputs(case.shape, 'cpu') for case in cases]
    runners = [case.candidates[0].start('cpu') for case in cases]
    while True:
        try:
            request, index = connection.recv()
        except EOFError:
            return
        if request == 'results':
            results = runners[index].results(*inputs[index])
            # Tensors would be sent as handles of shared memory.
            answer = {name: value.numpy() for name, value in results.items()}
        elif request == 'memory':
            answer = peak_memory(cases[index].candidates[0], cases[index], settings)
        else:
            answer = time_round(runners[index], inputs[index])
        connection.send(answer)


def time_round(function: Callable, inputs: tuple) -> float:
    """Seconds of a call, the median of as many as a round has."""
    times = []
    while sum(times) < ROUND_SECONDS:
        times.append(time_call(function, inputs))
    return statistics.median(times)


def our_cases(quick: bool) -> list[Case]:
    """Cases of the benchmarks, with our candidate as the only one."""
    # Imported here: only this process has an mminline, that of the checkout.
    import cases
    import options

    found = []
    for name in BENCHMARKS:
        chosen = options.choose(argparse.Namespace(quick=quick), name)
        del chosen['repeats']
        for case in cases.BENCHMARKS[name].make_cases(**chosen):
            ours = case.candidates[0]
            if ours.runner is LayerInference and not importlib.util.find_spec('mminline.execution'):
                ours = dataclasses.replace(ours, runner=Inference)
            found.append(dataclasses.replace(case, candidates=[ours]))
    return found


if __name__ == '__main__':
    serve(Connection(int(sys.argv[1])))
