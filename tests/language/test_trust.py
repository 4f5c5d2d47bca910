"""What may run: 200 hostile configs are refused without a trace, 100 benign ones build."""

import builtins
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import configurables as c
import plain_builders as plain
import pytest
from omegaconf import OmegaConf
from torch import nn

from tl_integrations import language as L
from tl_integrations.errors import BuildError, ConfigError, TraceError, UntrustedTargetError
from tl_integrations.language.paths import load
from tl_integrations.language.targets import refuse_denied


def refused_by_hydra() -> list[str]:
    """What the installed Hydra refuses by itself; the first releases of 1.3 refuse nothing."""
    for name, listed in (
        ("target_policy", "DEFAULT_BLOCKLISTED_MODULES"),
        ("execution_policy", "DEFAULT_BLACKLISTED_MODULES"),  # Hydra 1.4
    ):
        if find_spec(f"hydra._internal.{name}") is not None:
            policy = import_module(f"hydra._internal.{name}")
            prefixes = policy.UNCONTROLLED_EXECUTION_TARGET_PREFIXES
            targets = policy.UNCONTROLLED_EXECUTION_TARGETS
            return sorted(getattr(policy, listed) | targets | {f"{prefix}x" for prefix in prefixes})
    return []


HYDRA = refused_by_hydra()
"""Everything that Hydra itself refuses, read from it, so that ours is measured against the installed one."""

SLIPS_THROUGH = """
    os._exit numpy.load torch.load builtins.open pathlib.Path.write_text os.mkdir os.getenv
    urllib.request.urlopen this.s torch.hub.load builtins.getattr hydra.utils.instantiate
""".split()
ALIASES = """
    logging.os.system torch.os.system torch.nn.modules.module.torch.os.system
    torch.nn.functional.importlib.import_module torch.nn.modules.module.warnings.sys.exit
    torch.nn.Module.__init__.__globals__ torch.nn.Linear.__class__ torch.optim.optimizer.functools.reduce
    torch.nn.Embedding.from_pretrained torch.nn.functional.relu torch.nn.init.normal_
    torch.nn.utils.clip_grad_norm_ torch.optim.swa_utils.update_bn pathlib.os.system collections.abc.sys.exit
    torch.nn.parallel.data_parallel torch.utils.cpp_extension.load torch.ops.load_library
    torch.package.PackageImporter torch.jit.load torch.distributed.rpc.rpc_sync posix.system nt.system
    _io.open io.open_code codecs.open
""".split()
MALFORMED = [
    "os.system\n",
    "",
    ".",
    "os..system",
    " os.system",
    "os.system ",
    "os:system",
    "../x",
    "torch/nn",
]
LOOK_ALIKES = ["torch.nn.Linear\x00", "\u043es.system", "torch.nn.\u216cinear", "torch.nn.Linea\uff52"]
NOT_TEXT = [1, 1.5, None, True, ["os.system"], {"a": 1}]


def hostile() -> list[tuple[str, Any]]:
    """At least 200 configs, each with one name that must not run, in every form a name can take."""
    made: list[tuple[str, Any]] = []
    for name in (*HYDRA, *SLIPS_THROUGH, *ALIASES, *MALFORMED, *LOOK_ALIKES, *NOT_TEXT):
        made.append((f"plain {name!r}", {"_target_": name}))
    for name in ("os.system", "builtins.eval", "torch.load", "my_app.thing"):
        bad = {"_target_": name, "_args_": ["echo"]}
        made += [
            (f"nested {name}", {"a": {"_target_": "torch.nn.Linear", "in_features": bad, "out_features": 1}}),
            (f"in a list {name}", {"a": [1, [bad]]}),
            (f"in args {name}", {"_target_": "torch.nn.Sequential", "_args_": [bad]}),
            (f"partial {name}", {**bad, "_partial_": True}),
            (f"not recursive {name}", {"_target_": "builtins.dict", "a": bad, "_recursive_": False}),
            (f"by reference {name}", {"_target_": "hydra.utils.get_object", "path": name}),
            (f"by position {name}", {"_target_": "hydra.utils.get_object", "_args_": [name]}),
            (f"by class {name}", {"_target_": "hydra.utils.get_class", "path": name}),
            (f"by interpolation {name}", {"n": name, "a": {"_target_": "${n}"}}),
            (f"by parts {name}", {"n": name[3:], "a": {"_target_": name[:3] + "${n}"}}),
            (
                f"by deep reference {name}",
                {"x": {"y": bad}, "a": "${x.y}", "b": {"_target_": "builtins.list", "_args_": ["${x}"]}},
            ),
        ]
    return made


