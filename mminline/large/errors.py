"""The error of models that cannot run in parts."""


class CannotCutError(ValueError):
    """A part of the model needs the whole map, so its result on tiles would be another one."""
