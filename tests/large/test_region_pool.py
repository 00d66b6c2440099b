"""Regions that processes pool together."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mminline.large.region_pool import RegionPool


class FailingExtractor(nn.Module):
    """RoI extractor that runs out of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.roi_layers = nn.ModuleList([nn.Identity()])
        self.roi_layers[0].output_size = (1, 1)
        self.num_inputs = self.out_channels = 1

    def map_roi_levels(self, rois, num_levels):
        raise MemoryError('no memory is left')


@pytest.mark.parametrize('during_a_request', [True, False])
def test_an_error_during_a_request_is_not_followed_by_another(during_a_request):
    # The other processes wait for their sum: one more request would block all of them.
    asked = []
    team = SimpleNamespace(ask=asked.append)
    maps = SimpleNamespace(team=team, maps=[torch.zeros(1)], shape=(32, 32))
    extractor = FailingExtractor()
    pool = RegionPool([extractor], maps, 0, lambda *_: iter(()))
    with pytest.raises(MemoryError), pool.replace_extractors([]):
        if during_a_request:
            extractor.forward((), torch.zeros(2, 5))
        raise MemoryError

    (request,) = asked
    assert (request is not None) is during_a_request
