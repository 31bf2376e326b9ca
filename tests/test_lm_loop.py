"""The training loop: log-probs, micro-batches, masks, ratio 1, refill, placebo, sampler."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch

pytest.importorskip("transformers")

from grpo_edu import recipe
from grpo_edu.lm import lab
from grpo_edu.lm.generate import cache_name, generate, positions_of, read_prompts
from grpo_edu.lm.logprobs import token_logp
from grpo_edu.lm.loop import Settings, Trainer, micro_batch_of
from grpo_edu.lm.tasks import Problem, Task
from grpo_edu.lm.tokens import encode
from grpo_edu.objective.filters import truncation_mask
from grpo_edu.objective.rewards import overlong_penalty
from grpo_edu.weights import token_weights

SMALL = Settings(steps=2, prompts=5, samples=4, learning_rate=1e-3, micro_batches=1)
GRPO = recipe("grpo").but("grpo", kl=None)


def trainer(chosen=GRPO, settings=SMALL, dtype=torch.float32, task=None, variant="after"):
    net, tokens = lab.warm_start(variant, 0)
    return Trainer(net.to(dtype), tokens, task or lab.task(variant), chosen, settings)


def gradients(one: Trainer) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in one.model.parameters()])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk", [22, 22 * 7, 10**9])
def test_log_probs_in_chunks_equal_plain_ones_in_value_and_gradient(chunk, temperature):
    one = trainer(dtype=torch.float64)
    batch = one.collect(0)
    width, net = batch.drawn.mask.shape[1], one.model
    upstream = torch.randn(batch.drawn.mask.shape, generator=torch.Generator().manual_seed(0))
    positions = (batch.attention.cumsum(1) - 1).clamp(min=0)
    logits = net(
        input_ids=batch.ids, attention_mask=batch.attention, position_ids=positions
    ).logits[:, -width - 1 : -1]
    plain = torch.log_softmax(logits / temperature, -1)
    entropy = -(plain.exp() * plain).sum(-1) * batch.drawn.mask
    plain = plain.gather(2, batch.drawn.ids[..., None])[..., 0] * batch.drawn.mask
    (plain * upstream).sum().backward()
    expected = gradients(one)
    net.zero_grad()
    logp, spread = token_logp(
        net, batch.ids, batch.attention, batch.drawn.mask, temperature=temperature, chunk=chunk
    )
    (logp * upstream).sum().backward()
    assert torch.allclose(logp.double(), plain, atol=2e-6)  # float32 log-softmax
    assert torch.allclose(spread.double(), entropy, atol=2e-6)
    assert torch.allclose(gradients(one), expected, atol=2e-5)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo(step)", "gspo"])
def test_the_gradient_of_a_step_does_not_depend_on_micro_batches(name):
    chosen, found = recipe(name).but(name, kl=None), []
    for parts in (1, 3, 7):
        one = trainer(chosen, replace(SMALL, micro_batches=parts, max_norm=None))
        next(one.run())
        found.append(gradients(one))
    assert found[0].norm() > 1e-4
    for other in found[1:]:
        assert torch.allclose(other, found[0], atol=1e-6 + 1e-4 * found[0].abs().max().item())


def test_the_step_pushes_log_probs_by_the_weights_of_the_recipe():
    one = trainer(settings=replace(SMALL, max_norm=None))
    batch = one.collect(0)
    weights = token_weights(GRPO, batch.rollouts) * batch.drawn.own
    logp = token_logp(one.model, batch.ids, batch.attention, batch.drawn.mask)[0]
    expected = torch.autograd.grad(-(weights * logp).sum(), list(one.model.parameters()))
    next(one.run())
    assert torch.allclose(gradients(one), torch.cat([g.flatten() for g in expected]), atol=1e-6)


def test_what_the_environment_wrote_counts_in_length_and_gets_no_gradient():
    one = trainer()
    batch = one.collect(0)
    slipped = batch.drawn.mask & ~batch.drawn.own
    assert slipped.any()
    assert (batch.rollouts.mask == batch.drawn.mask).all()
    logp, _ = one.log_probs(one.model, batch, torch.arange(len(batch.texts)))
    assert not torch.autograd.grad(
        logp[slipped].sum(), list(one.model.parameters()), allow_unused=True, retain_graph=True
    )[0].any()
    assert torch.autograd.grad(
        logp[batch.drawn.own & batch.drawn.mask].sum(), list(one.model.parameters())
    )[0].any()


def test_trained_log_probs_are_those_of_the_sampler_and_the_first_ratio_is_one():
    for temperature in (1.0, 0.6):
        one = trainer(
            settings=replace(SMALL, temperature=temperature, updates=3, learning_rate=3e-2)
        )
        step = next(one.run())
        mask = step.rollouts.mask
        assert torch.allclose(
            step.rollouts.old_logp[mask], step.rollouts.sampler_logp[mask], atol=2e-5
        )
        assert torch.equal(step.rollouts.logp, step.rollouts.old_logp)
        assert step.clipped > 0  # the later updates are off policy


def test_one_update_has_no_clipped_token():
    assert next(trainer().run()).clipped == 0.0


def even(completion: str, answer: str) -> float:
    return float(len(completion) % 2 == 0)


def fixed(reward, limit=12) -> Task:
    def questions(count, step, generator):
        return [
            Problem(f"{torch.randint(10, (), generator=generator).item()}=", "0", 1)
            for _ in range(count)
        ]

    return Task("fixed", questions, reward, limit)


def test_masks_end_at_the_first_end_token_also_where_pad_is_the_end_token():
    net, tokens = lab.warm_start("after", 0)
    tokens.pad_token = tokens.eos_token
    net.config.pad_token_id = lab.END
    one = Trainer(net, tokens, fixed(even, 48), GRPO, SMALL)
    batch = one.collect(0)
    for row, mask, truncated in zip(
        batch.drawn.ids, batch.drawn.mask, batch.drawn.truncated, strict=True
    ):
        ends = (row[mask] == lab.END).nonzero()[:, 0].tolist()
        assert ends == ([] if truncated else [int(mask.sum()) - 1])
    prompt = batch.ids[:, : -batch.drawn.ids.shape[1]]
    assert (batch.attention.sum(1) == batch.drawn.mask.sum(1) + prompt.shape[1]).all()


def test_refill_draws_until_every_group_is_alive():
    def rare(completion: str, answer: str) -> float:
        return float(completion.count(".") > 14)

    settings = replace(SMALL, prompts=6, samples=4)
    plain = trainer(settings=settings, task=fixed(rare, 30)).collect(0)
    full = trainer(settings=replace(settings, refill=60), task=fixed(rare, 30)).collect(0)
    groups = [batch.correct.reshape(-1, 4) for batch in (plain, full)]
    dead = [(g.amax(1) == g.amin(1)).sum().item() for g in groups]
    assert dead[0] > 0
    assert dead[1] == 0
    assert [len(g) for g in groups] == [6, 6]
    assert full.sampled > plain.sampled == 24
    assert full.rollouts.group.tolist() == torch.arange(6).repeat_interleave(4).tolist()
    assert all(full.asked[i] == full.asked[i - i % 4] for i in range(24))


def test_refill_gives_up_after_its_rounds_and_keeps_the_step_full():
    batch = trainer(settings=replace(SMALL, refill=2), task=fixed(lambda c, a: 0.0)).collect(0)
    assert len(batch.texts) == SMALL.prompts * SMALL.samples
    assert batch.sampled == 3 * len(batch.texts)


def test_placebo_shuffles_within_groups_and_leaves_the_observed_rewards():
    one = trainer(settings=replace(SMALL, placebo=True, prompts=20, samples=8))
    batch = one.collect(0)
    learnt, seen = (x.reshape(20, 8) for x in (batch.rollouts.reward, batch.correct))
    assert torch.equal(learnt.sum(1), seen.sum(1))
    assert not torch.equal(learnt, seen)
    assert [
        lab.reward(t, q.answer) for t, q in zip(batch.texts, batch.asked, strict=True)
    ] == batch.correct.tolist()


def test_reference_policy_is_the_start_and_its_kl_pulls_back():
    with_kl = recipe("grpo")
    one = trainer(with_kl, replace(SMALL, steps=4))
    start = copy.deepcopy(one.model.state_dict())
    steps = list(one.run())
    assert all(
        torch.equal(value, one.reference.state_dict()[name]) for name, value in start.items()
    )
    assert torch.allclose(steps[0].rollouts.ref_logp, steps[0].rollouts.logp, atol=1e-6)
    assert not torch.allclose(steps[3].rollouts.ref_logp, steps[3].rollouts.logp, atol=1e-3)


def test_overlong_penalty_and_truncation_mask_work_in_the_loop():
    task = fixed(even, 6)
    penal = GRPO.but("penal", rewards=(partial(overlong_penalty, cache=3),))
    masked = GRPO.but("masked", filters=(partial(truncation_mask, in_baseline=True),))
    for chosen in (penal, masked):
        step = next(trainer(chosen, task=task).run())
        assert step.batch.drawn.truncated.any()
        assert step.gradient_norm > 0
    assert not step.plan.mask[step.batch.drawn.truncated].any()


def test_dropping_finished_rows_changes_no_probability():
    net, tokens = lab.warm_start("after", 0)
    ids, attention = encode(tokens, ["52=", "915203=", "38=", "6190="] * 8, chat=False)
    source = torch.Generator().manual_seed(0)
    drawn = generate(
        net, ids, attention, max_new_tokens=40, ends=[lab.END], generator=source, compact=True
    )
    assert drawn.mask.sum(1).unique().numel() > 5
    both = torch.cat([ids, drawn.ids], 1), torch.cat([attention, drawn.mask.long()], 1)
    assert torch.allclose(token_logp(net, *both, drawn.mask)[0].detach(), drawn.logp, atol=2e-5)


def test_each_distinct_prompt_is_read_once_and_each_row_gets_its_own():
    net, tokens = lab.warm_start("after", 0)
    ids, attention = encode(tokens, ["52=", "915203=", "52=", "38=", "915203="], chat=False)
    output, cache, row_prompt = read_prompts(net, ids, attention)
    assert len(output.logits) == 3
    plain = net(ids, attention_mask=attention, position_ids=positions_of(attention))
    assert torch.allclose(output.logits[row_prompt, -1], plain.logits[:, -1], atol=1e-5)
    new = torch.tensor([[3], [4], [5], [6], [7]])
    seen = torch.cat([attention, torch.ones_like(new)], 1)
    options = {"attention_mask": seen, "position_ids": positions_of(seen)}
    whole = net(torch.cat([ids, new], 1), **options).logits[:, -1]
    options["position_ids"] = options["position_ids"][:, -1:]
    step = net(new, **options, **{cache_name(net): cache})
    assert torch.allclose(step.logits[:, -1], whole, atol=1e-5)


@pytest.mark.parametrize("kind", ["Gemma2", "Qwen3"])
def test_log_probs_of_other_models_are_those_of_whole_rows(kind):
    """Gemma 2: softcapped logits and sliding windows; Qwen 3: grouped keys, normed queries."""
    import transformers

    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "head_dim": 8, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 40}
    config = getattr(transformers, f"{kind}Config")(**size, **heads, sliding_window=4)
    net = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    ids = torch.randint(3, 40, (4, 12))
    ids[1, :6] = ids[0, :6]
    attention = torch.ones_like(ids)
    attention[2, :2] = 0
    attention[3, 9:] = 0
    mask = attention[:, 6:].bool()
    logp, _ = token_logp(net, ids, attention, mask)
    whole = net(ids, attention_mask=attention, position_ids=positions_of(attention)).logits
    expected = torch.log_softmax(whole[:, 5:-1], -1).gather(2, ids[:, 6:, None])[..., 0] * mask
    assert torch.allclose(logp, expected, atol=1e-5)
    both = [torch.autograd.grad(x.sum(), list(net.parameters())) for x in (logp, expected)]
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*both, strict=True))


def test_bf16_sampler_has_its_own_log_probs_and_follows_the_policy():
    one = trainer(settings=replace(SMALL, bf16_sampler=True, learning_rate=1e-2))
    first, second = one.run()
    for step in (first, second):
        apart = (step.rollouts.sampler_logp - step.rollouts.logp).abs()[step.rollouts.mask]
        assert 0 < apart.mean() < 0.05
    assert next(one.sampler.parameters()).dtype == torch.bfloat16


def test_a_run_is_reproducible_and_can_start_in_the_middle():
    first, again = trainer(), trainer()
    a, b = list(first.run()), list(again.run())
    assert [s.batch.texts for s in a] == [s.batch.texts for s in b]
    assert all(
        torch.equal(x, y)
        for x, y in zip(first.model.parameters(), again.model.parameters(), strict=True)
    )
    assert [s.number for s in trainer().run(start=1)] == [1]
    assert trainer().collect(1).asked == a[1].batch.asked


def test_micro_batches_hold_completions_of_like_length():
    one = trainer(settings=replace(SMALL, micro_batches=4))
    batch = one.collect(0)
    slices = one.slices(batch)
    longest = [int(batch.drawn.mask[rows].sum(1).max()) for rows in slices]
    assert longest == sorted(longest)
    assert sorted(torch.cat(slices).tolist()) == list(range(20))
    number = micro_batch_of(slices)
    assert all((number[rows] == i).all() for i, rows in enumerate(slices))


def test_more_micro_batches_than_completions_are_one_each():
    one = trainer(settings=replace(SMALL, micro_batches=99))
    assert [len(rows) for rows in one.slices(one.collect(0))] == [1] * SMALL.prompts * SMALL.samples


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"samples": 1}, "samples is 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
        ({"max_norm": 0.0}, "max_norm is 0.0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
    ],
)
def test_wrong_settings_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        replace(SMALL, **change)
