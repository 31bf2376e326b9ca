#!/usr/bin/env bash
set -xeuo pipefail
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen3-8B}
train_batch_size=${TRAIN_BATCH_SIZE:-1024}
ppo_mini_batch_size=${PPO_MINI_BATCH_SIZE:-256}
max_response_length=${MAX_RESPONSE_LENGTH:-$((2 * 1024))}
if [ "${DEVICE:-cuda}" = "npu" ]; then
    train_batch_size=16
    ppo_mini_batch_size=16
fi
ALGORITHM=(
    algorithm.adv_estimator=grpo
    algorithm.use_kl_in_reward=False
    actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean
    actor_rollout_ref.actor.clip_ratio_low=0.4
    actor_rollout_ref.actor.clip_ratio_high=0.4
)
ACTOR=(
    actor_rollout_ref.actor.ppo_mini_batch_size=${ppo_mini_batch_size}
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=${KL_LOSS_COEF:-0.001}
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.actor.entropy_coeff=0
)
python3 -m verl.trainer.main_ppo \
    "${ALGORITHM[@]}" \
    data.train_batch_size=${train_batch_size} \
    data.max_response_length=${max_response_length} \
    actor_rollout_ref.model.path="$MODEL_PATH" \
    "${ACTOR[@]}" \
    actor_rollout_ref.rollout.n=${ROLLOUT_N:-5} \
    trainer.total_epochs=15 "$@"
