"""Names that resolve from any scope, and a package that stands without mmdet and mmseg."""

import subprocess
import sys
import textwrap

import mmengine
import pytest

from mminline.engine import InLineLayerDecayConstructor
from mminline.models import InLineDeiT, InLinePVT, InLineSwin
from mminline.registry import MODELS, OPTIM_WRAPPER_CONSTRUCTORS

pytestmark = pytest.mark.slow


def run(code):
    """Run code in a Python of its own, where nothing is imported yet."""
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=600,  # a machine under load
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_classes_are_in_the_own_and_in_the_root_registry():
    for backbone in (InLinePVT, InLineSwin, InLineDeiT):
        assert MODELS.get(backbone.__name__) is backbone
        assert mmengine.MODELS.get(backbone.__name__) is backbone
        assert mmengine.MODELS.get(f'mminline.{backbone.__name__}') is backbone
    name = InLineLayerDecayConstructor.__name__
    assert OPTIM_WRAPPER_CONSTRUCTORS.get(name) is InLineLayerDecayConstructor
    root = mmengine.registry.OPTIM_WRAPPER_CONSTRUCTORS
    assert root.get(name) is root.get(f'mminline.{name}') is InLineLayerDecayConstructor


@pytest.mark.parametrize('library', ['mmdet', 'mmseg'])
def test_names_resolve_from_the_scope_of_a_library(library):
    # With the prefix nothing has to be imported first; the bare name works from then on.
    built = run(f"""
        import sys
        from mmengine.registry import init_default_scope
        from {library}.registry import MODELS

        init_default_scope({library!r})
        assert 'mminline' not in sys.modules
        sizes = dict(embed_dims=(8,), depths=(1,), num_heads=(2,), mlp_ratios=(2,))
        for name in ('mminline.InLinePVT', 'InLinePVT'):
            print(type(MODELS.build(dict(type=name, arch=sizes, out_indices=(0,)))).__name__)
        for name in ('mminline.InLineSwin', 'InLineSwin'):
            swin = dict(type=name, arch=dict(sizes, inline_depths=(1,)), out_indices=(0,))
            print(type(MODELS.build(swin)).__name__)
    """)
    assert built[-4:] == ['InLinePVT', 'InLinePVT', 'InLineSwin', 'InLineSwin']


def test_package_never_asks_for_mmdet_mmseg_or_timm():
    asked = run("""
        import sys

        class Refusal:
            def find_spec(self, name, path=None, target=None):
                if name in ('mmdet', 'mmseg', 'timm'):
                    print(name)
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, Refusal())
        import mminline, mminline.checkpoints, mminline.layers, mminline.models
        import mminline.apis, mminline.datasets, mminline.demo.pictures, mminline.engine.runs
        print('imported')
    """)
    assert asked == ['imported']