HOSTILE = hostile()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Everything that is imported for the first time, opened, or started meanwhile, in a process that trusts
    nothing yet: what other tests recorded here is forgotten.
    """
    monkeypatch.setattr(sys.modules["tl_integrations.language.trust"], "trusted", set())
    seen: list[str] = []
    on = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if on[0] and event in (
            "import",
            "open",
            "os.system",
            "subprocess.Popen",
            "os.exec",
            "os.mkdir",
            "exec",
            "os.remove",
        ):
            seen.append(f"{event} {args[0]!r}"[:200])

    sys.addaudithook(hook)
    yield seen
    on[0] = False


@pytest.mark.filterwarnings("ignore")
def test_two_hundred_hostile_configs_are_refused_without_a_trace(watched: list[str]) -> None:
    assert len(HOSTILE) >= (200 if HYDRA else 100)
    accepted, loaded = [], set(sys.modules)
    watched.clear()
    for label, config in HOSTILE:
        for form in (config, OmegaConf.create(config) if label.startswith(("by", "nested", "in")) else None):
            if form is None:
                continue
            try:
                L.instantiate(form)
                accepted.append(label)
            except UntrustedTargetError:
                pass
            except ConfigError as error:
                accepted.append(f"{label}: {error}")
    assert accepted == []
    assert set(sys.modules) == loaded
    assert watched == []


def test_a_pattern_for_a_package_opens_nothing_that_the_deny_list_holds() -> None:
    refused = 0
    for name in (*HYDRA, *SLIPS_THROUGH):
        with pytest.raises(UntrustedTargetError):
            L.instantiate(
                {"_target_": name},
                allow=["builtins.*", "os.*", "torch.*", "numpy.*", "pathlib.*", "hydra.*", name],
            )
        refused += 1
    assert refused > (150 if HYDRA else 10)


PLAIN_LAYERS = """
    ReLU GELU Tanh Sigmoid SiLU ELU SELU CELU Mish Softplus Softsign Hardtanh Hardswish LeakyReLU LogSigmoid
    PReLU RReLU ReLU6 Identity Flatten Sequential ModuleList ModuleDict MSELoss L1Loss CrossEntropyLoss
    NLLLoss BCELoss BCEWithLogitsLoss KLDivLoss HuberLoss SmoothL1Loss Dropout Dropout1d Dropout2d
    AlphaDropout Softmax LogSoftmax Softmin Softmax2d CosineSimilarity PairwiseDistance ParameterList
    ParameterDict MultiLabelMarginLoss SoftMarginLoss TripletMarginLoss Tanhshrink Hardshrink Softshrink
    Hardsigmoid PoissonNLLLoss GaussianNLLLoss CosineEmbeddingLoss MarginRankingLoss HingeEmbeddingLoss
    MultiMarginLoss
""".split()
SIZED_LAYERS = "LSTM GRU RNN Embedding LSTMCell GRUCell RNNCell".split()
OPTIMIZERS = "SGD Adam AdamW RMSprop Adagrad LBFGS lr_scheduler.StepLR lr_scheduler.CosineAnnealingLR".split()
REFERENCES = """
    torch.float32 torch.int64 torch.strided torch.channels_last torch.nn.functional.relu
    torch.nn.functional.gelu torch.nn.functional.silu torch.nn.functional.cross_entropy torch.nn.ReLU
    torch.nn.Linear torch.nn.LayerNorm
