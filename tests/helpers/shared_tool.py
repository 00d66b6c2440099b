"""``tools/infer.py`` in processes that torchrun starts."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from helpers.tiny_configs import TOOLS

OPTIONS = ('--full-size', '--large', 'on')


def write_model(text: str) -> tuple[str, str]:
    """Write a config and untrained weights to the current folder; return their names."""
    Path('small.py').write_text(text)
    config = Config.fromfile('small.py', import_custom_modules=False)
    config.model.backbone.init_cfg = None
    init_default_scope(config.default_scope)
    torch.save({'state_dict': MODELS.build(config.model).state_dict()}, 'small.pth')
    return 'small.py', 'small.pth'


def share(*arguments: object) -> subprocess.CompletedProcess:
    """Run the tool in two processes, which find modules in the current folder."""
    command = [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node=2', '--standalone']
    command += [TOOLS / 'infer.py', *map(str, arguments), *OPTIONS, '--launcher', 'pytorch']
    paths = [str(Path.cwd()), os.environ.get('PYTHONPATH', '')]
    environment = dict(os.environ, OMP_NUM_THREADS='1', PYTHONPATH=os.pathsep.join(paths))
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
