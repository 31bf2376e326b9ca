"""The weight explorer: move lengths, rewards, ratios and clips, and see each token's gradient weight answer.

The formula runs in the browser (``static/explorer.js``), so the picture lives without a kernel; every choice and setting of a
recipe comes from here, and a test holds the two to 1e-12. Level of evidence: exact.
"""

from __future__ import annotations

import base64
import html
import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from ..files import replacing
from ..objective import axes, catalog
from ..objective.recipe import Recipe, RecipeWarning
from ..rollouts import Rollouts
from ..weights import split, token_weights

try:
    import anywidget
    import traitlets as tr
except ImportError as error:
    raise ImportError('the explorer needs anywidget, which is missing: pip install "grpo-edu[notebooks]"') from error

OFFERED = ("reinforce", "rloo", "grpo", "dr_grpo", "dapo", "dapo(step)", "bnpo", "gspo", "cispo")
STATE = ("lengths", "rewards", "group", "ratio", "eps_low", "eps_high", "length_limit", "micro_batches", "relative")


def spec(recipe: Recipe) -> dict[str, Any]:
    """A recipe in words that JavaScript reads: each choice as ``{"name": "group_std", "ddof": 1, "eps": 0.0}``."""

    def word(choice: axes.Choice) -> dict[str, Any]:
        return {"name": axes.function_of(choice).__name__, **axes.settings(choice)}

    return {
        "label": f"{recipe.name} (KL left out)" if recipe.kl else recipe.name,
        "formula": recipe.formula()["aggregation"],
        **{axis: word(getattr(recipe, axis)) for axis in ("baseline", "scale", "surrogate", "aggregation")},
        **{axis: [word(choice) for choice in getattr(recipe, axis)] for axis in ("rewards", "filters")},
    }


