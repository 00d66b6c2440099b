"""Children of mmengine's registries, so that ``type='mminline.InLinePVT'`` resolves anywhere.

mmengine imports this module by its name and hides errors raised in it, so it imports nothing
else of the package.
"""

from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS as MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS
from mmengine.registry import OPTIM_WRAPPERS as MMENGINE_OPTIM_WRAPPERS
from mmengine.registry import Registry

MODELS = Registry('model', parent=MMENGINE_MODELS, scope='mminline', locations=['mminline.models'])
HOOKS = Registry('hook', parent=MMENGINE_HOOKS, scope='mminline', locations=['mminline.engine'])
OPTIM_WRAPPER_CONSTRUCTORS = Registry(
    'optimizer wrapper constructor',
    parent=MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS,
    scope='mminline',
    locations=['mminline.engine'],
)
OPTIM_WRAPPERS = Registry(
    'optim_wrapper',
    parent=MMENGINE_OPTIM_WRAPPERS,
    scope='mminline',
    locations=['mminline.engine'],
)
