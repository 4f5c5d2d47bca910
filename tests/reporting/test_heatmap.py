"""The picture of a run, by its pixels."""

import numpy as np
import pytest

from tl_integrations.reporting.glyphs import HEIGHT, WIDTH, write
from tl_integrations.reporting.heatmap import ABSENT, BROKEN, colours, heat_map


def has(image: np.ndarray, colour: tuple[int, int, int] | np.ndarray) -> int:
    return int((image == np.array(colour, dtype=np.uint8)).all(axis=-1).sum())


def test_low_is_dark_and_high_is_bright() -> None:
    values = np.array([[0.0, 1.0]])
    image = heat_map(values, ["a"], [0, 1])
    low, high = colours()[0], colours()[255]
    assert low.sum() < high.sum()
    assert has(image, low) >= 400 and has(image, high) >= 400


def test_missing_and_non_finite_cells_have_their_own_colours() -> None:
    values = np.array([[1.0, np.nan, np.inf, -np.inf]])
    image = heat_map(values, ["a"], range(4))
    assert has(image, ABSENT) == 400 and has(image, BROKEN) == 800


@pytest.mark.parametrize("values", [np.zeros((2, 3)), np.full((2, 3), np.nan), np.full((2, 3), -5.0)])
def test_constant_and_absent_values_are_drawn(values: np.ndarray) -> None:
    assert heat_map(values, ["a", "b"], range(3)).dtype == np.uint8


def test_values_of_many_magnitudes_are_told_apart() -> None:
    image = heat_map(np.array([[1e-4, 1e-2, 1.0]]), ["a"], range(3), "std")
    assert has(image, colours()[127]) >= 400


@pytest.mark.parametrize(("layers", "steps"), [(1, 1), (3, 7), (200, 500), (600, 3000)])
def test_a_picture_stays_of_a_size_that_can_be_looked_at(layers: int, steps: int) -> None:
    image = heat_map(
        np.random.default_rng(0).random((layers, steps)), [f"l.{k}" for k in range(layers)], range(steps)
    )
    assert image.shape[0] < 1300 and image.shape[1] < 1300 and image.shape[2] == 3


def test_a_picture_does_not_depend_on_anything_but_its_values() -> None:
    values = np.random.default_rng(0).random((5, 5))
    one, two = (heat_map(values, list("abcde"), range(5), "t") for _ in range(2))
    assert (one == two).all()


def test_text_is_made_of_distinct_characters() -> None:
    characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-+/[]()\"'=%<> ?"
    drawn = {write(character).tobytes() for character in characters}
    assert len(drawn) == len(characters)
    assert write("ab").shape == (HEIGHT, 2 * WIDTH)
