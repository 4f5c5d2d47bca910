"""Every recipe: trace -> YAML file -> a process that cannot import us -> plain Hydra -> the same value."""

import collections
import datetime
import decimal
import fractions
import functools
import math
import operator
import pathlib
import pickle
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import plain_builders as plain
import pytest
import torch
from torch import nn

from tl_integrations import language as L

VALUES: dict[str, Any] = {
    "none": None,
    "bool": True,
    "int": 2**70,
    "float": 0.1 + 0.2,
    "negative zero": -0.0,
    "infinity": math.inf,
    "string": "a b",
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"ab"),
    "literal interpolation": "${a} % %24",
    "literal missing": "???",
    "list": [1, [2, {"a": 3}]],
    "dict": {"a": {"b": [1]}},
    "int keys": {1: "a", 2.5: "b", True and 3: "c"},
    "bytes keys": {b"a": 1},
    "none keys": {None: 1, "b": [2]},
    "tuple keys": {(1, 2): [3]},
    "target keys": {"_target_": "os.system", "x": {"_target_": 1}},
    "tuple": (1, (2, [3], {"a": ()})),
    "set": {1, 2, 3},
    "frozenset": frozenset({"a", (1, 2)}),
    "deque": collections.deque([1, [2]], maxlen=5),
    "ordered dict": collections.OrderedDict([("b", 1), ("a", [2])]),
    "default dict": collections.defaultdict(list, {"a": [1]}),
    "counter": collections.Counter("aab"),
    "range": range(1, 10, 3),
    "slice": slice(None, 5, 2),
    "complex": complex(1.5, -2),
    "decimal": decimal.Decimal("1.10"),
    "fraction": fractions.Fraction(1, 3),
    "date": datetime.date(2024, 2, 29),
    "datetime": datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
    "datetime with "
    "offset": datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    "time": datetime.time(1, 2, 3),
    "timedelta": datetime.timedelta(days=-1, microseconds=5),
    "timezone": datetime.timezone(datetime.timedelta(hours=2), "X"),
    "uuid": uuid.UUID(int=5),
    "pattern": re.compile("a.${b}", re.IGNORECASE | re.DOTALL),
    "bytes pattern": re.compile(b"a+"),
    "path": pathlib.Path("a/b c"),
    "pure path": pathlib.PureWindowsPath("c:/a"),
    "ellipsis": ...,
    "enum": plain.Color.RED,
    "flag": plain.Bits.B,
    "flags": plain.Bits.A | plain.Bits.B,
    "dataclass": plain.Settings(3, ["${a}"]),
    "nested dataclass": [plain.Settings(3), {"a": plain.Settings(4)}],
    "attrs": plain.Fields(1, [2]),
    "namedtuple": plain.Pair([1], (2,)),
    "class": nn.ReLU,
    "nested class": plain.Outer.Inner,
    "function": plain.make_linear,
    "builtin": len,
    "torch function": torch.relu,
    "functional": torch.nn.functional.gelu,
    "operator": operator.add,
    "module": math,
    "classmethod": plain.Outer.make,
    "partial": functools.partial(plain.gather, 1, key=[2]),
    "partial of a class": functools.partial(plain.Outer.Inner, size=3),
    "dtype": torch.bfloat16,
    "layout": torch.sparse_coo,
    "memory format": torch.channels_last,
    "device": torch.device("cpu"),
    "size": torch.Size([2, 3]),
    "tensor": torch.tensor([[1.5, -0.0], [math.inf, 2]]),
    "scalar tensor": torch.tensor(3),
    "bool tensor": torch.tensor([True, False]),
    "double tensor": torch.tensor([0.1], dtype=torch.float64),
    "half tensor": torch.tensor([0.1], dtype=torch.float16),
    "bfloat tensor": torch.tensor([0.1], dtype=torch.bfloat16),
    "complex tensor": torch.tensor([1 + 2j, 3], dtype=torch.complex64),
    "empty tensor": torch.empty(0, 3, dtype=torch.int16),
    "generator": torch.Generator().manual_seed(5),
    "numpy float": np.float64(0.1),
    "numpy half": np.float16(0.1),
    "numpy int": np.int8(-3),
    "numpy bool": np.bool_(True),
    "numpy complex": np.complex64(1 + 2j),
    "numpy string": np.str_("a"),
    "numpy datetime": np.datetime64("2024-01-02T03:04"),
    "numpy timedelta": np.timedelta64(5, "D"),
    "numpy dtype": np.dtype("float32"),
    "numpy big-endian dtype": np.dtype(">i4"),
    "numpy array": np.array([[1.5, 2], [3, math.nan]]),
    "numpy int array": np.arange(5, dtype=np.uint8),
    "numpy string array": np.array(["a", "${b}"]),
    "numpy complex array": np.array([1 + 2j]),
    "numpy empty array": np.empty((0, 2), dtype=np.float32),
    "numpy scalar array": np.array(1.5),
    "numpy function": np.add,
}  # fmt: skip


