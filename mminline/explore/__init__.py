"""Explore: a page on this machine on which a click on an image shows where a query looks.

    images.py      images that are picked or uploaded, and the size in which they are shown
    model.py       a detector or segmentor and its attention layers
    view.py        an image seen by a model: prediction, kept inputs of layers, weights of a query
    measures.py    locality and confusion of a layer, of as many queries as there is time for
    drawing.py     pictures of weights, in diverging colours
    files.py       the figure and the numbers, to keep
    session.py     what the page asks for, for all models at once
    handlers.py    answers to events of the page
    page.py        the page: its components, and which handler answers which event
    server.py      the server: for this machine only, nothing reported, nothing left behind

Only the last three import Gradio.
"""

from .model import ExplorableModel
from .session import Explorer, Scene

__all__ = ['ExplorableModel', 'Explorer', 'Scene']
