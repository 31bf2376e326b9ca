"""Recorded experiments: the table adds up, a killed run goes on to the same data, the analysis agrees with hand numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("pyarrow")

from grpo_edu.lm import analysis, experiments, lab
from grpo_edu.lm.loop import Settings

TINY = replace(
    experiments.EXPERIMENTS["length"],
    name="tiny",
    arms=("grpo", "placebo"),
    seeds=(0, 1),
    warm_starts=(0,),
    every=2,
    settings=Settings(steps=3, prompts=5, samples=4, learning_rate=1e-3, micro_batches=2),
)
CLOCKS = ["wall_seconds", "cpu_seconds"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    return experiments.run(TINY, tmp_path_factory.mktemp("whole"), processes=1, progress=False)


def test_every_run_is_in_the_table_and_its_counts_add_up(recorded):
    table, about = experiments.read(recorded)
    assert table[["arm", "warm", "seed"]].drop_duplicates().to_records(index=False).tolist() == [
        ("grpo", 0, 0),
        ("placebo", 0, 0),
        ("grpo", 0, 1),
        ("placebo", 0, 1),
    ]
    assert table["step"].unique().tolist() == [2, 3]
    per_block = table.groupby(["arm", "seed", "step"])[["right", "wrong"]].sum().sum(axis=1)
    assert per_block.unique().tolist() == [40, 20]
    lengths = table.groupby(["arm", "seed"])[["tokens_right", "tokens_wrong"]].sum().sum(axis=1)
    assert (lengths == table.groupby(["arm", "seed"])["tokens"].max()).all()
    assert about["config"]["recipes"]["grpo"]["aggregation"].startswith("sequence_mean")
    assert about["config"]["settings"]["learning_rate"] == 1e-3
    assert about["versions"]["torch"] == torch.__version__
    assert not (recorded.parent / "tiny.parts").exists()


def test_arms_share_questions_and_differ_in_what_they_learn(recorded):
    table = experiments.read(recorded)[0]
    first = table[table["step"] == 2].set_index(["arm", "seed", "level"])
    assert (
        first.loc["grpo"][["right", "wrong"]].sum(axis=1)
        == first.loc["placebo"][["right", "wrong"]].sum(axis=1)
    ).all()
    last = table[table["step"] == 3].groupby(["arm", "seed"])["gradient_norm"].first()
    assert last["grpo"].tolist() != last["placebo"].tolist()


def test_killed_in_the_middle_it_goes_on_to_the_same_data(recorded, tmp_path):
    script = tmp_path / "go.py"
    script.write_text(
        "import sys, pathlib\nfrom grpo_edu.lm import experiments\nfrom test_lm_experiments import TINY\n"
        "if __name__ == '__main__':\n"
        "    experiments.run(TINY, pathlib.Path(sys.argv[1]), processes=1, progress=False)\n"
    )
    here = Path(__file__).resolve().parent
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), str(here)])}
    command = [sys.executable, str(script), str(tmp_path / "out")]
    process = subprocess.Popen(
        command, env=paths, stderr=subprocess.DEVNULL, start_new_session=True
    )
    parts, limit = tmp_path / "out" / "tiny.parts", time.monotonic() + 120
    while not list(parts.glob("*.parquet")):
        assert time.monotonic() < limit
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # the worker too
    process.wait()
    kept = sorted(parts.glob("*.parquet"))
    assert 0 < len(kept) < 4
    stamps = [path.stat().st_mtime_ns for path in kept]
    seen = {}
    write = experiments._write

    def watch(table, config, path):
        seen[path.name] = True
        write(table, config, path)

    experiments._write = watch  # in this process only the whole is written
    try:
        final = experiments.run(TINY, tmp_path / "out", processes=1, progress=False)
    finally:
        experiments._write = write
    assert list(seen) == ["tiny.parquet"]
    assert len(stamps) == len(kept)
    again, first = (experiments.read(path)[0].drop(columns=CLOCKS) for path in (final, recorded))
    pd.testing.assert_frame_equal(again, first)


def test_parts_of_other_settings_are_refused_and_files_are_not_overwritten(recorded, tmp_path):
    with pytest.raises(FileExistsError, match="--overwrite"):
        experiments.run(TINY, recorded.parent, progress=False)
    table, about = experiments.read(recorded)
    experiments._write(
        table, {**about["config"], "every": 7}, tmp_path / "tiny.parts" / "grpo-0-0.parquet"
    )
    with pytest.raises(ValueError, match="another every"):
        experiments.run(TINY, tmp_path, progress=False)


def test_gap_is_level_adjusted_by_hand():
    rows = []
    for level, right, wrong, length_right, length_wrong in [(1, 9, 1, 4, 4), (2, 1, 9, 10, 13)]:
        tokens = {"tokens_right": right * length_right, "tokens_wrong": wrong * length_wrong}
        shared = dict.fromkeys(["entropy", "gradient_norm", "norm_clipped", "truncated"], 0.5) | {
            "tokens": 10
        }
        head = {"arm": "a", "warm": 0, "seed": 0, "step": 5, "level": level}
        rows.append({**head, "right": right, "wrong": wrong, **tokens, **shared})
    found = analysis.curves(pd.DataFrame(rows)).iloc[0]
    assert found["gap"] == 1.5  # (0 + 3) / 2, where raw lengths say 12.1 - 4.6
    assert found["length_right"] == pytest.approx((36 + 10) / 10)
    assert found["length_wrong"] == pytest.approx((4 + 117) / 10)
    assert found["pass_rate"] == 0.5


def test_gap_intervals_over_seeds_exclude_other_warm_starts():
    table = pd.concat(
        [_flat(warm, seed, gap) for warm in (0, 1) for seed, gap in enumerate((1.0, 3.0))]
    )
    found = analysis.gap_intervals(table, last=10)
    assert found["warm"].tolist() == [0, 1]
    assert found["mean"].tolist() == [2.0, 2.0]
    assert found["high"].tolist() == pytest.approx([2 + 12.706 * sqrt(2) / sqrt(2)] * 2)


def _flat(warm: int, seed: int, gap: float) -> pd.DataFrame:
    shared = dict.fromkeys(["entropy", "gradient_norm", "norm_clipped", "truncated"], 0.0)
    rows = [
        {
            "arm": "a",
            "warm": warm,
            "seed": seed,
            "step": s,
            "level": n,
            "right": 10,
            "wrong": 10,
            "tokens": 1,
            **shared,
        }
        | {"tokens_right": 50, "tokens_wrong": int(50 + 10 * gap)}
        for s in (5, 10)
        for n in lab.LEVELS
    ]
    return pd.DataFrame(rows)


def test_the_ratio_of_gradient_norms_is_one_over_the_std():
    chosen = replace(
        experiments.EXPERIMENTS["difficulty-gradients"], settings=Settings(steps=1, prompts=10)
    )
    table = experiments.gradient_run(chosen, experiments.RunKey("8", 0, 3))
    assert len(table) > 3
    for row in table.itertuples():
        k = row.right
        std = sqrt(k * (8 - k) / 8 / 7)
        assert row.norm_std / row.norm_none == pytest.approx(1 / std, rel=1e-4)
    ratios = analysis.gradient_ratios(table)
    assert ratios["ratio"].tolist() == pytest.approx(
        [1 / sqrt(k * (8 - k) / 56) for k in ratios["right"]], rel=1e-4
    )


@pytest.mark.parametrize("name", list(experiments.EXPERIMENTS))
def test_quick_forms_are_smaller_and_the_recorded_ones_are_balanced(name):
    whole, quick = experiments.experiment(name), experiments.experiment(name, quick=True)
    assert len(quick.runs) < len(whole.runs)
    assert len(set(whole.runs)) == len(whole.arms) * len(whole.seeds) * len(whole.warm_starts)
    assert set(quick.arms) <= set(whole.arms)


def test_twenty_steps_already_separate_grpo_from_dr_grpo():
    chosen = replace(experiments.experiment("length", quick=True), name="short", seeds=(0,))
    settings = replace(chosen.settings, steps=20)
    found = {}
    for arm in chosen.arms:
        table = experiments.train_run(
            replace(chosen, settings=settings), experiments.RunKey(arm, 0, 0)
        )
        found[arm] = analysis.ends(table, last=10)["gap"].item()
    assert found["grpo"] > 3.0
    assert abs(found["dr_grpo"]) < found["grpo"] / 2


def test_unknown_experiments_are_refused():
    with pytest.raises(ValueError, match="expected one of length, length-control"):
        experiments.experiment("lenght")


RECORDED = Path(__file__).resolve().parent.parent / "figures" / "data" / "lm"


def test_recorded_runs_are_those_of_the_experiments_and_none_is_left_out():
    for name, chosen in experiments.EXPERIMENTS.items():
        table, about = experiments.read(RECORDED / f"{name}.parquet")
        runs = table[["arm", "warm", "seed"]].drop_duplicates().to_records(index=False).tolist()
        assert runs == chosen.runs
        assert about["config"] == chosen.config()


def test_recorded_gap_of_grpo_excludes_zero_and_is_ten_times_that_of_dr_grpo_on_both_warm_starts():
    rows = analysis.gap_intervals(experiments.read(RECORDED / "length.parquet")[0]).set_index(
        ["arm", "warm"]
    )
    for warm in lab.WARM_STARTS:
        for arm in ("grpo", "grpo_no_std"):
            assert rows.loc[(arm, warm), "low"] > 20
            assert rows.loc[(arm, warm), "mean"] > 10 * abs(rows.loc[("dr_grpo", warm), "mean"])
        for arm in ("dr_grpo", "constant_std", "dapo(step)", "placebo"):
            assert rows.loc[(arm, warm), "low"] < 0 < rows.loc[(arm, warm), "high"]
    control = analysis.gap_intervals(experiments.read(RECORDED / "length-control.parquet")[0])
    assert (control["low"] < 0).all()
    assert (control["high"] > 0).all()
    assert (control["mean"].abs() < 1).all()


def test_the_picture_of_the_lab_shows_the_numbers_of_its_table():
    from grpo_edu.plots import lm as plots

    table = experiments.read(RECORDED / "length.parquet")[0]
    runs, ends = analysis.curves(table), analysis.ends(table)
    axes = plots.lab_lengths(runs, ends).axes
    assert [axis.get_title(loc="left") or axis.get_title() for axis in axes][:2] == [
        "GRPO: 1/|o|, std",
        "Dr. GRPO: constant",
    ]
    shown = [line.get_xdata() for line in axes[2].lines if len(line.get_xdata()) == 5]
    assert sorted(x for xs in shown for x in xs) == pytest.approx(sorted(ends["gap"]))
    means = ends.groupby("arm", sort=False)["gap"].mean()
    assert [text.get_text() for text in axes[2].texts] == [
        f"{mean:.1f}".replace("-", "−") for mean in means
    ]
    first = runs.loc[(runs["arm"] == "dr_grpo") & (runs["warm"] == 0)]
    lengths = first.groupby("step")["length_wrong"].mean()
    assert any(
        list(line.get_ydata()) == pytest.approx(lengths.tolist())
        for line in axes[1].lines
        if len(line.get_ydata()) == len(lengths)
    )
