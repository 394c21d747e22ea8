"""One style for every figure of the book."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.contour import QuadContourSet
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from shared.statistics import Estimate

MAP_COLOURS = "mako"  # perceptually uniform, and readable without colour


def use_style() -> None:
    """Set the book's style for all figures that follow.

    Figures have a light ground of their own, so that they read the same on a dark page.
    """
    sns.set_theme(context="notebook", style="ticks", palette="colorblind")
    mpl.rcParams |= {
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "figure.dpi": 110,
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.w_pad": 0.08,
        "axes.titlesize": "medium",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }


def heat_map(
    axes: Axes,
    values: np.ndarray,
    *,
    columns: Sequence[float],
    rows: np.ndarray,
    low: float = 0.0,
    high: float = 1.0,
) -> QuadMesh:
    """Draw ``values`` [R, C], a column for each of C and rows upwards at the places ``rows`` [R].

    Values outside [low, high] take the colour of the nearer end; the record keeps them.
    """
    rows = np.asarray(rows, dtype=float)
    edges = [rows[0], *(rows[1:] + rows[:-1]) / 2, rows[-1]]
    sides = np.arange(len(columns) + 1) - 0.5
    mesh = axes.pcolormesh(sides, edges, values, vmin=low, vmax=high, cmap=MAP_COLOURS, rasterized=True)
    axes.set_xticks(np.arange(len(columns)), [f"{column:g}" for column in columns])
    return mesh


def frequency_map(
    axes: Axes, values: np.ndarray, *, every: int = 2, low: float = 0.5, high: float = 1.0
) -> AxesImage:
    """Draw a map [M, M] of plane waves ``every`` waves a side apart, the constant in the middle.

    Cells without a value stay grey.
    """
    half = len(values) * every // 2
    edges = (-half - every / 2, half - every / 2)
    axes.set_facecolor("0.65")
    image = axes.imshow(
        values, origin="lower", extent=(*edges, *edges), vmin=low, vmax=high, cmap=MAP_COLOURS
    )
    ticks = [-half, -half // 2, 0, half // 2]
    axes.set(xticks=ticks, yticks=ticks, xlabel="$k_x$", ylabel="$k_y$")
    return image


def span(values: np.ndarray) -> tuple[float, float]:
    """The lowest and the highest of the values, apart even where all are equal: ends of a scale."""
    low, high = float(values.min()), float(values.max())
    return low, max(high, low + 1e-6)


def surfaces(row: Sequence[Axes], t: np.ndarray, values: np.ndarray) -> None:
    """Draw ``values`` [K, T, T] over ``t`` [T] along both axes as K surfaces of one scale, on 3-D axes."""
    t1, t2 = np.meshgrid(t, t, indexing="ij")
    low, high = span(values)
    for axes, heights in zip(row, values, strict=True):
        style = {"rcount": len(t), "ccount": len(t), "cmap": MAP_COLOURS, "linewidth": 0}
        axes.plot_surface(t1, t2, heights, vmin=low, vmax=high, **style)
        axes.set(zlim=(low, high), xlabel="$t_1$", ylabel="$t_2$")
        for axis in "xy":
            axes.locator_params(axis=axis, nbins=5)


def contours(row: Sequence[Axes], t: np.ndarray, values: np.ndarray) -> QuadContourSet:
    """Draw ``values`` [K, T, T] over ``t`` [T] along both axes as K maps of contours of one scale."""
    t1, t2 = np.meshgrid(t, t, indexing="ij")
    levels = MaxNLocator(16).tick_values(*span(values))
    for axes, heights in zip(row, values, strict=True):
        drawn = axes.contourf(t1, t2, heights, levels=levels, cmap=MAP_COLOURS)
        axes.set(xlabel="$t_1$", ylabel="$t_2$", aspect="equal")
    return drawn


def curve_with_band(axes: Axes, x: np.ndarray, curves: np.ndarray, **style: Any) -> None:
    """Draw the median of ``curves`` [seeds, T] over ``x`` [T], and a band between the quartiles.

    Both are untouched by single spikes, and positive where the curves are, as a log axis needs.
    """
    low, middle, high = np.quantile(curves, [0.25, 0.5, 0.75], axis=0)
    (line,) = axes.plot(x, middle, **style)
    axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def estimates(axes: Axes, x: Sequence[float], estimate: Estimate, **style: Any) -> None:
    """Draw values [K] over ``x`` [K] with their intervals; a value that is not finite is left out."""
    ends = np.stack([estimate.value, estimate.low, estimate.high]).astype(float)
    ends[~np.isfinite(ends)] = np.nan
    value, low, high = ends
    # A value may lie a little outside its own percentile interval.
    axes.errorbar(x, value, np.fmax([value - low, high - value], 0), capsize=3, **style)


def thousands(axes: Axes, which: str = "y") -> None:
    """Label an axis of iterations in thousands."""
    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")


def new_figure(rows: int = 1, columns: int = 1, *, height: float = 3.4, **options: Any) -> Any:
    """A figure as wide as a page of the book; returns what ``plt.subplots`` returns."""
    return plt.subplots(rows, columns, figsize=(9.5, height), **options)
