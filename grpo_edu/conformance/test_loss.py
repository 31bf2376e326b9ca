"""The checks. A failure says in words what differs, then what the loss looks like."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest
import torch

from ..objective import axes
from ..rollouts import Rollouts
from .subject import NEAR, Subject, batch, difference, halves, without_token

MOVED = (0.05, 0.5, 3.0)  # sizes of log-ratios: inside, at the edge of, and beyond usual clips


def must(holds: object, what: str) -> None:
    """Fail with these words alone."""
    if not holds:
        pytest.fail(what, pytrace=False)


def same(subject: Subject, rollouts: Rollouts, where: str, near: float = NEAR) -> None:
    """Fail with what differs on these rollouts."""
    what = subject.difference(rollouts, near)
    must(what is None, f"{where}: {what} {'' if what is None else subject.identified}")


def with_reference(rollouts: Rollouts) -> Rollouts:
    """A reference policy at other log-probs, both above and below."""
    return replace(
        rollouts, ref_logp=rollouts.logp.clamp(max=-0.4) + 0.3 * torch.sin(9 * rollouts.logp)
    )


def test_pushes_on_policy(subject: Subject) -> None:
    """Two batches of different shape, both signs of the advantage, one group of unequal rewards."""
    same(subject, batch(), "on policy")
    same(subject, batch((4, 1, 6, 2), (1.0, 0.0, 0.0, 0.0), (0, 0, 0, 0)), "on policy, one prompt")


def test_pushes_after_the_policy_has_moved(subject: Subject) -> None:
    """Token ratios up to e^0.05, e^0.5 and e^3: unclipped, clipped in part, clipped far."""
    if not subject.looks_back:
        pytest.skip("the claim has no ratio")
    if not subject.has("old_logp"):
        must(
            False,
            "the claim looks at π/π_old, the loss has no argument for old_logp: its ratio is "
            "always 1 and nothing is clipped. If it has another name: --map old_logp=NAME.",
        )
    for size in MOVED:
        same(subject, batch(log_ratio=size), f"log-ratios up to {size}")


def test_the_kl_term(subject: Subject) -> None:
    """Where the claim has a KL term, the same pull; where it has none, no pull."""
    if subject.recipe.kl is None and not subject.has("ref_logp"):
        return
    if not subject.has("ref_logp"):
        must(
            False,
            f"the claim has the KL term {axes.describe(subject.recipe.kl)}, the loss has no "  # type: ignore[arg-type]
            "argument for ref_logp. If it has one under another name: --map ref_logp=NAME.",
        )
    rollouts = with_reference(batch())
    if subject.recipe.kl is None:
        pull = difference(subject.pushes(rollouts), subject.pushes(batch()), rollouts, NEAR)
        if pull is not None:
            pytest.fail(
                f"the claim has no KL term, the reference changes the pushes: {pull}", pytrace=False
            )
    same(subject, rollouts, "with a reference policy")


def test_the_value(subject: Subject) -> None:
    """The loss itself. A different value with the same pushes is told, and is no failure."""
    rollouts = batch()
    if subject.difference(rollouts) is not None:
        pytest.skip("the pushes differ already")
    found = subject.probe.value(rollouts)
    if found is None:
        pytest.skip("the loss calls backward itself and returns no value")
    must(math.isfinite(found), f"the loss is {found}.")
    expected = subject.recipe.but(kl=None).loss(rollouts).item()
    if not math.isclose(found, expected, rel_tol=NEAR, abs_tol=1e-12):
        warnings.warn(
            f"the loss is {found:.6g}, the claim's {expected:.6g}: the pushes are the same, "
            "so only the logged number differs.",
            stacklevel=1,
        )


def test_padding_is_neither_pushed_nor_read(subject: Subject) -> None:
    """Other values under the mask, very large ones too, change nothing."""
    rollouts = batch(log_ratio=0.05 if subject.has("old_logp") else 0.0)
    clean = subject.pushes(rollouts)
    under = clean[~rollouts.mask]
    must((under == 0).all(), f"a masked token gets a push of {float(under.abs().max()):.3g}.")
    for value in (-1.0, -40.0):
        dirty = replace(rollouts, logp=torch.where(rollouts.mask, rollouts.logp, value))
        what = difference(subject.pushes(dirty), clean, rollouts, NEAR)
        must(what is None, f"log-probs of {value:g} under the mask change the pushes: {what}")


def test_a_completion_without_a_trained_token(subject: Subject) -> None:
    """It is counted, or left out, as the claim does, and gives no NaN."""
    same(subject, without_token(batch(), 2), "one completion fully masked")


def test_a_batch_without_a_trained_token(subject: Subject) -> None:
    """No token, no push: neither NaN nor an error."""
    rollouts = batch()
    rollouts = replace(rollouts, mask=torch.zeros_like(rollouts.mask))
    found = subject.pushes(rollouts)
    must(torch.isfinite(found).all(), "a batch whose tokens are all masked gives NaN.")
    must((found == 0).all(), "a batch whose tokens are all masked is pushed.")


def test_two_micro_batches(subject: Subject) -> None:
    """The mean of two equal micro-batches differs from the whole exactly where the claim's does."""
    rollouts = batch()
    what = difference(
        halves(rollouts, subject.pushes), halves(rollouts, subject.expected), rollouts, NEAR
    )
    must(what is None, f"two micro-batches of three completions each: {what}")


