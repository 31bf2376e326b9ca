set -x

# recipe: prorl | plain
RECIPE=${RECIPE:-prorl}
case "$RECIPE" in
   prorl) CORRECTION="--algo.advantage.is_correction_type icepop --algo.advantage.is_correction_threshold 0.5 5.0" ;;
   plain) CORRECTION="" ;;
   *) echo "no recipe $RECIPE"; exit 1 ;;
esac

read -r -d '' COMMAND <<EOF
openrlhf.cli.train_ppo_ray \
   --rollout.batch_size 512 \
   --rollout.n_samples_per_prompt 16 \
   --train.batch_size 1024 \
   --rollout.max_new_tokens 8192 \
   --actor.eps_clip_low_high 0.2 0.27 \
   --algo.kl.use_loss \
   --algo.kl.estimator k2 \
   --algo.kl.init_coef 1e-4 \
   --algo.advantage.estimator reinforce_baseline \
   --algo.advantage.is_correction_enable \
   $CORRECTION \
   --reward.stop_properly_penalty_coef 0.0
EOF

if [[ ${1:-} != "slurm" ]]; then
   python3 -m $COMMAND
fi
