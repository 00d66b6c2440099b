"""``init_model``: random weights without a network, whole checkpoints, classes of data sets."""

import copy
import functools
import socket
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.utils.dl_utils.parrots_wrapper import SyncBatchNorm

from helpers.crafted import call_exec
from helpers.server import running_server
from helpers.shipped_configs import DETECTORS, SEGMENTORS, load
from helpers.tiny import randomize
from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.apis import init_model, load_weights
from mminline.checkpoints import UnsafeCheckpointError

TEXTS = dict(detector=DETECTOR, segmentor=SEGMENTOR)
ADDRESS = 'https://example.org/weights.pth'


@functools.cache
def read(kind: str) -> Config:
    return Config.fromstring(TEXTS[kind], '.py')


@pytest.fixture(params=sorted(TEXTS))
def config(request) -> Config:
    return copy.deepcopy(read(request.param))


@pytest.fixture
def segmentor() -> Config:
    return copy.deepcopy(read('segmentor'))


@pytest.fixture
def no_network(monkeypatch):
    """Make every connection fail, and say so."""

    def refuse(*args, **kwargs):
        raise ConnectionError('there is no network')

    for name in ('connect', 'connect_ex'):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, 'getaddrinfo', refuse)


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Put a file on the web; return its address."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    with running_server() as server:

        def put(path: Path) -> str:
            server.serve(f'/{path.name}', path.read_bytes())
            return f'{server.root}/{path.name}'

        yield put


def save(config: Config, path: Path, **entries) -> dict[str, torch.Tensor]:
    """Write a checkpoint with other weights than those a model is built with."""
    weights = randomize(init_model(config)).state_dict()
    torch.save(dict(state_dict=weights, **entries), path)
    return weights


def assert_equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_the_model_is_ready_and_knows_its_config(config):
    model = init_model(config, device='cpu')

    assert not any(part.training for part in model.modules())
    assert not any(isinstance(part, SyncBatchNorm) for part in model.modules())
    assert model.cfg is config
    assert len(model.dataset_meta['classes']) == (6 if config.default_scope == 'mmdet' else 7)


def test_a_config_may_be_a_file(tmp_path):
    (tmp_path / 'segmentor.py').write_text(SEGMENTOR)
    model = init_model(str(tmp_path / 'segmentor.py'))
    assert isinstance(model.cfg, Config)
    assert model.cfg.filename == str(tmp_path / 'segmentor.py')


