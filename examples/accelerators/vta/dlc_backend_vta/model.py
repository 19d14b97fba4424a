"""How many cycles a schedule takes, without running it.

`estimate` is a formula.  With L, C, S the cycles that load, compute and store spend on a step, n steps of
which m load a resident operand too (with L'), and T tiles of results:

    one half     n (L + C) + m (L' - L) + what of T S is longer than the loads that hide it
    two halves   L' + m max(L', C) + (n - m) max(L, C) + C + S, but at least the sum of each unit alone

where L = latency + beats for each transfer, C = startup + blocks for each instruction (see `cycles`).

`predict` follows the tokens from step to step; a step takes what its instructions take one after the other:

    load[t]    = max(load[t-1], compute[t-slots], fetched) + L[t]
    compute[t] = max(compute[t-1], load[t], store[tile-slots], fetched) + C[t]
    store[j]   = max(store[j-1], compute[last step of j]) + S[j]

The search ranks all schedules by the formula and the best of them by the recurrences.
"""

from __future__ import annotations

from dlc_backend_vta.cycles import STARTUP, duration
from dlc_backend_vta.generate import Generator, Position
from dlc_backend_vta.tiling import Plan

Costs = tuple[int, int, int, int, int]
"""Cycles of load, compute and store in a step, its instructions, those of them that load."""


