"""ConfigCallback: the config half alone, for runs that capture nothing."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from tl_integrations.callbacks.launch_config import (
    LaunchConfig,
    keep_in_checkpoint,
    launch_config,
    log_config,
    write_resolved,
)
from tl_integrations.callbacks.progress import current_step, is_rehearsal


class ConfigCallback(Callback):
    """Carries the config that built the model to every logger, run folder and checkpoint.

    Args:
        config: What built the model: a thunk of configurable calls, or a config. None: the model's own
            record, else the Hydra job's config.

    Raises:
        ConfigError: at the start of the fit, if `config` is a live module.

    Example:
        >>> from lightning.pytorch import Trainer
        >>> trainer = Trainer(callbacks=[ConfigCallback()], logger=False, enable_checkpointing=False)
    """

    def __init__(self, config: Any = None) -> None:
        self._config = config
        self._launch: LaunchConfig | None = None

    @property
    def launch(self) -> LaunchConfig | None:
        """The config of the run and who said so; None before a run began."""
        return self._launch

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._launch = launch_config(self._config, pl_module)
        if trainer.is_global_zero and not is_rehearsal(trainer):
            write_resolved(self._launch)
            log_config(self._launch, trainer.loggers, current_step(trainer))

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        keep_in_checkpoint(self._launch or launch_config(self._config, pl_module), checkpoint)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # Lightning sets these on every callback; they would keep the module alive.
        self.__dict__.pop("log", None)
        self.__dict__.pop("log_dict", None)
