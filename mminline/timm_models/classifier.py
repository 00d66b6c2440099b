"""Classifier from the stages of a backbone, with the methods that timm looks for."""

from collections.abc import Sequence

from timm.layers import ClassifierHead
from timm.models import load_pretrained
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from ..checkpoints import read_checkpoint
from ..engine.layer_decay import NO_DECAY_NAMES
from ..models.backbones.stage import to_map
from ..models.backbones.template import Backbone, check_image, reset_linear
from .weights import checkpoint_filter_fn


class InLineClassifier(nn.Module):
    """Image to class scores: the stages of a backbone, a norm, pooling, a linear head.

    The names of its weights are those of the backbone, so a checkpoint of timm's training script
    is one that ``init_cfg=dict(type='Pretrained', ...)`` takes in mmdet and mmseg.

    Args:
        backbone: Backbone whose stages are taken over; all of its units are outputs.
        norm: Norm of the last stage's tokens; ``nn.Identity()`` for none.
        num_classes: Number of classes; 0 for the pooled features in place of scores.
        global_pool: Pooling of timm's ``ClassifierHead``; '' for none.
        drop_rate: Dropout before the head.
    """

    head_class = ClassifierHead
    norms_each = False  # whether every map has a norm, not only the last

    def __init__(
        self,
        backbone: Backbone,
        norm: nn.Module,
        num_classes: int = 1000,
        global_pool: str = 'avg',
        drop_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_chans = backbone.in_channels
        self.num_classes = num_classes
        self.num_features = self.head_hidden_size = backbone.out_channels[-1]
        self.smallest_side = backbone.smallest_side
        names = (name for name, part in backbone.named_modules() if part in backbone.units)
        self.feature_info = [
            dict(num_chs=channels, reduction=stride, module=name)
            for channels, stride, name in zip(
                backbone.out_channels, backbone.strides, names, strict=True
            )
        ]
        self.stages = backbone.stages
        self.norm = norm
        self.head = self.head_class(self.num_features, num_classes, global_pool, drop_rate)
        self.head.apply(reset_linear)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(image_BCHW))

    def forward_features(self, image_BCHW: Tensor) -> Tensor:
        """Features that the head gets: the map of the last stage, behind the final norm if any."""
        return self._run(image_BCHW)[0]

    def forward_head(self, map_BCHW: Tensor, pre_logits: bool = False) -> Tensor:
        """Class scores of a map, or with ``pre_logits`` what the last linear would get."""
        return self.head(map_BCHW, pre_logits=pre_logits)

    def forward_intermediates(
        self,
        image_BCHW: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = 'NCHW',
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Maps of stages, from fine to coarse, beside what ``forward_features`` gives.

        Args:
            image_BCHW: Images.
            indices: Stages whose maps are wanted; a number for that many last ones, None for all.
            norm: Whether to apply the final norm to the map of the last stage.
            stop_early: Whether to leave out the stages behind the last one that is wanted.
            output_fmt: Only 'NCHW'.
            intermediates_only: Whether to return the maps alone.
        """
        if output_fmt != 'NCHW':
            raise ValueError(f"output_fmt has to be 'NCHW', got {output_fmt=}")
        wanted, last_wanted = feature_take_indices(len(self.units), indices)
        count = last_wanted + 1 if stop_early else None
        features, maps = self._run(image_BCHW, wanted, count, norm)
        return maps if intermediates_only else (features, maps)

    @property
    def units(self) -> nn.ModuleList:
        """Parts that maps are taken from, in the order in which they run."""
        return self.stages

    def _run(
        self,
        image_BCHW: Tensor,
        wanted: Sequence[int] = (),
        count: int | None = None,
        norm: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the first ``count`` units: their features, normed behind the final one, and maps."""
        check_image(image_BCHW, self.in_chans, self.smallest_side)
        map_BCHW, maps = image_BCHW, []
        for index, stage in enumerate(self.stages[:count]):
            map_BCHW = to_map(*stage(map_BCHW))
            is_final = index == len(self.feature_info) - 1
            normed = self._normed(map_BCHW) if is_final else map_BCHW
            if index in wanted:
                # Contiguous, as the maps of the backbones.
                maps.append((normed if norm else map_BCHW).contiguous())
        return normed, maps

    def prune_intermediate_layers(
        self,
        indices: int | Sequence[int] = 1,
        prune_norm: bool = False,
        prune_head: bool = True,
    ) -> list[int]:
        """Remove what the maps of ``indices`` do not need; return these stages."""
        wanted, last_wanted = feature_take_indices(len(self.units), indices)
        del self.units[last_wanted + 1 :]
        if prune_norm or (not self.norms_each and last_wanted < len(self.feature_info) - 1):
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, '')
        return wanted

    def get_classifier(self) -> nn.Module:
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Put a fresh head in place; None leaves the pooling as it is."""
        self.num_classes = num_classes
        self.head.reset(num_classes, global_pool)
        self.head.apply(reset_linear)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Whether to save memory in training by computing blocks twice."""
        for stage in self.stages:
            for block in stage.blocks:
                block.with_cp = enable

    def group_matcher(self, coarse: bool = False) -> dict:
        """Layers for layer-wise decay, numbered as in ``Backbone.get_layer_depth``."""
        first = r'embed\.|pos_embed|class_'
        fine = [
            (rf'^stages\.(\d+)\.(?:{first})', (0,)),  # with the block behind it
            (r'^stages\.(\d+)\.blocks\.(\d+)', None),
            (r'^norm', (99999,)),  # timm's sign for: with the layer before
        ]
        return dict(stem=rf'^stages\.0\.(?:{first})', blocks=r'^stages\.(\d+)' if coarse else fine)

    def no_weight_decay(self) -> set[str]:
        names = (name for name, _ in self.named_parameters())
        return {name for name in names if name.endswith(NO_DECAY_NAMES)}

    def load_pretrained(self, checkpoint: str) -> None:
        """Load a file, web address or ``inline://`` name; called by timm for ``pretrained=True``.

        timm's own reader refuses files with other objects than weights in them.
        """
        weights = read_checkpoint(checkpoint)
        # Averaged weights are the better ones, where a training script of timm kept them.
        weights = weights.get('state_dict_ema') or weights
        load_pretrained(
            self,
            {**self.pretrained_cfg, 'state_dict': weights},
            num_classes=self.num_classes,
            in_chans=self.in_chans,
            filter_fn=checkpoint_filter_fn,
        )

    def _normed(self, map_BCHW: Tensor) -> Tensor:
        return self.norm(map_BCHW.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