def test_without_a_checkpoint_nothing_is_fetched(config, no_network, tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    pretrained = dict(type='Pretrained', checkpoint=ADDRESS)
    config.model.backbone.init_cfg = pretrained
    config.model.neck.init_cfg = [dict(type='Xavier', layer='Conv2d'), pretrained]
    config.model.init_cfg = pretrained

    model = init_model(config)

    assert model.neck.init_cfg == [dict(type='Xavier', layer='Conv2d')]
    assert config.model.backbone.init_cfg == pretrained  # the caller's config stays
    with pytest.raises(OSError, match='there is no network'):
        init_model(config, pretrained=True)


def test_weights_named_as_pretrained_are_not_fetched_either(segmentor, no_network):
    config = segmentor
    config.model.backbone = dict(
        type='mmseg.ResNetV1c', depth=18, out_indices=(0, 1, 2, 3), norm_cfg=dict(type='SyncBN')
    )
    config.model.neck.in_channels = [64, 128, 256, 512]
    config.model.pretrained = 'open-mmlab://resnet18_v1c'

    init_model(config)

    with pytest.raises(OSError, match='there is no network'):
        init_model(config, pretrained=True)


@pytest.mark.parametrize('stem', [SEGMENTORS[0], DETECTORS[0]])
def test_a_shipped_config_needs_neither_network_nor_data(stem, no_network):
    config = load(stem)
    if 'init_cfg' in config.model.backbone:
        config.model.backbone.init_cfg.checkpoint = ADDRESS
    model = init_model(config)
    assert len(model.dataset_meta['classes']) == len(model.dataset_meta['palette']) > 0


def test_random_weights_are_those_that_training_starts_from(config):
    torch.manual_seed(0)
    model = init_model(config)
    biases = [value for name, value in model.neck.named_parameters() if name.endswith('bias')]
    assert biases
    assert not any(bias.any() for bias in biases)  # nn.Conv2d alone would leave random ones
    torch.manual_seed(0)
    assert_equal(init_model(config, pretrained=True).state_dict(), model.state_dict())


def test_a_checkpoint_fills_the_whole_model(config, tmp_path, no_network):
    weights = save(config, tmp_path / 'model.pth')
    config.model.backbone.init_cfg = dict(type='Pretrained', checkpoint=ADDRESS)
    assert_equal(init_model(config, tmp_path / 'model.pth').state_dict(), weights)


def test_a_web_address_is_read_by_the_safe_reader(segmentor, publish, tmp_path):
    weights = save(segmentor, tmp_path / 'model.pth')
    mark = tmp_path / 'mark'
    save(segmentor, tmp_path / 'crafted.pth', meta=call_exec(mark))

    model = init_model(segmentor, publish(tmp_path / 'model.pth'))

    assert_equal(model.state_dict(), weights)
    with pytest.raises(UnsafeCheckpointError, match=r'crafted\.pth is refused'):
        init_model(segmentor, publish(tmp_path / 'crafted.pth'))
    assert not mark.exists()


def test_an_incomplete_file_is_named_with_what_it_lacks(segmentor, tmp_path):
    weights = save(segmentor, tmp_path / 'model.pth')
    backbone = {name: value for name, value in weights.items() if name.startswith('backbone')}
    torch.save(backbone, tmp_path / 'backbone.pth')
    head = len(weights) - len(backbone)
    with pytest.raises(
        ValueError,
        match=rf'backbone\.pth has to hold the whole model .* {head} of {len(weights)} tensors are '
        r'not there.*: decode_head\.conv_seg\.bias, .*Is it of another config\?$',
    ):
        init_model(segmentor, tmp_path / 'backbone.pth')


def test_parts_of_a_model_can_be_filled_alone(segmentor, tmp_path):
    weights = save(segmentor, tmp_path / 'model.pth')
    weights = {name: value for name, value in weights.items() if not name.startswith('neck')}
    torch.save(weights, tmp_path / 'part.pth')
    model = init_model(segmentor)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    load_weights(model, tmp_path / 'part.pth', parts=['backbone'])

    after = model.state_dict()
    for name, value in after.items():
        assert torch.equal(value, (weights if name.startswith('backbone') else before)[name])
    with pytest.raises(ValueError, match=r'part\.pth has to hold backbone, neck of the model'):
        load_weights(model, tmp_path / 'part.pth', parts=['backbone', 'neck'])


def test_another_shape_is_named(segmentor, tmp_path):
    save(segmentor, tmp_path / 'model.pth')
    segmentor.model.decode_head.num_classes = 3
    with pytest.raises(ValueError, match=r'conv_seg\.weight \(\(3, 8, 1, 1\) is wanted\)'):
        init_model(segmentor, tmp_path / 'model.pth')


@pytest.mark.parametrize('wrap', [
    lambda data: dict(type='ConcatDataset', datasets=[data, data]),
    lambda data: dict(type='RepeatDataset', times=2, dataset=data),
    lambda data: dict(type='RepeatDataset', times=2,
                      dataset=dict(type='ConcatDataset', datasets=[data])),
])  # fmt: skip
def test_classes_of_wrapped_data_sets_are_found(config, wrap):
    dataset = config.test_dataloader.dataset
    config.test_dataloader.dataset = wrap(dataset)
    assert list(init_model(config).dataset_meta['classes']) == list(dataset.metainfo.classes)


def test_classes_of_the_checkpoint_come_first(segmentor, tmp_path):
    save(segmentor, tmp_path / 'model.pth', meta=dict(dataset_meta=dict(CLASSES=list('stuvwxy'))))
    meta = init_model(segmentor, tmp_path / 'model.pth').dataset_meta
    assert meta['classes'] == list('stuvwxy')
    assert meta['palette'] == [[0, 0, 0]] * 7


def test_a_config_without_test_data_has_no_classes(segmentor):
    segmentor.test_dataloader = None
    assert init_model(segmentor).dataset_meta == {}


@pytest.mark.parametrize(
    ('config', 'checkpoint', 'error', 'message'),
    [
        ('nowhere.py', None, FileNotFoundError, r'There is no config nowhere\.py'),
        (Config(dict(data=1)), None, ValueError, 'the config has to have a model'),
        (None, 'nowhere.pth', FileNotFoundError, 'there is none at nowhere.pth'),
    ],
)
def test_what_is_not_there_is_named(segmentor, config, checkpoint, error, message):
    with pytest.raises(error, match=message):
        init_model(config or segmentor, checkpoint)
