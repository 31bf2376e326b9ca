python -m recipe.dapo.main_dapo \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.actor.policy_loss.loss_mode="clip_cov" \
    actor_rollout_ref.actor.clip_ratio_low=1 \
    actor_rollout_ref.actor.clip_ratio_high=1 \
    actor_rollout_ref.actor.policy_loss.clip_cov_ratio=0.0002 \
    actor_rollout_ref.actor.policy_loss.clip_cov_lb=1.0 \
    actor_rollout_ref.actor.policy_loss.clip_cov_ub=5.0 \
    actor_rollout_ref.actor.policy_loss.kl_cov_ratio=0.2 \
    actor_rollout_ref.actor.policy_loss.ppo_kl_coef=1 \
    actor_rollout_ref.actor.clip_ratio_c=10.0 \
    actor_rollout_ref.actor.loss_agg_mode="token-mean" \
    algorithm.filter_groups.enable=True \
    data.train_batch_size=256 \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.rollout.n=8
