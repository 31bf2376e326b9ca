"""The conformance suite: right losses pass every check, and each of twelve faults fails the check
that is made for it, in words."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from grpo_edu.conformance import test_loss as checks
from grpo_edu.conformance.subject import Subject
from grpo_edu.objective.catalog import recipe


def right(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    group: Tensor,
    mask: Tensor,
    *,
    fault: str = "",
) -> Tensor:
    """Dr. GRPO written as frameworks write it (C = the padded width of the batch), with a fault."""
    advantages = torch.empty_like(rewards)
    for q in group.unique():
        own = rewards[group == q]
        advantages[group == q] = own - own.mean()
        if fault == "std":
            advantages[group == q] /= own.std() + 1e-4
    a = advantages[:, None]
    m = mask.to(logp.dtype)
    if fault == "mask shifted":
        m = torch.cat([torch.zeros_like(m[:, :1]), m[:, :-1]], dim=1)
    log_ratio = logp - old_logp
    if fault != "no limit":
        log_ratio = log_ratio.clamp(-20, 20)
    ratio = log_ratio.exp()
    if fault == "detached ratio":
        ratio = ratio.detach() * logp
    if fault == "product ratio":
        ratio = (log_ratio * m).sum(dim=1, keepdim=True).exp().expand_as(logp)
    lowest = torch.maximum if fault == "min and max swapped" else torch.minimum
    clipped = ratio.clamp(0.8, 1.28 if fault == "clip-higher" else 1.2)
    value = lowest(ratio * a, clipped * a)
    if fault == "1/|o|":
        rows = (value * m).sum(dim=1) / m.sum(dim=1)
        return -rows.mean()
    rows = (value * m).sum(dim=1) / mask.shape[1]
    if fault == "padding":
        rows = value.sum(dim=1) / mask.shape[1]
    if fault == "divided twice":
        rows = rows / len(rows)
    if fault == "sign":
        rows = -rows
    if fault == "token mean":
        return -(value * m).sum() / m.sum()
    return -rows.mean()


FAULTS = {
    "std": ("pushes_on_policy", "a factor of the completion"),
    "mask shifted": ("pushes_on_policy", "is masked and gets a push"),
    "no limit": ("impossible", "not finite"),
    "detached ratio": ("after_the_policy", "a factor of the completion"),
    "product ratio": ("after_the_policy", "tokens differ"),
    "min and max swapped": ("after_the_policy", "tokens differ"),
    "clip-higher": ("after_the_policy", "tokens differ"),
    "1/|o|": ("pushes_on_policy", "divided by |o|"),
    "padding": ("padding", "is masked and gets a push|a masked token gets a push"),
    "divided twice": ("two_micro_batches", "every push is the claim's times"),
    "sign": ("pushes_on_policy", "times -1"),
    "token mean": ("two_micro_batches", "the claim's times a factor"),
}


def failures(loss: Callable[..., Tensor], claims: str, **settings: object) -> dict[str, str]:
    """The checks that fail, by name, with their messages."""
    subject = Subject(loss, recipe(claims), settings)
    failed = {}
    for name, check in inspect.getmembers(checks, inspect.isfunction):
        if not name.startswith("test_"):
            continue
        marks = getattr(check, "pytestmark", [])
        cases = marks[0].args[1] if marks else [()]
        for case in cases:
            try:
                check(subject, *case)
            except pytest.skip.Exception:
                continue
            except (AssertionError, pytest.fail.Exception) as error:
                failed[name] = str(error)
    return failed


def test_a_right_loss_passes_every_check() -> None:
    assert failures(right, "dr_grpo") == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_fails_its_check_in_words(fault: str) -> None:
    failed = failures(right, "dr_grpo", fault=fault)
    check, words = FAULTS[fault]
    messages = [message for name, message in failed.items() if check in name]
    assert messages, f"{check} passes; failed: {list(failed)}"
    assert any(part in messages[0] for part in words.split("|")), messages[0]


LOSS = """
def loss(logp, advantages, mask, *, length=9.0):
    return -(logp * advantages * mask).sum(dim=1).mean() / length
"""


@pytest.mark.parametrize(
    ("claims", "code", "words"),
    [
        ("reinforce", 0, "passed"),
        ("dr_grpo", 1, "no argument for old_logp"),
        ("no_such_recipe", 1, "no recipe named"),
    ],
)
def test_the_line_of_pytest(tmp_path: Path, claims: str, code: int, words: str) -> None:
    (tmp_path / "my_losses.py").write_text(LOSS)
    line = [*["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "grpo_edu.conformance.plugin"]]
    line += ["--pyargs", "grpo_edu.conformance", "--loss", "my_losses:loss", "--claims", claims]
    done = subprocess.run(
        [sys.executable, *line, "--set", "length=1"], cwd=tmp_path, capture_output=True, text=True
    )
    assert words in done.stdout, done.stdout + done.stderr
    assert done.returncode == code