def test_a_prompt_whose_answers_are_all_right(subject: Subject) -> None:
    """A group of equal rewards: what the claim pushes there, and no NaN from a std of 0."""
    if not subject.probe.by_reward:
        pytest.skip("the loss takes advantages: groups were handled before it")
    same(subject, batch(rewards=(1.0, 1.0, 1.0, 1.0, 0.0, 0.5)), "one prompt with equal rewards")
    same(subject, batch(rewards=(0.7,) * 6), "every reward equal")


def test_the_order_of_completions_and_the_numbers_of_prompts(subject: Subject) -> None:
    """Rows in another order have the same pushes; a prompt's number is only a name."""
    rollouts = batch()
    order = torch.tensor([4, 0, 2, 5, 1, 3])
    shuffled = replace(rollouts[order], group=rollouts.group[order] * 7 + 3)
    what = difference(subject.pushes(shuffled), subject.expected(shuffled), shuffled, NEAR)
    must(what is None, f"rows in another order, prompts with other numbers: {what}")


def test_the_tie_at_ratio_one(subject: Subject) -> None:
    """Where both terms of a minimum are equal, the token keeps its gradient, in full."""
    if not subject.has("old_logp"):
        pytest.skip("the loss has no old_logp")
    rollouts = batch()
    same(subject, replace(rollouts, old_logp=rollouts.logp.clone()), "every ratio exactly 1")


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_narrow_log_probs(subject: Subject, dtype: torch.dtype, near: float) -> None:
    """Log-probs in float32 and bfloat16: finite, and near the claim's pushes in float64."""
    rollouts = batch().to(dtype)
    found = subject.pushes(rollouts).double()
    what = difference(found, subject.expected(rollouts).double(), rollouts, near)
    must(what is None, f"log-probs in {dtype}: {what}")


def test_a_token_that_the_old_policy_called_impossible(subject: Subject) -> None:
    """A log-ratio of 100 in float32 is a large number or a clipped one, never NaN or infinite."""
    if not subject.has("old_logp"):
        pytest.skip("the loss has no old_logp")
    rollouts = batch().to(torch.float32)
    old = rollouts.logp.clone()
    old[0, 0] = -100.0
    old[1, 0] = -100.0
    found = subject.pushes(replace(rollouts, old_logp=old))
    must(
        torch.isfinite(found).all(),
        "a log-ratio of 100 gives a push that is not finite: limit the log-ratio (±20, as verl "
        "does) before exp.",
    )
