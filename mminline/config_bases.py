"""Names of bases in configs: ``mminline::`` on every stack, ``mmseg::`` on the maintained forks.

mmengine finds the bases of a fixed list of packages, by the names of their distributions. Importing
this module adds what the list lacks.
"""

import importlib.metadata
from pathlib import Path

from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE

PREFIX = 'mminline::'
_find_others = Config._get_cfg_path


def configs_folder() -> Path:
    """Folder of the shipped configs: in the installed package, or beside a linked one."""
    package = Path(__file__).resolve().parent
    installed = package / '.mim' / 'configs'
    return installed if installed.is_dir() else package.parent / 'configs'


def find_base(base: str, filename: str) -> tuple[str, str | None]:
    """Find the file of a base, in place of mmengine's own function.

    Args:
        base: As the config names it.
        filename: The config.

    Returns:
        The file, and the scope that mmengine gives its types. Our configs name scopes themselves.
    """
    if base.startswith('mmseg::') and not _is_distribution(MODULE2PACKAGE['mmseg']):
        # Of a fork. The name of the module serves as well: mmengine asks for the package behind it.
        MODULE2PACKAGE['mmseg'] = 'mmseg'
    if not base.startswith(PREFIX):
        return _find_others(base, filename)
    path = configs_folder() / base.removeprefix(PREFIX)
    if not path.is_file():
        raise FileNotFoundError(
            f'{filename} has the base {base!r}, and there is no such config in {configs_folder()}'
        )
    return str(path), None


def _is_distribution(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


Config._get_cfg_path = staticmethod(find_base)
