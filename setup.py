"""Packaging of mminline; settings of tools are in pyproject.toml."""

import re
import shutil
from pathlib import Path
from shutil import ignore_patterns

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent

# mmengine reads `mmdet::` bases through pkg_resources, gone in setuptools 82.
SETUPTOOLS = 'setuptools>=77,<82'
# What mminline imports beside the stack, and what the stack imports and does not declare.
BESIDE = [
    'ftfy',  # mmseg imports this and the next
    'regex',
    'pycocotools',  # writes the masks of the data set that mminline draws
    'matplotlib',  # draws the figures of mminline.analysis
    SETUPTOOLS,
]
# Neither stack is among the base dependencies: they hold the same modules under the names of other
# distributions, and pip would install one over the other.
OPENMMLAB = [
    'mmengine>=0.10.7,<0.11',  # 0.11 has release candidates only, see docs/stacks.md
    'mmcv>=2.1.0,<2.2',  # mmdet and mmseg refuse 2.2
    'mmdet>=3.3.0,<3.4',
    'mmsegmentation>=1.2.2,<1.3',
    *BESIDE,
]
ONEDL = [
    'onedl-mmengine>=0.10.12,<0.11',
    'onedl-mmcv>=2.3.6,<2.4',
    'onedl-mmdetection>=3.5.1,<3.6',
    'onedl-mmsegmentation>=1.4.2,<1.5',
    *BESIDE,
]


class BuildWithMim(build_py):
    """Adds ``mminline/.mim``, in which mim looks for configs, tools and the model index."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        mim = Path(self.build_lib, 'mminline', '.mim')
        shutil.rmtree(mim, ignore_errors=True)
        for folder in ('configs', 'tools'):
            shutil.copytree(ROOT / folder, mim / folder, ignore=ignore_patterns('__pycache__'))
        shutil.copy2(ROOT / 'model-index.yml', mim)


def read_version() -> str:
    text = (ROOT / 'mminline' / 'version.py').read_text()
    return re.search(r"__version__ = '(.+)'", text).group(1)


setup(
    name='mminline',
    version=read_version(),
    description='InLine attention backbones for OpenMMLab detection and segmentation',
    long_description=(ROOT / 'README.md').read_text(),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    license_files=['LICENSE'],
    project_urls={'Paper': 'https://arxiv.org/abs/2412.06590'},
    keywords='linear attention, object detection, segmentation, mmdetection, mmsegmentation',
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Developers',
        'Intended Audience :: Science/Research',
        'Operating System :: OS Independent',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3.11',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Topic :: Scientific/Engineering :: Image Recognition',
        'Typing :: Typed',
    ],
    packages=find_packages(include=['mminline', 'mminline.*']),
    package_data={'mminline': ['py.typed']},
    python_requires='>=3.11',  # as environment/install.py; later ones are not tested
    install_requires=[
        'torch>=2.6',  # reads checkpoints safely, and skips what is not weights in them
        'numpy>=1.23',  # the oldest with wheels for Python 3.11
    ],
    extras_require={
        'openmmlab': OPENMMLAB,
        'onedl': ONEDL,
        # Later openxlab insists on setuptools 60.
        'mim': [*OPENMMLAB, 'openmim>=0.3.9', 'openxlab<0.0.12'],
        # Before 1.0.26, timm runs the code of a file that checkpoint_path names.
        'timm': ['timm>=1.0.26', 'torchvision'],
        'tensorboard': ['tensorboard'],
        'export': ['onnx', 'onnxscript', 'onnxruntime>=1.17', 'opencv-python'],  # 1.17: opset 20
        'large': ['tifffile'],  # TIFF in bands
        'explore': ['gradio>=6.31', 'starlette', 'uvicorn', 'matplotlib'],  # page of explore.py
        'docs': ['mkdocs-material', 'mkdocstrings[python]'],
        'dev': ['ninja', 'pytest', 'pytest-xdist', 'ruff', SETUPTOOLS, 'wheel'],
    },
    cmdclass={'build_py': BuildWithMim},
    zip_safe=False,
)