""".split()
VALUES = [
    {"_target_": "builtins.tuple", "_args_": [[1, 2]], "_convert_": "all"},
    {"_target_": "pathlib.Path", "_args_": ["a"]},
    {"_target_": "uuid.UUID", "int": 5},
    {"_target_": "torch.device", "_args_": ["cpu"]},
    {"_target_": "urllib.parse.unquote", "_args_": ["%24{a}"]},
    {"_target_": "torch.tensor", "data": [1.0], "_convert_": "all"},
    {"_target_": "torch.nn.TransformerEncoderLayer", "d_model": 4, "nhead": 2, "dim_feedforward": 4},
    {"nested": [{"_target_": "torch.nn.Linear", "in_features": "${nested[1]}", "out_features": 1}, 3]},
]


def benign() -> list[Any]:
    """At least 100 configs that need no permission."""
    made: list[Any] = [{"_target_": f"torch.nn.{name}"} for name in PLAIN_LAYERS]
    made += [{"_target_": f"torch.nn.{name}", "_args_": [2, 2]} for name in SIZED_LAYERS]
    made += [{"_target_": f"torch.nn.Conv{n}d", "_args_": [2, 3, 1]} for n in (1, 2, 3)]
    made += [{"_target_": f"torch.nn.BatchNorm{n}d", "num_features": 2} for n in (1, 2, 3)]
    made += [{"_target_": "torch.nn.Linear", "in_features": n, "out_features": 1} for n in range(1, 6)]
    made += [{"_target_": f"torch.optim.{name}", "_partial_": True} for name in OPTIMIZERS]
    made += [{"_target_": "hydra.utils.get_object", "path": path} for path in REFERENCES]
    return made + VALUES


def test_a_hundred_benign_configs_build() -> None:
    configs = benign()
    assert len(configs) >= 100
    for config in configs:
        built = L.instantiate(config)
        name = config.get("_target_", "").rpartition(".")[2]
        assert (
            type(built).__name__ == name
            or name in ("get_object", "unquote", "tensor", "Path")
            or config in VALUES
            or (config.get("_partial_") and built.func.__name__ == name)
        )


NO_LIST = pytest.param("", marks=pytest.mark.skip(reason="this Hydra refuses nothing by name"))


@pytest.mark.parametrize("name", HYDRA or [NO_LIST])
def test_row_30_what_hydra_refuses_fails_where_it_is_traced(name: str) -> None:
    if name.startswith(("antigravity", "this")):
        return
    with pytest.raises(TraceError, match="cannot be part of a config"):
        refuse_denied(name, None)
    try:
        found = load(name)
    except Exception:
        return
    if callable(found):
        with pytest.raises(TypeError):
            L.trace(lambda: L.call(found)())
        with pytest.raises(TypeError):
            L.trace(lambda: c.same(found))


def test_all_refusals_come_at_once_with_the_line_to_paste() -> None:
    with pytest.raises(UntrustedTargetError) as caught:
        L.instantiate(
            {
                "m": {
                    "enc": {"_target_": "my_app.Enc"},
                    "x": [{"_target_": "other.thing"}, {"_target_": "os.system"}],
                }
            }
        )
    text = str(caught.value)
    assert (
        "m.enc._target_: 'my_app.Enc'" in text
        and "m.x[0]._target_: 'other.thing'" in text
        and "m.x[1]" in text
    )
    assert "allow=['my_app.Enc', 'other.thing']" in text
    assert "my_app" not in sys.modules


def test_a_refusal_by_the_resolved_name_prints_both() -> None:
    with pytest.raises(UntrustedTargetError, match=r"'plain_aliases\.run' really is 'posix\.system'"):
        L.instantiate({"_target_": "plain_aliases.run"}, allow=["plain_aliases.*"])
    with pytest.raises(
        UntrustedTargetError, match=r"'plain_aliases\.Linear' really is 'torch\.nn\.modules\.linear\.Linear'"
    ):
        L.instantiate({"_target_": "plain_aliases.Linear", "_args_": [1, 1]}, allow=["plain_aliases.*"])
    exact = L.instantiate(
        {"_target_": "plain_aliases.Linear", "_args_": [1, 1]}, allow="plain_aliases.Linear"
    )
    assert isinstance(exact, nn.Linear)
    both = L.instantiate(
        {"_target_": "plain_aliases.Linear", "_args_": [1, 1]},
        allow=["plain_aliases.*", "torch.nn.modules.*"],
    )
    assert isinstance(both, nn.Linear)


def test_trust_extends_what_a_process_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tl_integrations.language.trust"], "_patterns", [])
    config = {"_target_": "plain_aliases.Own", "size": 3}
    with pytest.raises(UntrustedTargetError):
        L.instantiate(config)
    L.trust("plain_aliases.*")
    assert L.instantiate(config).size == 3
    for bad in ("*", "*.x", "", 3):
        with pytest.raises(ValueError, match="starts with a package"):
            L.trust(bad)  # type: ignore[arg-type]


def test_trust_belongs_to_names_and_not_to_configs() -> None:
    config = L.trace(lambda: c.Encoder(2))
    assert isinstance(L.instantiate(OmegaConf.create(OmegaConf.to_yaml(config))), c.Encoder)
    config._target_ = "os.system"
    with pytest.raises(UntrustedTargetError):
        L.instantiate(config)
    with pytest.raises(UntrustedTargetError):
        L.instantiate({"allow": ["os.system"], "_target_": "os.system"})


def test_decorating_a_foreign_class_allows_that_class_alone() -> None:
    code = """
        from fractions import Fraction
        import configparser
        from tl_integrations import language as L
        parser = L.configurable(configparser.ConfigParser)
        with L.untraced(): pass
        L.trace(lambda: parser())
        L.instantiate({"_target_": "configparser.ConfigParser"})
        try:
            L.instantiate({"_target_": "configparser.RawConfigParser"})
        except PermissionError as error:
            print("refused")
    """
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True
    )
    assert done.stdout.strip() == "refused", done.stderr


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "x${oc.env:HOME}", "${oc.env:${name}}", "${my.eval:1}"])
def test_resolvers_are_refused_unless_named(text: str) -> None:
    config = {"name": "HOME", "a": {"_target_": "builtins.dict", "x": text}}
    for form in (config, OmegaConf.create(config)):
        with pytest.raises(UntrustedTargetError, match=r"a\.x.*resolver"):
            L.instantiate(form)
    if "my" not in text:
        assert os.environ["HOME"] in L.instantiate(config, allow="resolver:oc.env")["a"]["x"]


def test_harmless_resolvers_work() -> None:
    config = OmegaConf.create(
        {"d": {"k": 1}, "a": {"_target_": "builtins.dict", "x": "${oc.select:missing,5}"}}
    )
    assert L.instantiate(config)["a"] == {"x": 5}


def test_a_callable_given_by_code_is_its_own_vouching() -> None:
    assert L.instantiate({"_target_": plain.same, "value": 1}) == 1
    with pytest.raises(UntrustedTargetError):
        L.instantiate({"_target_": os.system, "command": "x"})
    with pytest.raises(UntrustedTargetError):
        L.instantiate({"_target_": builtins.eval})


def test_a_name_that_leads_nowhere_says_where_it_stands() -> None:
    with pytest.raises(BuildError, match=r"m\.x: .*no attribute 'Lineal'"):
        L.instantiate({"m": {"x": {"_target_": "torch.nn.Lineal"}}})
    with pytest.raises(BuildError, match="no module 'not_there'"):
        L.instantiate({"_target_": "not_there.x"}, allow="not_there.x")
