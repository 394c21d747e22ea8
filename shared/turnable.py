"""Surfaces that a reader can turn, as a piece of HTML that needs nothing but itself."""

import hashlib
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex

from shared.plots import MAP_COLOURS

SCRIPT = Path(__file__).with_suffix(".js")
SHADES = 48
HINT = "Drag a surface to turn all of them, or choose one and use the arrow keys."


class Turnable:
    """Surfaces over one plane, drawn in the reader's browser and turned together.

    Args:
        surfaces: heights [A, A] by title, on one scale.
        low, high: heights at the floor and at the ceiling; what is beyond is cut off.
    """

    def __init__(self, surfaces: Mapping[str, np.ndarray], *, low: float, high: float):
        if not low < high:
            raise ValueError(f"low = {low}, high = {high}: the floor must be below the ceiling")
        for title, values in surfaces.items():
            if values.ndim != 2 or values.shape[0] != values.shape[1] or len(values) < 2:
                raise ValueError(f"{title}: heights of shape {list(values.shape)}; a square is needed")
        self.titles = list(surfaces)
        self.scale = f"Heights run from {low:.3g} to {high:.3g}."
        heights = [np.clip((values - low) / (high - low), 0, 1) for values in surfaces.values()]
        self.heights = [np.round(np.nan_to_num(part, nan=1.0), 3).tolist() for part in heights]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        colours = matplotlib.colormaps[MAP_COLOURS](np.linspace(0, 1, SHADES))
        data = json.dumps({"surfaces": self.heights, "colours": [to_hex(colour) for colour in colours]})
        name = f"turnable-{hashlib.sha256(f'{self.titles}{data}'.encode()).hexdigest()[:10]}"
        views = "".join(
            f'<figure style="margin:0;text-align:center"><canvas tabindex="0" role="img" '
            f'aria-label="Surface that can be turned: {html.escape(title)}" '
            f'style="width:17em;height:17em;touch-action:none;cursor:grab"></canvas>'
            f"<figcaption>{html.escape(title)}</figcaption></figure>"
            for title in self.titles
        )
        text = (
            f'<div id="{name}"><div style="display:flex;flex-wrap:wrap;gap:1em">{views}</div>'
            f'<p>{HINT} {self.scale}</p><script type="application/json">{data}</script>'
            f"<script>{SCRIPT.read_text(encoding='utf-8').rstrip()}({json.dumps(name)});</script></div>"
        )
        return {"text/html": text, "text/plain": f"surfaces: {', '.join(self.titles)}"}
