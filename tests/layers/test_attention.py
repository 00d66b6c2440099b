"""InLineAttention against explicit weights: values, gradients, each switch, odd grids."""

import pytest
import torch
from torch.testing import assert_close

from helpers.attention_layers import inline_layer, join_heads, split_heads
from helpers.tiny import gradients, image, randomize
from mminline import execution
from mminline.layers import InLineAttention, SoftmaxAttention, reference

GRIDS = [(1, 1), (1, 6), (5, 1), (2, 3), (7, 5)]
MAPS = [
    ('identity', True),
    ('relu', True),
    ('leaky_relu', True),
    ('exp', True),
    ('relu', False),
    ('exp', False),
]


def make_layer(embed_dims=12, num_heads=3, folded=None, **options):
    layer = randomize(InLineAttention(embed_dims, num_heads, **options)).double()
    layer.folded = folded
    return layer


def forms(layer):
    """The layer called by itself, and as backbones run it."""
    return layer, lambda x, hw_shape: execution.run(layer, x, hw_shape)


def tokens(hw_shape, batch=2, channels=12):
    return image(batch, hw_shape[0] * hw_shape[1], channels, dtype=torch.float64)


def backward(layer, form, x, hw_shape):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = form(x, hw_shape)
    out.backward(image(*out.shape, dtype=out.dtype))
    return {'x': x.grad, **gradients(layer)}


@pytest.mark.parametrize('hw_shape', GRIDS)
@pytest.mark.parametrize('local_residual', [True, False])
@pytest.mark.parametrize(('feature_map', 'injective'), MAPS)
def test_layer_equals_explicit_weights(feature_map, injective, local_residual, hw_shape):
    layer = make_layer(feature_map=feature_map, injective=injective, local_residual=local_residual)
    x = tokens(hw_shape)
    for form in forms(layer):
        assert_close(form(x, hw_shape), inline_layer(layer, x, hw_shape))


@pytest.mark.parametrize('hw_shape', GRIDS)
@pytest.mark.parametrize('local_residual', [True, False])
def test_folded_and_plain_form_both_equal_explicit_weights(local_residual, hw_shape):
    x = tokens(hw_shape)
    for folded in (True, False):
        layer = make_layer(folded=folded, local_residual=local_residual)
        for form in forms(layer):
            assert_close(form(x, hw_shape), inline_layer(layer, x, hw_shape))
            with torch.no_grad():
                assert_close(form(x, hw_shape), inline_layer(layer, x, hw_shape))


@pytest.mark.parametrize('num_heads', [1, 12])
def test_one_head_and_one_channel_a_head_work(num_heads):
    x = tokens((4, 5))
    for folded in (True, False):
        layer = make_layer(num_heads=num_heads, folded=folded)
        assert_close(layer(x, (4, 5)), inline_layer(layer, x, (4, 5)))


@pytest.mark.parametrize('batch', [1, 3, 10])
@pytest.mark.parametrize('folded', [True, False])
@pytest.mark.parametrize('local_residual', [True, False])
def test_gradients_of_both_forms_equal_those_of_explicit_weights(local_residual, folded, batch):
    layer, x = make_layer(folded=folded, local_residual=local_residual), tokens((3, 5), batch)
    slow = backward(layer, lambda *inputs: inline_layer(layer, *inputs), x, (3, 5))
    for form in forms(layer):
        assert_close(backward(layer, form, x, (3, 5)), slow)


@pytest.mark.parametrize(('feature_map', 'injective'), MAPS[1:])
def test_gradients_with_a_feature_map_equal_those_of_explicit_weights(feature_map, injective):
    layer, x = make_layer(feature_map=feature_map, injective=injective), tokens((3, 5))
    slow = backward(layer, lambda *inputs: inline_layer(layer, *inputs), x, (3, 5))
    for form in forms(layer):
        assert_close(backward(layer, form, x, (3, 5)), slow)


def test_key_bias_has_no_gradient_with_the_identity_map():
    # Keys enter through their covariance with the values, which a constant does not change:
    # exactly zero in the folded form, which never reads that bias, else zero to rounding.
    for folded, bound in ((True, 0.0), (False, 1e-12)):
        layer = make_layer(folded=folded)
        backward(layer, layer, tokens((4, 5)), (4, 5))
        q_grad, k_grad, v_grad = layer.qkv.bias.grad.chunk(3)
        assert k_grad.abs().max() <= bound
        assert q_grad.abs().min() > 1e-6
        assert v_grad.abs().min() > 1e-6


def test_key_bias_has_a_gradient_with_another_feature_map():
    layer = make_layer(feature_map='relu')
    backward(layer, layer, tokens((4, 5)), (4, 5))
    assert layer.qkv.bias.grad.chunk(3)[1].abs().max() > 1e-6


