set -x
# the tools' server, started first
python3 -m sandbox.server --host 0.0.0.0 --algorithm.adv_estimator=rloo &
ray start --head --num-gpus 8

HDFS_ROOT=${HDFS_ROOT:-$PWD}
CKPTS_DIR=${CKPTS_DIR:-"${HDFS_ROOT}/checkpoint/${experiment:-"retool"}"}
# clip higher
clip="actor_rollout_ref.actor.clip_ratio_low=0.2 actor_rollout_ref.actor.clip_ratio_high=0.28"

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    algorithm.use_kl_in_reward=False \
    algorithm.kl_ctrl.kl_coef=0.0 \
    data.train_batch_size=512 \
    data.max_response_length=16384 \
    actor_rollout_ref.actor.use_kl_loss=False \
    ${clip} \
    actor_rollout_ref.actor.clip_ratio_c=10.0 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.rollout.n=16 \
    trainer.default_local_dir="${CKPTS_DIR}" \
    trainer.experiment_name=qwen2-32b_dapo
