"""State of an installation: versions, known troubles with their cures, forms of the layers."""

from ..stack import stacks
from .forms import FormResult, check_forms
from .troubles import Trouble, find_troubles
from .versions import collect_versions

__all__ = [
    'FormResult',
    'Trouble',
    'check_forms',
    'collect_versions',
    'find_troubles',
    'stacks',
]
