"""EvaluationHooks: validate, test and predict batches as one pair of methods."""

from abc import abstractmethod
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class EvaluationHooks(Callback):
    """Turns Lightning's three evaluation loops into three methods that take the stage as a value."""

    @abstractmethod
    def _begin_eval(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """An evaluation begins, within a fit or on its own."""

    @abstractmethod
    def _begin_eval_batch(self, trainer: Trainer, stage: str, batch: int, dataloader_idx: int) -> None:
        """An evaluation batch begins; `stage` is validate, test or predict."""

    @abstractmethod
    def _end_eval_batch(self) -> None:
        """It ends."""

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin_eval(trainer, pl_module)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin_eval(trainer, pl_module)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin_eval(trainer, pl_module)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._begin_eval_batch(trainer, "validate", batch_idx, dataloader_idx)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._end_eval_batch()

    def on_test_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._begin_eval_batch(trainer, "test", batch_idx, dataloader_idx)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._end_eval_batch()

    def on_predict_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._begin_eval_batch(trainer, "predict", batch_idx, dataloader_idx)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._end_eval_batch()
