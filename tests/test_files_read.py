"""Every form of file: Python against Python itself with stubs, YAML against PyYAML, and folders."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from grpo_edu.frameworks.explain import explain
from grpo_edu.frameworks.programs import CannotTell
from grpo_edu.frameworks.readers import Reading, read, read_notebook, read_python, read_yaml
from grpo_edu.frameworks.tables import FRAMEWORKS

ROOT = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def census() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "read_scripts", ROOT.parent / "benchmarks" / "read_scripts.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def settings(reading: Reading) -> dict[str, Any]:
    return {entry.key: entry.value for entry in reading.entries if entry.key != "trainer"}


START = "import trl\nfrom trl import GRPOConfig, GRPOTrainer\n"
FILES = {
    "reassigned": "B = 0.0\nB = 0.04\nB += 1\nargs = GRPOConfig(beta=B, epsilon=2e-1)",
    "attributes": "a = GRPOConfig(beta=0.0)\na.loss_type = 'dr_grpo'\nsetattr(a, 'beta', 0.04)\nGRPOTrainer(args=a)\na.beta = 9",
    "a table changed": "t = dict(loss_type='grpo', beta=0.04)\nt['epsilon_high'] = 0.28\nt.update(scale_rewards=False)\nt.setdefault('beta', 1)\nGRPOConfig(num_generations=8, **t)",
    "tables joined": "a = {'beta': 0.1, **{'epsilon': 0.3}}\nb = a | {'delta': 2}\nd = b.pop('delta')\nGRPOConfig(**b, loss_type='dapo', num_iterations=d)",
    "a subclass": "from dataclasses import dataclass, field\n@dataclass\nclass My(trl.GRPOConfig):\n    beta: float = field(default=0.04)\n    loss_type: str = 'dr_grpo'\n    extra: list = field(default_factory=lambda: [1, 2])\nclass Mine(My):\n    beta: float = 0.5\n    def __post_init__(self):\n        self.epsilon = 0.3\nparser = trl.TrlParser((Mine,))\n(cfg,) = parser.parse_args_and_config()",
    "argparse": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--beta', type=float, default=0.04)\np.add_argument('--use-vllm', action='store_true')\np.add_argument('-l', '--loss', dest='kind', default='grpo')\na = p.parse_args()\nGRPOConfig(beta=a.beta, use_vllm=a.use_vllm, loss_type=a.kind)",
    "branches": "M = 'x'\nif M == 'y':\n    k = dict(beta=1)\nelif M in ('x', 'z') and not False:\n    k = dict(beta=2)\nelse:\n    k = {}\nGRPOConfig(**k, epsilon=0.1 if k else 0.2)",
    "functions": "def make(loss, beta=0.1, **more):\n    args = GRPOConfig(loss_type=loss, beta=beta, **more)\n    args.epsilon = 0.3\n    return args\ndef main():\n    trainer = GRPOTrainer(model='m', args=make('dapo', num_generations=4))\nif __name__ == '__main__':\n    main()",
    "arithmetic": "N = 2 ** 3\nL = 4096 - 512\nGRPOConfig(num_generations=N // 2, max_completion_length=L, beta=-(-0.04), epsilon=max(0.1, 1 / 5), output_dir=f'out/{N}')",
    "a dataclass of one's own": "from dataclasses import dataclass\n@dataclass\nclass C:\n    beta: float = 0.04\n    n: int = 8\nc = C(n=16)\nGRPOConfig(beta=c.beta, num_generations=c.n)",
    "loops and with": "from contextlib import nullcontext\nout = {}\nfor name, number in [('beta', 0.1)]:\n    out[name] = number\nwith open('x') as f:\n    out['epsilon'] = 0.3\ntry:\n    out['delta'] = 2.0\nexcept ValueError:\n    out['delta'] = 3.0\nGRPOConfig(**out)",
    "the environment": "import os\nGRPOConfig(beta=float(os.environ.get('BETA', '0.04')), epsilon=os.getenv('E', 0.3))",
    "the trainer's config": "a = GRPOConfig(beta=0.1)\nb = GRPOConfig(beta=0.2)\nGRPOTrainer(model='m', args=b)",
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_python_file_gives_the_settings_that_python_gives(census: ModuleType, name: str) -> None:
    text = f"{START}{FILES[name]}\n"
    truth = census.settings_of_python(text)
    assert truth
    assert settings(read_python(text)) == truth


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("if torch.cuda.is_available():\n    B = 0.0\nelse:\n    B = 0.04\nGRPOConfig(beta=B)", "line 5: beta depends on line 1 (0.0 or 0.04): not read"),
        ("a = GRPOConfig()\nif big:\n    a.beta = 0.1", "line 3: beta depends on line 2 (0.1 or its default): not read"),
        ("if x:\n    a = GRPOConfig(beta=0.1)\nelse:\n    a = GRPOConfig(beta=0.2)", "line 2: beta depends on line 1 (0.1 or 0.2): not read"),
        ("for b in values():\n    GRPOConfig(beta=b)", "line 2: beta is set by the loop of line 1: not read"),
        ("def f(beta):\n    return GRPOConfig(beta=beta)", "line 2: beta is a parameter of f(): not read"),
        ("GRPOConfig(beta=0.1)\nGRPOConfig(beta=0.2)", "line 2: a second GRPOConfig(...): only the first is read"),
        ("trainer = GRPOTrainer(args=load())", "line 1: args = load() is not a literal: its settings are not read"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_named_with_its_line(text: str, said: str) -> None:
    assert explain(f"{text}\n", version="1.16").unread[0].startswith(said)


def test_defaults_of_a_parser_and_the_branch_that_they_take_are_said() -> None:
    text = (
        "p = argparse.ArgumentParser()\np.add_argument('--beta', default=0.04)\n"
        "a = p.parse_args()\nif a.beta:\n    L = 'grpo'\nGRPOConfig(beta=a.beta, loss_type=L)\n"
    )
    assert explain(text, version="1.16").conditional == [
        "line 4: 'if a.beta' is taken as the default of --beta (line 2) has it",
        "line 6: beta = 0.04 is the default of --beta (line 2)",
    ]


def notebook(*cells: str) -> str:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "markdown", "source": []}, *code]})


def test_a_notebook_is_read_without_its_magics_and_its_pin_is_the_version(tmp_path: Path) -> None:
    text = notebook(
        "%%capture\nimport os\nif True:\n    !pip install trl==0.22.2 \\\n        torch",
        "%%bash\npip list (",
        'B = 0.04\nfiles = !ls\nshown = f"{d["a"]}"\nB?',
        "args = GRPOConfig(\n    beta = B,  # KL\n    loss_type = 'grpo',\n)",
    )
    (tmp_path / "a (1).ipynb").write_text(text, encoding="utf-8")
    for source in (tmp_path / "a (1).ipynb", str(tmp_path / "a (1).ipynb"), text):
        verdict = explain(source)
        assert verdict.version == "0.22.2"
        assert "0.04·k3" in verdict.kl
        assert verdict.unread == []
    assert settings(read_notebook(text)) == {"beta": 0.04, "loss_type": "grpo"}
    assert read_notebook(text).entries[1].line == 13
    assert "lines count through the code cells" in str(explain(text)).splitlines()[0]
    with pytest.raises(ValueError, match="not a notebook"):
        explain('{"nbformat": 4, "cells": [{}]}\n')


def test_unsloth_is_told_apart_in_a_notebook_and_after_nbconvert() -> None:
    cell = "from unsloth import FastLanguageModel"
    config = "from trl import GRPOConfig\nGRPOConfig(beta=0.1)"
    converted = f"# coding: utf-8\n# In[1]:\n\nget_ipython().system('pip install trl==0.22.2')\n{cell}\n{config}\n"
    for text in (notebook("!pip install unsloth", cell, config), converted):
        if "unsloth" in FRAMEWORKS:
            assert explain(text).framework == "unsloth"
            continue
        with pytest.raises(CannotTell, match="Unsloth"):
            explain(text)
    assert explain(converted, "trl").version == "0.22.2"


def test_two_pins_settle_nothing() -> None:
    text = "# pip install trl==0.22.2 or trl==1.9.2\nGRPOConfig(beta=0.1)\n"
    assert "the file names 0.22.2 and 1.9.2" in explain(text).assumed


SCALARS = [
    "no",
    "on",
    "yes",
    "off",
    "1_000",
    "1e-3",
    "1.0e-3",
    "010",
    "0x10",
    ".5",
    "null",
    "~",
    "2.0",
]


@pytest.mark.parametrize("scalar", SCALARS)
def test_scalars_are_those_of_yaml_1_1_and_a_text_that_is_a_number_is_one(scalar: str) -> None:
    value = yaml.safe_load(f"x: {scalar}")["x"]
    truth = float(value) if isinstance(value, str) else value
    found = read_yaml(f"x: {scalar}\n").entries[0].value
    assert found == truth
    assert type(found) is type(truth)


def test_a_switch_may_be_written_as_a_text() -> None:
    for switch in ("yes", "'true'", "1", "on"):
        assert (
            "truncated"
            in explain(f"mask_truncated_completions: {switch}\nbeta: 0\n", "trl").advantage
        )


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


WANDB = """_wandb:
    value:
        cli_version: 0.19.8
