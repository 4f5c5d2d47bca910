"""A sequence whose items also have names."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Generic, TypeVar, overload

from tl_integrations.errors import RecordLookupError, near_names

T = TypeVar("T")


class Named(Generic[T]):
    """Items by position, by slice and by name, in order; made when asked for.

    Args:
        what: What an item is, for messages.
        keys: What `make` takes for each item, in order.
        names: Makes the position of every name, when one is first asked for; several may lead to one item.
        make: An item from its key.
    """

    def __init__(
        self,
        what: str,
        keys: Sequence[int],
        names: Callable[[], Mapping[str, int]],
        make: Callable[[int], T],
    ) -> None:
        self._what = what
        self._keys = keys
        self._find_names = names
        self._make = make

    @cached_property
    def _names(self) -> Mapping[str, int]:
        return self._find_names()

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._keys)

    def __contains__(self, item: object) -> bool:
        return item in self._names if isinstance(item, str) else any(item == held for held in self)

    @overload
    def __getitem__(self, key: int | str) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> list[T]: ...
    def __getitem__(self, key: int | str | slice) -> T | list[T]:
        if isinstance(key, slice):
            return [self._make(k) for k in self._keys[key]]
        if isinstance(key, str):
            if key not in self._names:
                near = near_names(key, self._names)
                raise RecordLookupError(f"No {self._what} is named {key!r}. {near}There are {len(self)}.")
            key = self._names[key]
        try:
            return self._make(self._keys[key])
        except IndexError:
            raise IndexError(f"No {self._what} {key}: there are {len(self)}.") from None

    def keys(self) -> list[str]:
        """All names."""
        return list(self._names)

    def __repr__(self) -> str:
        # Bounded: a graph of 10,000 ops prints as one line.
        shown = ", ".join(map(repr, list(self._names)[:8]))
        return f"<{len(self)} {self._what}s: {shown}{', ...' if len(self._names) > 8 else ''}>"