def linear() -> Any:
    return L.call(nn.Linear)(1, 2)


BUILT: dict[str, tuple[Callable[[], Any], Any]] = {
    "sequential": (lambda: L.call(nn.Sequential)(linear()), nn.Sequential(nn.Linear(1, 2))),
    "module list": (lambda: L.call(nn.ModuleList)([linear()]), nn.ModuleList([nn.Linear(1, 2)])),
    "module dict": (lambda: L.call(nn.ModuleDict)({"a": linear()}), nn.ModuleDict({"a": nn.Linear(1, 2)})),
    "tuple of modules": (lambda: L.call(plain.same)((linear(), 3)), (nn.Linear(1, 2), 3)),
    "modules under int keys": (lambda: L.call(plain.same)({1: linear()}), {1: nn.Linear(1, 2)}),
    "nested class": (lambda: L.call(plain.Outer.Inner)(3), plain.Outer.Inner(3)),
    "classmethod": (lambda: L.call(plain.Outer.make)(3), plain.Outer.make(3)),
    "staticmethod": (lambda: L.call(plain.Outer.double)(3), 6),
    "positional-only": (lambda: L.call(plain.positional_only)(1, 2, d=5), (1, 2, 3, 5)),
    "variadic": (lambda: L.call(plain.gather)(1, [2], key={"a": (3,)}), ((1, [2]), {"key": {"a": (3,)}})),
    "partial": (lambda: L.partial(plain.gather)(1, key=2), functools.partial(plain.gather, 1, key=2)),
    "shared": (lambda: L.call(plain.Gathered)(*[linear()] * 2), None),
}  # fmt: skip
"""Nodes and what plain Hydra must make of them; None where only that it builds matters."""

SCRIPT = """
import functools, importlib.abc, pickle, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tl_integrations":
            raise ImportError("not here")
sys.meta_path.insert(0, Refuse())
from hydra.utils import instantiate
from omegaconf import OmegaConf
import torch
built = []
for name in range(int(sys.argv[1])):
    try:
        value = instantiate(OmegaConf.load(f"{name}.yaml"))
        if isinstance(value, torch.Generator):
            value = value.get_state()
        if isinstance(value, functools.partial):
            value = functools.partial(value.func, *value.args, **value.keywords)
    except Exception as error:
        value = repr(error)
    try:
        built.append(pickle.dumps(value))
    except TypeError:
        built.append(pickle.dumps(("shown", repr(value))))
pickle.dump(built, open("built.pickle", "wb"))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Every value as another process got it from plain Hydra."""
    folder = tmp_path_factory.mktemp("recipes")
    values = {name: (lambda value=value: L.call(plain.same)(value)) for name, value in VALUES.items()}
    thunks = {**values, **{f"built {name}": thunk for name, (thunk, _) in BUILT.items()}}
    for index, thunk in enumerate(thunks.values()):
        L.save_config(L.trace(thunk), folder / f"{index}.yaml")
    env = {"PYTHONPATH": str(Path(__file__).parent), "PATH": ""}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(len(thunks))]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(thunks, pickle.loads((folder / "built.pickle").read_bytes()), strict=True))


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, down to the items."""
    if isinstance(a, torch.Generator):
        return torch.equal(a.get_state(), b)
    if isinstance(a, functools.partial):
        return isinstance(b, functools.partial) and same(
            [a.func, a.args, a.keywords], [b.func, b.args, b.keywords]
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, nn.Module):
        return repr(a) == repr(b)
    if isinstance(a, torch.Tensor):
        return a.dtype is b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and repr(a.tolist()) == repr(b.tolist())
    if isinstance(a, dict):
        return [*map(repr, a)] == [*map(repr, b)] and all(
            same(x, y) for x, y in zip(a.values(), b.values(), strict=True)
        )
    if isinstance(a, list | tuple | collections.deque):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and (repr(a) == repr(b) or isinstance(a, set | frozenset | plain.Outer.Inner))


@pytest.mark.parametrize("name", VALUES)
def test_plain_hydra_gives_the_same_value_in_another_process(name: str, elsewhere: Mapping[str, Any]) -> None:
    found = pickle.loads(elsewhere[name])
    value = VALUES[name]
    assert same(value, found) or found == ("shown", repr(value)), found


@pytest.mark.parametrize("name", BUILT)
def test_plain_hydra_builds_the_same_object_in_another_process(
    name: str, elsewhere: Mapping[str, Any]
) -> None:
    found, (_, expected) = pickle.loads(elsewhere[f"built {name}"]), BUILT[name]
    assert not isinstance(found, str), found
    assert expected is None or same(expected, found)


@pytest.mark.parametrize("name", VALUES)
def test_the_fast_engine_gives_the_same_value(name: str) -> None:
    value = VALUES[name]
    found = L.instantiate(L.trace(lambda: L.call(plain.same)(value)))
    assert same(value, found.get_state() if isinstance(found, torch.Generator) else found)


def test_recipes_are_trusted_where_only_the_text_is_known() -> None:
    """Values that need no name of the user's build from loaded text without `allow=`."""
    names = [
        "literal interpolation",
        "dtype",
        "class",
        "functional",
        "tuple",
        "tensor",
        "numpy array",
        "path",
    ]
    values = [VALUES[name] for name in names]
    text = L.to_yaml(L.trace(lambda: L.call(nn.ModuleDict)(values)))
    code = (
        "import sys; from tl_integrations import language as L; from omegaconf import OmegaConf\n"
        "config = OmegaConf.create(sys.stdin.read()); config['_target_'] = 'builtins.tuple'\n"
        "config['_args_'] = [config.pop('modules')]; print(repr(L.instantiate(config)))"
    )
    env = {"PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[2]}", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], input=text, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == repr(tuple(values)), done.stderr


