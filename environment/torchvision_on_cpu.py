"""Let a CUDA build of torchvision, the only kind on PyPI, be imported beside a CPU torch.

Its compiled operators do not load there, and Python code that describes two of them for
compilers then fails on their absence; the import of mmseg and mmengine's ``collect_env`` fail
with it. Declared, without a kernel, they satisfy that code; all of torchvision that needs no
compiled operator works. Python imports this at every start in ``.venv``, so it costs nothing
until torchvision is imported.
"""

import sys

OPERATORS = (
    'nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
)
declared = []  # a library that nobody holds is forgotten


def declare_missing() -> None:
    import torch

    if not hasattr(torch.ops.torchvision, 'nms'):
        library = torch.library.Library('torchvision', 'DEF')
        for operator in OPERATORS:
            library.define(operator)
        declared.append(library)


class Hook:
    """Acts between torchvision's try to load its operators and the code that describes them."""

    @staticmethod
    def find_spec(name, path=None, target=None) -> None:
        if name == 'torchvision._meta_registrations':
            declare_missing()


sys.meta_path.insert(0, Hook)
