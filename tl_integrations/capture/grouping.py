"""Which ops of a forward are passes of one layer: recurrence, from the graph alone.

Three rules, in this order; all compare ops by their *signature*: function, configuration, module and leaf.

1. Ops that share parameters are passes of one layer: same signature, same parameters, at any shape.
2. A stretch of ops that repeats back to back is a loop when a repetition reads what the one before it made.
   Ops at the same place of the stretch are passes of one layer if they agree in signature and shape and read
   alike: from the same place of their own or the previous repetition, or from the same tensor outside. Only
   the first repetition may read from outside what the later ones carry over.
3. Ops without parameters follow their parents: same signature and shape, and parents that are passes of the
   same layers.

A layer of one op has one pass. Nothing here looks at values, and sources and outputs are never grouped.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count

from tl_integrations.capture.oplog import GraphLog

_WORK_PER_OP = 64
"""Comparisons per op that the search for repeating stretches may take: irregular graphs stay linear."""


def layer_leaders(log: GraphLog) -> list[int]:
    """For every line the first line of its layer; a line that is no op is its own leader."""
    leaders = list(range(len(log.lines)))
    ops = _Ops(log)
    if not ops.repeats:
        return leaders
    _join_equal_keys(ops)
    for start, end, period in _loops(ops.sites):
        _join_loop(ops, _without_approach(ops, start, end, period), end, period)
    _join_followers(ops)
    for place, line in enumerate(ops.numbers):
        leaders[line] = ops.numbers[ops.leader(place)]
    return leaders


def layer_labels(log: GraphLog) -> tuple[list[str], list[int]]:
    """Final labels as TorchLens names them, and pass numbers, for every line.

    Returns: labels such as `relu_1_2`, without `:k`, and the 1-based pass of each line within its layer. The
    first number counts layers of that type, the second all layers; inputs, buffers (constants among them) and
    outputs have one number. Parameters have no label: an empty text.
    """
    if "labels" not in log.memo:
        log.memo["labels"] = _named(log)
    found: tuple[list[str], list[int]] = log.memo["labels"]
    return found


def _named(log: GraphLog) -> tuple[list[str], list[int]]:
    labels: list[str] = []
    passes: list[int] = []
    counts: dict[Hashable, int] = defaultdict(int)
    done: dict[int, int] = {}
    layer_count = 0
    for index, (line, leader) in enumerate(zip(log.lines, layer_leaders(log), strict=True)):
        if leader != index:
            done[leader] += 1
            passes.append(done[leader])
            labels.append(labels[leader])
            continue
        done[leader] = 1
        passes.append(1)
        if line.kind == "parameter":
            labels.append("")
        elif line.kind != "op":
            kind = "buffer" if line.kind == "constant" else line.kind
            counts[kind] += 1
            labels.append(f"{kind}_{counts[kind]}")
        else:
            layer_count += 1
            counts["op", line.type] += 1
            labels.append(f"{line.type}_{counts['op', line.type]}_{layer_count}")
    return labels, passes


class _Ops:
    """The ops of a log by place (0, 1, ...), with what the rules compare as numbers, and a union-find."""

    def __init__(self, log: GraphLog) -> None:
        lines, modules = log.lines, log.modules
        self._lines = lines
        self.numbers = [i for i, line in enumerate(lines) if line.kind == "op"]
        self.ops = ops = [lines[n] for n in self.numbers]
        is_parameter = [line.kind == "parameter" for line in lines]
        addresses = [call.address for call in modules] or [""]
        self.parameters = [tuple([r for r in op.reads if is_parameter[r]]) for op in ops]
        sites = [(op.func_name, addresses[op.call], op.path, p) for op, p in zip(ops, self.parameters)]
        self.sites = _numbered(sites)
        self.repeats = bool(ops) and max(self.sites) < len(ops) - 1
        """Whether any two ops are at one site; in most models that have no loop none are."""
        self.leaders = list(range(len(ops)))

    @cached_property
    def parents(self) -> list[tuple[int, ...]]:
        """What each op read: places of ops, negative numbers for all else."""
        places = [-1 - i for i in range(len(self._lines))]
        for place, number in enumerate(self.numbers):
            places[number] = place
        return [tuple([places[r] for r in op.reads]) for op in self.ops]

    @cached_property
    def forms(self) -> list[int]:
        """Equal for ops of one site with equal arguments and shapes."""
        keys = [(s, op.args, op.kwargs, op.shape, op.dtype) for s, op in zip(self.sites, self.ops)]
        return _numbered(keys)

    def leader(self, place: int) -> int:
        leaders = self.leaders
        while leaders[place] != place:
            leaders[place] = place = leaders[leaders[place]]
        return place

    def join(self, a: int, b: int) -> None:
        a, b = self.leader(a), self.leader(b)
        if a < b:
            self.leaders[b] = a
        else:
            self.leaders[a] = b


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    """Equal keys as equal small numbers, so that the searches compare integers."""
    numbers: dict[Hashable, int] = {}
    number = numbers.setdefault
    return [number(key, len(numbers)) for key in keys]


def _join_equal_keys(ops: _Ops) -> None:
    first: dict[Hashable, int] = {}
    for place, parameters in enumerate(ops.parameters):
        if parameters:
            op = ops.ops[place]
            other = first.setdefault((ops.sites[place], op.args, op.kwargs), place)
            if other != place:
                ops.join(other, place)


def _loops(keys: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Stretches that repeat: (start, end, period), with at least two repetitions.

    A period is tried where a key comes again after that distance, and followed to both sides.
    """
    last: dict[int, int] = {}
    covered: dict[int, int] = defaultdict(int)
    work = _WORK_PER_OP * len(keys)
    for place, key in enumerate(keys):
        period = place - last.get(key, place)
        last[key] = place
        if not period or place < covered[period]:
            continue
        start, end = _stretch(keys, place, period)
        covered[period] = end
        work -= end - start
        if work < 0:
            return
        if end - start >= 2 * period:
            yield start, end, period


