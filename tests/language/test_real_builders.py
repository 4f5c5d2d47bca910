"""Builders that people really have: ResNet, transformers, metrics, optimizers, Lightning modules and data."""

import pickle
from pathlib import Path
from typing import Any

import lightning
import pytest
import real_builders as r
import torch
import torchmetrics
from omegaconf import OmegaConf
from torch import nn
from toy_models import random_loader

from tl_integrations import language as L
from tl_integrations.language.checkpoints import CHECKPOINT_KEY


def round_trip(thunk: Any, **options: Any) -> Any:
    """Built by code and from the YAML text of a trace, compared; gives the second."""
    config = L.trace(thunk)
    text = L.to_yaml(config)
    by_code, by_config = thunk(), L.instantiate(OmegaConf.create(text), **options)
    assert type(by_code) is type(by_config)
    if isinstance(by_code, nn.Module):
        assert repr(by_code) == repr(by_config)
        shapes = [
            [(name, value.shape) for name, value in one.state_dict().items()] for one in (by_code, by_config)
        ]
        assert shapes[0] == shapes[1]
    return by_config


def test_a_resnet() -> None:
    net = round_trip(lambda: r.ResNet(r.Bottleneck, [1, 2, 1, 1], width=8, norm=nn.BatchNorm2d))
    assert net(torch.ones(2, 3, 32, 32)).shape == (2, 10)
    assert L.config_of(net) == L.trace(
        lambda: r.ResNet(r.Bottleneck, [1, 2, 1, 1], width=8, norm=nn.BatchNorm2d)
    )
    L.verify(r.ResNet, r.BasicBlock, [1, 1], width=4)


def test_transformers_from_config_objects() -> None:
    bert = round_trip(lambda: r.BertModel(r.BertConfig(**r.SMALL_BERT)))
    assert bert.config.hidden_size == 16
    gpt = round_trip(
        lambda: r.GPT2LMHeadModel(r.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=8))
    )
    assert L.config_of(gpt).config.n_embd == 8
    gpt.config.n_layer = 1
    assert gpt(torch.zeros(1, 3, dtype=torch.long)).logits.shape == (1, 3, 11)


def test_a_builder_of_a_transformer_takes_plain_numbers() -> None:
    model = round_trip(lambda: r.small_bert(hidden=16, layers=1))
    assert L.config_of(model) == {"_target_": "real_builders.small_bert", "hidden": 16, "layers": 1}


def test_metrics() -> None:
    metrics = L.wrap(torchmetrics)
    thunk = lambda: metrics.MetricCollection(  # noqa: E731
        {"acc": metrics.Accuracy(task="multiclass", num_classes=3), "mse": metrics.MeanSquaredError()}
    )
    config = L.trace(thunk)
    collection = L.instantiate(OmegaConf.create(L.to_yaml(config)))
    assert set(collection.keys()) == {"acc", "mse"}
    assert collection["acc"].num_classes == 3


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adadelta"])
def test_optimizers_and_schedulers(name: str, tmp_path: Path) -> None:
    config = L.trace(
        lambda: r.Recipe(
            L.partial(getattr(torch.optim, name))(lr=0.1),
            L.partial(torch.optim.lr_scheduler.StepLR)(step_size=2),
        )
    )
    recipe = L.instantiate(OmegaConf.create(L.to_yaml(config)))
    optimizer = recipe.optimizer([nn.Parameter(torch.ones(2))])
    scheduler = recipe.scheduler(optimizer)
    optimizer.step()
    scheduler.step()
    torch.save(optimizer.state_dict(), tmp_path / "o.pt")
    assert torch.load(tmp_path / "o.pt", weights_only=True)["param_groups"][0]["lr"] == pytest.approx(0.1)


