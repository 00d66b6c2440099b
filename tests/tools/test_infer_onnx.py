"""``tools/infer_onnx.py``: the files of ``tools/infer.py``, without torch and OpenMMLab."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from mmengine.config import Config

from helpers import tiny, tiny_detectors
from helpers.shipped_configs import ROOT, load
from helpers.tiny_exports import FPN_HEAD, PVT, segmentor
from mminline.apis import Predictor, export_model, init_model
from mminline.deployment import OnnxModel

pytestmark = pytest.mark.slow
PACKAGES = ('numpy', 'numpy.libs', 'cv2', 'onnxruntime', 'flatbuffers', 'google', 'packaging')


@pytest.fixture(scope='module')
def models(shapes, tmp_path_factory) -> dict[str, torch.nn.Module]:
    """A detector and a segmentor, exported to a folder."""
    folder = tmp_path_factory.mktemp('files')
    shapes_config = load('semantic-fpn_inline-pvt-nano_shapes')
    config = Config(
        dict(
            default_scope='mmseg',
            model=segmentor('InLinePVT', PVT, FPN_HEAD, neck=True),
            test_dataloader=shapes_config.test_dataloader,
        )
    )
    config.model.decode_head.num_classes = 7
    models = dict(
        detector=tiny_detectors.build(tiny_detectors.mask_rcnn(), shapes),
        segmentor=tiny.randomize(init_model(config, device='cpu')),
    )
    for kind, model in models.items():
        export_model(model, folder / f'{kind}.onnx', shape=(128, 128), dynamic=False)
        model.file = folder / f'{kind}.onnx'
    return models


@pytest.fixture(scope='module')
def bare(tmp_path_factory) -> dict[str, str]:
    """Variables of an environment with numpy, OpenCV and onnxruntime alone."""
    folder = tmp_path_factory.mktemp('bare')
    site = Path(onnxruntime.__file__).parents[1]
    for path in (site / name for name in PACKAGES):
        if path.exists():
            (folder / path.name).symlink_to(path)
    for path in site.glob('opencv*.libs'):
        (folder / path.name).symlink_to(path)
    return dict(os.environ, PYTHONPATH=str(folder), OMP_NUM_THREADS='1')


def infer(bare: dict[str, str], *arguments: object) -> subprocess.CompletedProcess:
    """Run the tool without the packages of this environment."""
    command = [sys.executable, '-S', ROOT / 'tools' / 'infer_onnx.py', *arguments]
    return subprocess.run(list(map(str, command)), env=bare, capture_output=True, text=True)


def test_the_environment_has_neither_torch_nor_openmmlab(bare):
    code = 'import importlib.util as u; print([n for n in ("torch", "mmengine", "mmcv", "mmdet", ' \
        '"mmseg", "pycocotools") if u.find_spec(n)])'  # fmt: skip
    result = subprocess.run(
        [sys.executable, '-S', '-c', code], env=bare, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == '[]'


@pytest.mark.parametrize('kind', ['detector', 'segmentor'])
def test_results_are_those_of_pytorch(models, bare, shapes, tmp_path, kind):
    photos = tmp_path / 'photos'
    photos.mkdir()
    scene = cv2.imread(str(shapes / 'images' / 'val' / '000000.png'))
    cv2.imwrite(str(photos / 'a.png'), cv2.resize(scene, (200, 200)))  # resized to 128 x 128
    cv2.imwrite(str(photos / 'b.png'), scene[:32])
    (photos / 'c.jpg').touch()

    result = infer(bare, models[kind].file, photos, '--out', tmp_path / 'out')

    assert result.returncode == 1, result.stderr
    assert 'Skipped b.png: the file takes images of 128 x 128, got 64 x 128' in result.stderr
    assert 'Skipped c.jpg: it is empty, cut off or no image' in result.stderr
    assert '1 of 3 done, 2 skipped' in result.stdout
    predictor = Predictor(models[kind])
    image = cv2.imread(str(photos / 'a.png'))
    sample = predictor.predict(image)
    predictor.save(sample, tmp_path / 'wanted')
    if kind == 'detector':
        found = json.loads((tmp_path / 'out/predictions/a.png.json').read_text())
        wanted = json.loads((tmp_path / 'wanted.json').read_text())
        assert len(wanted['instances']) > 0
        compare_instances(found, wanted)
    else:
        found, wanted = (
            cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
            for path in (tmp_path / 'out/predictions/a.png.png', tmp_path / 'wanted.png')
        )
        assert (found != wanted).mean() < 1e-3
    picture = cv2.imread(str(tmp_path / 'out/pictures/a.png'))
    assert np.abs(picture.astype(int) - predictor.draw(image, sample)).mean() < 0.5


def compare_instances(found: dict, wanted: dict) -> None:
    """Compare two files of objects; masks by the text of their run lengths, of most of them."""
    assert found.keys() == wanted.keys()
    assert (found['height'], found['width']) == (wanted['height'], wanted['width'])
    assert len(found['instances']) == len(wanted['instances'])
    equal = []
    for one, other in zip(found['instances'], wanted['instances'], strict=True):
        assert one.keys() == other.keys()
        assert (one['label'], one['category']) == (other['label'], other['category'])
        np.testing.assert_allclose(one['bbox'], other['bbox'], atol=1e-3)
        assert one['score'] == pytest.approx(other['score'], abs=1e-5)
        equal.append(one['segmentation'] == other['segmentation'])
    assert np.mean(equal) > 0.5


def test_a_segmentor_of_an_older_version_has_to_be_exported_again(models, tmp_path):
    file = onnx.load(models['segmentor'].file)
    kept = [entry for entry in file.metadata_props if entry.key != 'mminline.scores']
    assert len(kept) == len(file.metadata_props) - 1
    del file.metadata_props[:]
    file.metadata_props.extend(kept)
    onnx.save(file, tmp_path / 'older.onnx')

    with pytest.raises(ValueError, match='older.onnx was exported by an older mminline'):
        OnnxModel(tmp_path / 'older.onnx')


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['nowhere.onnx', '.'], 'There is no image in .'),
        (['nowhere.onnx', 'a.png'], r'There is no file nowhere.onnx'),
        (['{segmentor}', 'a.png', '--score-thr', '0.5'], '--score-thr is for detectors'),
        (['{segmentor}', 'nowhere.png'], 'There is no file or folder nowhere.png'),
    ],
)
def test_what_cannot_work_is_named(models, run, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    if 'a.png' in arguments:
        cv2.imwrite('a.png', np.zeros((64, 64, 3), np.uint8))
    arguments = [text.format(segmentor=models['segmentor'].file) for text in arguments]

    with pytest.raises(SystemExit, match=f'infer_onnx: .*{message}'):
        run('infer_onnx.py', *arguments)
