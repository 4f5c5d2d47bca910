"""A Hydra app whose groups all come from code: it builds what was chosen and prints it."""

import builders  # noqa: F401  (importing it stores the configs)
import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

ConfigStore.instance().store(
    "config", {"defaults": [{"model": "resnet"}, {"optimizer": "adam"}, "_self_"], "seed": 0}
)


@hydra.main(version_base=None, config_name="config")
def main(cfg: DictConfig) -> None:
    if cfg.seed < 0:
        raise ValueError("a seed is not negative")
    print(hydra.utils.instantiate(cfg.model), hydra.utils.instantiate(cfg.optimizer), f"seed={cfg.seed}")


if __name__ == "__main__":
    main()