def test_modules_keep_their_order_in_containers() -> None:
    config = L.trace(
        lambda: L.call(nn.Sequential)(
            L.call(nn.Linear)(1, 2), L.call(nn.ModuleDict)({"b": L.call(nn.ReLU)(), "a": L.call(nn.Tanh)()})
        )
    )
    built = L.instantiate(config)
    assert [type(part).__name__ for part in built.modules()] == [
        "Sequential",
        "Linear",
        "ModuleDict",
        "ReLU",
        "Tanh",
    ]
    assert repr(L.instantiate(config, engine="hydra")) == repr(built)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "nothing says"),
        (torch.ones(100), "100 elements"),
        (nn.Parameter(torch.ones(1)), "checkpoint"),
        (torch.ones(1).to_sparse(), "plain CPU"),
        (np.ones(100), "100 elements"),
        (np.array([object()]), "no exact text"),
        (np.longdouble(1), "no exact text"),
        (list[int], "subscripted"),
        (plain.Outer.Inner(1).__init__, "live object"),
        ((i for i in range(3)), "nothing says"),
        (plain.Kept(1, 2), "only for its __init__"),
        (open, "files"),
        (eval, "run code"),
        (map, "run code"),
        (operator.itemgetter, "run code"),
        (subprocess.Popen, "processes"),
        (plain.Word("a"), "nothing says"),
        (type("Own", (dict,), {})(), "nothing says"),
        (type("Own", (list,), {})(), "nothing says"),
        (type("Own", (tuple,), {})(), "nothing says"),
        (type("Own", (int,), {})(1), "nothing says"),
        (type("Own", (collections.OrderedDict,), {})(), "nothing says"),
        (type("Own", (datetime.datetime,), {})(2024, 1, 1), "nothing says"),
        (type("Own", (decimal.Decimal,), {})(1), "nothing says"),
        (type("Own", (functools.partial,), {})(len), "class of its own"),
        (type("Own", (pathlib.PurePosixPath,), {})("a"), "class of its own"),
        (type("Own", (torch.Tensor,), {})(), "checkpoint"),
    ],
)
def test_what_no_config_can_hold_is_refused_by_name(value: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        L.trace(lambda: L.call(plain.same)([{"deep": value}]))


def test_the_refusal_names_place_type_and_cures() -> None:
    with pytest.raises(TypeError) as caught:
        L.trace(lambda: L.call(plain.same)([{"deep": object()}]))
    text = str(caught.value)
    for part in (
        "same(value[0].deep)",
        "test_recipes.py:",
        "builtins.object",
        "L.configurable",
        "L.call",
        "L.register_encoder",
    ):
        assert part in text


def test_an_encoder_of_ones_own_is_found_for_subclasses_too() -> None:
    class Vocabulary:
        def __init__(self, words: list[str]) -> None:
            self.words = words

    class Small(Vocabulary):
        pass

    L.register_encoder(Vocabulary, lambda value: L.call(plain.gather)(words=value.words))
    for kind in (Vocabulary, Small):
        assert L.instantiate(L.trace(lambda kind=kind: L.call(plain.same)(kind(["a"])))) == (
            (),
            {"words": ["a"]},
        )
    for bad in ((1, len), (int, 1)):
        with pytest.raises(TypeError):
            L.register_encoder(*bad)  # type: ignore[arg-type]
    L.register_encoder(Vocabulary, lambda value: value)
    with pytest.raises(TypeError, match="again"):
        L.trace(lambda: L.call(plain.same)(Vocabulary([])))


def test_sets_are_written_in_one_order() -> None:
    names = [plain.make_linear, plain.gather, plain.same, len, "b", "a", 3, 1]
    texts = {
        L.to_yaml(L.trace(lambda one=one: L.call(plain.same)(one)))
        for one in (set(names), set(reversed(names)))
    }
    assert len(texts) == 1 and "0x" not in texts.pop()
