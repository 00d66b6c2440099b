"""Weights for the classifiers of timm: published ones, ours, and those that timm saved."""

import logging
import re
from collections.abc import Mapping

from torch import Tensor, nn

from ..checkpoints import convert_official, find_backbone, unwrap
from ..checkpoints.download import published_name
from ..checkpoints.load import misfits, resize

logger = logging.getLogger(__name__)

# What timm itself fits to the model afterwards: other classes, other channels of the image.
FITTED_BY_TIMM = ('head.', 'stages.0.embed.proj.weight')


def checkpoint_filter_fn(state_dict: Mapping, model: nn.Module) -> dict[str, Tensor]:
    """Give weights the names and sizes of a classifier, or raise if they are not its own.

    timm calls this on what it has read, before it loads it. It does not insist on all weights
    where it replaces the head, so that is done here.
    """
    source = find_backbone(unwrap(state_dict))
    weights = source.weights
    if source.is_official:
        weights = convert_official(weights, keep_classifier=True)
    weights = {re.sub(r'^head\.(?!fc\.)', 'head.fc.', key): value for key, value in weights.items()}
    own = model.state_dict()
    weights = resize(weights, own, logger)
    if found := misfits(_without_fitted(weights), _without_fitted(own)):
        origin = ', '.join(filter(None, (source.kind, published_name(weights))))
        name = model.pretrained_cfg['architecture']
        raise ValueError(f'the weights ({origin}) do not fit {name}: {found}')
    return weights


def _without_fitted(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: value for key, value in weights.items() if not key.startswith(FITTED_BY_TIMM)}
