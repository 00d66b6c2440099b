"""Known troubles of an installation, each with its cure."""

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import NamedTuple

from ..apis.precision import BFLOAT16_FLAGS, ISA_VARIABLE, ISA_WITHOUT_AMX, crashes, read_cpu_flags
from ..stack import CLASH_CURE, describe_clash, find_version


class Trouble(NamedTuple):
    """Something that does not work, or works slowly.

    Attributes:
        text: What is wrong, a sentence.
        cure: What to do about it.
        is_serious: Whether something fails; others only cost time.
    """

    text: str
    cure: str
    is_serious: bool = True


def find_troubles() -> list[Trouble]:
    """Look for all known troubles."""
    return [trouble for find in CHECKS if (trouble := find()) is not None]


def _two_stacks() -> Trouble | None:
    clash = describe_clash()
    return Trouble(clash, CLASH_CURE) if clash else None


def _no_pkg_resources() -> Trouble | None:
    if importlib.util.find_spec('pkg_resources') is not None or not find_version('mmengine'):
        return None
    return Trouble(
        f'setuptools {find_version("setuptools")} has no pkg_resources, which mmengine, mmcv and '
        'mim import.',
        'pip install "setuptools>=77,<82"',
    )


def _no_compiled_ops() -> Trouble | None:
    if importlib.util.find_spec('mmcv') is None or _imports('mmcv._ext'):
        return None
    fork = ' --stack onedl' if find_version('onedl-mmcv') else ''
    return Trouble(
        'The compiled operators of mmcv are missing or do not fit this torch. Detectors need them.',
        f'Build mmcv for this torch: python environment/build_mmcv.py{fork} --out FOLDER, then '
        'pip install FOLDER/*.whl.',
    )


def _torchvision_does_not_import() -> Trouble | None:
    if find_version('torchvision') is None or _imports('torchvision'):
        return None
    return Trouble(
        'torchvision is installed and does not import: it is built for another torch.',
        'Install torchvision for this torch, or uninstall it: mmdet and mmseg do without. With a '
        'CPU build of torch, environment/torchvision_on_cpu.py makes the CUDA build import.',
    )


def _mmseg_lacks_modules() -> Trouble | None:
    missing = [name for name in ('ftfy', 'regex') if importlib.util.find_spec(name) is None]
    if importlib.util.find_spec('mmseg') is None or not missing:
        return None
    return Trouble(
        f'mmseg imports {" and ".join(missing)} and does not declare it.',
        f'pip install {" ".join(missing)}',
    )


def _amx_crashes() -> Trouble | None:
    flags = read_cpu_flags()
    if not {'amx_bf16', 'hypervisor'} <= flags or ISA_VARIABLE in os.environ or not crashes():
        return None
    return Trouble(
        'This virtual machine offers AMX and does not let it run: a product in bfloat16 ends '
        'Python with an illegal instruction.',
        f'export {ISA_VARIABLE}={ISA_WITHOUT_AMX} before Python starts.',
    )


def _slow_bfloat16() -> Trouble | None:
    flags = read_cpu_flags()
    if not flags or BFLOAT16_FLAGS & flags:
        return None
    return Trouble(
        'This CPU has no instructions for bfloat16: it is emulated and slower than float32.',
        'Use float32 on this CPU.',
        is_serious=False,
    )


def _imports(module: str) -> bool:
    """Whether a module imports; one that is built for another torch may raise anything."""
    try:
        importlib.import_module(module)
    except Exception:
        return False
    return True


CHECKS: tuple[Callable[[], Trouble | None], ...] = (
    _two_stacks,
    _no_pkg_resources,
    _no_compiled_ops,
    _torchvision_does_not_import,
    _mmseg_lacks_modules,
    _amx_crashes,
    _slow_bfloat16,
)
