"""Published weights and saved ones in timm's models, and timm's in the backbones."""

import pytest
import timm
import torch
from timm.models import save_for_hf
from torch import nn

import mminline.timm_models  # noqa: F401
from helpers.golden import golden_image, golden_outputs, official_state_dict
from helpers.tiny import DEIT_SIZES, SIZES, SWIN_SIZES, image, randomize
from mminline.checkpoints.download import PUBLISHED
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

pytestmark = pytest.mark.slow

FILE = 'inline-pvt-tiny.pth'


class Settings:
    """Stand-in for an object that a training script saves; timm's reader refuses it."""


@pytest.fixture(scope='module')
def mirror(tmp_path_factory):
    """A folder with the weights of the golden outputs, as the authors publish theirs."""
    folder = tmp_path_factory.mktemp('mirror')
    checkpoint = {'model': official_state_dict('inline-pvt-t'), 'config': Settings()}
    torch.save(checkpoint, folder / FILE)
    return folder


@pytest.fixture
def cache(mirror, tmp_path, monkeypatch):
    """An empty cache, with the folder in the place of the published links."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'home'))
    monkeypatch.setenv('MMINLINE_WEIGHTS_URL', mirror.as_uri())
    return tmp_path / 'home' / 'hub' / 'checkpoints'


@torch.inference_mode()
def scores(model: nn.Module) -> torch.Tensor:
    return model.double().eval()(golden_image(224, 224).double())[0, :64]


def golden_scores() -> torch.Tensor:
    return torch.from_numpy(golden_outputs('inline-pvt-t')['224x224_logits']).flatten()


@pytest.mark.parametrize('name', PUBLISHED)
def test_the_settings_of_each_model_name_its_published_link(name):
    cfg = timm.get_pretrained_cfg(f'inline_{name.replace("-", "_")}.in1k')

    assert cfg.url == PUBLISHED[name].url
    side = {'deit-small': 288, 'deit-base': 448}.get(name, 224)
    assert (cfg.num_classes, cfg.input_size) == (1000, (3, side, side))


def test_pretrained_downloads_the_published_file_once_and_loads_it_unchanged(cache, monkeypatch):
    torch.testing.assert_close(
        scores(timm.create_model('inline_pvt_tiny', pretrained=True)), golden_scores()
    )
    assert [path.name for path in cache.glob('*.pth')] == [FILE]

    monkeypatch.setenv('MMINLINE_WEIGHTS_URL', 'file:///nowhere')
    model = timm.create_model('inline_pvt_tiny.in1k', pretrained=True)
    torch.testing.assert_close(scores(model), golden_scores())


@pytest.mark.parametrize('where', ['url', 'file'])
def test_names_of_the_inline_scheme_are_sources_too(cache, where):
    overlay = {where: 'inline://pvt-tiny'}
    model = timm.create_model('inline_pvt_tiny', pretrained=True, pretrained_cfg_overlay=overlay)

    torch.testing.assert_close(scores(model), golden_scores())


def test_a_published_file_on_disk_is_a_source(mirror):
    overlay = dict(file=str(mirror / FILE))
    model = timm.create_model('inline_pvt_tiny', pretrained=True, pretrained_cfg_overlay=overlay)

    torch.testing.assert_close(scores(model), golden_scores())


def test_cache_dir_is_where_the_download_goes(cache, tmp_path):
    timm.create_model('inline_pvt_tiny', pretrained=True, cache_dir=tmp_path / 'elsewhere')

    assert (tmp_path / 'elsewhere' / FILE).is_file()
    assert not cache.exists()


def test_other_classes_get_a_fresh_head_and_all_else_is_loaded(cache):
    whole = timm.create_model('inline_pvt_tiny', pretrained=True).state_dict()
    model = timm.create_model('inline_pvt_tiny', pretrained=True, num_classes=10)
    features = timm.create_model('inline_pvt_tiny', pretrained=True, features_only=True)

    assert model.get_classifier().weight.shape == (10, 512)
    assert model.get_classifier().weight.std() < 0.03  # 0.05 in the file
    for found in (model.state_dict(), features.model.state_dict()):
        stages = {key: value for key, value in found.items() if not key.startswith('head.')}
        torch.testing.assert_close(
            stages, {key: value for key, value in whole.items() if not key.startswith('head.')}
        )


def test_one_channel_gets_the_sum_of_three(cache):
    colour, grey = (
        timm.create_model('inline_pvt_tiny', pretrained=True, in_chans=channels).stages[0].embed
        for channels in (3, 1)
    )

    torch.testing.assert_close(grey.proj.weight, colour.proj.weight.sum(1, keepdim=True))


def test_another_img_size_gets_resized_positions_and_the_same_scores_at_that_size(cache):
    usual, resized = (
        timm.create_model('inline_pvt_tiny', pretrained=True, img_size=size).double().eval()
        for size in (224, (96, 160))
    )
    picture = golden_image(96, 160).double()

    assert resized.stages[0].pos_embed.shape == (1, 24, 40, 64)
    with torch.inference_mode():
        torch.testing.assert_close(resized(picture), usual(picture), rtol=0, atol=1e-5)


@pytest.mark.parametrize('num_classes', [1000, 10])
def test_weights_of_another_model_are_refused_also_where_the_head_is_fresh(cache, num_classes):
    overlay = dict(file='inline://pvt-tiny')
    message = r'\(official InLine-PVT, pvt-tiny\) do not fit inline_pvt_small: unfilled: stages'
    with pytest.raises(ValueError, match=message):
        timm.create_model(
            'inline_pvt_small',
            pretrained=True,
            num_classes=num_classes,
            pretrained_cfg_overlay=overlay,
        )


ARCHS = {
    'inline_pvt_tiny': (InLinePVT, SIZES),
    'inline_swin_tiny': (InLineSwin, SWIN_SIZES),
    'inline_deit_tiny': (InLineDeiT, DEIT_SIZES),
}


@pytest.fixture(params=ARCHS)
def trained(request):
    """A small classifier, and the options to make another one like it."""
    _, arch = ARCHS[request.param]
    options = dict(model_name=request.param, arch=arch, num_classes=5)
    return randomize(timm.create_model(**options)).eval(), options


def test_a_checkpoint_of_timm_loads_into_the_backbone(trained, tmp_path):
    model, options = trained
    torch.save({'state_dict': model.state_dict(), 'epoch': 3}, tmp_path / 'last.pth')
    backbone, arch = ARCHS[options['model_name']]
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'last.pth'))
    loaded = backbone(arch, out_indices=(0, 1, 2, 3), init_cfg=init_cfg)
    loaded.init_weights()

    torch.testing.assert_close(loaded.stages.state_dict(), model.stages.state_dict())


def test_a_checkpoint_of_timm_loads_again_with_averaged_weights_first(trained, tmp_path):
    model, options = trained
    averaged = randomize(timm.create_model(**options), std=0.1).eval()
    path = str(tmp_path / 'last.pth')
    weights = dict(state_dict=model.state_dict(), state_dict_ema=averaged.state_dict())
    torch.save(weights, path)
    picture = image(1, 3, 64, 64)
    overlay = dict(file=path, num_classes=5)

    for found in (
        timm.create_model(**options, checkpoint_path=path),
        timm.create_model(**options, pretrained=True, pretrained_cfg_overlay=overlay),
    ):
        torch.testing.assert_close(found.eval()(picture), averaged(picture))


def test_a_folder_in_the_form_of_the_hub_loads_again(trained, tmp_path):
    model, options = trained
    save_for_hf(model, tmp_path / 'hub', model_args=dict(arch=options['arch']))
    again = timm.create_model(f'local-dir:{tmp_path / "hub"}', pretrained=True).eval()

    torch.testing.assert_close(again(image(1, 3, 64, 64)), model(image(1, 3, 64, 64)))
