"""Stored configs on their way into Hydra's ConfigStore, within one process."""

from collections.abc import Iterator

import pytest
from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from hydra.errors import ConfigCompositionException

from tl_integrations import language as L
from tl_integrations import launch
from tl_integrations.language import registry
from tl_integrations.launch import groups


class Part:
    def __init__(self, size: int = 1, inner: object = None) -> None:
        self.size = size
        self.inner = inner


part = L.configurable(Part)


def whole() -> Part:
    return Part(2, inner=Part(3))


def shared() -> Part:
    one = Part(7)
    return Part(2, inner=[one, one])


def crossing() -> Part:
    one = Part(7)
    return Part(one, inner=Part(2, inner=one))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Nothing that a test stores outlives it."""
    entries, repo = dict(registry._entries), ConfigStore.instance().repo
    ConfigStore.instance().repo = dict(repo)
    yield
    registry._entries.clear()
    registry._entries.update(entries)
    ConfigStore.instance().repo = repo
    groups.STORED.register()


def test_a_store_made_after_hydra_started_is_found_when_asked_for() -> None:
    with initialize(version_base=None):
        L.store(whole, group="late_group", name="one")
        cfg = compose(overrides=["+late_group=one", "late_group.inner.size=9"])
        assert cfg.late_group.inner.size == 9
        assert L.instantiate(cfg.late_group).inner.size == 9


def test_a_store_made_again_replaces_the_earlier_one() -> None:
    with initialize(version_base=None):
        L.store(part, group="again", name="one", kwargs={"size": 1})
        assert compose(overrides=["+again=one"]).again.size == 1
        L.store(part, group="again", name="one", kwargs={"size": 2})
        assert compose(overrides=["+again=one"]).again.size == 2


def test_only_plain_containers_go_into_the_config_store() -> None:
    L.store(part, group="plain", name="one", kwargs={"size": L.MISSING})
    option = groups.entry_options(registry.entries()[-1])[0]
    assert {type(value) for value in option.body.values()} <= {str, int, type(None)}
    assert option.body["size"] == "???"


def test_the_package_of_a_store_places_the_config_and_its_splits() -> None:
    L.store(whole, group="nets", name="main", package="model.backbone", split={"inner": "small"})
    with initialize(version_base=None):
        cfg = compose(overrides=["+nets=main"])
    assert cfg.model.backbone.size == 2
    assert cfg.model.backbone.inner.size == 3


def test_a_split_without_a_name_is_called_after_its_target() -> None:
    L.store(whole, group="nets", name="main", split={"inner": None})
    assert [option.path for option in groups.entry_options(registry.entries()[-1])] == [
        "nets/main",
        "nets/inner/Part",
    ]


def test_a_shared_object_is_refused_when_chosen_and_names_the_ways_out() -> None:
    L.store(shared, group="bad", name="shared")
    with initialize(version_base=None), pytest.raises(ConfigCompositionException) as caught:
        compose(overrides=["+bad=shared"])
    assert "used twice" in str(caught.value)
    assert 'sharing="reference"' in str(caught.value)
    assert "test_groups.py" in str(caught.value)


def test_a_shared_object_may_be_stored_by_reference() -> None:
    L.store(shared, group="good", name="shared", sharing="reference")
    with initialize(version_base=None):
        cfg = compose(overrides=["+good=shared"])
    first, second = L.instantiate(cfg.good).inner
    assert first is second


@pytest.mark.parametrize("sharing", ["reference", "duplicate"])
def test_a_split_through_a_shared_object_is_refused_also_when_it_would_be_copied(sharing: str) -> None:
    L.store(crossing, group="bad", name="crossing", split={"inner": "x"}, sharing=sharing)
    with initialize(version_base=None), pytest.raises(ConfigCompositionException, match="one object apart"):
        compose(overrides=["+bad=crossing"])


def test_two_stores_that_split_different_bodies_under_one_name_are_refused() -> None:
    L.store(whole, group="pair", name="first", split={"inner": "same"})
    L.store(lambda: Part(2, inner=Part(4)), group="pair", name="second", split={"inner": "same"})
    with initialize(version_base=None):
        assert compose(overrides=["+pair=first"]).pair.inner.size == 3
        with pytest.raises(ConfigCompositionException, match="'pair/inner/same' is split off at"):
            compose(overrides=["+pair=second"])


def test_register_all_serves_a_process_that_scans_no_plugins() -> None:
    L.store(whole, group="explicit", name="one")
    launch.register_all()
    assert ConfigStore.instance().load("explicit/one.yaml").node.inner.size == 3