class WeightExplorer(anywidget.AnyWidget):
    """Up to three recipes side by side on at most eight completions; every control is a trait.

    .. math:: w_{it} = A_i\\, W_{it}\\, \\rho_i\\, g_{it}

    There is no reference policy here, so a KL term is left out (the label says so), and one ratio per completion.

    Args:
        recipes: one to three, names of ``OFFERED`` or ``Recipe`` objects.
        lengths: N token counts, 1 to 64.
        rewards: N rewards.
        group: N prompt numbers; None: one prompt.
        ratio: importance ratio, one number or N, 0.5 to 2.
        state: the other traits. ``eps_low``, ``eps_high``: offsets from 1 that replace every recipe's own clip, None keeps it;
            ``length_limit``: C of the constant; ``micro_batches``: cut in order, as ``weights.split``; ``relative``: show each
            recipe's push per token in percent of its step (a common factor is only a learning rate).

    Raises:
        ValueError: a recipe the explorer does not offer.
        traitlets.TraitError: a value outside its range.
    """

    _esm = Path(__file__).parent / "static" / "explorer.js"
    specs = tr.Dict().tag(sync=True)
    recipes = tr.List(tr.Unicode(), maxlen=3).tag(sync=True)
    lengths = tr.List(tr.Int(min=1, max=64), minlen=1, maxlen=8).tag(sync=True)
    rewards = tr.List(tr.Float()).tag(sync=True)
    group = tr.List(tr.Int(min=0)).tag(sync=True)
    ratio = tr.List(tr.Float(min=0.5, max=2.0)).tag(sync=True)
    eps_low = tr.Float(None, allow_none=True, min=0.0).tag(sync=True)
    eps_high = tr.Float(None, allow_none=True, min=0.0).tag(sync=True)
    length_limit = tr.Int(64, min=1).tag(sync=True)
    micro_batches = tr.Int(2, min=1, max=8).tag(sync=True)
    relative = tr.Bool(False).tag(sync=True)

    def __init__(
        self,
        recipes: Sequence[str | Recipe] = ("grpo", "dr_grpo"),
        lengths: Sequence[int] = (8, 8, 32, 32),
        rewards: Sequence[float] = (1, 0, 1, 0),
        group: Sequence[int] | None = None,
        ratio: float | Sequence[float] = 1.0,
        **state: Any,
    ) -> None:
        self._known = {name: catalog.RECIPES[name] for name in OFFERED}
        self._known |= {r.name: r for r in recipes if isinstance(r, Recipe)}
        names = [r.name if isinstance(r, Recipe) else r for r in recipes]
        n = len(lengths)
        super().__init__(
            specs={name: spec(recipe) for name, recipe in self._known.items()},
            recipes=names,
            lengths=list(lengths),
            rewards=list(rewards),
            group=[0] * n if group is None else list(group),
            ratio=list(ratio) if isinstance(ratio, Sequence) else [ratio] * n,
            **{"micro_batches": min(2, n), **state},
        )

    @tr.validate("recipes")
    def _offered(self, proposal: Any) -> list[str]:
        unknown = [name for name in proposal["value"] if name not in self._known]
        if unknown:
            raise ValueError(f"the explorer does not draw {unknown[0]!r}: expected one of {', '.join(self._known)}.")
        return proposal["value"]

    def rollouts(self) -> Rollouts:
        """The completions as they stand, float64."""
        return Rollouts.from_lengths(self.lengths, self.rewards, self.group, ratio=self.ratio, max_new_tokens=self.length_limit)

    def micro_batch(self) -> Tensor:
        """``[N]`` the micro-batch of each completion."""
        return split(len(self.lengths), self.micro_batches)

    def recipe(self, name: str) -> Recipe:
        """The recipe that a panel draws: without KL, with the clip of the controls. CISPO: 1 - low and 1 + high."""
        chosen, low, high = self._known[name], self.eps_low, self.eps_high
        own = axes.settings(chosen.surrogate)
        if "eps_low" in own:
            clip = {"eps_low": low, "eps_high": high}
        else:
            clip = {"low": None if low is None else max(0.0, 1 - low), "high": None if high is None else 1 + high}
        clip = {key: value for key, value in clip.items() if key in own and value is not None}
        return replace(chosen, kl=None, surrogate=partial(chosen.surrogate, **clip)) if clip else replace(chosen, kl=None)

    def weights(self, name: str) -> Tensor:
        """``[N, T]`` weights of a recipe from the library itself, by autograd."""
        return token_weights(self.recipe(name), self.rollouts(), self.micro_batch())

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        from ..plots.heatmap import weight_map

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecipeWarning)
            recipes = [self.recipe(name) for name in self.recipes]
            return weight_map(recipes, self.rollouts(), self.micro_batch(), relative=self.relative)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The live widget, and a picture for where no widget runs."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        picture = io.BytesIO()
        try:
            self.figure().savefig(picture, format="png", dpi=100)
        except ValueError:  # a state without an answer (a group of one); the live widget shows the message
            return data, metadata
        return {**data, "image/png": base64.b64encode(picture.getvalue()).decode()}, metadata

    def __repr__(self) -> str:
        return f"WeightExplorer({', '.join(f'{name}={getattr(self, name)}' for name in ('recipes', *STATE))})"

    def save_html(self, path: str | Path, title: str = "Gradient weight of every token") -> Path:
        """Write a page that needs neither kernel nor network; the controls are live. Returns the path."""
        state = {name: getattr(self, name) for name in ("specs", "recipes", *STATE)}
        page = PAGE.format(
            title=html.escape(title),
            state=json.dumps(state).replace("</", "<\\/"),
            script=str(self._esm).replace("</", "<\\/"),
        )
        with replacing(Path(path)) as temporary:
            temporary.write_text(page, encoding="utf-8")
        return Path(path)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ margin: 16px; font-family: system-ui, sans-serif }}</style></head>
<body><h1 style="font-size: 20px">{title}</h1><div id="app"></div>
<script type="application/json" id="state">{state}</script>
<script type="text/plain" id="esm">{script}</script>
<script type="module">
document.body.dataset.jpThemeLight = !matchMedia("(prefers-color-scheme: dark)").matches;
const text = (id) => document.getElementById(id).textContent;
const state = JSON.parse(text("state")), heard = {{}};
const model = {{
  get: (key) => state[key],
  set: (key, value) => {{ state[key] = value; (heard["change:" + key] ?? []).forEach((tell) => tell()); }},
  on: (event, tell) => (heard[event] ??= []).push(tell),
  off: () => {{}},
  save_changes: () => {{}},
}};
const {{ default: widget }} = await import(URL.createObjectURL(new Blob([text("esm")], {{ type: "text/javascript" }})));
widget.render({{ model, el: document.getElementById("app") }});
</script></body></html>
"""
