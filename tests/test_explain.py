"""explain: real configs, retyped small, give the stated verdicts; changing one key changes the predicted lines and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from grpo_edu.frameworks.explain import Verdict, explain
from grpo_edu.frameworks.readers import read_shell
from grpo_edu.weights import token_weights

CONFIGS = Path(__file__).parent / "configs"
TOKEN = "push per token +0.00909091 and -0.00909091, share +0.0909 and -0.9091"  # 1/110; 10/110 and 100/110
SEQUENCE = "push per token +0.05 and -0.005, share +0.5000 and -0.5000"  # 1/(2·10), 1/(2·100)


# file, version, updates, and a text that each of advantage, aggregation, clip, KL and label must hold
CASES = [
    ("c01_open_r1_demo.yaml", "0.18.0", 1, "std(r in group, ddof=1) + 0.0001", f"micro-batch}}|o_j|; lengths 10 (A = +1) and 100 (A = -1): {TOKEN}", "[0.8, 1.2]; 1 update per rollout: idle", "0.04·k3", "this is bnpo"),
    ("c02_open_r1_code.yaml", "0.18.0", 1, "std(r in group", TOKEN, "idle", "0.01·k3", "this is bnpo"),
    ("c03_trl_gspo.sh", None, 4, "std(r in group", SEQUENCE, "sequence ratio [0.9997, 1.0004]; 4 updates per rollout: it can act", "none", "this is gspo"),
    ("c04_verl_grpo.sh", None, 4, "ddof=1) + 1e-06", TOKEN, "[0.8, 1.2], dual clip 3 for A < 0; 4 updates", "in the loss: 0.001·k3", "not grpo, because aggregation is step_token_mean where grpo has sequence_mean"),
    ("c05_verl_gspo.sh", None, 4, "std(r in group", SEQUENCE, "sequence ratio [0.9997, 1.0004]; 4 updates", "none", "this is gspo"),
    ("c06_verl_cispo.sh", None, 4, "std(r in group", TOKEN, "ratio capped to [0, 1.2] and detached", "0.001·k3", "this is cispo as frameworks run it"),
    ("c07_verl_gmpo.sh", None, 4, "std(r in group", SEQUENCE, "[0.67032, 1.49182] in log space ±0.4", "averaged by 1/Σ_j|o_j| (step)", "this is gmpo"),
    ("c08_verl_dapo.sh", None, 16, "overlong penalty (cache 4096); only groups whose rewards differ", TOKEN, "[0.8, 1.28], dual clip 10 for A < 0; 16 updates", "none", "this is dapo as frameworks run it"),
    ("c10_verl_retool_dapo.sh", None, 8, "std(r in group", TOKEN, "[0.8, 1.28], dual clip 10 for A < 0; 8 updates", "none", "not grpo, because aggregation"),
    ("c11_search_r1_grpo.sh", "search-r1", 10, "ddof=1) + 1e-06", "in micro-batch", "[0.8, 1.2]; 10 updates per rollout: it can act", "in the loss: 0.001·k3", "not grpo, because aggregation is micro_batch_token_mean"),
    ("c12_openrlhf_dapo.sh", None, 8, "std(r in group, ddof=1) + 1e-09", TOKEN, "[0.8, 1.27]; 8 updates", "0.001·k3", "this is dapo as frameworks run it (the paper's token mean is per prompt), with a KL term"),
    ("c12_openrlhf_dapo_0_9_10.sh", "0.9.10", 8, "std(r in group, ddof=1) + 1e-09", "in micro-batch", "[0.8, 1.27]; 8 updates", "0.001·k3", "token mean of each micro-batch"),
    ("c13_openrlhf_prorl.sh", "0.11.0", 8, "z-score over all tokens", TOKEN, "[0.8, 1.27]; 8 updates per rollout: it can act; times w if 0.5 ≤ w ≤ 5", "0.0001·k2", "this is reinforce++(baseline)"),
    ("c20_tinyzero_drgrpo.sh", "tinyzero@de61e6aa", 2, "not divided", "1/C (inside each micro-batch; divided by their number: True)", "[0.8, 1.2], dual clip 3", "in the reward: r - 0.001·Σ_t k1", "not dr_grpo, because aggregation is constant_sum"),
    ("c20_tinyzero_grpo.sh", "tinyzero@de61e6aa", 2, "std(r in group", "in micro-batch", "[0.8, 1.2], dual clip 3", "not covered, see below", "not grpo, because aggregation"),
    ("c30_trl_gspo.ipynb", None, 4, "std(r in group", SEQUENCE, "sequence ratio [0.9997, 1.0004]; 4 updates", "none", "this is gspo"),
    ("c31_trl_subclass.py", "1.16", 2, "not divided", "1/C (inside each micro-batch", "[0.8, 1.28]; 2 updates", "0.04·k3", "this is dr_grpo, with a KL term"),
    ("c32_trl_wandb.yaml", "1.16", 1, "std(r in group", SEQUENCE, "idle, every ratio is 1; times", "0.04·ρ·k3", "this is grpo"),
    ("c33_verl_overrides.yaml", None, 4, "std(r in group", SEQUENCE, "dual clip 3 for A < 0; 4 updates", "0.001·k3", "this is grpo"),
    ("c34_nemo_base.yaml", None, 1, "the others in group", TOKEN, "[0.8, 1.2]; 1 update", "0.01·", "a leave-one-out z-score"),
    ("c34_nemo_child.yaml", None, 2, "the others in group", TOKEN, "[0.8, 1.28]; 2 updates", "none", "a leave-one-out z-score"),
    ("c20_tinyzero_drgrpo.sh", "0.9.1", 2, "not divided", "T_b longest of the slice", "[0.8, 1.2]", "none", "this is dr_grpo"),
]  # fmt: skip


@pytest.mark.parametrize(("size", "gain"), [(4, "1.05"), (16, "1.47")])
def test_the_difficulty_bias_is_that_of_the_configs_group_size(size, gain):
    # w(.1)/w(.5) of the std at G = 4: [√3 - (2√3 - 3)(.09)] / [√3 - (2√3 - 3)(.25)] = 1.6903 / 1.6160 (ddof cancels)
    said = explain(f"GRPOConfig(num_generations={size})", version="1.16").biases[1]
    assert f"groups of {size} completions" in said
    assert gain in said


def test_before_trl_0_16_there_is_one_update_and_no_option_for_more():
    verdict = explain("GRPOConfig(num_iterations=4)", version="0.15")
    assert verdict.updates == 1
    assert "it can act" not in verdict.clip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}")
def test_real_configs_give_the_stated_verdicts(case: tuple) -> None:
    file, version, updates, *expected = case
    verdict = explain(CONFIGS / file, version=version)
    assert verdict.updates == updates
    found = (verdict.advantage, verdict.aggregation, verdict.clip, verdict.kl, verdict.label)
    for part, text in zip(expected, found, strict=True):
        assert part in text
    assert str(verdict).splitlines()[2].startswith("advantage")
    assert json.loads(json.dumps(verdict.to_dict(), default=str))["updates"] == updates


def traps(file: str, version: str | None = None) -> dict[str, tuple[int, str]]:
    return {
        trap.key: (trap.line, trap.text) for trap in explain(CONFIGS / file, version=version).traps
    }


def test_traps_carry_key_and_line() -> None:
    assert traps("c02_open_r1_code.yaml", "0.18.0")["num_generations"][0] == 5
    assert (
        "not used by loss_mode = gspo"
        in traps("c05_verl_gspo.sh")["actor_rollout_ref.actor.clip_ratio_c"][1]
    )
    c06 = traps("c06_verl_cispo.sh")
    line, text = c06["actor_rollout_ref.actor.clip_ratio_low"]
    assert line == 15
    assert "below 0" in text
    assert (
        "the file name" in str(explain(CONFIGS / "c10_verl_retool_dapo.sh"))
        or "drop_dead_groups" in traps("c10_verl_retool_dapo.sh")["file name"][1]
    )
    fork = traps("c20_tinyzero_drgrpo.sh", "tinyzero@de61e6aa")
    assert "KL is not off" in fork["actor_rollout_ref.actor.use_kl_loss"][1]
    assert (
        "algorithm.kl_ctrl.kl_coef" not in fork
    )  # upstream it has no effect; in this fork it is the KL in the reward
    assert "KL is maximised" in str(explain(CONFIGS / "c20_tinyzero_grpo.sh", version="tinyzero"))
    search = traps("c11_search_r1_grpo.sh", "search-r1")
    assert "n_agent = 5" in search["actor_rollout_ref.rollout.n_agent"][1]
    assert "actor_rollout_ref.rollout.n" not in search  # G is 5, not 1
    assert (
        "--version search-r1"
        in traps("c11_search_r1_grpo.sh")["actor_rollout_ref.rollout.n_agent"][1]
    )
    now = traps("c20_tinyzero_drgrpo.sh", "0.9.1")
    assert now["actor_rollout_ref.actor.kl_loss_coef"] == (
        10,
        "kl_loss_coef has no effect: use_kl_loss is false.",
    )
    assert "no constant" in now["actor_rollout_ref.actor.loss_agg_mode"][1]


def test_what_no_axis_expresses_is_said_and_no_numbers_are_shown_for_it() -> None:
    verdict = explain(CONFIGS / "c09_verl_clip_cov.sh")
    (part,) = verdict.left_out
    assert (part.axis, part.line) == ("surrogate", 3)
    assert part.key == "actor_rollout_ref.actor.policy_loss.loss_mode"
    assert str(part) == (
        "surrogate: clip_cov chooses tokens by the covariance of advantage and log π (line 3)"
    )
    assert verdict.aggregation == "not covered, see below"
    assert verdict.clip == "not covered, see below; updates per rollout: 8"
    unused = {
        t.key.rsplit(".", 1)[-1]
        for t in verdict.traps
        if "is not used by loss_mode = clip_cov" in t.text
    }
    assert unused == {"kl_cov_ratio", "ppo_kl_coef", "clip_ratio_c"}
    assert "push per token" not in str(verdict)


def test_a_branch_and_an_unset_variable_are_named_with_their_line() -> None:
    assert explain(CONFIGS / "c04_verl_grpo.sh").unread == []  # its branch is on a known value
    text = "if [ -f x ]; then N=8; fi\npython -m verl.trainer.main_ppo \\\n algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=$N\n"
    assert explain(text).unread == [
        "line 3: actor_rollout_ref.rollout.n = … is not read: N depends on the branch 'if [ -f x ]; then N=8; fi' (line 1); the default 1 stands in"
    ]
    text = "python -m verl.trainer.main_ppo \\\n algorithm.adv_estimator=$NOPE \\\n actor_rollout_ref.rollout.n=8\n"
    assert explain(text).unread == [
        "line 2: algorithm.adv_estimator = … is not read: the variable NOPE is not set in this file; the default gae stands in"
    ]


# --- one key, the predicted lines -----------------------------------------------------------------------------------------


def changed(before: Verdict, after: Verdict) -> set[str]:
    return {
        name
        for name in ("advantage", "aggregation", "clip", "kl")
        if getattr(before, name) != getattr(after, name)
    }


@pytest.mark.parametrize(
    ("file", "old", "new", "lines"),
    [
        ("c01_open_r1_demo.yaml", "learning_rate: 1.0e-06", "beta: 0.001", {"kl"}),
        ("c01_open_r1_demo.yaml", "learning_rate: 1.0e-06", "scale_rewards: false", {"advantage"}),
        ("c01_open_r1_demo.yaml", "learning_rate: 1.0e-06", "loss_type: grpo", {"aggregation"}),
        ("c01_open_r1_demo.yaml", "learning_rate: 1.0e-06", "epsilon_high: 0.28", {"clip"}),
        ("c01_open_r1_demo.yaml", "learning_rate: 1.0e-06", "num_iterations: 2", {"clip"}),
        ("c01_open_r1_demo.yaml", "temperature: 0.7", "temperature: 0.9", set()),
        ("c04_verl_grpo.sh", "use_kl_loss=True", "use_kl_loss=False", {"kl"}),
        ("c04_verl_grpo.sh", "entropy_coeff=0", "loss_agg_mode=seq-mean-token-mean", {"aggregation"}),
        ("c04_verl_grpo.sh", "entropy_coeff=0", "clip_ratio_c=10", {"clip"}),
        ("c04_verl_grpo.sh", "adv_estimator=grpo", "adv_estimator=rloo", {"advantage"}),
        ("c04_verl_grpo.sh", ":-256}", ":-512}", {"clip"}),
        ("c04_verl_grpo.sh", "ROLLOUT_N:-5", "ROLLOUT_N:-8", set()),
        ("c04_verl_grpo.sh", "kl_loss_type=low_var_kl", "kl_loss_type=kl", {"kl"}),
        ("c02_open_r1_code.yaml", "beta: 0.01", "beta: 0.02", {"kl"}),
        ("c02_open_r1_code.yaml", "num_generations: 14", "num_generations: 16", set()),
        ("c03_trl_gspo.sh", "--epsilon_high 4e-4", "--epsilon_high 5e-4", {"clip"}),
        ("c03_trl_gspo.sh", "level sequence", "level token", {"clip"}),
        ("c03_trl_gspo.sh", "--loss_type grpo", "--loss_type dapo", {"aggregation"}),
        ("c03_trl_gspo.sh", "--beta 0.0", "--beta 0.1", {"kl"}),
        ("c05_verl_gspo.sh", "=seq-mean-token-mean", "=token-mean", {"aggregation"}),
        ("c05_verl_gspo.sh", ":-4e-4", ":-5e-4", {"clip"}),
        ("c05_verl_gspo.sh", "clip_ratio_c=10.0", "clip_ratio_c=3.0", set()),  # gspo does not look at it
        ("c06_verl_cispo.sh", "clip_ratio_high=0.2", "clip_ratio_high=4.0", {"clip"}),
        ("c06_verl_cispo.sh", "clip_ratio_low=10", "clip_ratio_low=1", set()),  # both are no bound at all
        ("c07_verl_gmpo.sh", "clip_ratio_high=0.4", "clip_ratio_high=0.3", {"clip"}),
        ("c07_verl_gmpo.sh", "entropy_coeff=0", "loss_agg_mode=seq-mean-token-mean", {"kl"}),  # fixed for the policy term
        ("c08_verl_dapo.sh", "filter_groups=True", "filter_groups=False", {"advantage"}),
        ("c08_verl_dapo.sh", "1024 * 4", "1024 * 2", {"advantage"}),
        ("c08_verl_dapo.sh", '"token-mean"', '"seq-mean-token-mean"', {"aggregation"}),
        ("c08_verl_dapo.sh", "mini_bsz=32", "mini_bsz=512", {"clip"}),
        ("c08_verl_dapo.sh", "use_kl_in_reward=False", "use_kl_in_reward=True", set()),  # its coefficient is 0
        ("c09_verl_clip_cov.sh", "filter_groups.enable=True", "filter_groups.enable=False", {"advantage"}),
        ("c09_verl_clip_cov.sh", "clip_cov_ratio=0.0002", "clip_cov_ratio=0.002", set()),  # on no axis
        ("c10_verl_retool_dapo.sh", "clip_ratio_high=0.28", "clip_ratio_high=0.2", {"clip"}),
        ("c10_verl_retool_dapo.sh", "kl_coef=0.0", "kl_coef=0.1", set()),  # its switch is off
        ("c10_verl_retool_dapo.sh", "rollout.n=16", "rollout.n=8", set()),
        ("c11_search_r1_grpo.sh", "n_agent=5", "n_agent=8", {"clip"}),  # more updates per rollout
        ("c11_search_r1_grpo.sh", "kl_loss_coef=0.001", "kl_loss_coef=0.01", {"kl"}),
        ("c12_openrlhf_dapo_0_9_10.sh", "group_norm", "reinforce_baseline", {"advantage"}),
        ("c12_openrlhf_dapo_0_9_10.sh", "--use_kl_loss \\\n", "\\\n", {"kl"}),
        ("c13_openrlhf_prorl.sh", "icepop", "tis", {"clip"}),
        ("c13_openrlhf_prorl.sh", "estimator k2", "estimator k3", {"kl"}),
        ("c13_openrlhf_prorl.sh", "reinforce_baseline", "group_norm", {"advantage"}),
        ("c13_openrlhf_prorl.sh", "train.batch_size 1024", "train.batch_size 8192", {"clip"}),
        ("c20_tinyzero_drgrpo.sh", "grpo=False", "grpo=True", {"advantage"}),
        ("c20_tinyzero_drgrpo.sh", "use_kl_loss=False", "use_kl_loss=True", {"advantage", "kl"}),
        ("c20_tinyzero_drgrpo.sh", "-sum-norm", "-sum", {"aggregation"}),
        ("c20_tinyzero_grpo.sh", "use_kl_loss=True", "use_kl_loss=False", {"advantage", "kl"}),
        ("c12_openrlhf_dapo.sh", "k3", "k2", {"kl"}),
        ("c12_openrlhf_dapo.sh", "group_norm", "dr_grpo", {"advantage"}),
        ("c12_openrlhf_dapo.sh", "0.2 0.27", "0.1 0.27", {"clip"}),
        ("c12_openrlhf_dapo.sh", "--algo.dynamic_filtering_enable \\", "--train.seed 3 \\", {"advantage"}),
    ],
)  # fmt: skip
def test_changing_one_key_changes_exactly_the_predicted_lines(
    file: str, old: str, new: str, lines: set[str]
) -> None:
    text = (CONFIGS / file).read_text(encoding="utf-8")
    assert old in text
    version = {
        "c01": "0.18",
        "c02": "0.18",
        "c11": "search-r1",
        "c20": "tinyzero",
        "c13": "0.11.0",
    }.get(file[:3])
    version = "0.9.10" if "0_9_10" in file else version
    who = "trl" if file[:3] <= "c03" else "openrlhf" if file[:3] in ("c12", "c13") else "verl"
    assert (
        changed(explain(text, who, version), explain(text.replace(old, new), who, version)) == lines
    )


def test_trls_documented_dr_grpo_without_scale_rewards_keeps_the_difficulty_bias() -> None:
    verdict = explain('GRPOConfig(\n    loss_type="dr_grpo",\n    beta=0.0,\n)\n', version="1.16")
    assert "not dr_grpo, because scale is group_std where dr_grpo has unscaled" in verdict.label
    assert "1.25 times as much" in verdict.biases[1]
    assert any(
        t.key == "scale_rewards" and "difficulty bias is kept" in t.text for t in verdict.traps
    )
    fixed = explain(
        'GRPOConfig(\n    loss_type="dr_grpo",\n    scale_rewards="none",\n    beta=0.0,\n)\n',
        version="1.16",
    )
    assert fixed.label.startswith("this is dr_grpo")
    assert "no bias" in fixed.biases[1]


@pytest.mark.parametrize(
    ("version", "aggregation", "kl"),
    [("0.15", SEQUENCE, "0.04"), ("0.16", "micro-batch", "0.04"), ("0.18", "micro-batch", "0.04"), ("0.19", "micro-batch", "none"), ("0.22.2", "(step)", "none"), ("1.10", "(step)", "none")],
)  # fmt: skip
def test_the_same_empty_config_means_another_loss_in_each_release(
    version: str, aggregation: str, kl: str
) -> None:
    verdict = explain("GRPOConfig()", version=version)
    assert aggregation in verdict.aggregation
    assert kl in verdict.kl
    assert verdict.assumed == ""


def test_an_assumed_version_is_said_with_what_another_would_change() -> None:
    verdict = explain("GRPOConfig()")
    assert str(verdict).startswith(
        "read as trl 1.16 (assumed: the newest read; --version settles it) (no setting"
    )
    assert verdict.conditional[0] == "before 0.22: aggregation micro_batch_token_mean"


def test_dates_and_unknown_forks_make_the_verdict_conditional() -> None:
    assert "2025-03-01" in explain("GRPOConfig()", version="2025-03-01").conditional[0]
    assert (
        "may differ in any line"
        in explain(CONFIGS / "c04_verl_grpo.sh", version="myfork@abc123").conditional[0]
    )


def test_loss_scaled_by_half_in_the_releases_where_accumulation_and_generation_disagree() -> None:
    # B01: (spg, gas) = (4, 2) halves the loss in 0.22 to 1.9
    text = "GRPOConfig(loss_type='dapo', steps_per_generation=4, gradient_accumulation_steps=2)"
    assert any("= 2/4" in t.text for t in explain(text, version="1.0").traps)
    assert not any("= 2/4" in t.text for t in explain(text, version="1.10").traps)


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("GRPOConfig(loss_type='bnpo')", "loss_type", "begins with 0.17"),
        ("GRPOConfig(num_generation=4)", "num_generation", "did you mean num_generations"),
    ],
)
def test_keys_that_do_nothing_are_named(text: str, key: str, said: str) -> None:
    assert any(t.key == key and said in t.text for t in explain(text, version="0.16").traps)


def test_removed_shadowed_and_repeated_keys() -> None:
    assert any(
        "removed in 0.28" in t.text
        for t in explain("GRPOConfig(use_liger_loss=True)", version="1.0").traps
    )
    text = "verl.trainer.main_ppo \\\n algorithm.adv_estimator=grpo \\\n actor_rollout_ref.actor.clip_ratio=0.1 \\\n algorithm.adv_estimator=rloo\n"
    verdict = explain(text)
    assert any("shadowed" in t.text and t.line == 3 for t in verdict.traps)
    assert any("given twice; line 2" in t.text and t.line == 4 for t in verdict.traps)


@pytest.mark.parametrize(
    ("value", "std"),
    [("false", False), ("'False'", False), ("none", False), ("True", True), ("group", True)],
)
def test_scale_rewards_is_read_however_it_is_spelt(value: str, std: bool) -> None:
    verdict = explain(f"loss_type: dapo\nscale_rewards: {value}\n", "trl")
    assert ("divided by std(r in group" in verdict.advantage) is std


def test_scale_rewards_that_is_no_choice_is_a_trap() -> None:
    assert any(
        t.key == "scale_rewards" and "none of group, batch, none" in t.text
        for t in explain("loss_type: dapo\nscale_rewards: 3\n", "trl").traps
    )


def test_a_comment_that_claims_what_no_flag_sets() -> None:
    verdict = explain("# Dr. GRPO, no length bias\nloss_type: grpo\nscale_rewards: none\n", "trl")
    assert any(
        t.line == 1
        and "says dr_grpo, but aggregation is sequence_mean where dr_grpo has constant" in t.text
        for t in verdict.traps
    )


def test_python_is_parsed_and_never_executed(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "raise SystemExit\nE = 0.3\nargs = GRPOConfig(epsilon=E, beta=compute(), **extra)\n",
        encoding="utf-8",
    )
    verdict = explain(file)
    assert "[0.7, 1.3]" in verdict.clip
    assert verdict.unread == [
        "line 3: beta = compute() is not a literal: not read; the default 0.0 stands in",
        "line 3: **extra is not a literal: its keys are not read",
    ]


def test_a_file_without_settings_and_a_framework_that_cannot_be_told_are_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.yaml").write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no setting found"):
        explain(tmp_path / "a.yaml")
    with pytest.raises(ValueError, match="--framework"):
        explain("x: 1\ny: 2\n")


def test_shell_variables_defaults_arithmetic_quotes_and_arrays() -> None:
    text = 'A=${A:-4}\nB=$((A * 2 + 1))\nL=(\n  k.a=${B}  # note\n  "k.b=\'x y\'"\n)\nL+=(k.c=1)\nrun "${L[@]}" z=${MISSING}\n'
    reading = read_shell(text)
    assert reading.entries == [("k.a", 9, 4), ("k.b", "x y", 5), ("k.c", 1, 7)]
    assert reading.comments == [("note", 4)]
    assert reading.unread == [
        ("z = … is not read: the variable MISSING is not set in this file", 8, "z")
    ]


def test_values_that_the_tables_do_not_know_are_said_and_not_taken_for_the_default() -> None:
    verdict = explain(
        "verl.trainer.main_ppo \\\n algorithm.adv_estimator=grpo \\\n actor_rollout_ref.actor.policy_loss.loss_mode=mine\n"
    )
    assert str(verdict.left_out[0]) == (
        "surrogate: actor_rollout_ref.actor.policy_loss.loss_mode = mine is not known to the verl "
        "tables (line 3)"
    )
    assert verdict.clip.startswith("not covered, see below")
    assert "loss_type = mine" in explain("GRPOConfig(loss_type='mine')").left_out[0].reason
    with pytest.raises(ValueError, match="line 2: epsilon is 'wide': expected a number"):
        explain("loss_type: dapo\nepsilon: wide\n", "trl")


@pytest.mark.parametrize(
    ("config", "axes", "lines"),
    [
        ("loss_type: mine", ["surrogate", "aggregation"], {"clip", "aggregation"}),
        ("loss_type: dapo\nscale_rewards: mine", ["scale"], {"advantage"}),
        ("loss_type: dapo\nvllm_importance_sampling_mode: mine", [], set()),  # without vLLM
        (
            "use_vllm: true\nvllm_importance_sampling_mode: mine",
            ["correction"],
            set(),
        ),
    ],
)
def test_an_unknown_value_is_missing_from_the_axes_that_its_option_decides(
    config: str, axes: list[str], lines: set[str]
) -> None:
    verdict = explain(config + "\n", "trl")
    assert [part.axis for part in verdict.left_out] == axes
    shown = vars(verdict)
    missing = {
        line
        for line in ("advantage", "aggregation", "clip", "kl")
        if shown[line].startswith("not covered")
    }
    assert missing == lines
    assert bool(verdict.biases) is not bool(lines)


def test_a_release_without_grpo_is_refused_and_one_that_was_not_read_is_said() -> None:
    for version in ("0.9.1", "trl==0.13"):
        with pytest.raises(ValueError, match=r"has no GRPO, which begins with 0\.14"):
            explain(CONFIGS / "c03_trl_gspo.sh", version=version)
    verdict = explain(CONFIGS / "c05_verl_gspo.sh", version="0.1")
    assert verdict.version == "0.2"
    assert "0.1 is older than all that were read" in verdict.assumed


def test_every_fixture_has_a_verdict_and_a_key_that_is_changed() -> None:
    files = {file.name for file in CONFIGS.iterdir()}
    assert {case[0] for case in CASES} | {"c09_verl_clip_cov.sh"} == files


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.yaml", b"", "no setting found"),
        ("b.sh", bytes(range(256)), "not a text file"),
        ("c.yaml", b"loss_type: [dapo\n", "Line 2: not YAML"),
        ("d.py", b"def broken(:\n", "Line 1: not Python"),
        ("e.py", b"print('hi')\n", "no setting found"),
        (
            "f.yaml",
            b"trainer:\n  loss_type: dapo\n  beta: 0.1\n",
            "the framework cannot be told from the file",
        ),
        ("g.yaml", b"- a\n- b\n", "no setting found"),
        ("h.sh", b"torchrun train.py --lr 3\n", "--framework"),
    ],
)
def test_files_that_say_nothing_are_refused_with_the_reason(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(said)):
        explain(tmp_path / name)


def test_yaml_anchors_and_merge_keys_are_followed() -> None:
    text = "base: &b\n  beta: 0.04\n  epsilon: 0.3\n<<: *b\nbeta: 0.1\nloss_type: grpo\nepsilon_high: &e 0.4\ndelta: *e\n"
    verdict = explain(text, "trl", "1.16")
    assert "in the loss: 0.1·" in verdict.kl
    assert "[0.7, 1.4], dual clip 0.4" in verdict.clip
    assert verdict.unknown == ["base.beta", "base.epsilon"]
    assert not any("given twice" in t.text for t in verdict.traps)


def test_dictionaries_in_python_are_read_and_what_is_no_literal_is_said_with_its_default() -> None:
    text = 'more = dict(beta=0.1)\nGRPOConfig(**more, **{"epsilon": 0.3, "delta": f()}, loss_type=x, **other())\n'
    verdict = explain(text, version="1.16")
    assert "0.1·" in verdict.kl
    assert "[0.7, 1.3]" in verdict.clip
    assert verdict.unread == [
        "line 2: delta = f() is not a literal: not read",
        "line 2: loss_type = x is not a literal: not read; the default dapo stands in",
        "line 2: **other() is not a literal: its keys are not read",
    ]
    assert str(verdict).index("Not read, so that defaults stand in") < str(verdict).index("Biases")


def test_a_flag_whose_variable_is_not_set_takes_the_default_and_a_second_run_is_left_alone() -> (
    None
):
    text = "python train.py --loss_type grpo --beta $B --epsilon 0.3\n"
    verdict = explain(text, "trl", "1.16")
    assert verdict.kl == "none"
    assert "[0.7, 1.3]" in verdict.clip
    assert (
        verdict.unread[-1]
        == "line 1: beta = … is not read: the variable B is not set in this file; the default 0.0 stands in"
    )
    one = "X=1 python -m verl.trainer.main_ppo algorithm.adv_estimator={}\n"
    two = explain(one.format("rloo") + one.format("grpo"))
    assert "mean(r of the others in group)" in two.advantage
    assert two.unread == ["line 2: a second run starts here: only the first is read"]


def test_shell_defaults_follow_the_shell() -> None:
    # an empty variable takes the :- default; one that could not be read does not
    reading = read_shell("A=\nB=$(date)\nrun a.x=${A:-4} a.y=${B:-5}\n")
    assert reading.entries == [("a.x", 4, 3)]
    assert reading.unread == [("a.y = … is not read: 'date' would have to be run", 3, "a.y")]


@pytest.mark.parametrize(
    ("version", "read_as", "said"),
    [
        ("1.16.2", "1.16", "1.16.2 is a patch release of it"),
        ("99", "1.16", "99 is newer than all that were read"),
        ("v1.16", "1.16", ""),
        ("2025-06-01", "1.16", "which release 2025-06-01 had is not known"),
        ("trl@fc4dae256", "0.16", "13 March 2025"),
        ("tinyzero@de61e6aa", "1.16", "not a commit or fork that trl knows"),
    ],
)
def test_a_version_that_was_not_read_is_said(version: str, read_as: str, said: str) -> None:
    verdict = explain("GRPOConfig()", version=version)
    assert verdict.version == read_as
    assert said in verdict.assumed


def test_another_commit_of_a_known_fork_is_read_as_the_known_one_conditionally() -> None:
    verdict = explain(CONFIGS / "c20_tinyzero_drgrpo.sh", version="tinyzero@0123abc")
    assert "in the reward" in verdict.kl
    assert (
        verdict.conditional[0]
        == "tinyzero@de61e6aa is the commit that was read; another may differ"
    )


def test_the_picture_shows_the_config_beside_the_paper_on_one_group() -> None:
    verdict = explain(CONFIGS / "c10_verl_retool_dapo.sh")
    recipes, rollouts = verdict.example()
    assert [r.name for r in recipes] == ["grpo, as published", "this config, verl 0.9.1"]
    # R = 1 0 0 0: A = 1.5 and -0.5; lengths 10 100 10 100: 1/(4·10) and 1/(4·100) against 1/220
    ours = [token_weights(r, rollouts)[:, 0].tolist() for r in recipes]
    assert ours[0] == pytest.approx([1.5 / 40, -0.5 / 400, -0.5 / 40, -0.5 / 400])
    assert ours[1] == pytest.approx([1.5 / 220, -0.5 / 220, -0.5 / 220, -0.5 / 220], rel=1e-5)
    assert verdict.headline().endswith("is pushed as hard as one of 100")
    assert "10 times as hard" in explain(CONFIGS / "c05_verl_gspo.sh").headline()
    with pytest.raises(ValueError, match="clip_cov"):
        explain(CONFIGS / "c09_verl_clip_cov.sh").example()


def test_a_value_that_comes_with_a_later_release_is_said() -> None:
    verdict = explain("GRPOConfig(loss_type='cispo', epsilon_high=5.0)", version="0.18")
    assert [str(part) for part in verdict.left_out] == [
        "surrogate: loss_type = cispo begins with trl 0.26, after 0.18 (line 1)",
        "aggregation: loss_type = cispo begins with trl 0.26, after 0.18 (line 1)",
    ]
    assert verdict.clip.startswith("not covered, see below")
    newest = explain("GRPOConfig(loss_type='cispo', epsilon_high=5.0)")
    assert newest.left_out == []
    assert newest.conditional[-1] == "before 0.26: loss_type = cispo is not known"


@pytest.mark.parametrize(
    ("framework", "text", "updates", "size", "said"),
    [
        ("skyrl", "trainer.algorithm.advantage_estimator=rloo", 4, 5, "this is RLOO's advantage"),
        ("open_instruct", "--loss_denominator token", 1, 4, "this is Dr. GRPO's advantage"),
        ("rlhf_book", "loss: drgrpo\nclip_eps_hi: 0.28\n", 4, 8, "this is Dr. GRPO's advantage"),
    ],
)
def test_frameworks_whose_files_hold_no_group_size_take_its_default(
    framework: str, text: str, updates: int, size: int, said: str
) -> None:
    """``size``: the framework's default G."""
    verdict = explain(f"{text}\n", framework)
    assert verdict.updates == updates
    assert said in verdict.label
    assert f"at G = {size};" in verdict.biases[1] or f"of {size} completions" in verdict.biases[1]


