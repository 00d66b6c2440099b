"""Demo: train detectors and segmentors on Shapes from random weights, and show what they learn.

``run_demo`` draws the data set, trains and tests each method by mim as a user would, and leaves
pictures and scores in a folder:

    runs.py        the methods, and what the folder of a run holds
    commands.py    long commands: log, Ctrl-C, errors that name a cure
    progress.py    what is being done, and how long all will still take
    pictures.py    contact sheet and learning curves
    session.py     all parts in their order

Nothing here imports mmdet or mmseg: they run in the processes that mim starts.
"""

from .commands import DemoError
from .session import run_demo

__all__ = ['DemoError', 'run_demo']
