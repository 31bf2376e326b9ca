# %% [markdown]
# # Exercises 8 · Read a config, and a project
#
# **Beside chapter 11.** Names are unreliable: *grpo* in verl pools tokens, a *DAPO* script keeps the std. Say what a file
# really runs, axis by axis, in the names of this library.

# %% [markdown] exercise="trl_config"
# Hint 1: what is not in the file has a default, and the defaults belong to a version.
#
# Hint 2: sequence mean up to 0.15; token mean of the micro-batch from 0.16; `dapo` from 0.22. The default of beta changed in 0.19.

# %% [markdown] exercise="verl_config"
# Hint 1: `adv_estimator` is one key, `loss_agg_mode` another.
#
# Hint 2: `low_var_kl` is the estimator that is never negative.

# %% [markdown] exercise="dapo_config"
# Hint 1: which part of the name DAPO is in the file, and which is not?
#
# Hint 2: `norm_adv_by_std_in_grpo` is not set.

# %% [markdown] exercise="gspo_config"
# Hint 1: with log-ratios of ±0.01 per token, how far from 1 is the geometric mean of 500 of them?
#
# Hint 2: the first lines are the child's, the clip is the parent's.

# %% [markdown] exercise="oat_config"
# Hint 1: Dr. GRPO drops two things.
#
# Hint 2: an optimiser step holds `train_batch_size` completions.

# %% [markdown] exercise="length_project"
# Train two losses on a policy that can only decide when to stop, with at least five seeds, and claim what the interval over seeds supports:
# the wrong answers of the first recipe end up `"longer"`, `"shorter"`, or `"no difference"` can be told. All three can be right. Change the
# policy, the group size, the number of steps, the recipes; try to make the bias show, then try to hide it. Level: simulated.
#
# Hint 1: the policy must be able to tell that it is on a wrong path (`mode="learnable"`), or the drifts of right and wrong answers mix. One call
# trains both: `train([recipe("grpo").but("grpo", kl=None), recipe("dr_grpo")], Stopping(mode="learnable"), Training(steps=40, learning_rate=2.0),
# seeds=8, learning_rates={"dr_grpo": 2.0 * 64 / 12})`. The last argument makes the first steps of both about equally large: Dr. GRPO divides by
# 64 where GRPO divides by some 12 tokens.
#
# Hint 2: `difference(table, "length_wrong", pair)` shows the interval that the checker looks at.

# %% exercise="length_project" role="answer"
from grpo_edu import recipe
from grpo_edu.course.project import difference
from grpo_edu.toys.stopping import Stopping, train
from grpo_edu.toys.training import Training

pair, table, claim = ("grpo", "dr_grpo"), None, None
### BEGIN SOLUTION
recipes = [recipe("grpo").but("grpo", kl=None), recipe("dr_grpo")]
# the constant C = 64 is divided out, so that both first steps are about equally large: mean length 12
table = train(
    recipes,
    Stopping(),
    Training(steps=40, learning_rate=2.0),
    seeds=8,
    learning_rates={"dr_grpo": 2.0 * 64 / 12},
)
claim = "longer"
### END SOLUTION
difference(table, "length_wrong", pair)