def _stretch(keys: Sequence[int], place: int, period: int) -> tuple[int, int]:
    """The longest stretch around `place` in which every key stands again `period` later."""
    start, end = place - period, place
    while start and keys[start - 1] == keys[start - 1 + period]:
        start -= 1
    while end < len(keys) and keys[end] == keys[end - period]:
        end += 1
    return start, end


def _without_approach(ops: _Ops, start: int, end: int, period: int) -> int:
    """Where the loop begins: without the ops before its first parameters that only look like its end.

    `relu(x)` before three times `relu(fc(x))` also reads as three times `fc(relu(x))` before a `relu`.
    """
    rest = (end - start) % period
    anchored = any(ops.parameters[start : start + period]) and not any(ops.parameters[start : start + rest])
    return start + rest if anchored else start


def _join_loop(ops: _Ops, start: int, end: int, period: int) -> None:
    chain = period == 1 and ops.ops[start].call == ops.ops[start + 1].call
    if chain or not _carries(ops, start, end, period):
        return
    forms, parents, join = ops.forms, ops.parents, ops.join
    for place in range(start + period, end):
        earlier = place - period
        if forms[earlier] == forms[place]:
            before, after = parents[earlier], parents[place]
            # What is read in most loops is told without a call.
            carried = len(after) == 1 and after[0] >= 0 and before == (after[0] - period,)
            if carried or _read_alike(before, after, earlier, start, period):
                join(earlier, place)


def _carries(ops: _Ops, start: int, end: int, period: int) -> bool:
    """Whether a repetition reads what the one before it made; copies side by side do not."""
    for place in range(start + period, min(start + 2 * period, end)):
        if any(start <= parent < start + period for parent in ops.parents[place]):
            return True
    return False


def _read_alike(
    before: tuple[int, ...], after: tuple[int, ...], earlier: int, start: int, period: int
) -> bool:
    """Whether two ops, one period apart, read the same of their own repetition, the last, or outside."""
    if len(before) != len(after):
        return False
    in_first = earlier < start + period
    own = earlier + period - (earlier - start) % period
    for a, b in zip(before, after, strict=True):
        carried = b >= 0 and b - period == a
        entered = in_first and own - period <= b < own and a < start
        if not (a == b or carried or entered):
            return False
    return True


def _join_followers(ops: _Ops) -> None:
    """Rule 3. Only what lies behind a layer of several passes can follow: in most models that is nothing."""
    leader = ops.leader
    roots = [leader(place) for place in range(len(ops.leaders))]
    groups: dict[int, list[int]] = {}
    for place, root in enumerate(roots):
        if root != place:
            groups.setdefault(root, [root]).append(place)
    if not groups:
        return
    repeats = [root in groups for root in roots]
    readings: dict[int, set[tuple[int, ...]]] = {}
    first: dict[Hashable, int] = {}
    for place, parents in enumerate(ops.parents):
        if roots[place] != place and place > groups[roots[place]][1]:
            continue  # The first passes of a loop speak for all of them.
        if ops.parameters[place] or not any([p >= 0 and repeats[p] for p in parents]):
            continue
        repeats[place] = True
        read_layers = tuple([leader(p) if p >= 0 else p for p in parents])
        _follow(ops, place, (ops.forms[place], read_layers), first, readings, groups)


def _follow(
    ops: _Ops,
    place: int,
    key: Hashable,
    first: dict[Hashable, int],
    readings: dict[int, set[tuple[int, ...]]],
    groups: dict[int, list[int]],
) -> None:
    """Join the layer of an op with this key, or be its first.

    Two ops that read the very same tensors are twins within one pass, never two passes: a twin goes on to the
    next layer with its key.
    """
    for twin in count():
        other = ops.leader(first.setdefault((key, twin), place))
        if other == ops.leader(place):
            return
        if other not in readings:
            readings[other] = {ops.parents[member] for member in groups.get(other, (other,))}
        read = readings[other]
        if ops.parents[place] not in read:
            read.add(ops.parents[place])
            ops.join(other, place)
            return
