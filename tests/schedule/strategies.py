"""Hypothesis strategies that make schedules."""

from hypothesis import strategies as st

from tl_integrations import schedule as S
from tl_integrations.schedule import Schedule

small = st.integers(0, 40)
optional = st.none() | small

stepwise: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(S.every, st.integers(1, 12), start=small, stop=optional),
    st.builds(lambda steps: S.at(*steps), st.lists(small, min_size=1, max_size=4)),
    st.builds(S.first, st.integers(1, 12)),
    st.builds(
        S.log_spaced, base=st.sampled_from([1.001, 1.3, 2, 10]), start=st.integers(1, 5), stop=optional,
        include_zero=st.booleans(),
    ),
    st.builds(S.log_spaced, per_decade=st.integers(1, 9)),
    st.builds(S.windows, small, st.integers(1, 6), repeat=st.integers(0, 3), skip_first=small),
    st.builds(S.never),
    st.builds(S.always),
)  # fmt: skip

contextual: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(S.last, st.integers(1, 5)),
    st.builds(S.every_epoch, st.integers(1, 3), batch=st.integers(0, 9)),
    st.builds(S.every_seconds, st.floats(0.1, 1e6)),
    st.builds(
        S.on_loss_spike,
        factor=st.floats(1.5, 9),
        window=st.integers(1, 60),
        then=st.builds(S.first, st.just(3)),
    ),
    st.builds(S.on_nonfinite, max_fires=st.integers(1, 5), cooldown=small),
    st.builds(S.when, st.just("tests.schedule.predicates:odd")),
)


def composed(leaves: st.SearchStrategy[Schedule]) -> st.SearchStrategy[Schedule]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a - b, inner, inner),
            st.builds(lambda a: ~a, inner),
            st.builds(S.limit, inner, max_captures=st.integers(1, 6)),
        ),
        max_leaves=6,
    )


def algebraic(leaves: st.SearchStrategy[Schedule]) -> st.SearchStrategy[Schedule]:
    """Compositions without memory."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=6,
    )
