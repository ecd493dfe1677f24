"""What stands against a run's weights, before anything is launched: from headers alone."""

from importlib.util import find_spec
from pathlib import Path

from cost_models.errors import BadInput
from cost_models.fine_tuning import without_adapters
from planner.executor.request import RunOrder
from planner.executor.weights.stored import read_directory


def check_weights(order: RunOrder) -> None:
    """Raise BadInput where the folders of the options cannot be used; nothing of them is loaded."""
    options = order.options
    if not (options.weights or options.save_weights) or options.verify:
        return
    if options.factory:
        raise BadInput(
            "--weights and --save-weights are of the plan's model, and a factory's module brings its own; leave one out"
        )
    if not options.weights:
        raise BadInput(
            "--save-weights writes beside the weights the config.json that they belong to; give its folder with "
            "--weights DIR (with a config alone they begin from the seed)"
        )
    directory = read_directory(Path(options.weights))
    if find_spec("torch") is not None:
        from planner.executor.weights.match import check_model, match

        check_model(directory, order.situation)
        if directory.tensors:
            model = without_adapters(order.situation.model)
            match(directory, model, predictions=order.predictions > 0)
    if options.save_weights:
        _check_target(order)


def _check_target(order: RunOrder) -> None:
    """Raise BadInput where the folder cannot be made, holds something, or the model's names are not known."""
    from planner.executor.weights.names import naming_of

    naming_of(without_adapters(order.situation.model))
    target = Path(order.options.save_weights)
    if order.situation.job.trainable.rank:
        raise BadInput(
            "--save-weights writes whole models, and this job trains adapters beside one that stays as it is; write "
            "them with --adapters DIR"
        )
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise BadInput(f"--save-weights {str(target)[:200]!r} is not empty; give a new folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        probe = target.parent / f"{target.name}.partial-probe"
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as error:
        raise BadInput(
            f"--save-weights {str(target)[:200]!r} cannot be written ({error.strerror}); give another folder"
        ) from None
