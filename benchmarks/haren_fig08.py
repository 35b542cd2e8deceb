"""Haren, figure 8: queries of two classes in a steady state, under the multi-class policy and under threads.

The paper's operating system lets HIGH queries wait behind LOW ones. The simulated one does not: HIGH queries have half
the rate, so their threads have had less processor time, and a fair scheduler that serves all cores from one queue runs
whoever had least as soon as it wakes up. Against that stand Haren's rounds: an operator waits for the one worker that
it was dealt to, which may be pausing, or busy, and every tenth of a second it is dealt to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks._operators import TWO_CLASS_LOAD, Variant, haren, means, simulate, threads
from benchmarks._shapes import HIGH, LOW, haren_multi_class
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANTS = (haren("multi-class"), threads())
CLASSES = {HIGH: "HIGH", LOW: "LOW"}
#: tuples per second: three queries of 500, ten of 1000
SOURCES = {"HIGH": 1500.0, "LOW": 10_000.0}
MEASURES = {"throughput": "tuples/s", "mean latency": "s", "max latency": "s"}
SECONDS = 20.0


def measure(variant: Variant, seconds: float, seed: int) -> list[Row]:
    queries = haren_multi_class(bursty=False, seed=seed, utilisation=TWO_CLASS_LOAD)
    result = simulate(queries, variant, seed, horizon=seconds, measure_from=seconds / 5)
    return [
        {
            "variant": variant.label,
            "class": name,
            "seed": seed,
            "throughput": result.classes[number].throughput_in,
            "mean latency": result.classes[number].latency.mean,
            "max latency": result.classes[number].latency.max,
        }
        for number, name in CLASSES.items()
    ]


def run(context: Context) -> Results:
    seconds = 1.0 if context.smoke else SECONDS
    arguments = [{"variant": v, "seconds": seconds, "seed": seed} for v in VARIANTS for seed in context.seeds]
    rows = context.points(measure, arguments)
    return Results(rows, [] if context.smoke else _claims(rows))


def _claims(rows: Sequence[Row]) -> list[Claim]:
    throughput, mean, longest = (means(rows, ("variant", "class"), value) for value in MEASURES)

    def shown(values: dict[tuple[str, str], float], *names: str) -> str:
        return ", ".join(f"{v.label} {c} {values[v.label, c] * 1e3:.1f} ms" for c in names for v in VARIANTS)

    return [
        Claim(
            claim="both carry 99 % of what the sources send",
            paper="both scheduling techniques match the throughput of the data sources",
            measured=", ".join(f"{variant} {name} {value:.0f}" for (variant, name), value in throughput.items()),
            holds=all(value > 0.99 * SOURCES[name] for (_, name), value in throughput.items()),
        ),
        Claim(
            claim="HIGH queries have a much lower (half) maximum and mean latency under multi-class than under threads",
            paper="Haren achieves a much lower max and mean latency for the HIGH queries",
            measured=f"max: {shown(longest, 'HIGH')}; mean: {shown(mean, 'HIGH')}",
            holds=all(2 * values["multi-class", "HIGH"] < values["threads", "HIGH"] for values in (mean, longest)),
        ),
        Claim(
            claim="LOW queries have at most twice the mean latency under multi-class that they have under threads",
            paper="while keeping the mean latency of the LOW queries at similar levels as the OS",
            measured=shown(mean, "LOW"),
            holds=mean["multi-class", "LOW"] < 2 * mean["threads", "LOW"],
        ),
        Claim(
            claim="under multi-class, HIGH queries have a lower mean and maximum latency than LOW ones",
            paper="the overall performance of HIGH queries is higher than that of the LOW queries",
            measured=f"mean: {shown(mean, 'HIGH', 'LOW')}; max: {shown(longest, 'HIGH', 'LOW')}",
            holds=all(values["multi-class", "HIGH"] < values["multi-class", "LOW"] for values in (mean, longest)),
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """A panel for each measure, with a bar for each class and variant."""
    figure.set_size_inches(9.0, 3.6)
    width = 0.8 / len(VARIANTS)
    for axes, (value, unit) in zip(figure.subplots(1, 3), MEASURES.items(), strict=True):
        mean = means(rows, ("variant", "class"), value)
        for i, (variant, look) in enumerate(looks(row["variant"] for row in rows).items()):
            places = [place + i * width for place in range(len(CLASSES))]
            heights = [mean[variant, name] for name in CLASSES.values()]
            bars = axes.bar(places, heights, width, color=look.colour, label=variant)
            axes.bar_label(bars, fmt="{:,.0f}" if value == "throughput" else "{:.2g}", fontsize="small")
        axes.set_xticks([place + width / 2 for place in range(len(CLASSES))], list(CLASSES.values()))
        axes.set_ylabel(f"{value} ({unit})")
        axes.margins(y=0.12)
        if value == "throughput":
            axes.legend(loc="upper left")
        else:
            axes.set_yscale("log")


BENCHMARK = Benchmark(
    name="haren_fig08",
    figure="Haren fig. 8",
    claim="In a steady state the multi-class policy keeps HIGH queries fast without slowing LOW ones much.",
    takes="1 min",
    run=run,
    draw=draw,
    pivot=Pivot("class", "variant", "max latency"),
    reps=3,
)