beta:
    desc: null
    value: 0.04
loss_type:
    value: dr_grpo
num_generations:
    value: 8
vocab_size:
    value: 151936
"""
OVERRIDES = "- algorithm.adv_estimator=grpo\n- +actor_rollout_ref.rollout.n=5\n- trainer.nnodes=1\n"
HYDRA = """algorithm:
  adv_estimator: grpo
  filter_groups: {enable: false, metric: null}
actor_rollout_ref:
  actor:
    ppo_mini_batch_size: ${data.train_batch_size}
    kl_loss_coef: 0.001
    use_kl_loss: false
  rollout: {n: 5, name: vllm}
data:
  train_batch_size: 64
  seed: ${oc.env:SEED}
"""


def test_the_dump_of_wandb_is_read_and_its_other_keys_are_no_traps(tmp_path: Path) -> None:
    write(tmp_path, **{"wandb/run-1/files/config.yaml": WANDB})
    verdict = explain(tmp_path)
    assert verdict.claim == "dr_grpo"
    assert "0.04" in verdict.kl
    assert not [trap for trap in verdict.traps if trap.kind in ("unknown", "misspelt")]
    assert "wandb/run-1/files/config.yaml of this folder" in verdict.doubts


def test_hydras_files_are_read_with_what_they_refer_to(tmp_path: Path) -> None:
    write(tmp_path, **{".hydra/config.yaml": HYDRA, ".hydra/overrides.yaml": "- a.b=3\n"})
    verdict = explain(tmp_path)
    assert verdict.updates == 1
    assert not verdict.traps  # kl_loss_coef is what hydra wrote, nobody's wish
    assert read_yaml(OVERRIDES).entries == [
        ("algorithm.adv_estimator", "grpo", 1),
        ("actor_rollout_ref.rollout.n", 5, 2),
        ("trainer.nnodes", 1, 3),
    ]


def test_a_folder_with_one_config_or_none_or_two(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one config in it"):
        explain(tmp_path)
    write(tmp_path, **{"notes.yaml": "a: 1\n", "train.sh": "trl grpo --loss_type grpo\n"})
    assert "train.sh of this folder" in explain(tmp_path).doubts
    write(tmp_path, **{"more.yaml": "num_generations: 4\n"})
    with pytest.raises(ValueError, match=r"found more\.yaml, train\.sh"):
        explain(tmp_path)


def test_a_file_that_a_script_names_is_read_where_it_stands(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "recipes/r.yaml": "loss_type: dr_grpo\nbeta: 0.04\nepsilon: 0.3\n",
            "jobs/run.sh": "accelerate launch --config_file z.yaml src/open_r1/grpo.py --config recipes/r.yaml --beta 0.1\n",
            "jobs/lost.sh": "trl grpo --config gone.yaml --beta 0.1\n",
        },
    )
    verdict = explain(tmp_path / "jobs" / "run.sh")
    assert verdict.claim == "dr_grpo"
    assert "0.1·" in verdict.kl  # the command overrides the file
    assert not [trap for trap in verdict.traps if trap.kind == "repeated"]
    first = str(verdict).splitlines()[0]
    assert "with recipes/r.yaml, found beside it" in first
    assert "open-r1 asks for trl 0.18.0" in first
    lost = explain(tmp_path / "jobs" / "lost.sh")
    assert "line 1: the settings in gone.yaml are not read" in lost.doubts


def test_hydras_config_name_and_the_parents_of_a_yaml_are_followed(tmp_path: Path) -> None:
    run = (
        "python -m verl.trainer.main_ppo --config-path=$PWD/conf --config-name=child data.seed=1\n"
    )
    write(
        tmp_path,
        **{
            "run.sh": run,
            "own.sh": "python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer algorithm.adv_estimator=rloo\n",
            "conf/child.yaml": "defaults:\n  - ppo_trainer\n  - base\n  - _self_\nactor_rollout_ref: {rollout: {n: 4}}\n",
            "conf/base.yaml": "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {rollout: {n: 8}}\n",
            "nemo.yaml": "defaults: parent.yaml\nloss_fn: {ratio_clip_max: 0.28}\n",
            "parent.yaml": "loss_fn: {ratio_clip_min: 0.1, ratio_clip_max: 0.2}\n",
        },
    )
    verdict = explain(tmp_path / "run.sh")
    assert verdict.claim == "grpo"
    assert "groups of 4 completions" in verdict.biases[1]
    assert explain(tmp_path / "own.sh").doubts == []
    assert "[0.9, 1.28]" in explain(tmp_path / "nemo.yaml").clip


def test_toml_is_read(tmp_path: Path) -> None:
    write(tmp_path, **{"a.toml": "loss_type = 'grpo'\n[x]\ny = 1\n[x.z]\nw = [1, 2]\n"})
    assert read(tmp_path / "a.toml").entries == [
        ("loss_type", "grpo", 1),
        ("x.y", 1, 3),
        ("x.z.w", [1, 2], 5),
    ]


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("uv run rl @ configs/rl.toml --max-steps 5\n", "prime-rl"),
        ("python examples/start_rlvr_pipeline.py --config_path x --config_name y\n", "ROLL"),
        ("python -m areal.launcher.local train.py --config c.yaml actor.eps_clip=0.2\n", "AReaL"),
        ("torchrun src/open-r1-multimodal/src/open_r1/grpo_jsonl.py --beta 0.04 --num_generations 8\n", "VLM-R1"),
        ("from areal.api.cli_args import GRPOConfig\nGRPOConfig(beta=1)\n", "AReaL"),
        ("from tunix.rl.grpo.grpo_learner import GRPOConfig\nGRPOConfig(beta=1)\n", "Tunix"),
        ("base_model: x\nrl: grpo\nlearning_rate: 1e-6\nnum_generations: 8\n", "axolotl"),
        ("NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --beta 0.1\n", "ms-swift"),
        ("llamafactory-cli train --finetuning_type lora\n", "LLaMA-Factory"),
    ],
)  # fmt: skip
def test_another_program_is_told_by_its_marks(text: str, program: str) -> None:
    table = program.lower().replace("-", "_")
    if table not in FRAMEWORKS:
        with pytest.raises(CannotTell, match=program):
            explain(text)
        return
    with contextlib.suppress(ValueError):  # none of these texts holds a setting of its loss
        assert explain(text).framework == table


def test_a_config_class_from_elsewhere_is_said() -> None:
    text = "from configs import GRPOConfig\nGRPOConfig(beta=0.1)\n"
    assert "GRPOConfig comes from configs, whose defaults are not read" in explain(text).doubts
    run = "python -m verl_tool.trainer.main_ppo algorithm.adv_estimator=grpo\n"
    assert "the program is verl_tool.trainer.main_ppo" in " ".join(explain(run).doubts)
    spin = (
        "python -m recipe.spin.main_spin algorithm.adv_estimator=grpo algorithm.kl_ctrl.kl_coef=1\n"
    )
    (trap,) = [t for t in explain(spin).traps if t.key.endswith("kl_coef")]
    assert trap.text.endswith("(so in verl itself; recipe.spin.main_spin may differ)")


def test_what_two_files_of_settings_cannot_settle_may_be_told_by_the_version() -> None:
    assert explain("beta: 0.1\nepsilon: 0.2\n", version="trl==1.16").framework == "trl"
    for text in ("beta: 0.1\nepsilon: 0.2\n", "loss_type: ppo_clip\nrollout_is: token\n"):
        with pytest.raises(CannotTell):
            explain(text)


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("GRPOConfig(epsilon=3.0)", "epsilon", "the lower bound is not above 0"),
        ("GRPOConfig(epsilon=0.8, epsilon_high=1.28)", "epsilon_high", "so the upper bound is 2.28"),
        ("GRPOConfig(importance_sampling_level='sequence', loss_type='dapo')", "epsilon", "0.2 practically never clips"),
        ("GRPOConfig(num_generations=1)", "num_generations", "a group of one"),
        ("openrlhf.cli.train_ppo_ray --algo.advantage.estimator group_norm\n", "rollout.n_samples_per_prompt", "a group of one"),
        ("GRPOConfig(use_vllm=True, top_p=0.9)", "top_p", "cuts the distribution"),
    ],
)  # fmt: skip
def test_numbers_on_a_wrong_scale_are_traps(text: str, key: str, said: str) -> None:
    traps = {trap.key: trap.text for trap in explain(f"{text}\n", version=None).traps}
    assert said in traps[key]


@pytest.mark.parametrize(
    "text",
    [
        "# this is NOT dapo\nGRPOConfig(loss_type='grpo')",
        "# data: DAPO-Math-17k\nGRPOConfig(run_name='DAPO-Math-17k')",
        "# DAPO reward manager\n# loss_type='dr_grpo',\nGRPOConfig(loss_type='grpo')",
        "x = '# Dr. GRPO'\nGRPOConfig(loss_type='grpo')",
        "GRPOConfig(loss_type='grpo', run_name='dapo_wo_ds')",
        "GRPOConfig(num_train_epochs=1, weird=3)",
        "from dataclasses import dataclass\n@dataclass\nclass My(GRPOConfig):\n    num_generation: int = 3\nMy(loss_type='grpo')",
    ],
)
def test_nothing_is_said_of_what_is_no_trap(text: str) -> None:
    named = [t for t in explain(f"{text}\n").traps if t.kind in ("name", "misspelt", "unknown")]
    assert named == []


VERL = "python -m verl.trainer.main_ppo algorithm.adv_estimator={} actor_rollout_ref.rollout.name=vllm {}\n"


def test_an_unknown_value_spoils_its_own_line_only() -> None:
    verdict = explain(VERL.format("my_grpo", "actor_rollout_ref.rollout.n=8"))
    assert verdict.advantage == "not covered, see below"
    assert verdict.aggregation.startswith("1/Σ_j|o_j|")
    assert verdict.clip.startswith("[0.8, 1.2]")
    assert verdict.kl == "none"
    assert verdict.traps == []
    null = "algorithm.rollout_correction.rollout_is_threshold=null"
    assert explain(VERL.format("grpo", null)).left_out == []
    unused = "actor_rollout_ref.actor.kl_loss_type=mine"
    assert explain(VERL.format("grpo", unused)).left_out == []


def test_the_metric_of_the_filter_says_which_reward_decides() -> None:
    filtered = "algorithm.filter_groups.enable=True algorithm.filter_groups.metric="
    assert "before any shaping" in explain(VERL.format("grpo", f"{filtered}acc")).advantage
    shaped = explain(VERL.format("grpo", f"{filtered}seq_reward")).advantage
    assert "only groups whose rewards differ" in shaped
    assert "before" not in shaped
    (part,) = explain(VERL.format("grpo", f"{filtered}mine")).left_out
    assert part.axis == "filters"


def test_versions_on_the_way_to_a_release_and_differences_that_remain() -> None:
    verdict = explain("GRPOConfig(beta=0.1)", version="1.10.0.dev0")
    assert verdict.version == "1.10.0"
    assert "may lack its last changes" in verdict.conditional[0]
    shown = str(verdict)
    assert "Differs from this package" in shown
    assert verdict.remaining[0] in shown
    unknown = explain("GRPOConfig(beta=0.1, a_=1, b_=2, c_=3, d_=4, e_=5, f_=6)")
    assert "a_, b_, c_, d_, e_ and 1 more" in str(unknown)


def test_a_nested_key_is_no_flat_flag() -> None:
    run = "python -m openrlhf.cli.train_ppo_ray --{} 1024 --algo.advantage.estimator rloo\n"
    assert "flat flags" not in explain(run.format("data.max_len")).assumed
    assert "flat flags end at" in explain(run.format("generate_max_len")).assumed
