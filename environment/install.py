"""Make or complete the environment of a stack: the program behind ``make setup``.

Standard library only, as everything in this folder: nothing is installed yet.
"""

import argparse
import sys

SUPPORTED = ((3, 11), (3, 12))
# Before the other modules, which an older Python could not even read.
if sys.version_info[:2] not in SUPPORTED:
    sys.exit(
        'setup: Python has to be 3.11 (tried) or 3.12 (not tried, but all packages exist for it), '
        f'got Python {".".join(map(str, sys.version_info[:2]))}: name another one, as in '
        'make setup PYTHON=python3.11.'
    )

from errors import user_errors  # noqa: E402
from processes import lock  # noqa: E402
from stacks import DEFAULT, STACKS  # noqa: E402
from steps import ROOT, plan  # noqa: E402
from virtual_environment import Environment, set_up  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        '--stack', choices=STACKS, default=DEFAULT, help='what to install (default: %(default)s)'
    )
    parser.add_argument('--torch-index', help='index of other builds of torch, such as CPU ones')
    parser.add_argument('--jobs', type=int, help='compilers at a time for mmcv')
    parser.add_argument('--editable', action='store_true', help='link mminline, do not copy it')
    options = parser.parse_args()
    folder = ROOT / STACKS[options.stack].folder
    message = 'Another set-up works in this folder: waiting for it.'
    with lock(folder.with_name(f'{folder.name}.lock'), message) as descriptor:
        # pip inherits the lock: killed alone, this program leaves a pip that still writes.
        environment = Environment(folder, inherit=(descriptor,))
        set_up(environment, plan(options.stack, options.editable), options)


if __name__ == '__main__':
    with user_errors('setup'):
        main()