@pytest.mark.parametrize(
    ("source", "framework", "version", "error", "said"),
    [
        (None, None, None, TypeError, "source is None: expected the path"),
        (3, None, None, TypeError, "source is 3: expected the path"),
        ("no/such/file.yaml", None, None, FileNotFoundError, "there is no such file"),
        (CONFIGS, None, None, ValueError, "is a folder: expected one config in it"),
        ("x" * 5000, None, None, OSError, "cannot be read: File name too long"),
        ("GRPOConfig()", "keras", None, KeyError, "no framework named 'keras'"),
        ("GRPOConfig()", 3, None, TypeError, "expected a text"),
        ("GRPOConfig()", None, 1.16, TypeError, "version is 1.16: expected a text"),
        ("GRPOConfig()", None, "banana", ValueError, "version is 'banana': expected numbers"),
        ("GRPOConfig()", None, "verl==0.9", ValueError, "the config is read as trl"),
        ("GRPOConfig(epsilon=float)", None, None, None, ""),
        ("GRPOConfig(epsilon=[1, 2])", None, None, ValueError, "epsilon is '[1, 2]': expected a number"),
        ("GRPOConfig(beta=None)", None, None, ValueError, "beta is null: expected a number"),
        ("epsilon: nan\nloss_type: grpo\n", None, None, ValueError, "epsilon is 'nan': expected a number"),
        ("GRPOConfig(loss_type='dr_grpo', max_completion_length=0)", None, None, ValueError, "length is 0: expected a number"),
        ("GRPOConfig(" + "-" * 50_000 + "1)", None, None, ValueError, "nested too deeply"),
        ("a: &a\n  b: *a\n  loss_type: grpo\n", None, None, ValueError, "nested too deeply"),
        ("x: [1]\n? [a, b]\n: 3\nloss_type: grpo\nbeta: 0\n", None, None, None, ""),
        ("loss_type: grpo\n#" + "x" * 300_000, None, None, ValueError, "more than 200,000 characters"),
    ],
)  # fmt: skip
def test_wrong_arguments_and_odd_files_are_named_errors(source, framework, version, error, said):
    if error is None:
        assert explain(source, framework, version).framework == "trl"
        return
    with pytest.raises(error, match=re.escape(said)):
        explain(source, framework, version)


