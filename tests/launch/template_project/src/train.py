"""A project laid out like lightning-hydra-template: callbacks are a group, each with a target is built."""

import sys
from pathlib import Path

import hydra
import lightning.pytorch as pl
from omegaconf import DictConfig

sys.path.insert(0, str(Path(__file__).parents[1]))


def build_callbacks(callbacks: DictConfig | None) -> list[pl.Callback]:
    entries = callbacks.values() if callbacks else []
    return [hydra.utils.instantiate(entry) for entry in entries if "_target_" in entry]


@hydra.main(version_base="1.3", config_path="../configs", config_name="train.yaml")
def main(cfg: DictConfig) -> None:
    pl.seed_everything(cfg.seed, verbose=False)
    model = hydra.utils.instantiate(cfg.model)
    trainer = hydra.utils.instantiate(cfg.trainer, callbacks=build_callbacks(cfg.callbacks))
    trainer.fit(model)
    print("callbacks:", [type(callback).__name__ for callback in trainer.callbacks])


if __name__ == "__main__":
    main()