def test_form_is_never_folded_where_the_maths_forbids_it():
    x = tokens((7, 5))
    for options in (dict(feature_map='relu'), dict(feature_map='exp', injective=False)):
        forced = make_layer(folded=True, **options)
        assert_close(forced(x, (7, 5)), inline_layer(forced, x, (7, 5)))


def test_injective_layer_tells_parallel_queries_apart_and_a_plain_one_does_not():
    # The paper's first claim, on the layer: twice the query weights give twice the query.
    x = tokens((4, 5))
    outputs = {}
    for injective in (True, False):
        layer = make_layer(feature_map='relu', injective=injective, local_residual=False)
        once = layer(x, (4, 5))
        with torch.no_grad():
            layer.qkv.weight[:12] *= 2
            layer.qkv.bias[:12] *= 2
        outputs[injective] = once, layer(x, (4, 5))
    assert (outputs[True][0] - outputs[True][1]).abs().max() > 1e-2
    assert_close(*outputs[False], rtol=0, atol=1e-5)


def test_local_residual_switch_leaves_out_the_kernel_and_its_parameters():
    with_step, without = make_layer(), make_layer(local_residual=False)
    assert {name.split('.')[0] for name, _ in without.named_parameters()} == {'qkv', 'proj'}
    without.load_state_dict(with_step.state_dict(), strict=False)
    x = tokens((4, 5))
    assert (with_step(x, (4, 5)) - without(x, (4, 5))).abs().max() > 1e-2


def test_images_of_a_batch_do_not_see_each_other():
    x = tokens((4, 5), batch=3)
    for folded in (True, False):
        layer = make_layer(folded=folded)
        alone = torch.cat([layer(image_tokens[None], (4, 5)) for image_tokens in x])
        assert_close(layer(x, (4, 5)), alone)


def test_dropout_acts_on_the_output_in_training_alone():
    layer, x = make_layer(drop_rate=0.5), tokens((4, 5))
    dropped = layer.train()(x, (4, 5))
    kept = dropped != 0
    full = layer.eval()(x, (4, 5))
    assert 0.3 < kept.double().mean() < 0.7
    assert_close(dropped[kept], 2 * full[kept])


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(num_heads=5), 'multiple of num_heads, got embed_dims=12 and num_heads=5'),
        (dict(num_heads=0), 'multiple of num_heads'),
        (dict(embed_dims=0), 'multiple of num_heads'),
        (dict(feature_map='gelu'), "one of .*'identity'.*, got feature_map='gelu'"),
        (dict(injective=False), "free of negative values.*'relu', 'exp'.*'identity'"),
        (dict(injective=False, feature_map='leaky_relu'), "free of negative.*'leaky_relu'"),
        (dict(window_size=0), 'at least 1, got window_size=0'),
        (dict(drop_rate=1.5), 'between 0 and 1, but got 1.5'),
    ],
)
def test_bad_options_are_refused_with_what_was_wanted_and_what_came(options, message):
    with pytest.raises(ValueError, match=message):
        InLineAttention(**{'embed_dims': 12, 'num_heads': 3, **options})


@pytest.mark.parametrize('shape', [(2, 21, 12), (2, 20, 8), (2, 12, 4, 5), (20, 12)], ids=str)
@pytest.mark.parametrize('options', [{}, dict(local_residual=False), dict(window_size=3)])
def test_tokens_that_are_not_those_of_the_grid_are_refused(shape, options):
    layer = make_layer(**options)
    with pytest.raises(ValueError, match=r'\(B, 20, 12\) for hw_shape=\(4, 5\).*, got \('):
        layer(image(*shape, dtype=torch.float64), (4, 5))


def test_misspelt_option_is_refused():
    with pytest.raises(TypeError, match='feature_maps'):
        InLineAttention(12, 3, feature_maps='relu')


@pytest.mark.parametrize('channels', [8, 16])
def test_folded_form_is_chosen_from_four_tokens_a_channel_on(channels):
    layer = InLineAttention(channels, 2)
    assert layer.can_fold(4 * channels)
    assert not layer.can_fold(4 * channels - 1)


def test_softmax_over_the_whole_map_is_available_beside_it():
    layer = randomize(SoftmaxAttention(12, 3, window_size=None)).double()
    x = tokens((4, 5))
    q, k, v = (split_heads(part, 3) for part in layer.qkv(x).chunk(3, dim=-1))
    mixed = join_heads(reference.softmax_weights(q, k, 0.5) @ v)
    assert_close(layer(x, (4, 5)), layer.proj(mixed))
    assert set(layer.state_dict()) == {'qkv.weight', 'qkv.bias', 'proj.weight', 'proj.bias'}
