"""Another budget for a config: fewer or more iterations under a schedule of the same shape."""

from mmengine.config import Config

# Warm-ups that are counted in iterations, of a schedule in epochs: at most this share.
WARM_UP_SHARE = 0.1


def use_budget(config: Config, iterations: int, evaluations: int) -> None:
    """Train for a number of iterations, with evaluations on the way and a checkpoint at the end.

    Schedules are stretched to the new length. One in epochs becomes one in iterations.

    Args:
        config: The config.
        iterations: How many.
        evaluations: How often the score is measured, the end included.
    """
    loop = config.train_cfg
    by_epoch = loop.get('by_epoch', 'max_epochs' in loop)
    length = loop.get('max_epochs') if by_epoch else loop.max_iters
    for scheduler in config.get('param_scheduler') or []:
        if scheduler.get('by_epoch', True) == bool(by_epoch):
            _stretch(scheduler, iterations / length)
        elif 'end' in scheduler:
            scheduler.end = max(1, min(scheduler.end, int(WARM_UP_SHARE * iterations)))
        scheduler.by_epoch = False
        scheduler.pop('convert_to_iter_based', None)
    interval = max(1, iterations // evaluations)
    config.train_cfg = dict(type='IterBasedTrainLoop', max_iters=iterations, val_interval=interval)
    checkpoint = dict(
        type='CheckpointHook',
        by_epoch=False,
        interval=iterations,
        filename_tmpl='model.pth',
        save_optimizer=False,
    )
    logger = dict(type='LoggerHook', interval=10, log_metric_by_epoch=False)
    hooks = config.get('default_hooks') or {}
    config.default_hooks = dict(hooks, checkpoint=checkpoint, logger=logger)
    config.log_processor = dict(config.get('log_processor') or {}, by_epoch=False)


def _stretch(scheduler: dict, factor: float) -> None:
    for name in ('begin', 'end', 'T_max'):
        if scheduler.get(name):
            scheduler[name] = max(1, round(scheduler[name] * factor))
    if 'milestones' in scheduler:
        scheduler['milestones'] = [round(place * factor) for place in scheduler['milestones']]
