"""Layer-wise learning rate decay for any detector or segmentor with one of our backbones.

The constructors of mmdet and mmseg refuse backbones they do not know.
"""

from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.registry import (
    OPTIM_WRAPPER_CONSTRUCTORS as MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS,
)
from torch import nn

from ..registry import OPTIM_WRAPPER_CONSTRUCTORS

NO_DECAY_NAMES = ('pos_embed', 'class_position', 'class_token', 'relative_position_bias_table')


@MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS.register_module()
@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class InLineLayerDecayConstructor(DefaultOptimWrapperConstructor):
    """Learning rates that fall from the head to the first embedding.

    A parameter of layer ``l`` of ``n`` learns with ``lr * decay_rate ** (n - 1 - l)``; necks,
    heads and output norms are the last layer. Norms, biases, position embeddings, class
    tokens and bias tables get no weight decay. In a config::

        optim_wrapper = dict(
            optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.05),
            constructor='mminline.InLineLayerDecayConstructor',
            paramwise_cfg=dict(decay_rate=0.7))

    Args:
        optim_wrapper_cfg: Settings of the optimizer wrapper.
        paramwise_cfg: ``dict(decay_rate=...)``, a number above 0 and at most 1.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None) -> None:
        paramwise_cfg = dict(paramwise_cfg or {})
        decay_rate = paramwise_cfg.pop('decay_rate', None)
        if paramwise_cfg or decay_rate is None or not 0 < decay_rate <= 1:
            raise ValueError(
                'paramwise_cfg has to be dict(decay_rate=...) with a rate above 0 and at most 1, '
                f'got decay_rate={decay_rate} and other keys {sorted(paramwise_cfg)}'
            )
        super().__init__(optim_wrapper_cfg)
        if self.base_lr is None:
            raise ValueError("layer-wise decay scales the optimizer's lr, so it has to be given")
        self.decay_rate = decay_rate
        # A non-empty paramwise_cfg makes mmengine call add_params instead of one plain group.
        self.paramwise_cfg = dict(decay_rate=decay_rate)

    def add_params(
        self,
        params: list[dict],
        module: nn.Module,
        prefix: str = '',
        is_dcn_module: int | float | None = None,
    ) -> None:
        """Sort the parameters of a whole model into groups of one rate and one decay."""
        backbone, backbone_prefix = _find_backbone(module)
        norm_parameters = {
            id(parameter)
            for part in module.modules()
            if isinstance(part, _NORMS)
            for parameter in part.parameters(recurse=False)
        }
        groups: dict[str, dict] = {}
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            layer, num_layers = backbone.get_layer_depth(name, backbone_prefix)
            decays = not (
                id(parameter) in norm_parameters
                or name.endswith('bias')
                or name.split('.')[-1] in NO_DECAY_NAMES
            )
            group_name = f'layer_{layer}_{"decay" if decays else "no_decay"}'
            scale = self.decay_rate ** (num_layers - 1 - layer)
            group = groups.setdefault(
                group_name,
                dict(
                    params=[],
                    param_names=[],
                    group_name=group_name,
                    lr=self.base_lr * scale,
                    **({} if decays else dict(weight_decay=0.0)),
                ),
            )
            group['params'].append(parameter)
            group['param_names'].append(name)
        params.extend(groups.values())


_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


def _find_backbone(model: nn.Module) -> tuple[nn.Module, str]:
    """Find the part that numbers its layers, and the prefix of its parameters' names."""
    if hasattr(model, 'get_layer_depth'):
        return model, ''
    if hasattr(getattr(model, 'backbone', None), 'get_layer_depth'):
        return model.backbone, 'backbone.'
    raise ValueError(
        'InLineLayerDecayConstructor needs a model whose backbone has get_layer_depth, such as '
        'InLinePVT, InLineSwin or InLineDeiT, '
        f'got {type(getattr(model, "backbone", model)).__name__}'
    )
