#!/bin/bash
set -x
ray start --head --node-ip-address 0.0.0.0 --num-gpus 8

SAVE=${SAVE:-"${HOME}/checkpoint/$(basename "$0" .sh)"}
if [ -n "${WANDB_TOKEN:-}" ]; then
   LOGGER=(--logger.wandb.key "$WANDB_TOKEN")
else
   LOGGER=()
fi

ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/openrlhf"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --rollout.batch_size 128 \
   --rollout.n_samples_per_prompt 8 \
   --train.batch_size 128 \
   --algo.dynamic_filtering_enable \
   --algo.dynamic_filtering_range 0 1 \
   --actor.eps_clip_low_high 0.2 0.27 \
   --ckpt.output_dir "$SAVE" \
   "${LOGGER[@]}" \
   --algo.kl.use_loss \
   --algo.kl.estimator k3 \
   --algo.kl.init_coef 1e-3 \
   --algo.advantage.estimator group_norm \
   --algo.advantage.is_correction_enable