def _beats(plan: Plan, pixels: tuple[int, int], whole: bool, channels: int, dense: bool, size: int) -> int:
    """Cycles of the bus for a tile of a tensor: rows and columns, whether these are all, and channels.

    In a `dense` tensor the channels of a pixel are neighbours, elsewhere the pixels of a channel.
    """
    rows, columns = pixels
    bus, images = plan.config.bus_bytes, min(plan.config.batch, plan.layer.images)
    if dense:
        return images * rows * columns * -(-channels * size // bus)
    runs, length = (1, rows * columns) if whole else (rows, columns)
    return images * channels * runs * -(-length * size // bus)


def estimate(plan: Plan) -> int:
    """Cycles by the formula."""
    layer, tile, config = plan.layer, plan.tiling, plan.config
    _, outputs, inputs = plan.blocks
    wide = config.latency
    out_channels = min(tile.outputs * config.block_out, layer.channels)
    pixels = (min(plan.in_rows, layer.height), min(plan.in_columns, layer.width))
    whole = pixels[1] == layer.width
    source = 4 if layer.source.wide else 1
    dense = layer.source.strides[1] == source
    if layer.kind == "gemm":
        in_channels = min(tile.inputs * config.block_in, layer.inputs)
        block = config.block_in * config.block_out
        load_inp = wide + _beats(plan, pixels, whole, in_channels, dense, source)
        load_inp *= tile.outputs if layer.starts else 1
        run = tile.inputs * layer.taps * block
        if layer.weights is not None and layer.weights.packed:
            load_wgt = wide + tile.outputs * -(-run // config.bus_bytes)
        else:
            load_wgt = wide + in_channels * layer.taps * -(-out_channels // config.bus_bytes)
        work = plan.pixels * tile.outputs * tile.inputs * layer.taps + STARTUP
    else:
        load_inp, load_wgt = wide + _beats(plan, pixels, whole, out_channels, dense, source), 0
        work = layer.taps * (STARTUP + plan.pixels * tile.outputs * config.alu_beat)
    tail = len(layer.steps) * (STARTUP + plan.pixels * tile.outputs * config.alu_beat)
    flat, result = tile.columns == layer.columns, (tile.rows, tile.columns)
    moved = [
        wide
        + _beats(plan, result, flat, out_channels, v.strides[1] == (4 if v.wide else 1), 4 if v.wide else 1)
        for v in (layer.target, *layer.tensors)
    ]
    store, beside = moved[0], sum(moved[1:])
    if layer.vector_count and plan.outputs > 1 and tile.resident != "weight":
        beside += wide + tile.outputs * layer.vector_count * -(-4 * config.block_out // config.bus_bytes)
    steps, tiles = plan.steps, plan.spatial * plan.outputs
    rounds = {"none": 0, "input": plan.spatial * plan.chunks, "weight": plan.outputs * plan.chunks}[
        tile.resident
    ]
    load: float = {"none": load_inp + load_wgt, "input": load_wgt, "weight": load_inp}[tile.resident]
    more = {"none": 0, "input": load_inp, "weight": load_wgt}[tile.resident]
    # Tiles at the edge are smaller: products and transfers are counted as a mean over all.
    part = layer.rows * layer.columns / (plan.tiles[1] * plan.tiles[2] * plan.pixels)
    compute = (work + tail / plan.chunks) * part * outputs / (plan.outputs * tile.outputs)
    compute *= inputs / (plan.chunks * tile.inputs)
    load = (load + beside / plan.chunks) * part
    if tile.slots == 1:
        hidden = max(0.0, store * part - load * min(1, plan.chunks))
        return round(steps * (load + compute) + rounds * more + tiles * hidden + store)
    busy = max(steps * load + rounds * more, steps * compute, tiles * store * part)
    overlapped = rounds * max(load + more, compute) + (steps - rounds) * max(load, compute)
    return round(max(busy, overlapped) + load + more + tail + store)


def predict(plan: Plan) -> int:
    """Cycles by the recurrences."""
    generator = Generator(plan)
    config, slots, results = plan.config, plan.tiling.slots, plan.results
    known: dict[object, Costs] = {}
    load = config.fetch + duration(generator.begin(), config)
    fetched = config.fetch
    compute, stored = 0, 0
    ends: list[int] = []
    kept: list[int] = []
    ahead = _fetched_ahead(plan)
    for at in generator.positions():
        key = _class(plan, at)
        costs = known.get(key)
        if costs is None:
            costs = known[key] = _costs(generator, at)
        loads, computes, stores, count, loading = costs
        if loading:
            free = ends[at.index - slots] if at.index >= slots else 0
            load = max(load, free, fetched - ahead * config.fetch) + loads
        result = at.index // plan.chunks
        start = max(compute, fetched + loading * config.fetch, load if loading else 0)
        if at.chunk == 0 and result >= results:
            start = max(start, kept[result - results])
        compute = start + computes
        ends.append(compute)
        fetched += count * config.fetch
        if stores:
            stored = max(stored, compute) + stores
            kept.append(stored)
    return max(compute, stored)


def _fetched_ahead(plan: Plan) -> int:
    """Instructions that stand in the stream behind the loads of a step that are fetched before it."""
    return 2 + len(plan.layer.steps) if plan.tiling.slots == 2 else 0


def _costs(generator: Generator, at: Position) -> Costs:
    done, config = generator.actions(at), generator.config
    loads, computes, stores = (
        sum(duration(one, config) for one in some) for some in (done.loads, done.computes, done.stores)
    )
    count = len(done.loads) + len(done.computes) + len(done.stores)
    return loads, computes, stores, count, len(done.loads)


def _class(plan: Plan, at: Position) -> tuple[object, ...]:
    """Steps of one class take the same time."""
    layer, tile = plan.layer, plan.tiling
    spans = []
    for axis, (index, size, extent, length) in enumerate(
        (
            (at.row, tile.rows, layer.rows, layer.height),
            (at.column, tile.columns, layer.columns, layer.width),
        )
    ):
        first = index * size * layer.stride[axis] - layer.pads[axis]
        reach = plan.in_rows if axis == 0 else plan.in_columns
        spans.append((min(0, first), min(0, length - first - reach), min(size, extent - index * size)))
    first = at.image == at.row == at.column == 0
    ends = (at.output == 0, at.output == plan.outputs - 1, at.chunk == 0, at.chunk == plan.chunks - 1)
    return (*spans, *ends, first, at.image == plan.tiles[0] - 1)


__all__ = ["estimate", "predict"]
