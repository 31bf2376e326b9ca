#!/bin/bash
# GSPO with TRL. The server for completions starts first.
set -euo pipefail

ROOT=${ROOT:-"${HOME}/gspo"}
MODEL=${1:-Qwen/Qwen2.5-3B}
CLIP="--importance_sampling_level sequence --epsilon 3e-4 --epsilon_high 4e-4"

trl vllm-serve --model "$MODEL" --beta 9 --tensor_parallel_size 2 &
SERVER=$!
until curl -s localhost:8000/health; do sleep 5; done

accelerate launch --config_file "${ACCELERATE_CONFIG:-"${ROOT}/zero3.yaml"}" examples/scripts/gspo.py \
    --model_name_or_path "$MODEL" \
    --max_completion_length 1024 \
    --per_device_train_batch_size 8 \
    --num_generations 8 \
    $CLIP \
    --output_dir "${OUTPUT:-"$ROOT/out/$(date +%m%d)"}" \
    --beta 0.0 \
    --loss_type grpo \
    --gradient_accumulation_steps 2 \
    --steps_per_generation 8

kill "$SERVER"
