"""Classifier of a plain transformer: class scores from its class token."""

from collections.abc import Sequence

from torch import Tensor, nn

from .. import execution
from ..models.backbones.stage import to_map
from ..models.backbones.template import check_image
from .classifier import InLineClassifier

POOLS = ('token', 'avg', '')


class TokenHead(nn.Module):
    """Pooling, dropout and a linear, with the words of timm's ``ClassifierHead``.

    Args:
        in_features: Channels of the tokens.
        num_classes: Number of classes; 0 for the pooled features in place of scores.
        pool_type: 'token' for the class token, 'avg' for the mean of all others, '' for none.
        drop_rate: Dropout before the linear.
    """

    def __init__(
        self, in_features: int, num_classes: int, pool_type: str = 'token', drop_rate: float = 0.0
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.drop = nn.Dropout(drop_rate)
        self.reset(num_classes, pool_type)

    def reset(self, num_classes: int, pool_type: str | None = None) -> None:
        """Put a fresh linear in place; None leaves the pooling as it is."""
        if pool_type is not None:
            if pool_type not in POOLS:
                raise ValueError(f'global_pool has to be one of {POOLS}, got {pool_type!r}')
            self.pool_type = pool_type
        self.fc = nn.Linear(self.in_features, num_classes) if num_classes else nn.Identity()

    def forward(self, x_BLC: Tensor, pre_logits: bool = False) -> Tensor:
        if self.pool_type:
            x_BLC = x_BLC[:, 0] if self.pool_type == 'token' else x_BLC[:, 1:].mean(dim=1)
        x_BLC = self.drop(x_BLC)
        return x_BLC if pre_logits else self.fc(x_BLC)


class InLineTokenClassifier(InLineClassifier):
    """Image to class scores: the blocks of a plain transformer, a norm, its class token, a head.

    Maps are those of blocks, all at stride 16; ``norm=True`` norms each of them, as in the vision
    transformers of timm. ``forward_features`` gives the tokens, the class token first. For the
    arguments see ``InLineClassifier``; ``global_pool`` is 'token', 'avg' or ''.
    """

    head_class = TokenHead
    norms_each = True

    def __init__(self, *args, global_pool: str = 'token', **options) -> None:
        super().__init__(*args, global_pool=global_pool, **options)

    @property
    def units(self) -> nn.ModuleList:
        return self.stages[0].blocks

    def _run(
        self,
        image_BCHW: Tensor,
        wanted: Sequence[int] = (),
        count: int | None = None,
        norm: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        check_image(image_BCHW, self.in_chans, self.smallest_side)
        (stage,) = self.stages
        x_BLC, hw_shape = stage.embed_tokens(image_BCHW)
        maps = []
        for index, block in enumerate(stage.blocks[:count]):
            x_BLC = execution.run(block, x_BLC, hw_shape, stage.streaming)
            if index in wanted:
                tokens_BLC = self.norm(x_BLC) if norm else x_BLC
                maps.append(to_map(tokens_BLC[:, 1:], hw_shape).contiguous())
        is_final = index == len(self.feature_info) - 1
        return self.norm(x_BLC) if is_final else x_BLC, maps
