"""Bobox, figure 1: packets of about half the L2 cache are the fastest.

Smaller ones pay the fixed cost of a task more often, larger ones no longer stay in the cache from one operator to the
next. The paper runs one request; with one per NUMA node no thread is idle, so the second line shows the cost of
packets apart from how well one request can be spread over threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks._operators import means
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines
from benchmarks.locality_sim import LocalityConfig, Machine, QueryLoad, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: whole parts of the input of 10 MiB, because a last packet that is not full would be modelled as full
PACKETS = (8, 16, 32, 64, 80, 128, 160, 256, 320, 512, 1024, 2048)
REQUESTS = {"1 request": 1, "4 requests": 4}
L2 = Machine().l2_kib


def measure(label: str, packet: int, input_kib: int, seed: int) -> Row:
    load = QueryLoad(concurrent=REQUESTS[label], packet_kib=packet, input_kib=input_kib)
    result = simulate(LocalityConfig("locality", load=load, seed=seed))
    return {
        "requests": label,
        "packet": packet,
        "seed": seed,
        "seconds": result.makespan_seconds,
        "dispatch share": result.time.dispatch / result.time.total,
        "read from L2": result.reads.l2_hit_rate,
    }


def run(context: Context) -> Results:
    packets, input_kib = ((64, 512), 1024) if context.smoke else (PACKETS, 10 * 1024)
    arguments = [
        {"label": label, "packet": packet, "input_kib": input_kib, "seed": seed}
        for label in REQUESTS
        for packet in packets
        for seed in context.seeds
    ]
    rows = context.points(measure, arguments)
    return Results(rows, [] if context.smoke else _claims(rows))


def _claims(rows: Sequence[Row]) -> list[Claim]:
    seconds = means(rows, ("requests", "packet"), "seconds")
    dispatch, hits = (means(rows, ("packet",), value) for value in ("dispatch share", "read from L2"))
    best = {label: min((seconds[label, packet], packet) for packet in PACKETS)[1] for label in REQUESTS}

    def times_best(packet: int) -> dict[str, float]:
        return {label: seconds[label, packet] / seconds[label, best[label]] for label in REQUESTS}

    def shown(packet: int) -> str:
        return ", ".join(f"{value:.2f}x" for value in times_best(packet).values())

    least, most = PACKETS[0], PACKETS[-1]
    return [
        Claim(
            claim="the best packet is smaller than the L2 cache, and larger than a quarter of it",
            paper="the ideal size of packets is slightly lower than the size of L2 cache, which is 256 KB",
            measured=", ".join(f"{label}: {packet} KiB" for label, packet in best.items()),
            holds=all(L2 / 4 < packet < L2 for packet in best.values()),
        ),
        Claim(
            claim="half the L2 cache is within 5 % of the best",
            paper="we consider one half of the L2 cache size; for this size, all experiments gave the best results",
            measured=f"{shown(L2 // 2)} the time of the best",
            holds=all(value < 1.05 for value in times_best(L2 // 2).values()),
        ),
        Claim(
            claim=f"packets of {least} KiB take 20 % more time, because of overhead",
            paper="with smaller packets the overhead grows up",
            measured=f"{shown(least)}; fixed costs of tasks {dispatch[least]:.0%} of all work, "
            f"with {L2 // 2} KiB {dispatch[L2 // 2]:.0%}",
            holds=all(value > 1.2 for value in times_best(least).values()) and dispatch[least] > dispatch[L2 // 2],
        ),
        Claim(
            claim=f"packets of {most} KiB take 20 % more time, because of cache misses",
            paper="with larger packets there is an overhead with cache misses",
            measured=f"{shown(most)}; {hits[most]:.0%} read from the L2, with {L2 // 2} KiB {hits[L2 // 2]:.0%}",
            holds=all(value > 1.2 for value in times_best(most).values()) and hits[most] < hits[L2 // 2],
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    draw_lines(axes, rows, x="packet", y="seconds", label="requests")
    axes.axvline(L2, color="black", linewidth=0.8, linestyle=":")
    axes.text(L2 * 1.03, 0.01, "L2", transform=axes.get_xaxis_transform())
    axes.set_xscale("log", base=2)
    powers = [packet for packet in PACKETS if packet.bit_count() == 1]
    axes.set_xticks(powers, list(map(str, powers)))
    axes.set_xlabel("packet (KiB)")
    axes.set_ylabel("time until all requests are done (s)")
    axes.set_ylim(bottom=0.0)


BENCHMARK = Benchmark(
    name="bobox_fig01",
    figure="Bobox fig. 1",
    claim="Packets of about half the L2 cache are processed fastest.",
    takes="1 min",
    run=run,
    draw=draw,
    pivot=Pivot("packet", "requests", "seconds"),
    reps=3,
)
