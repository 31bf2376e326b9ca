"""The KL explorer: what the KL estimators say and how they pull, on a policy of two actions. Level
of evidence: exact (both actions enumerated)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..checks import Probability, checked
from ..objective import axes, kl
from ..theory import kl as exact
from .base import Framed, script, tr

ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3, "ratio · k3": kl.k3_ratio}
IN_REWARD = ("k1", "k3")
PRESETS = {
    "a policy far from the reference": {
        "caption": "Start: the policy takes action 1 with probability 0.7, the reference with 0.3. "
        "Which estimators pull the policy back as the reverse KL does, and which as the forward "
        "KL does?",
        "p": 0.7,
        "q": 0.3,
        "beta": 1.0,
    },
    "a rare action": {
        "caption": "Start: the reference likes action 1, the policy hardly takes it. On that "
        "action the value of k3 is far above those of k1 and k2.",
        "p": 0.05,
        "q": 0.9,
        "beta": 1.0,
    },
}


class KLExplorer(Framed):
    r"""KL estimators on a policy of two actions: value, and expected gradient by the logit of
    action 1, in the loss and in the reward.

    .. math:: \text{in the loss: } E[\partial_\theta k(x)], \qquad
        \text{in the reward: } E[k(x)\,\partial_\theta \log\pi_\theta(x)]

    Args:
        p: probability of action 1 under the policy, 0.05 to 0.95.
        q: the same under the reference.
        beta: factor of every estimator, 0.01 to 1.
        state: ``preset``: a key of ``PRESETS``, which sets the traits it names; ``compact``: for
            a frame of 680 × 520.

    Raises:
        ValueError: a preset that is not offered.
        traitlets.TraitError: a value outside its range.
    """

    PRESETS = PRESETS
    TITLE = "What a KL estimator says, and how it pulls"
    SHOWN = ("p", "q", "beta")
    _esm = script("kl")
    p = tr.Float(0.7, min=0.05, max=0.95).tag(sync=True)
    q = tr.Float(0.3, min=0.05, max=0.95).tag(sync=True)
    beta = tr.Float(1.0, min=0.01, max=1.0).tag(sync=True)

    @checked
    def __init__(
        self, p: Probability = 0.7, q: Probability = 0.3, beta: float = 1.0, **state: Any
    ) -> None:
        super().__init__(p=p, q=q, beta=beta, **state)

    def policies(self) -> tuple[Tensor, Tensor]:
        """``[2]`` log-probabilities of the policy and of the reference."""
        policy, reference = (
            torch.tensor([x, 1 - x], dtype=torch.float64).log() for x in (self.p, self.q)
        )
        return policy, reference

    def gradients(self) -> dict[str, float]:
        """Expected gradient by the logit of action 1 of each estimator, by autograd."""
        policy, reference = self.policies()
        beta_of = {name: partial(f, beta=self.beta) for name, f in ESTIMATORS.items()}
        in_loss = {
            f"{name} in the loss": exact.in_loss(f, policy, reference)[1][0].item()
            for name, f in beta_of.items()
        }
        in_reward = {
            f"{name} in the reward": exact.in_reward(beta_of[name], policy, reference)[0].item()
            for name in IN_REWARD
        }
        return in_loss | in_reward

    def true_gradients(self) -> dict[str, float]:
        """Gradients of beta times the two KLs by the logit of action 1."""
        policy, reference = self.policies()
        return {
            "reverse KL(π‖ref)": self.beta * exact.reverse(policy, reference)[1][0].item(),
            "forward KL(ref‖π)": self.beta * exact.forward(policy, reference)[1][0].item(),
        }

    def values(self) -> dict[str, list[float]]:
        """Each estimator on action 1, on action 2, and its mean under the policy."""
        policy, reference = self.policies()
        table = {}
        for name in ("k1", "k2", "k3"):
            inputs = {"logp": policy, "ref_logp": reference}
            value = axes.run(partial(ESTIMATORS[name], beta=self.beta), inputs)
            table[name] = [*value.tolist(), (policy.exp() * value).sum().item()]
        return table

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        from .lab_pictures import kl_bars

        policy, reference = self.policies()
        reverse = self.beta * exact.reverse(policy, reference)[0]
        return kl_bars(self.gradients(), self.true_gradients(), self.values(), reverse)