def test_a_large_file_and_a_file_of_zeros_are_refused(tmp_path: Path) -> None:
    for name, content, said in (
        ("large.sh", b"a=1 " * 13_000_000, "more than 200,000 characters"),
        ("zeros.py", b"\0" * 1000, "not a text file"),
        ("folder.yaml/", b"", "is a folder"),
    ):
        path = tmp_path / name
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(content)
        with pytest.raises((ValueError, OSError), match=said):
            explain(path)


def test_texts_that_grow_without_end_are_not_followed() -> None:
    lines = [f"A{i + 1}=$A{i}$A{i}" for i in range(60)]
    shell = "\n".join(["A0=xx", *lines, "run loss.a=$((9**9**9**9)) --beta $A60 --epsilon 0.3"])
    assert "[0.7, 1.3]" in explain(shell + "\n", "trl").clip
    doubled = "L=(a=1)\n" + 'L+=("${L[@]}")\n' * 60 + 'run "${L[@]}" --epsilon 0.3\n'
    assert "[0.7, 1.3]" in explain(doubled, "trl").clip
    laughs = "a0: &a0 {beta: 0.1}\n" + "".join(
        f"a{i}: &a{i} {{b: *a{i - 1}, c: *a{i - 1}}}\n" for i in range(1, 30)
    )
    with pytest.raises(ValueError, match="more than 5,000 settings"):
        explain(laughs, "trl")


def test_a_pair_of_thresholds_is_read_as_two_options() -> None:
    start = "main_ppo \\\n algorithm.adv_estimator=grpo \\\n algorithm.rollout_correction."
    text = f"{start}rollout_is={{}} algorithm.rollout_correction.rollout_is_threshold={{}}\n"
    assert "0.5 ≤ w ≤ 5" in explain(text.format("token", "0.5_5.0"), "verl").clip
    sequence = explain(text.format("sequence", "0.5_5.0"), "verl")
    assert sequence.left_out[0].axis == "correction"
    with pytest.raises(ValueError, match="expected two numbers"):
        explain(text.format("token", "low_high"), "verl")
