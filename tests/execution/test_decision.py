"""Decision how a block runs: choices, reasons, and modules that are not as built."""

import functools
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from helpers.tiny import image, randomize
from mminline import execution
from mminline.analysis import measure_complexity
from mminline.layers import MLP, Block, InLineAttention, SoftmaxAttention
from mminline.models import InLinePVT

GRID = (6, 9)
ARCH = dict(embed_dims=(8,), depths=(2,), num_heads=(2,), mlp_ratios=(2,))


def make_block(attention=None, kind=Block, **options):
    return randomize(kind(attention or InLineAttention(8, 2), 8, 2, **options)).eval()


def tokens(**options):
    return image(2, 54, 8, **options)


def choose(block, x=None, streaming=None):
    return execution.choose(block, tokens() if x is None else x, GRID, streaming)


@torch.no_grad()
def test_inference_streams_and_training_fuses():
    for attention in (InLineAttention(8, 2), SoftmaxAttention(8, 2)):
        block = make_block(attention)
        assert str(choose(block)) == 'streamed: inference on cpu'
        with torch.enable_grad():
            assert str(choose(block)) == 'fused: gradients are enabled'
        assert str(choose(block, streaming=False)) == 'fused: streaming=False'
        block.mlp.drop.train()
        assert str(choose(block)) == 'fused: a part is in training mode'


@pytest.mark.parametrize(
    ('attention', 'reason'),
    [
        (InLineAttention(8, 2, feature_map='relu'), 'queries and keys are not folded'),
        (InLineAttention(8, 2, window_size=4), 'attention is kept in windows'),
        (InLineAttention(32, 2), 'queries and keys are not folded'),
        (SoftmaxAttention(8, 2, window_size=None), 'SoftmaxAttention does not run in bands'),
    ],
)
@torch.no_grad()
def test_attention_that_cannot_run_in_bands_says_why(attention, reason):
    channels = attention.embed_dims
    block = randomize(Block(attention, channels, 2)).eval()
    x = image(1, 54, channels)
    assert str(choose(block, x)) == f'fused: {reason}'
    assert_close(execution.run(block, x, GRID), block(x, GRID))


def test_a_layer_by_itself_can_be_run_too():
    layer = randomize(InLineAttention(8, 2))
    assert str(choose(layer)) == 'fused: a layer by itself does not run in bands'
    assert_close(execution.run(layer, tokens(), GRID), layer(tokens(), GRID))


