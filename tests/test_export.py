"""export: the settings that run a recipe, what a framework cannot express, and the way back through explain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_edu import RECIPES, recipe
from grpo_edu.cli import app
from grpo_edu.frameworks.data_files import Since
from grpo_edu.frameworks.explain import explain
from grpo_edu.frameworks.export import Exported, export
from grpo_edu.frameworks.tables import framework, read_recipe

WHERE = ("trl", "verl", "openrlhf")
SETTINGS = {
    ("dr_grpo", "trl"): {"loss_type": "dr_grpo", "scale_rewards": "none"},
    ("grpo", "trl"): {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
    ("gspo", "trl"): {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    ("cispo", "trl"): {"loss_type": "cispo", "epsilon_high": 5.0},
    ("gmpo", "trl"): {"trainer": "GMPO"},
    ("lite_ppo", "trl"): {"scale_rewards": "batch"},
    ("rloo", "verl"): {"algorithm.adv_estimator": "rloo", "actor_rollout_ref.actor.policy_loss.loss_mode": "gpg", "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum"},
    ("grpo", "verl"): {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-mean", "actor_rollout_ref.actor.use_kl_loss": True, "actor_rollout_ref.actor.kl_loss_coef": 0.04},
    ("cispo", "verl"): {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.policy_loss.loss_mode": "cispo", "actor_rollout_ref.actor.clip_ratio_low": 1.0, "actor_rollout_ref.actor.clip_ratio_high": 4.0},
    ("dapo", "verl"): {"algorithm.adv_estimator": "grpo", "algorithm.filter_groups.enable": True, "actor_rollout_ref.actor.clip_ratio_high": 0.28},
    ("gspo", "openrlhf"): {"actor.policy_loss_type": "gspo", "algo.advantage.estimator": "group_norm", "actor.eps_clip_low_high": [3e-4, 4e-4]},
    ("dr_grpo", "openrlhf"): {"algo.advantage.estimator": "dr_grpo"},
    ("reinforce++", "openrlhf"): {"algo.advantage.estimator": "reinforce"},
}  # fmt: skip


@pytest.mark.parametrize(("name", "to"), SETTINGS)
def test_these_recipes_have_these_settings(name: str, to: str) -> None:
    settings = export(recipe(name), to).settings
    assert {key: settings.get(key) for key in SETTINGS[name, to]} == SETTINGS[name, to]


@pytest.mark.parametrize("to", WHERE)
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "gspo", "rloo"])
def test_no_line_of_what_is_exported_rests_on_a_default(name: str, to: str) -> None:
    made = export(recipe(name), to)
    table = framework(to)
    names = table.names()
    given = {names[key]: value for key, value in made.settings.items()}
    others = {True: False, False: True}
    for option, values in table.values_in_rules().items():
        default = table.defaults(made.version).get(option)
        if option == "trainer" or (given.get("trainer") and option not in given):
            continue
        known = [v for v in values if table.has(option, v, made.version) and v != default]
        for value in [others[default]] if isinstance(default, bool) else known:
            moved = replace(table.option[option], history=(Since("0", value),))
            elsewhere = replace(table, option={**table.option, option: moved})
            if default is not None:
                changed = read_recipe(elsewhere, given, made.version)[0]
                assert changed == read_recipe(table, given, made.version)[0], (option, value)


@pytest.mark.parametrize(
    ("name", "to", "axes"),
    [
        ("dapo", "trl", {"filters", "aggregation"}),
        ("dr_grpo", "openrlhf", {"aggregation"}),
        ("cispo", "openrlhf", {"surrogate", "aggregation"}),
        ("balanced", "verl", {"aggregation"}),
        ("lite_ppo", "verl", {"scale"}),
        ("remax", "trl", {"baseline", "surrogate"}),
        ("grpo", "trl", set()),
        ("opo", "verl", set()),
    ],
)
def test_what_a_framework_cannot_express_is_named_by_axis(
    name: str, to: str, axes: set[str]
) -> None:
    assert {row.axis for row in export(recipe(name), to).missing} == axes


def test_export_never_uses_what_a_release_does_not_have() -> None:
    old = export(recipe("cispo"), "trl", "0.18")
    assert "loss_type" not in old.settings or old.settings["loss_type"] != "cispo"
    assert any(str(row).startswith("surrogate: asked cispo") for row in old.missing)
    early = export(recipe("gspo"), "verl", "0.4")  # loss_mode begins with 0.5, token-sum with 0.9
    assert not [key for key in early.settings if "loss_mode" in key]
    assert early.settings["actor_rollout_ref.actor.loss_agg_mode"] == "seq-mean-token-mean"
    assert any(str(row).startswith("surrogate: asked gspo") for row in early.missing)
    with pytest.raises(ValueError, match="expected trl, verl, openrlhf"):
        export(recipe("grpo"), "slime")
    with pytest.raises(TypeError, match=r"recipe is 3: expected a Recipe"):
        export(3, "trl")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"trl was read from 0\.14 to 1\.16"):
        export(recipe("grpo"), "trl", "99")
    with pytest.raises(TypeError, match="expected a text"):
        export(recipe("grpo"), "trl", 1.16)  # type: ignore[arg-type]


def test_differences_that_remain_are_printed() -> None:
    shown = str(export(recipe("grpo"), "verl"))
    assert (
        "# differs: scale: asked group_std(ddof=1, eps=0), gets group_std(ddof=1, eps=1e-06, alone=1)"
        in shown
    )
    assert "gets dual_clip(eps_low=0.2, eps_high=0.2, cap=3)" in shown


def back(exported: Exported) -> str:
    """The text as a file that explain reads."""
    return (
        {
            "verl": "python -m verl.trainer.main_ppo \\\n",
            "openrlhf": "python -m openrlhf.cli.train_ppo_ray \\\n",
        }.get(exported.framework, "")
        + exported.text
        + "\n"
    )


@pytest.mark.parametrize("to", WHERE)
@pytest.mark.parametrize("name", RECIPES)
def test_explain_reads_back_the_recipe_that_export_announced(name: str, to: str) -> None:
    made = export(recipe(name), to)
    verdict = explain(back(made), to, made.version)
    assert verdict.recipe == made.recipe
    assert not verdict.left_out or to == "openrlhf"
    ours, theirs = recipe(name).describe(), verdict.recipe.describe()
    differing = {axis for axis in ours if ours[axis] != theirs[axis]}
    announced = {row.axis for row in (*made.missing, *made.differences)}
    assert differing <= announced


def test_commands_explain_export_and_identify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner().invoke
    script = run(app, ["export", "dr_grpo", "--to", "trl"])
    assert script.exit_code == 0
    assert "GRPOConfig(" in script.output
    file = tmp_path / "train.py"
    file.write_text(script.output, encoding="utf-8")
    told = run(app, ["explain", str(file), "--version", "1.16"])
    assert "\nadvantage    r_i - mean(r in group), not divided" in told.output
    data = json.loads(run(app, ["explain", str(file), "--json"]).output)
    assert data["label"].startswith("this is dr_grpo")
    for name, start in (("v.png", b"\x89PNG"), ("v.html", b"<!doctype html>")):
        assert run(app, ["explain", str(file), "--out", str(tmp_path / name)]).exit_code == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    page = (tmp_path / "v.html").read_text(encoding="utf-8")
    assert "this is dr_grpo" in page
    assert "<script" not in page
    assert run(app, ["explain", str(file), "--out", str(tmp_path / "v.docx")]).exit_code == 2
    (tmp_path / "my_losses.py").write_text(
        "def total(logp, advantages, mask, scale):\n    return -scale * (logp * advantages * mask).sum()\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    named = run(app, ["identify", "my_losses:total", "--set", "scale=1"])
    assert "aggregation  token_sum" in named.output
    assert run(app, ["identify", "my_losses"]).exit_code == 2
    (tmp_path / "torn.py").write_text("def f(:\n", encoding="utf-8")
    for bad in ("nothing:f", "torn:f", "my_losses:other", "my_losses:__name__"):
        told = run(app, ["identify", bad])
        assert told.exit_code == 2
        assert told.output.startswith("error: ")
    assert run(app, ["export", "grpo", "--to", "keras"]).exit_code == 2
    assert run(app, ["explain", str(tmp_path / "none.yaml")]).exit_code == 2


def tiny_model(folder: Path) -> None:
    """A randomly initialised two-layer Llama with a word tokenizer, saved as a checkpoint."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate(["<pad>", "<eos>", *map(str, range(30))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>"
    ).save_pretrained(folder)
    config = LlamaConfig(vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2, max_position_embeddings=64, eos_token_id=1, pad_token_id=0, bos_token_id=1)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


@pytest.mark.parity
def test_the_exported_script_trains_two_steps_in_two_processes(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not here: pip install -e '.[parity]'")
    if not trl.__version__.startswith("1.16."):
        pytest.skip(f"TRL {trl.__version__} is here, the script is for 1.16")
    tiny_model(tmp_path / "model")
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{a} 5", "answer": str(a)}) + "\n" for a in range(16)),
        encoding="utf-8",
    )
    (tmp_path / "train.py").write_text(str(export(recipe("dr_grpo"), "trl")), encoding="utf-8")
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--cpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
    ]
    options = [
        "--cpu",
        "--max_steps",
        "2",
        "--num_generations",
        "2",
        "--per_device_train_batch_size",
        "2",
        "--max_completion_length",
        "6",
    ]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HOME": str(tmp_path / "hf"),
        "ACCELERATE_USE_CPU": "1",
    }
    done = subprocess.run(
        [*launch, "train.py", "--model", "model", "--data", "prompts.jsonl", "--out", "out", *options],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out" / "model.safetensors").is_file()
