"""The three KL estimators against the log-ratio: what they say, and how hard they pull."""

from __future__ import annotations

from functools import partial

import torch

from ..checks import OpenProbability, checked
from ..objective import axes
from ..objective.kl import k1, k2, k3, slope_of
from .style import DASHES, SERIES, WIDTH, Picture, evidence, headline, new_figure, picture, rule

DRAWN = {"k1 = d": k1, "k2 = ½d²": k2, "k3 = e⁻ᵈ + d − 1": k3}


@picture
@checked
def kl_estimators(
    policy: OpenProbability, reference: OpenProbability, *, title: str | None = None
) -> Picture:
    r"""Value (left) and slope (right) of each estimator against :math:`d = \log\pi -
    \log\pi_{ref}`, two actions marked on every curve.

    Args:
        policy, reference: probability of the first of two actions; the area of a mark is how often
            its action is drawn.
        title: the sentence to take home; None: the expected values.

    Raises:
        ValueError: a probability that is not between 0 and 1.
    """
    chance, ref = (torch.tensor([x, 1 - x], dtype=torch.float64) for x in (policy, reference))
    marks, grid = chance.log() - ref.log(), torch.linspace(-2.5, 2.5, 201, dtype=torch.float64)
    figure = new_figure(WIDTH, 3.9)
    panels = figure.subplots(1, 2)
    for (name, function), colour, line in zip(DRAWN.items(), SERIES, DASHES, strict=False):
        choice = partial(function, beta=1.0)
        slope = slope_of(choice)
        says, pulls = (axes.run(of, _inputs(marks)).reshape(-1) for of in (choice, slope))
        pull = (chance[0] * (pulls[0] - chance @ pulls)).item()
        labels = (
            f"{name}: mean {(chance @ says).item():.3f}",
            f"{name}: pull on the first logit {pull:.3f}",
        )
        for panel, of, at, label in zip(
            panels, (choice, slope), (says, pulls), labels, strict=True
        ):
            panel.plot(
                grid,
                axes.run(of, _inputs(grid)).reshape(-1),
                color=colour,
                linestyle=line,
                label=label,
            )
            panel.scatter(marks, at, s=180 * chance, color=colour, zorder=3)
    for panel, label in zip(
        panels, ("value", "slope by log π: the push down on the token"), strict=True
    ):
        rule(panel)
        panel.set(
            xlabel="d = log π − log π_ref of the token",
            ylabel=label,
            xlim=(-2.5, 2.5),
            ylim=(-4.4, 3.2),
        )
        panel.legend(loc="lower right")
    policies = f"π = {policy:g}, π_ref = {reference:g}"
    headline(figure, title or f"{policies}: what each estimator says, and how it pulls")
    evidence(figure, "exact; two actions")
    return figure


def _inputs(d: torch.Tensor) -> dict[str, object]:
    """Log-probs with these differences, as the estimators read them, and beta 1."""
    zero = torch.zeros_like(d)[:, None]
    return {"logp": d[:, None], "old_logp": d[:, None], "ref_logp": zero, "beta": 1.0}
