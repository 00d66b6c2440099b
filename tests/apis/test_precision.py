"""Precision as one word: half precision for products, float32 where digits matter."""

import copy
import functools

import numpy as np
import pytest
import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from helpers.tiny import randomize
from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.apis import Predictor, init_model, precision, set_precision
from mminline.apis.precision import check_precision

TEXTS = dict(detector=DETECTOR, segmentor=SEGMENTOR)
HEADS = dict(
    detector=('rpn_head', 'roi_head.bbox_head', 'roi_head.mask_head'), segmentor=('decode_head',)
)
EXTRACTORS = ('roi_head.bbox_roi_extractor', 'roi_head.mask_roi_extractor')
CONVOLUTION = 'neck.fpn_convs.0.conv'
pytestmark = pytest.mark.filterwarnings('ignore:This CPU has no instructions for bfloat16')


@functools.cache
def read(kind: str) -> Config:
    return Config.fromstring(TEXTS[kind], '.py')


@functools.cache
def weights(kind: str) -> dict[str, Tensor]:
    return randomize(init_model(read(kind), device='cpu'), std=0.1).state_dict()


def build(kind: str, **options) -> nn.Module:
    model = init_model(read(kind), device='cpu', **options)
    model.load_state_dict(weights(kind))
    return model


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)


@pytest.fixture
def cpu(monkeypatch):
    """Let a test say which instructions the CPU has."""
    check_precision.cache_clear()
    monkeypatch.delenv('ONEDNN_MAX_CPU_ISA', raising=False)
    yield lambda *flags: monkeypatch.setattr(precision, 'read_cpu_flags', lambda: set(flags))
    check_precision.cache_clear()


def watch(model: nn.Module, *names: str) -> dict[str, list[Tensor]]:
    """Keep the tensors that modules return, by name; mmseg calls ``forward`` of its heads."""
    seen = {}

    def note(name, forward, *args, **kwargs):
        outputs = forward(*args, **kwargs)
        seen[name] = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
        return outputs

    for name in names:
        module = model.get_submodule(name)
        module.forward = functools.partial(note, name, module.forward)
    return seen


@pytest.mark.parametrize('kind', sorted(TEXTS))
def test_products_run_in_half_precision_and_heads_answer_in_float32(kind, image):
    model = build(kind, precision='bfloat16')
    seen = watch(model, CONVOLUTION, *HEADS[kind], *EXTRACTORS * (kind == 'detector'))

    Predictor(model, score_thr=0.0).predict(image)

    assert {tensor.dtype for tensor in seen.pop(CONVOLUTION)} == {torch.bfloat16}
    for tensors in seen.values():
        assert {tensor.dtype for tensor in tensors} == {torch.float32}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize('kind', sorted(TEXTS))
def test_results_are_those_of_float32_up_to_rounding(kind, image):
    found = []
    for word in ('float32', 'bfloat16'):
        model = build(kind, precision=word)
        seen = watch(model, HEADS[kind][0])
        Predictor(model).predict(image)
        found.append(seen[HEADS[kind][0]])

    for full, half in zip(*found, strict=True):
        assert 0 < (half - full).abs().max() < 0.05 * full.abs().max()


def test_a_roi_extractor_pools_the_maps_it_gets_whatever_their_type_and_order():
    model = build('detector', precision='bfloat16')
    maps = [torch.randn(1, 8, 16 // 2**level, 24 // 2**level) for level in range(4)]
    maps = [part.bfloat16() for part in maps]
    boxes = torch.tensor([[0, 3.3, 4.4, 50.7, 60.1], [0, 1.0, 1.0, 20.0, 9.0]])
    extractor = model.roi_head.bbox_roi_extractor
    expected = type(extractor).forward(extractor, [part.float() for part in maps], boxes)
    ordered = [part.contiguous(memory_format=torch.channels_last) for part in maps]

    with torch.autocast('cpu', torch.bfloat16):
        found = extractor(ordered, boxes)

    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_copy_of_a_model_runs_its_own_parts(image):
    model = build('detector', precision='bfloat16')
    twin = copy.deepcopy(model)
    before = Predictor(twin, score_thr=0.0).predict(image).pred_instances.scores
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()

    after = Predictor(twin, score_thr=0.0).predict(image).pred_instances.scores

    assert torch.equal(before, after)


def test_a_precision_can_be_set_again(image):
    model = build('segmentor', precision='bfloat16')
    seen = watch(model, CONVOLUTION)
    for word in ('bfloat16', 'float32'):
        set_precision(model, word)
        Predictor(model).predict(image)
        assert seen[CONVOLUTION][0].dtype == getattr(torch, word)


@pytest.mark.parametrize(
    ('word', 'message'),
    [
        ('half', "precision has to be one of float32, bfloat16, float16, got precision='half'"),
        ('float16', 'precision=float16 needs a GPU: on a CPU take bfloat16'),
    ],
)
def test_a_precision_that_cannot_be_had_is_refused_before_anything_is_built(word, message):
    with pytest.raises(ValueError, match=message):
        init_model(Config(dict(model=None)), device='cpu', precision=word)


def test_a_cpu_without_the_instructions_gets_a_warning(cpu, recwarn):
    cpu('avx2')
    with pytest.warns(UserWarning, match='emulates them, and is slower'):
        check_precision('bfloat16', 'cpu')
    recwarn.clear()
    check_precision.cache_clear()
    cpu('avx2', 'avx512_bf16')
    check_precision('bfloat16', 'cpu')
    cpu()  # not Linux
    check_precision('float32', 'cpu')
    assert not recwarn.list


@pytest.mark.parametrize('crashes', [True, False])
def test_amx_of_a_virtual_machine_that_ends_python_is_named_with_its_cure(
    cpu, crashes, monkeypatch
):
    cpu('amx_bf16', 'hypervisor')
    monkeypatch.setattr(precision, 'crashes', lambda: crashes)
    if crashes:
        with pytest.raises(ValueError, match='set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 and start'):
            check_precision('bfloat16', 'cpu')
        monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX512_CORE_FP16')
    check_precision('bfloat16', 'cpu')
