"""How do I choose models from Hydra's command line without writing YAML, and look inside while they train?

The `model` group comes from the builders of digits_models.py, stored in digits_configs.py; the capture is a
callback of the config like any other, so that it can be overridden and swept.

    python examples/train_digits.py
    python examples/train_digits.py model=conv model.depth=3 callbacks.trace.schedule=20
    python examples/train_digits.py -m model=mlp,conv

Prints the accuracy and the files that the run left: curves, activations, the model's config, a checkpoint.
"""

import logging
import warnings
from pathlib import Path

import hydra
import lightning.pytorch as pl
import torch
from digits_configs import DigitClassifier
from digits_models import Digits
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from lightning.pytorch.loggers import TensorBoardLogger
from omegaconf import DictConfig

from tl_integrations import language as L

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
# The images are in memory already: worker processes would only slow this down.
warnings.filterwarnings("ignore", message=".*does not have many workers.*|.*LeafSpec.*")

ConfigStore.instance().store(
    name="train_digits",
    node={
        "defaults": [{"model": "mlp"}, {"callbacks": "trace"}, "_self_"],
        "callbacks": {
            "trace": {
                "schedule": 50,
                "histograms": True,
                "storage": "run.tlspec",
                "report": {"heat_map": True, "images": ["net.0", "net.2"]},
            }
        },
        "seed": 0,
        "epochs": 15,
        "batch_size": 64,
        "lr": 0.005,
    },
)


@hydra.main(version_base=None, config_name="train_digits")
def main(cfg: DictConfig) -> float:
    folder = Path(HydraConfig.get().runtime.output_dir)
    # Layers this small are computed faster than threads can be told of them.
    torch.set_num_threads(1)
    pl.seed_everything(cfg.seed, verbose=False)
    module = DigitClassifier(L.instantiate(cfg.model, allow=["digits_models.*"]), lr=cfg.lr)
    trainer = pl.Trainer(
        max_epochs=cfg.epochs,
        accelerator="cpu",
        logger=TensorBoardLogger(folder, name="tensorboard", version=""),
        callbacks=[hydra.utils.instantiate(callback) for callback in cfg.callbacks.values()],
        log_every_n_steps=10,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, Digits(batch_size=cfg.batch_size, seed=cfg.seed))
    trainer.save_checkpoint(folder / "last.ckpt")
    accuracy = float(trainer.callback_metrics["val_accuracy"])
    print(where_to_look(folder, accuracy))
    return accuracy


def where_to_look(folder: Path, accuracy: float) -> str:
    """What the run left behind, and how to open it."""
    return (
        f"\nvalidation accuracy  {accuracy:.1%}\n"
        f"run folder           {folder}\n"
        f"activations          {folder / 'run.tlspec'}\n"
        f"config of the model  {folder / '.hydra' / 'resolved.yaml'}\n"
        f"checkpoint           {folder / 'last.ckpt'}\n"
        f"curves               tensorboard --logdir {folder}\n"
    )


if __name__ == "__main__":
    main()
