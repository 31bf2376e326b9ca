"""The exact facts of each named figure, asserted on the data that is drawn."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from grpo_edu.figures import FIGURES, gallery
from grpo_edu.figures.layout import AS_COMMITTED, layout_of
from grpo_edu.figures.registry import draw_as, figure, named, recorded_table
from grpo_edu.toys.compare import intervals
from grpo_edu.toys.difficulty import first_reaching


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_with_title_alt_text_level_and_labelled_axes(name):
    figured = FIGURES[name]
    assert len(figured.alt) > 60
    assert figured.answers
    assert figured.level.split(",")[0] in ("exact", "simulated", "observed")
    recorded = Path(__file__).resolve().parent.parent / "figures" / "data" / f"{name}.csv"
    drawn = figured.draw(pd.read_csv(recorded))
    assert drawn.get_suptitle().replace("\n", " ") == figured.title
    assert figured.level.split(",")[0] in drawn.get_supxlabel()
    if name in ("ppo_and_grpo", "push_on_one_prompt"):  # boxes and text, no axes
        return
    panels = [axis for axis in drawn.axes if axis.get_label() != "<colorbar>"]
    assert any(axis.get_xlabel() or axis.get_title(loc="left") for axis in panels)
    assert any(axis.get_ylabel() or axis.get_yticklabels() for axis in panels)


def test_strips_have_the_hand_numbers_of_the_book_with_the_advantage_put_back():
    table = FIGURES["aggregation_strips"].data()
    weight = {
        (a[:8], c): w
        for a, c, w in zip(table.aggregation, table.completion, table.weight, strict=True)
    }
    assert [weight["sequence", 0], weight["sequence", 1]] == pytest.approx([0.25, 1 / 7])
    assert [weight["constant", 0], weight["constant", 1]] == pytest.approx([1 / 7, 1 / 7])
    assert [weight["token me", 0], weight["token me", 1]] == pytest.approx([2 / 11, 2 / 11])


def test_on_one_prompt_the_four_answers_share_as_their_lengths_say():
    table = FIGURES["push_on_one_prompt"].data()
    share = table.groupby(["recipe", "answer"]).share.agg(["sum", "first", "size"])
    assert share["size"]["grpo"].tolist() == [7, 27, 7, 23]
    assert share["sum"]["grpo"].tolist() == pytest.approx([0.25, 0.25, -0.25, -0.25])
    for name in ("dr_grpo", "dapo"):  # 64 tokens, every one alike
        assert share["first"][name].tolist() == pytest.approx([1 / 64, 1 / 64, -1 / 64, -1 / 64])


def test_the_film_begins_and_ends_where_the_recorded_runs_do():
    table = FIGURES["length_race"].data()
    runs = recorded_table("length_dynamics")
    for name, part in table.groupby("recipe"):
        end = runs[(runs.recipe == name) & (runs.step == 300)]
        assert part.length_wrong.iloc[-1] == pytest.approx(end.length_wrong.mean())
        assert part.length_right.iloc[0] == pytest.approx(13.4346, abs=1e-4)
    pictures = list(FIGURES["length_race"].moving(table[table.step <= 10]))
    assert len(pictures) == 3


def test_clip_gradient_is_the_advantage_times_the_ratio_in_live_cells_and_zero_in_two_of_six():
    table = FIGURES["clip_objective"].data()
    ppo = table[table.surrogate == "PPO, 0.2 / 0.2"]
    dead = ((ppo.advantage > 0) & (ppo.ratio > 1.2 + 1e-9)) | (
        (ppo.advantage < 0) & (ppo.ratio < 0.8 - 1e-9)
    )
    edge = (ppo.ratio - 1.2).abs().lt(1e-6) | (ppo.ratio - 0.8).abs().lt(1e-6)
    assert (ppo[dead].gradient == 0).all()
    live = ppo[~dead & ~edge]
    assert np.allclose(live.gradient, live.advantage * live.ratio, atol=1e-10)
    higher = table[(table.surrogate == "clip-higher, 0.2 / 0.28") & (table.advantage > 0)]
    assert (higher[(higher.ratio > 1.21) & (higher.ratio < 1.279)].gradient > 0).all()
    cispo = table[table.surrogate.str.startswith("CISPO")]
    assert np.allclose(cispo.gradient, cispo.advantage * cispo.ratio.clip(upper=1.28), atol=1e-10)


def test_lone_success_is_three_with_std_and_nine_tenths_without():
    table = FIGURES["advantage_by_correct_count"].data().set_index(["estimator", "correct"])
    assert table.right["grpo", 1] == pytest.approx(3.0)
    assert table.right["dr_grpo", 1] == pytest.approx(0.9)
    assert table.wrong["grpo", 9] == pytest.approx(-3.0)
    assert table.wrong["dr_grpo", 9] == pytest.approx(-0.9)


def test_one_over_length_illustration_has_the_paper_ratios_and_the_constant_equal_arrows():
    table = FIGURES["bias_illustration"].data()
    grpo, _, dr = (part for _, part in table.groupby("recipe", sort=False))
    first, second = (grpo[grpo.question == q].inverse_std.iloc[0] for q in (1, 2))
    assert second / first == pytest.approx(0.5 / (3**0.5 / 4))
    right = grpo[(grpo.question == 1) & (grpo.reward > 0)]
    assert right.push.iloc[0] / right.push.iloc[1] == pytest.approx(3)  # 12 tokens against 4
    for _, same in dr.groupby(["question", "reward"]):
        assert same.push.nunique() == 1


def test_token_mean_loss_at_ratio_one_is_minus_the_covariance_and_sequence_mean_is_zero():
    table = FIGURES["silent_loss"].data()
    assert np.allclose(table["token mean"], table["minus covariance over mean length"], atol=1e-12)
    assert np.allclose(table["sequence mean"], 0, atol=1e-12)
    longer = np.sign(table["wrong minus right length"].round(9))
    assert (longer == np.sign(table["token mean"].round(9))).all()


def test_only_the_micro_batch_token_mean_moves_with_the_split():
    table = FIGURES["micro_batch_invariance"].data()
    moves = table["aggregation"] == "token mean, micro-batch"
    assert np.allclose(table[~moves][["cosine", "norm"]], 1)
    assert (table[moves & (table["micro-batch size"] < 16)]["cosine"] < 0.995).all()
    one_each = table[moves & (table["micro-batch size"] == 1)]
    assert one_each["is sequence mean"].all()
    assert np.allclose(one_each["cosine"], one_each["sequence mean's cosine"])


def test_sequence_ratios_on_policy_coincide_as_the_figure_says():
    push = (
        FIGURES["sequence_ratio_equivalence"]
        .data()
        .pivot(index="completion", columns="loss", values="push")
    )
    assert np.allclose(push["gspo"], push["grpo"], rtol=1e-12)
    assert np.allclose(push["gmpo"], push["grpo"], rtol=1e-12)
    assert np.allclose(push["luspo"], push["grpo, sequence sum"], rtol=1e-12)


def test_prompt_weight_figure_is_flat_at_two_and_three_and_lowest_at_one_half_later():
    table = FIGURES["prompt_weight"].data()
    curve = {name: part.set_index("p").weight for name, part in table.groupby("scheme")}
    assert np.allclose(curve["std, G = 2"], 1)
    assert np.allclose(curve["std, G = 3"], 2**0.5)
    for size in (4, 8, 16, 64):
        assert curve[f"std, G = {size}"].idxmin() == 0.5
        assert curve[f"std, G = {size}"].max() < (size - 1) ** 0.5
    assert curve["MaxRL, G = 16"].is_monotonic_decreasing


def test_frontier_has_its_known_ends_and_is_monotone():
    table = FIGURES["impossibility_frontier"].data()
    assert table["share of the longer"].iloc[0] == pytest.approx(0.5)
    assert table["share of the longer"].iloc[-1] == pytest.approx(10 / 11)
    assert table["drift"].iloc[-1] == pytest.approx(0, abs=1e-12)
    assert table["drift"].is_monotonic_decreasing


def test_overlong_penalty_passes_through_the_three_points_of_the_paper():
    table = FIGURES["overlong_penalty"].data().set_index("length").penalty
    assert [table[16384], table[18432], table[20480], table[22000]] == pytest.approx(
        [0, -0.5, -1, -1]
    )


def test_kl_figure_has_the_exact_gradients():
    table = FIGURES["kl_estimators"].data().set_index("estimator")
    assert table.gradient["k1 in the loss"] == pytest.approx(0, abs=1e-12)
    assert table.gradient["k2 in the loss"] == pytest.approx(table.gradient["KL(π‖ref)"])
    assert table.gradient["k3 in the loss"] == pytest.approx(table.gradient["KL(ref‖π)"])
    assert table.gradient["k1 in the reward"] == pytest.approx(table.gradient["KL(π‖ref)"])


def test_the_curl_of_the_length_field_is_negative_everywhere_and_wrong_answers_lengthen():
    table = FIGURES["length_field"].data()
    assert (table["curl"] < 0).all()
    assert (table["by wrong stop"] < 0).all()
    assert (table["by mode"] > 0).all()
    even = table[np.isclose(table["mode"], 0)]
    assert np.allclose(even["by mode, constant"], 7 / 8 / 4 / 3)  # (G-1)/G p(1-p) / constant


def test_recorded_toy_runs_show_the_length_bias_at_equal_pass_rates_over_all_eight_seeds():
    table = pd.read_csv(
        Path(__file__).resolve().parent.parent / "figures" / "data" / "length_dynamics.csv"
    )
    last = table[table.step == table.step.max()].set_index(["recipe", "seed"])
    assert last.groupby("recipe").size().to_dict() == {"grpo": 8, "dapo": 8, "dr_grpo": 8}
    assert last.pass_rate.max() - last.pass_rate.min() < 0.03
    gap = (last.length_wrong - last.length_right).unstack("recipe")
    assert (gap["grpo"] > 40).all()
    assert (gap["grpo"] > gap["dapo"]).all()
    assert gap["dr_grpo"].abs().mean() < 0.1 * gap["grpo"].mean()


def test_which_grpo_has_the_hand_numbers_of_each_framework():
    table = FIGURES["which_grpo"].data().set_index("framework")
    success, short, long = (
        table[name] for name in ("advantage of the success", "push, 10 tokens", "push, 100 tokens")
    )
    # R = 1 0 0 0: 0.75 over the std 0.5 (+ 1e-4), centred only, and NeMo's std of three equal
    # others, which is skipped
    for at, expected in {
        "trl==0.22": 0.75 / 0.5001,
        "slime==2026.8.21": 0.75 / 0.500001,
        "open_instruct==2026.8.20": 0.75,
        "nemo_rl==2026.8.22": 1.0,
    }.items():
        assert success[at] == pytest.approx(expected, abs=1e-9)
    for at in ("trl==0.14", "openrlhf@69246e0e", "slime==2026.8.21", "oat==0.2.4"):
        assert (short[at], long[at]) == pytest.approx((1 / 20, 1 / 200))
    for at in (
        "trl==0.16",
        "trl@fc4dae256",
        "trl==0.22",
        "verl==0.2",
        "verl==0.4",
        "verl==0.8",
        "openrlhf==0.10.4",
        "nemo_rl==2026.8.22",
    ):
        assert (short[at], long[at]) == pytest.approx((1 / 110, 1 / 110))


def test_at_the_first_update_of_each_rollout_every_ratio_is_one_and_nothing_is_clipped():
    table = FIGURES["three_policies"].data()
    first = table[table["first"]]
    assert len(first) == 3
    assert np.allclose(first[["ratio, right", "ratio, wrong"]], 1)
    assert (first["clip fraction"] == 0).all()
    assert table["clip fraction"].max() > 0
    assert table["reference"].nunique() == 1
    assert table["sampler"].nunique() == 3
    p, q = table["policy"], table["reference"]  # the KL in double precision
    exact = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert np.allclose(table["kl"], exact, rtol=1e-14, atol=1e-15)
    assert np.allclose(first["sampler"], first["policy"])


def test_only_ppo_has_a_value_model_in_the_drawing_and_both_have_a_reference():
    table = FIGURES["ppo_and_grpo"].data()
    words = {
        method: {w.replace("\n", " ") for w in part.words}
        for method, part in table.groupby("method")
    }
    assert {"value model", "reward − value (GAE)"} <= words["PPO"]
    assert not {"value model", "reward − value (GAE)"} & words["GRPO"]
    assert all("reference" in w for w in words.values())


def test_expected_flow_of_a_constant_leaves_lengths_alone_and_the_token_mean_lies_between():
    table = recorded_table("length_flow")  # figures --check integrates it anew
    runs = {name: part.set_index("step") for name, part in table.groupby("recipe")}
    assert np.allclose(runs["dr_grpo"].stop_gap, 0, atol=1e-12)
    later = runs["grpo"].index > 0
    assert (runs["grpo"].stop_gap > runs["dapo"].stop_gap)[later].all()
    assert (runs["dapo"].stop_gap > 0)[later].all()
    assert runs["grpo"].length_right.is_monotonic_decreasing
    assert runs["grpo"].length_wrong.is_monotonic_increasing


def rows_of(name, value, by):
    """Mean and 95 % interval of a recorded table."""
    return intervals(recorded_table(name), value, by=by).set_index(by)


def test_recorded_gap_excludes_zero_under_the_sequence_mean_in_every_mode_and_under_no_recipe_with_permuted_rewards():
    rows = rows_of("length_modes", "stop_gap", ["setting", "recipe"])
    assert (rows.seeds == 16).all()
    for setting, part in rows.groupby(level="setting"):
        means = part.droplevel("setting")["mean"]
        if "placebo" in setting:
            assert ((part.low < 0) & (part.high > 0)).all()
        else:
            assert part.low[setting, "grpo"] > 0
            assert part.low[setting, "dr_grpo"] < 0 < part.high[setting, "dr_grpo"]
            assert means["grpo"] > means["dapo"] > means["dapo(step)"] > means["dr_grpo"]


def test_recorded_ablation_separates_the_two_biases_early():
    rows = recorded_table("two_by_two").set_index(["stage", "aggregation", "scale", "outcome"])
    by_aggregation, by_scale = (
        ("early", "sequence_mean - constant", "both"),
        ("early", "both", "group_std - unscaled"),
    )
    assert rows.low[(*by_aggregation, "length_gap")] > 5
    assert rows.low[(*by_scale, "hard_over_medium")] > 0.1
    for nothing in ((*by_aggregation, "hard_over_medium"), (*by_scale, "length_gap")):
        assert rows.low[nothing] < 0 < rows.high[nothing]


def test_recorded_runs_say_what_their_titles_say():
    ends = (
        recorded_table("token_efficiency")
        .query("step == 300")
        .pivot(index="seed", columns="recipe")
    )
    assert (ends.expected_length.dr_grpo < ends.expected_length.grpo).all()
    assert (ends.pass_rate.grpo - ends.pass_rate.dr_grpo).abs().max() < 0.03
    hard = rows_of("difficulty_training", "bucket_0", ["run", "recipe", "step"])["mean"].xs(
        300, level="step"
    )
    assert hard["G = 64, SGD", "maxrl"] > hard["G = 64, SGD", "grpo"] > hard["G = 64, SGD", "rloo"]
    assert np.allclose(hard["G = 2, SGD"], hard["G = 2, SGD", "rloo"], rtol=1e-6)
    assert hard["G = 64, AdamW"].min() > 0.95
    first = (
        first_reaching(recorded_table("dynamic_sampling"), "pass_rate", 0.7)
        .groupby("recipe")[["step", "rollouts"]]
        .mean()
    )
    assert first.step.refill <= first.step.plain / 3
    assert first.rollouts.refill > first.rollouts.plain
    length = (
        recorded_table("truncation_treatments").query("step == 200").groupby("recipe").length_right
    )
    assert length.max()[["failure", "mask", "soft"]].max() < length.min().ignored
    wrong = recorded_table("dapo_ladder").groupby("recipe").length_wrong.mean()
    assert wrong["+ token-level loss"] < wrong["+ soft overlong penalty"] / 2
    rows = rows_of("optimiser_drift", "moved", ["optimiser", "logit"])
    assert rows.low["SGD, norm clipped", "stop_right"] > 0
    assert ((rows.low < 0) & (rows.high > 0)).drop(("SGD, norm clipped", "stop_right")).all()
    entropy = recorded_table("clip_higher").pivot(
        index="seed", columns=["step", "recipe"], values="entropy"
    )
    assert (entropy[10, "eps_high=0.4"] < entropy[10, "eps_high=0.2"]).mean() > 0.9
    assert abs(entropy[60].mean()["eps_high=0.4"] - entropy[60].mean()["eps_high=0.2"]) < 0.02


def test_recorded_gradients_are_flat_with_the_std_and_fall_at_both_ends_without():
    rows = recorded_table("lm_difficulty_gradients").set_index(["scale", "share"]).sort_index()
    assert rows.loc["norm_std"]["mean"].between(0.8, 1.3).all()
    for end in (0.125, 0.875):
        assert (rows.loc[("norm_none", end), "mean"] < 0.8).all()


def test_names_are_unique_and_unknown_ones_are_refused():
    with pytest.raises(ValueError, match="registered already"):
        figure(title="again")(FIGURES["clip_objective"].drawing)
    with pytest.raises(KeyError, match="Known: "):
        named(["nope"])


# --- layout and gallery


@pytest.mark.parametrize(
    ("width", "inches"), [("6.5in", 6.5), ("16.51cm", 6.5), ("165.1 mm", 6.5), ("361.35pt", 5.0)]
)
def test_a_width_is_read_in_its_unit_and_every_file_has_it(tmp_path, width, inches):
    layout = layout_of(width, "light", None)
    assert layout.width == pytest.approx(inches)
    figured = FIGURES["clip_objective"]
    scale = inches / figured.draw(figured.data()).get_figwidth()
    svg, png, pdf = draw_as(figured, figured.data(), tmp_path, ["svg", "png", "pdf"], layout)
    assert (
        f'width="{inches:.6g}in" height="{scale * 4.2:.6g}in" viewBox="0 0 612' in svg.read_text()
    )
    with Image.open(png) as image:
        sizes = [pixels / image.info["dpi"][0] for pixels in image.size]
    assert sizes == pytest.approx([inches, scale * 4.2], abs=0.01)
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", pdf.read_bytes())
    assert [float(x) / 72 for x in box.groups()] == pytest.approx([inches, scale * 4.2])


@pytest.mark.parametrize(
    ("width", "theme", "style", "words"),
    [
        ("6.5", "light", None, r"width is '6.5': expected 3in to 40in, as a number with in, cm"),
        ("1cm", "light", None, r"width is '1cm': expected 3in"),
        (None, "blue", None, r"theme is 'blue': expected one of light, dark"),
        (None, "light", "font.sze: 3", r"line 1: matplotlib has no setting 'font.sze'"),
        (None, "light", "font.size: large one", r"own.mplstyle: Key font.size"),
    ],
)
def test_a_layout_that_is_none_is_refused(tmp_path, width, theme, style, words):
    path = None
    if style is not None:
        path = tmp_path / "own.mplstyle"
        path.write_text(style, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        layout_of(width, theme, path)


def test_a_style_sheet_of_ones_own_comes_last_and_the_dark_theme_is_dark(tmp_path):
    sheet = tmp_path / "own.mplstyle"
    sheet.write_text("# mine\nfont.family: monospace  # why\nfigure.titlesize: 20\n", "utf-8")
    figured = FIGURES["clip_objective"]
    drawn = figured.draw(figured.data(), layout_of(None, "dark", sheet))
    assert drawn._suptitle.get_fontsize() == 20
    assert drawn._suptitle.get_fontfamily() == ["monospace"]
    red, green, blue, _ = drawn.get_facecolor()
    assert red + green + blue < 0.5


def test_the_same_file_is_drawn_whatever_was_drawn_before(tmp_path):
    figured = FIGURES["clip_objective"]
    alone = draw_as(figured, figured.data(), tmp_path / "a", ["svg"], AS_COMMITTED)[0]
    after = draw_as(figured, figured.data(), tmp_path / "b", ["pdf", "svg"], AS_COMMITTED)[1]
    assert alone.read_bytes() == after.read_bytes()


def test_the_gallery_shows_every_figure_with_what_an_author_needs(tmp_path):
    pages = [path.read_text(encoding="utf-8") for path in gallery.write(tmp_path)]
    for name, figured in FIGURES.items():
        for page in map(html.unescape, pages):
            assert f'src="{name}.png"' in page
            assert f"data/{name}.csv" in page
            assert f"grpo-edu figures {name}" in page
            assert f"figure {name} of grpo_edu" in page
            assert figured.level in page
            assert " ".join(figured.alt.split()) in page
    assert "http" not in pages[1]
    assert gallery.check(tmp_path) == []
    (tmp_path / "index.html").write_text("old", encoding="utf-8")
    assert "index.html does not show the figures of today" in gallery.check(tmp_path)[0]
