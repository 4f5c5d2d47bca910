"""Stored builders."""

from collections.abc import Iterator
from typing import Any

import configurables as c
import plain_builders as plain
import pytest

from tl_integrations import language as L
from tl_integrations.errors import TraceError
from tl_integrations.language import registry


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_entries", {})
    yield


def tiny() -> Any:
    return c.Model(c.Encoder(1))


def test_a_builder_is_stored_with_open_required_parameters_and_every_knob() -> None:
    L.store(c.Encoder, group="model", name="base", kwargs={"depth": 5})
    (entry,) = registry.entries()
    assert (entry.group, entry.name, entry.qualname) == ("model", "base", "configurables.Encoder")
    assert entry.module == __name__ and entry.file == __file__ and entry.line > 20
    made = entry.make()
    assert made["width"] == "???" and type(made["width"]) is str and made["depth"] == 5
    assert made["act"]["path"] == "torch.nn.modules.activation.ReLU"


def test_a_thunk_is_run_and_arguments_go_to_builders() -> None:
    L.store(tiny, group="model", name="tiny")
    L.store(c.Encoder, group="model", name="three", args=(3,))
    assert [entry.make()["_target_"] for entry in registry.entries()] == [
        "configurables.Model",
        "configurables.Encoder",
    ]
    assert registry.entries()[1].make(defaults="omit") == {"_target_": "configurables.Encoder", "width": 3}


def test_wrapped_foreign_builders_can_be_stored() -> None:
    L.store(L.wrap(plain.make_linear), group="model", name="linear")
    assert registry.entries()[0].make() == {
        "_target_": "plain_builders.make_linear",
        "in_features": "???",
        "out_features": "???",
    }


def test_nothing_runs_at_store_time_and_failures_name_the_place() -> None:
    def broken() -> Any:
        raise KeyError("late")

    L.store(broken, group="model", name="broken")
    with pytest.raises(KeyError) as caught:
        registry.entries()[0].make()
    assert any(
        "model/broken, stored at" in note and "test_registry.py" in note for note in caught.value.__notes__
    )


def test_the_same_builder_replaces_and_another_is_refused() -> None:
    L.store(tiny, group="model", name="x")
    L.store(tiny, group="model", name="x", package="here")
    assert [entry.package for entry in registry.entries()] == ["here"]
    with pytest.raises(TraceError, match=r"model/x is taken by .*test_registry\.tiny"):
        L.store(c.Encoder, group="model", name="x")


def test_shared_objects_are_refused_unless_asked_for() -> None:
    def tied() -> Any:
        shared = c.Encoder(1)
        return c.Model(shared, head=shared)

    L.store(tied, group="model", name="tied")
    (entry,) = registry.entries()
    with pytest.raises(TypeError, match=r"'encoder'.*'head'.*sharing"):
        entry.make()
    assert entry.make(sharing="reference")["head"] == "${.encoder}"
    assert entry.make(sharing="duplicate")["head"]["width"] == 1


@pytest.mark.parametrize(
    "arguments", [{"group": "", "name": "a"}, {"group": "a", "name": ""}, {"group": 3, "name": "a"}]
)
def test_names_are_needed(arguments: Any) -> None:
    with pytest.raises(TraceError, match="is not a name"):
        L.store(tiny, **arguments)
    with pytest.raises(TraceError, match="takes a builder"):
        L.store(5, group="a", name="b")  # type: ignore[arg-type]
