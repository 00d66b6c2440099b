"""Parts that a detector has to have so that it can run in tiles."""

from torch import nn

from .errors import CannotCutError
from .regions import check_extractor


def check_parts(model: nn.Module, parts: dict[str, nn.Module | None]) -> None:
    """Refuse detectors that are not built of a neck and a dense head with priors."""
    missing = [name for name, part in parts.items() if part is None]
    head = list(parts.values())[-1]
    wanted = ('prior_generator', 'use_sigmoid_cls', '_predict_by_feat_single')
    missing += [name for name in wanted if not hasattr(head, name)] if head is not None else []
    if missing:
        raise CannotCutError(
            f'{type(model).__name__} cannot run in parts: that needs a neck and a dense head with '
            f'anchors or points, and it has no {", ".join(missing)}'
        )


def region_parts(roi_head: nn.Module | None) -> tuple[list[nn.Module], list[nn.Module]]:
    """Extractors and mask heads of a head of regions; a cascade has one of each for a stage."""
    if roi_head is None:
        return [], []
    for name in ('with_semantic', 'with_glbctx', 'with_feat_relay'):
        if getattr(roi_head, name, False):
            raise CannotCutError(f'the model cannot run in parts: roi_head is {name}')
    found = [
        _as_list(getattr(roi_head, f'{kind}_roi_extractor', None)) for kind in ('bbox', 'mask')
    ]
    extractors = list(dict.fromkeys(found[0] + found[1]))
    for extractor in extractors:
        check_extractor(extractor)
    return extractors, _as_list(getattr(roi_head, 'mask_head', None))


def _as_list(part: nn.Module | None) -> list[nn.Module]:
    if part is None:
        return []
    return list(part) if isinstance(part, nn.ModuleList) else [part]