def test_tuples_of_optimizers_stay_tuples(tmp_path: Path) -> None:
    config = L.trace(lambda: r.Recipe(L.partial(torch.optim.Adam)(lr=0.1, betas=(0.8, 0.9))))
    for engine in ("fast", "hydra"):
        optimizer = L.instantiate(config, engine=engine).optimizer([nn.Parameter(torch.ones(2))])
        assert type(optimizer.defaults["betas"]) is tuple
        torch.save(optimizer.state_dict(), tmp_path / "o.pt")
        assert torch.load(tmp_path / "o.pt", weights_only=True)["param_groups"][0]["betas"] == (0.8, 0.9)


def trainer(folder: Path) -> lightning.Trainer:
    return lightning.Trainer(
        max_epochs=1,
        limit_train_batches=2,
        logger=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )


def test_row_48_a_lightning_module_with_nested_modules_is_rebuilt_without_its_arguments(
    tmp_path: Path,
) -> None:
    thunk = lambda: r.Lit(r.Backbone(8, [4, 4]), lr=0.1)  # noqa: E731
    module = round_trip(thunk)
    assert dict(module.hparams) == {"lr": 0.1}
    fit = trainer(tmp_path)
    fit.fit(module, random_loader(8))
    assert L.config_of(module) == L.trace(thunk)
    fit.save_checkpoint(tmp_path / "m.ckpt")
    saved = torch.load(tmp_path / "m.ckpt", weights_only=True)
    saved[CHECKPOINT_KEY] = L.config_of(module, as_dict=True)
    torch.save(saved, tmp_path / "m.ckpt")
    again = L.load_from_checkpoint(tmp_path / "m.ckpt")
    assert torch.equal(again.backbone.layers[0].weight, module.backbone.layers[0].weight)


def test_row_47_save_hyperparameters_sees_the_plain_arguments() -> None:
    assert dict(r.Wide(3, lr=0.2).hparams) == {"width": 3, "lr": 0.2}
    built = L.instantiate(L.trace(lambda: r.Wide(3, lr=0.2)))
    assert dict(built.hparams) == {"width": 3, "lr": 0.2}
    assert type(built.hparams["width"]) is int


def test_c43_a_config_as_hyperparameter_gives_a_checkpoint_of_plain_data(tmp_path: Path) -> None:
    """Containers reach the constructor as plain lists and dicts, so the checkpoint loads with
    `weights_only=True`."""
    built = L.instantiate(L.trace(lambda: r.Keeps({"sizes": [1, 2], "lr": 0.1})))
    assert type(built.hparams["settings"]) is dict and type(built.hparams["settings"]["sizes"]) is list
    fit = trainer(tmp_path)
    fit.fit(built, random_loader(8))
    fit.save_checkpoint(tmp_path / "m.ckpt")
    saved = torch.load(tmp_path / "m.ckpt", weights_only=True)
    assert saved["hyper_parameters"]["settings"] == {"sizes": [1, 2], "lr": 0.1}


def test_a_data_module(tmp_path: Path) -> None:
    thunk = lambda: r.Data(batch=3, transforms=[L.partial(torch.add)(other=1)])  # noqa: E731
    config = L.trace(thunk)
    data = L.instantiate(config)
    assert data.batch == 3 and len(list(data.train_dataloader())) == 4
    assert L.config_of(data) == config


def test_whole_experiments_in_one_config() -> None:
    def experiment() -> Any:
        return {
            "model": r.Lit(r.Backbone(8, [4]), lr=L.ref("..lr")),
            "data": r.Data(batch=2),
            "lr": 0.5,
            "seed": 1,
        }

    config = L.trace(experiment)
    built = L.instantiate(config)
    assert built["model"].hparams.lr == 0.5 and built["seed"] == 1
    config.lr = 0.25
    assert L.instantiate(config.model).hparams.lr == 0.25


def test_distributed_data_parallel_keeps_the_config(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(r.Backbone(4, [4]))
        wrapped(torch.ones(1, 4)).sum().backward()
        assert L.config_of(wrapped.module) == L.trace(lambda: r.Backbone(4, [4]))
    finally:
        torch.distributed.destroy_process_group()


def test_objects_travel_to_other_processes() -> None:
    net = r.Backbone(4, [4])
    assert L.config_of(pickle.loads(pickle.dumps(net))) == L.config_of(net)
