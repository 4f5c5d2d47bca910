"""Selectors by name, in composition and as text; what they refuse, and what the planner arms for them."""

import contextlib
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations.capture.effects import FRESH, effects_of, flat_tensors, touches_now
from tl_integrations.capture.labels import names_function, type_of
from tl_integrations.capture.module_tree import module_tree
from tl_integrations.capture.planning import make_plan
from tl_integrations.capture.selector_text import as_selector
from tl_integrations.errors import PredicateError, SelectorError, UnknownNameError


class Net(nn.Module):
    """conv directly followed by relu, conv followed by pool, an encoder, operators, an in-place op."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.encoder = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.conv1(x))
        h = nn.functional.max_pool2d(self.conv2(h), 2).flatten(1)
        h = self.encoder(h[:, :16]) + 1
        h = h * h
        h.add_(1)
        first, second = h.chunk(2, dim=1)
        return self.head(torch.cat([first, second], 1))


MODEL, X = Net(), torch.randn(2, 3, 4, 4)
LABELS = {
    "func('relu')": ["relu_1_2", "relu_2_8"],
    "func('Relu')": UnknownNameError,
    "func('max_pool2d')": ["maxpool2d_1_4"],
    "func('maxpool2d')": ["maxpool2d_1_4"],
    "func('add')": ["add_1_10", "add_2_12"],
    "func('__add__')": None,
    "func('add_')": ["add_2_12"],
    "func('chunk')": ["chunk_1_13", "chunk_2_14"],
    "func('chunk', output=1)": ["chunk_2_14"],
    "func('chunk') & output(0)": ["chunk_1_13"],
    "in_module('encoder')": ["linear_1_7", "relu_2_8", "linear_2_9"],
    "in_module('enc')": UnknownNameError,
    "in_module('encoder:2')": None,
    "func('relu') & in_module('encoder')": ["relu_2_8"],
    "func('relu') & ~in_module('encoder')": ["relu_1_2"],
    "func('relu') | func('linear')": ["relu_1_2", "linear_1_7", "relu_2_8", "linear_2_9", "linear_3_16"],
    "label('relu_2')": ["relu_2_8"],
    "label('relu_2_8')": ["relu_2_8"],
    "contains('CONV')": ["conv2d_1_1", "conv2d_2_3"],
    "regex('^linear_[13]$')": ["linear_1_7", "linear_3_16"],
    "relu_2_8": ["relu_2_8"],
    "relu_1": ["relu_1_2"],
}


@pytest.mark.parametrize("text", LABELS)
def test_a_text_selects_what_it_says(text: str) -> None:
    expected = LABELS[text]
    if isinstance(expected, type):
        with pytest.raises(expected):
            tl.record(MODEL, X, save=text)
    elif expected is None:
        with pytest.warns(UserWarning, match="kept nothing"):
            tl.record(MODEL, X, save=text)
    else:
        assert [record.label for record in tl.record(MODEL, X, save=text)] == expected


@pytest.mark.parametrize("text", [t for t, v in LABELS.items() if isinstance(v, list) and "_2_8" not in t])
def test_without_a_graph_the_same_tensors_are_kept(text: str) -> None:
    full, sparse = tl.record(MODEL, X, save=text), tl.record(MODEL, X, save=text, graph=False)
    assert all(torch.equal(a.out, b.out) for a, b in zip(full, sparse, strict=True))
    assert [a.address for a in full] == [b.address for b in sparse]


ADDRESSES = {
    "encoder": ["encoder"],
    "encoder.1": ["encoder.1"],
    "encoder:1": ["encoder"],
    "encoder.*": ["encoder.0", "encoder.1", "encoder.2"],
    "conv?": ["conv1", "conv2"],
    "*": ["conv1", "conv2", "encoder", "head"],
    "**.1": ["encoder.1"],
    "module('head')": ["head"],
}


@pytest.mark.parametrize("text", ADDRESSES)
@pytest.mark.parametrize("graph", [True, False])
def test_an_address_or_glob_selects_module_outputs(text: str, graph: bool) -> None:
    taken = tl.record(MODEL, X, save=text, graph=graph)
    assert [record.address for record in taken] == ADDRESSES[text]
    assert all(record.kind == "module" for record in taken)


def test_a_list_of_texts_keeps_all_of_them() -> None:
    taken = tl.record(MODEL, X, save=["head", "encoder.0:1", "relu_1_2"])
    assert {record.name for record in taken} == {"head", "encoder.0", "relu_1_2"}


@pytest.mark.parametrize(
    ("save", "error", "says"),
    [
        ("encodr", UnknownNameError, "Closest: 'encoder'"),
        ("encoder.9.*", UnknownNameError, "fits 'encoder.9"),
        (tl.module("encoder.*") | tl.func("relu"), UnknownNameError, "A glob is a text"),
        ("head:0", SelectorError, "numbered from 1"),
        ("relu_9_99", UnknownNameError, "No op of this forward has the label"),
        ("func('relu'", SelectorError, "does not parse"),
        ("func(relu)", SelectorError, "no part of a selector"),
        ("__import__('os')", SelectorError, "is no selector"),
        ("func('relu') + func('linear')", SelectorError, "no part of a selector"),
        ("func('relu').name()", SelectorError, "is no selector"),
        ("func()", SelectorError, "missing"),
        ("", SelectorError, "was ''"),
        ([], SelectorError, "selects nothing"),
        (3, SelectorError, "selects nothing"),
        ("func('relu') & module('encoder')", SelectorError, "selects nothing"),
        ("~module('encoder')", SelectorError, "everything but a module's output"),
        ("followed_by(func('relu'))", PredicateError, "stands alone"),
        ("func('conv2d') | followed_by(func('relu'))", SelectorError, "outermost"),
        ("func('conv2d') & ~followed_by(func('relu'))", SelectorError, "outermost"),
        ("func('conv2d') & followed_by(func('relu'))", PredicateError, "detached_raw"),
    ],
)
def test_a_wrong_selector_says_what_is_wrong(save: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says.replace("(", r"\(").replace("'", "['\"]")):
        tl.record(MODEL, X, save=save)


@pytest.mark.parametrize(
    "call", [lambda: tl.func(3), lambda: tl.where(3), lambda: tl.regex("["), lambda: tl.output(1.0)]
)  # type: ignore[arg-type]
def test_a_selector_of_the_wrong_kind_is_refused(call: Any) -> None:
    with pytest.raises(SelectorError):
        call()


def test_selectors_compose_only_with_selectors() -> None:
    with pytest.raises(SelectorError, match=r"tl\.where"):
        tl.func("relu") & (lambda event: True)  # type: ignore[operator]


ATOMS = ["func('relu')", "func('linear')", "in_module('encoder')", "contains('add')", "label('relu_2')"]
EXPRESSIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds("({} & {})".format, inner, inner),
        st.builds("({} | {})".format, inner, inner),
        st.builds("~({})".format, inner),
    ),
    max_leaves=6,
)


@given(text=EXPRESSIONS)
def test_repr_parses_back_and_the_table_agrees_with_asking_every_op(text: str) -> None:
    selector = tl.select(text)
    assert tl.select(repr(selector)) == selector
    everything = tl.record(MODEL, X, default_op=True, keep="clone")
    expected = [record.label for record in everything.select(selector.bind(module_tree(MODEL)))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        taken = tl.record(MODEL, X, save=selector)
    assert [record.label for record in taken] == expected


def plan_of(save: Any, *, graph: bool = False) -> Any:
    tree = module_tree(MODEL)
    return make_plan(as_selector(save).bind(tree), tree, graph=graph)


def test_module_outputs_need_only_their_hooks() -> None:
    plan = plan_of("encoder.*")
    assert not plan.functions and plan.stacked == () and len(plan.taps) == 3


def test_functions_inside_a_module_need_the_mode_only_there() -> None:
    plan = plan_of("func('relu') & in_module('encoder')")
    assert [node.address for node in plan.scope] == ["encoder"]
    assert {node.address for node in plan.stacked} == {"encoder", "encoder.0", "encoder.1", "encoder.2"}


def test_functions_anywhere_need_the_mode_everywhere() -> None:
    for save in (
        "func('relu')",
        "func('relu') | in_module('encoder')",
        "in_module('encoder') & label('relu_2')",
    ):
        plan = plan_of(save)
        assert plan.functions and plan.scope is None


def test_a_graph_needs_everything() -> None:
    plan = plan_of("encoder", graph=True)
    assert plan.functions and plan.scope is None and len(plan.stacked) == len(module_tree(MODEL).nodes) - 1


class TestWindows:
    options = tl.options.CaptureOptions(lookback=4, lookback_payload_policy="detached_raw")

    @pytest.mark.parametrize("graph", [True, False])
    @pytest.mark.parametrize("lookback", [1, 2, 4])
    def test_followed_by_keeps_the_op_whose_result_is_read(self, lookback: int, graph: bool) -> None:
        options = tl.options.CaptureOptions(lookback=lookback, lookback_payload_policy="detached_raw")
        save = tl.func("conv2d") & tl.followed_by(tl.func("relu"))
        taken = tl.record(MODEL, X, save=save, capture=options, graph=graph)
        assert [record.address for record in taken] == ["conv1"]
        assert torch.equal(taken[0].out, MODEL.conv1(X))

    def test_grad_connected_payloads_stay_on_the_graph(self) -> None:
        options = tl.options.CaptureOptions(lookback=2, lookback_payload_policy="grad_connected")
        taken = tl.record(MODEL, X, save=tl.followed_by(tl.func("relu")) & tl.func("conv2d"), capture=options)
        assert taken[0].out.grad_fn is not None

    def test_a_reader_beyond_the_window_is_a_warning(self) -> None:
        class Far(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                y = torch.sigmoid(x)
                for _ in range(3):
                    x = x + 1
                return torch.relu(y) + x

        save = tl.func("sigmoid") & tl.followed_by(tl.func("relu"))
        assert len(tl.record(Far(), torch.randn(2), save=save, capture=self.options)) == 1
        near = tl.options.CaptureOptions(lookback=3, lookback_payload_policy="detached_raw")
        with (
            pytest.warns(RuntimeWarning, match="Increase lookback"),
            pytest.warns(UserWarning, match="kept nothing"),
        ):
            assert len(tl.record(Far(), torch.randn(2), save=save, capture=near)) == 0

    def test_lookback_zero_keeps_nothing_and_says_so(self) -> None:
        options = tl.options.CaptureOptions(lookback_payload_policy="detached_raw")
        save = tl.func("conv2d") & tl.followed_by(tl.func("relu"))
        with (
            pytest.warns(RuntimeWarning, match="lookback=0"),
            pytest.warns(UserWarning, match="kept nothing"),
        ):
            tl.record(MODEL, X, save=save, capture=options)

    def test_preceded_by_is_about_time_not_dataflow(self) -> None:
        save = tl.func("maxpool2d") & tl.preceded_by(tl.func("relu"))
        assert len(tl.record(MODEL, X, save=save, capture=self.options)) == 1
        narrow = tl.options.CaptureOptions(lookback=1)
        with pytest.warns(UserWarning, match="kept nothing"):
            tl.record(MODEL, X, save=save, capture=narrow)

    def test_the_window_counts_ops_only(self) -> None:
        seen: list[list[str]] = []
        tl.record(
            MODEL,
            X,
            save=lambda event: not seen.append([recent.label for recent in event.recent_ops]),
            capture=tl.options.CaptureOptions(lookback=2),
        )
        assert seen[0] == [] and seen[7] == ["getitem_1", "linear_1"]


def test_names_are_matched_exactly_with_underscores_and_by_type_without() -> None:
    assert names_function("add", "__add__", "add") and names_function("add", "add_", "add")
    assert not names_function("add_", "add", "add") and not names_function("__add__", "add", "add")
    assert type_of("scaled_dot_product_attention") == "scaleddotproductattention"


def test_every_function_whose_schema_writes_is_known_to_write() -> None:
    """The lists of writing functions against what operators declare."""
    functions = [f for fs in torch.overrides.get_overridable_functions().values() for f in fs]
    missed = []
    for func in functions:
        name = getattr(func, "__name__", "")
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        writes = any(
            argument.alias_info is not None and argument.alias_info.is_write
            for schema in schemas
            for argument in schema.arguments
            if not argument.kwarg_only
        )
        if writes and not effects_of(func).touches:
            missed.append(name)
    assert len(functions) > 1000 and missed == []


def test_every_function_with_an_inplace_parameter_is_known() -> None:
    import inspect

    for name in dir(nn.functional):
        func = getattr(nn.functional, name)
        if not callable(func) or isinstance(func, type) or name.startswith("_"):
            continue
        try:
            parameters = list(inspect.signature(func).parameters)
        except (TypeError, ValueError):
            continue
        if "inplace" in parameters:
            assert effects_of(func).switch_position == parameters.index("inplace"), name


@pytest.mark.parametrize(
    "name",
    ["data_ptr", "numpy", "untyped_storage", "set_", "resize_", "__array__", "share_memory_", "__dlpack__"],
)
def test_functions_that_hand_out_memory_are_known(name: str) -> None:
    effects = effects_of(getattr(Tensor, name))
    assert effects.touches and effects.touches_from == 0


def test_a_hidden_write_is_known_by_the_argument_that_asks_for_it() -> None:
    norm, embedding = effects_of(nn.functional.batch_norm), effects_of(nn.functional.embedding)
    x, statistics = torch.ones(2, 2), torch.ones(2)
    assert not touches_now(norm, (x, statistics, statistics), None)
    assert touches_now(norm, (x, statistics, statistics), {"training": True})
    assert touches_now(norm, (x, statistics, statistics, None, None, True), None)
    assert not touches_now(embedding, (x, x), {"max_norm": None})
    assert touches_now(embedding, (x, x), {"max_norm": 1.0})
    assert touches_now(effects_of(torch.batch_norm), (x, statistics, statistics), None)


def test_another_librarys_function_is_not_taken_for_torchs_of_that_name() -> None:
    def relu(x: Tensor) -> Tensor:
        return x.view(-1)

    assert (
        effects_of(nn.functional.relu).fresh
        and effects_of(torch.relu).fresh
        and effects_of(Tensor.relu).fresh
    )
    assert effects_of(Tensor.__add__).fresh and effects_of(torch._C._nn.linear).fresh
    assert not effects_of(relu).fresh


_SQUARE = torch.rand(1, 4, 4)
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "linear": (_SQUARE, torch.eye(4)),
    "bilinear": (_SQUARE, _SQUARE, torch.rand(4, 4, 4)),
    "batch_norm": (_SQUARE, torch.zeros(4), torch.ones(4)),
    "layer_norm": (_SQUARE, (4,)),
    "group_norm": (_SQUARE, 2),
    "instance_norm": (_SQUARE,),
    "rms_norm": (_SQUARE, (4,)),
    "embedding": (torch.tensor([0, 1]), torch.rand(3, 4)),
    "prelu": (_SQUARE, torch.ones(1)),
    "softmax": (_SQUARE, -1),
    "log_softmax": (_SQUARE, -1),
    "softmin": (_SQUARE, -1),
    "scaled_dot_product_attention": (_SQUARE, _SQUARE, _SQUARE),
    "addmm": (_SQUARE[0], _SQUARE[0], _SQUARE[0]),
    "mm": (_SQUARE[0], _SQUARE[0]),
    "baddbmm": (_SQUARE, _SQUARE, _SQUARE),
    "pow": (_SQUARE, 1),
    "amax": (_SQUARE, ()),
    "amin": (_SQUARE, ()),
    "sum": (_SQUARE, ()),
    "mean": (_SQUARE[0, 0, :1], 0, True),
    "cumsum": (_SQUARE, 0),
    "cat": ([_SQUARE],),
    "stack": ([_SQUARE],),
    "where": (torch.ones(1, dtype=torch.bool), _SQUARE, _SQUARE),
    "cross_entropy": (_SQUARE[0], torch.zeros(4, dtype=torch.long)),
    "nll_loss": (_SQUARE[0], torch.zeros(4, dtype=torch.long)),
    "avg_pool1d": (_SQUARE, 1),
    "avg_pool2d": (_SQUARE, 1),
    "avg_pool3d": (_SQUARE[None], 1),
    **{name: (_SQUARE, _SQUARE) for name in ("matmul", "bmm", "mse_loss", "l1_loss")},
    **{name: (_SQUARE, 1) for name in ("add", "sub", "mul", "div", "truediv", "radd", "rmul", "rsub")},
    **{f"conv{n}d": (torch.rand(1, 1, *[4] * n), torch.ones(1, 1, *[1] * n)) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": (torch.rand(1, 1, *[4] * n), torch.ones(1, 1, *[1] * n)) for n in (1, 2, 3)},
}


def named_functions(name: str) -> list[Any]:
    homes = (torch, nn.functional, torch.special, Tensor)
    found = [getattr(home, n, None) for home in homes for n in (name, f"__{name}__")]
    return [func for func in found if callable(func)]


@pytest.mark.parametrize("name", sorted(FRESH))
def test_what_is_called_fresh_returns_memory_of_its_own(name: str) -> None:
    """Also where nothing is to be computed: one tensor to join, no dimension to reduce, an exponent of 1."""
    arguments = _ARGUMENTS.get(name, (_SQUARE,))
    memory = {t.untyped_storage().data_ptr() for t in flat_tensors(arguments)}
    results = []
    for func in named_functions(name):
        # Another function of that name may have other parameters.
        with contextlib.suppress(TypeError, RuntimeError, AttributeError):
            results += [func(*arguments)]
            with torch.no_grad():
                results += [func(*arguments)]
    assert results
    assert not any(out.untyped_storage().data_ptr() in memory for out in results)


@pytest.mark.parametrize(
    ("text", "words"),
    [("relu", "For the function"), ("hed", "Closest: 'head'"), ("backbone", "Its modules: 'conv1', 'conv2'")],
)
def test_a_text_that_names_nothing_is_told_what_may_have_been_meant(text: str, words: str) -> None:
    with pytest.raises(UnknownNameError, match=words):
        tl.record(Net(), torch.randn(1, 3, 4, 4), save=text)
