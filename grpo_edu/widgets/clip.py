"""The clip explorer: objective and gradient of one token against its importance ratio. Level of
evidence: exact."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ..checks import checked
from ..objective import axes
from ..objective import surrogates as sur
from ..theory.clip import pushes
from .base import Framed, choice_spec, script, tr

OFFERED = {
    name: sur.EXAMPLES[name]
    for name in ("PPO clip", "dual clip", "CISPO", "SAPO", "GMPO", "REINFORCE")
}
SETTINGS = ("eps_low", "eps_high", "cap", "high", "tau_pos", "tau_neg")


PRESETS = {
    "past the band": {
        "caption": "Start: a right token, ratio 1.5, past the band that ends at 1.2. PPO's clip "
        "gives it no gradient. CISPO still pushes it, by a ratio that it caps at 2.",
        "surrogates": ["PPO clip", "CISPO"],
        "advantage": 1,
        "ratio": 1.5,
    },
    "a wrong token that rose": {
        "caption": "Start: a wrong token, ratio 3.5. PPO's clip has no upper bound here, so the "
        "push grows with the ratio. The dual clip ends it at 3.",
        "surrogates": ["PPO clip", "dual clip"],
        "advantage": -1,
        "ratio": 3.5,
    },
    "hard or soft": {
        "caption": "Start: a right token, ratio 1.5. PPO's clip drops to 0 at the band. SAPO has "
        "no band: its push fades as the ratio leaves 1.",
        "surrogates": ["PPO clip", "SAPO"],
        "advantage": 1,
        "ratio": 1.5,
    },
}


class ClipExplorer(Framed):
    r"""Objective and gradient, side by side, of up to four surrogates; every control is a trait.

    .. math:: \frac{\partial f}{\partial \log\pi_\theta} = A\,\rho\,g(\rho, A)

    Args:
        surrogates: one to four of ``OFFERED``.
        advantage: 1 or -1.
        ratio: importance ratio that is marked, 0.05 to 4.
        state: the other traits, settings of every surrogate that has them. ``eps_low``,
            ``eps_high`` (GMPO: in log space), ``cap`` of the dual clip, ``high`` of CISPO,
            ``tau_pos``, ``tau_neg`` of SAPO; ``preset``: a key of ``PRESETS``, which sets the
            traits it names; ``compact``: for a frame of 680 × 520.

    Raises:
        ValueError: a surrogate or a preset that is not offered.
        traitlets.TraitError: a value outside its range.
    """

    PRESETS = PRESETS
    TITLE = "Objective and gradient of one token"
    SHOWN = ("surrogates", "advantage", "ratio", *SETTINGS)
    _esm = script("clip")
    surrogates = tr.List(tr.Unicode(), maxlen=4).tag(sync=True)
    advantage = tr.Enum((1, -1), 1).tag(sync=True)
    ratio = tr.Float(1.0, min=0.05, max=4.0).tag(sync=True)
    eps_low = tr.Float(0.2, min=0.0).tag(sync=True)
    eps_high = tr.Float(0.2, min=0.0).tag(sync=True)
    cap = tr.Float(3.0, min=1.0).tag(sync=True)
    high = tr.Float(2.0, min=0.0).tag(sync=True)
    tau_pos = tr.Float(1.0, min=0.01).tag(sync=True)
    tau_neg = tr.Float(1.05, min=0.01).tag(sync=True)

    @checked
    def __init__(
        self,
        surrogates: Sequence[str] = ("PPO clip", "dual clip", "CISPO", "SAPO"),
        advantage: int = 1,
        ratio: float = 1.5,
        **state: Any,
    ) -> None:
        specs = {
            name: {"label": name, "surrogate": choice_spec(choice)}
            for name, choice in OFFERED.items()
        }
        super().__init__(
            specs=specs, surrogates=list(surrogates), advantage=advantage, ratio=ratio, **state
        )

    @tr.validate("surrogates")
    def _offered(self, proposal: Any) -> list[str]:
        return self.checked("surrogates", proposal["value"])

    def surrogate(self, name: str) -> axes.Choice:
        """A surrogate with the settings of the controls."""
        own = {key: getattr(self, key) for key in SETTINGS if key in axes.settings(OFFERED[name])}
        return partial(OFFERED[name], **own)

    def push(self, name: str) -> float:
        """Gradient by log π at the marked ratio, from the library itself by autograd."""
        return pushes(
            self.surrogate(name),
            torch.tensor([self.ratio], dtype=torch.float64),
            float(self.advantage),
        ).item()

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        from .twins import clip_curves

        surrogates = {name: self.surrogate(name) for name in self.surrogates}
        return clip_curves(
            surrogates, self.advantage, self.ratio, (1 - self.eps_low, 1 + self.eps_high)
        )
