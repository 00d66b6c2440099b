"""A runner of mmengine so small that it trains in a moment, on every stack."""

import uuid
from pathlib import Path

import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner


class Line(BaseModel):
    """One linear layer, trained to give nothing."""

    def __init__(self, init_cfg: dict | None = None):
        super().__init__(init_cfg=init_cfg)
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, inputs, mode):
        return dict(loss=self.linear(inputs).square().mean())


def make_runner(work_dir: Path, max_epochs: int = 1, **options) -> Runner:
    """Build a runner of two iterations an epoch, with other ``options`` of mmengine's Runner."""
    return Runner(
        Line(),
        work_dir=str(work_dir),
        train_dataloader=dict(
            dataset=[dict(inputs=torch.ones(1))] * 4,
            sampler=dict(type='DefaultSampler', shuffle=False),
            collate_fn=dict(type='default_collate'),
            batch_size=2,
        ),
        train_cfg=dict(by_epoch=True, max_epochs=max_epochs),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        experiment_name=uuid.uuid4().hex,  # mmengine keeps one of each name
        log_level='ERROR',
        **options,
    )