class LayerScaleBlock(Block):
    """A block with learned factors behind its branches, as adapters add them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = nn.Parameter(torch.full((8,), 0.5))

    def _forward(self, x_BLC, hw_shape):
        x_BLC = x_BLC + self.scale * self.attn(self.norm1(x_BLC), hw_shape)
        return x_BLC + self.scale * self.mlp(self.norm2(x_BLC))


@pytest.mark.parametrize('training', [True, False])
def test_a_subclass_of_block_is_used_with_and_without_gradients(training):
    block = make_block(kind=LayerScaleBlock).train(training)
    model = InLinePVT(ARCH, out_indices=(0,)).train(training)
    model.stages[0].blocks[0] = block
    expected = model(image(1, 3, 32, 32))
    with torch.no_grad():
        assert_close(model(image(1, 3, 32, 32)), expected)
        block.scale.zero_()
        assert (model(image(1, 3, 32, 32))[0] - expected[0]).abs().max() > 1e-2
    assert 'LayerScaleBlock' in choose(block).reason


class Doubled(nn.Linear):
    """A linear that wraps another, as adapters such as LoRA do, and still shows its weight."""

    def forward(self, x):
        return 2 * super().forward(x)


def put_in_place(block, path):
    parent, _, name = path.rpartition('.')
    old = block.get_submodule(path)
    new = Doubled(old.in_features, old.out_features)
    new.load_state_dict(old.state_dict())
    setattr(block.get_submodule(parent), name, new)


def patch_instance(block, path):
    layer = block.get_submodule(path)
    layer.forward = lambda *args, old=layer.forward: 2 * old(*args)


def add_hook(block, path):
    block.get_submodule(path).register_forward_hook(lambda layer, inputs, out: 2 * out)


def add_pre_hook(block, path):
    block.get_submodule(path).register_forward_pre_hook(lambda layer, inputs: (2 * inputs[0],))


class Double(nn.Module):
    def forward(self, weight):
        return 2 * weight


def add_parametrization(block, path):
    parametrize.register_parametrization(block.get_submodule(path), 'weight', Double())


def with_all_weights_doubled(block, path):
    """Write into the weights the effect that each change but the pre-hook has."""
    layer = block.get_submodule(path)
    with torch.no_grad():
        layer.weight.mul_(2)
        layer.bias.mul_(2)


LINEARS = ['attn.qkv', 'attn.proj', 'mlp.fc1', 'mlp.fc2']
CHANGES = {
    'put in place': put_in_place,
    'patched': patch_instance,
    'hook': add_hook,
}


@pytest.mark.parametrize('grad', [True, False])
@pytest.mark.parametrize('path', [*LINEARS, 'norm1', 'norm2'])
@pytest.mark.parametrize('change', CHANGES)
def test_whatever_is_attached_to_a_layer_takes_part(change, path, grad):
    if path.startswith('norm') and change == 'put in place':
        pytest.skip('for linears')
    expected, block = make_block(), make_block()
    with_all_weights_doubled(expected, path)
    CHANGES[change](block, path)

    with torch.set_grad_enabled(grad):
        assert choose(block).name == 'plain'
        assert f'block.{path} ' in choose(block).reason
        expected = execution.run(expected, tokens(), GRID)
        assert_close(execution.run(block, tokens(), GRID), expected)
        # The block called by itself folds too, where that pays.
        assert_close(block(tokens(), GRID), expected)
        if path == 'attn.qkv':
            assert_close(execution.run(block.attn, tokens(), GRID), block.attn(tokens(), GRID))


@pytest.mark.parametrize(
    ('change', 'reason'),
    [
        (lambda block: add_pre_hook(block, 'mlp'), 'block.mlp has a forward pre hook'),
        (lambda block: add_pre_hook(block, 'attn'), 'block.attn has a forward pre hook'),
        (lambda block: add_hook(block, 'attn.local_kernel.0'), 'local_kernel.0 has a forward hook'),
        (lambda block: add_parametrization(block, 'attn.qkv'), 'block.attn.qkv is a Parametrized'),
        (lambda block: setattr(block.mlp, 'act', nn.ReLU()), 'block.mlp.act is a ReLU'),
        (lambda block: setattr(block.mlp, 'act', nn.GELU('tanh')), 'block.mlp.act approximates'),
        (lambda block: setattr(block, 'drop_path', Double()), 'block.drop_path is a Double'),
        (lambda block: setattr(block, 'adapter', Double()), 'block has a new part, adapter'),
        (lambda block: setattr(block, '_forward', Double()), 'block has'),
        (lambda block: setattr(block.mlp, 'fc1', nn.Linear(8, 16, bias=False)), 'has no bias'),
        (
            lambda block: setattr(block.attn, 'make_kernel', lambda mean: mean),
            'block.attn has its make_kernel replaced',
        ),
        (
            lambda block: block.attn.proj.register_full_backward_hook(lambda *_: None),
            'block.attn.proj has a backward hook',
        ),
    ],
)
def test_a_change_anywhere_is_the_reason_to_run_plainly(change, reason):
    block = make_block()
    change(block)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert choose(block).name == 'plain'
            assert reason in choose(block).reason


@pytest.mark.parametrize('kind', [Block, MLP, InLineAttention, nn.Linear, nn.LayerNorm])
def test_a_method_replaced_on_a_class_is_noticed(kind, monkeypatch):
    block = make_block()
    monkeypatch.setattr(kind, 'forward', functools.partialmethod(kind.forward))
    assert choose(block).reason == f'{kind.__name__}.forward is replaced'


def test_hooks_for_the_backward_pass_are_called():
    block, seen = make_block(), []
    for path in (*LINEARS, 'norm1', 'mlp.act'):
        layer = block.get_submodule(path)
        layer.register_full_backward_hook(lambda layer, *grads: seen.append(layer))
    execution.run(block, tokens().requires_grad_(), GRID).sum().backward()
    assert len(seen) == len(LINEARS) + 2


class OddTensor(torch.Tensor):
    """A stand-in for the tensors of quantisation and sharding libraries."""


@torch.no_grad()
def test_unusual_tensors_run_plainly():
    block = make_block()
    assert 'OddTensor' in choose(block, tokens().as_subclass(OddTensor)).reason
    assert 'is in torch.float64, the tokens are in torch.float32' in choose(block.double()).reason
    block.float().attn.qkv.weight = nn.Parameter(
        block.attn.qkv.weight.as_subclass(OddTensor), requires_grad=False
    )
    decision = choose(block)
    assert decision.name == 'plain'
    assert decision.reason == 'attn.qkv.weight is of type OddTensor'
    assert 'the tokens have the shape' in choose(make_block(), image(2, 53, 8)).reason
    with pytest.raises(ValueError, match=r'\(B, 54, 8\) for hw_shape'):
        execution.run(make_block(), image(2, 53, 8), GRID)


@torch.no_grad()
def test_observers_see_every_operation_and_every_module():
    block, x = make_block().requires_grad_(False), tokens()
    with FlopCounterMode(display=False):
        assert str(choose(block)) == 'plain: FlopCounterMode watches operations'
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda layer, *_: seen.append(layer))
    try:
        assert str(choose(block)) == 'plain: all modules have a hook'
        execution.run(block, x, GRID)
    finally:
        handle.remove()
    assert {block.norm1, block.mlp.fc1, block.attn} <= set(seen)

    def traced(x):
        assert str(choose(block, x)) == 'plain: torch.jit traces'
        return execution.run(block, x, GRID)

    torch.jit.trace(traced, x, check_trace=False)

    def transformed(x):
        assert choose(block, x).name == 'plain'
        return execution.run(block, x, GRID).sum()

    gradient = torch.func.grad(transformed)(x)
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        execution.run(block, leaf, GRID).sum().backward()
    assert_close(gradient, leaf.grad)


def test_autocast_is_followed():
    block = make_block()
    with torch.autocast('cpu', dtype=torch.float16):
        assert choose(block).name == 'plain'
        assert 'autocast' in choose(block).reason
    with torch.autocast('cpu', dtype=torch.bfloat16):
        one_pass = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        assert choose(block).name == ('fused' if one_pass else 'plain')
        with torch.no_grad():
            assert str(choose(block)) == 'streamed: inference on cpu'


def test_a_user_can_have_everything_run_plainly(monkeypatch):
    block = make_block()
    monkeypatch.setenv('MMINLINE_EXECUTION', 'plain')
    assert str(choose(block)) == 'plain: MMINLINE_EXECUTION=plain'
    monkeypatch.setenv('MMINLINE_EXECUTION', 'auto')
    assert choose(block).name == 'fused'
    monkeypatch.setenv('MMINLINE_EXECUTION', 'fast')
    with pytest.raises(ValueError, match="has to be 'auto' or 'plain', got 'fast'"):
        choose(block)


def test_other_modules_are_called_as_they_are():
    class Sum(nn.Module):
        def forward(self, x_BLC, hw_shape):
            return x_BLC.sum()

    assert execution.run(Sum(), tokens(), GRID) == tokens().sum()
    assert str(choose(Sum())) == 'plain: Sum is no layer that has a faster form'


@torch.no_grad()
def test_a_compiled_block_with_a_hook_calls_it():
    block = make_block()
    plain = execution.run(block, tokens(), GRID)
    add_hook(block, 'attn.qkv')
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: execution.run(block, x, GRID), backend='eager', fullgraph=True
    )
    out = compiled(tokens())
    assert_close(out, execution.run(block, tokens(), GRID))
    assert (out - plain).abs().max() > 1e-3


def test_counting_leaves_other_models_and_the_model_itself_as_they_are(monkeypatch):
    # While one model is counted another may run, in another thread or in a hook.
    other = InLineAttention(8, 2)
    model = InLinePVT(ARCH, out_indices=(0,))
    forms = []
    model.stages[0].register_forward_pre_hook(
        lambda *_: forms.append((InLineAttention.folded, other.can_fold(54)))
    )
    cost = measure_complexity(model, (64, 64))
    assert len(forms) == 2
    assert set(forms) == {(None, True)}
    assert cost.macs != cost.usual_macs
    assert all(block.attn.folded is None for block in model.stages[0].blocks)


def test_layers_do_not_know_how_they_are_run():
    # ``mminline`` itself imports its rooms, so an empty package stands in for it.
    code = (
        'import sys, types, importlib.util\n'
        'path = importlib.util.find_spec("mminline").submodule_search_locations\n'
        'package = types.ModuleType("mminline"); package.__path__ = list(path)\n'
        'sys.modules["mminline"] = package\n'
        'import mminline.layers\n'
        'assert not any(name.startswith("mminline.execution") for name in sys.modules)\n'
    )
    subprocess.run([sys.executable, '-c', code], check=True)


def test_an_attention_layer_of_the_user_may_have_linears_without_bias():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8, bias=False)

        def forward(self, x_BLC, hw_shape):
            return self.linear(x_BLC)

    block, x = Block(Scale(), 8, 2).eval(), torch.randn(1, 12, 8)
    with torch.no_grad():
        assert_close(execution.run(block, x, (3, 4)), block(x, (3, 4)))
